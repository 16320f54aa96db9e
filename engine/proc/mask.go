package proc

import (
	"bytes"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"html"
	"io"
	"net/url"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf16"
)

// Secrets replaces secret values by *** wherever foreign text contains them: as they are, and as JSON, Go, HTML, URLs,
// base64 and hexadecimal digits have them. If other escape sequences hide one, also within each other, the whole text
// is decoded. A nil *Secrets replaces nothing. The work does not depend on the number of secrets: each line of a
// private key is one.
type Secrets struct {
	forms   *strings.Replacer
	longest int // bytes of a secret with each character escaped
}

// NewSecrets returns the replacement of values, each of whose lines is a secret; nil without any.
func NewSecrets(values ...string) *Secrets {
	s, forms := &Secrets{}, []string{}
	for _, value := range values {
		for line := range strings.Lines(value) {
			if line = strings.Trim(line, "\r\n"); line != "" {
				s.longest = max(s.longest, longestCharacter*len(line))
				forms = append(forms, formsOf(line)...)
			}
		}
	}
	if len(forms) == 0 {
		return nil
	}
	slices.SortFunc(forms, func(a, b string) int { return len(b) - len(a) }) // one may contain another
	var pairs []string
	for _, form := range forms {
		pairs = append(pairs, form, "***")
	}
	s.forms = strings.NewReplacer(pairs...)
	return s
}

// Encodings of a secret with leastEncoded bytes are not found in ordinary text. An escaped character has at most
// longestCharacter bytes.
const leastEncoded, longestCharacter = 8, 12

// formsOf returns a secret as it is, and as common encoders write it.
func formsOf(secret string) []string {
	inJSON, _ := json.Marshal(secret) // a text always has a form
	forms := []string{secret, html.EscapeString(secret), url.QueryEscape(secret), url.PathEscape(secret),
		strings.ReplaceAll(secret, " ", "+")} // what remains in a query whose other characters are decoded
	for _, quoted := range []string{string(inJSON), strconv.Quote(secret), strconv.QuoteToASCII(secret)} {
		forms = append(forms, quoted[1:len(quoted)-1])
	}
	if text := []byte(secret); len(text) >= leastEncoded {
		digits := hex.EncodeToString(text)
		forms = append(forms, digits, strings.ToUpper(digits))
		for _, code := range []*base64.Encoding{base64.StdEncoding, base64.URLEncoding} {
			forms = append(forms, code.EncodeToString(text), code.WithPadding(base64.NoPadding).EncodeToString(text))
		}
	}
	return forms
}

// Mask returns the text without secrets.
func (s *Secrets) Mask(text string) string {
	if s == nil {
		return text
	}
	return s.mask(text, 2)
}

// mask replaces the secrets in a text, and in the texts that at most depth decoders return one after another.
func (s *Secrets) mask(text string, depth int) string {
	text = s.forms.Replace(text)
	if depth == 0 {
		return text
	}
	for _, decode := range decoders {
		if decoded := decode(text); decoded != text {
			if masked := s.mask(decoded, depth-1); masked != decoded {
				text = masked
			}
		}
	}
	return text
}

// decoders replace the escape sequences of HTML, of URLs, and of JSON and Go.
var decoders = []func(text string) string{
	html.UnescapeString,
	func(text string) string { return percent.ReplaceAllStringFunc(text, unescape) },
	func(text string) string { return backslash.ReplaceAllStringFunc(text, unescape) },
}

var (
	percent   = regexp.MustCompile(`%[0-9a-fA-F]{2}`)
	backslash = regexp.MustCompile(`\\(?:U[0-9a-fA-F]{8}|(?i:ud[89ab][0-9a-f]{2}\\ud[c-f][0-9a-f]{2}|u[0-9a-f]{4}|` +
		`u\{[0-9a-f]{1,6}\}|x[0-9a-f]{2})|[0-3][0-7]{2}|[\x00-\x7f])`)
)

// unescape returns the text of one escape sequence.
func unescape(sequence string) string {
	digits := strings.Trim(sequence, `%\uUxX{}`)
	code := func(digits string, base int) rune {
		n, _ := strconv.ParseUint(digits, base, 32) // they are digits
		return rune(n)
	}
	switch short := strings.IndexByte("abtnvfr", sequence[1]); {
	case len(sequence) == 2 && short >= 0:
		return string(rune('\a' + short))
	case len(sequence) == 2:
		return sequence[1:]
	case len(digits) == 10: // two parts of UTF-16
		return string(utf16.DecodeRune(code(digits[:4], 16), code(digits[6:], 16)))
	case sequence == `\`+digits: // a byte in octal digits
		return string([]byte{byte(code(digits, 8))})
	case len(digits) == 2 && !strings.HasSuffix(sequence, "}"): // a byte
		return string([]byte{byte(code(digits, 16))})
	}
	return string(code(digits, 16))
}

// Error returns err, whose text is masked; nil if it is nil. What it wraps is unchanged.
func (s *Secrets) Error(err error) error {
	if s == nil || err == nil || s.Mask(err.Error()) == err.Error() {
		return err
	}
	return &maskedError{err, s.Mask(err.Error())}
}

type maskedError struct {
	err  error
	text string
}

func (e *maskedError) Error() string { return e.text }
func (e *maskedError) Unwrap() error { return e.err }

// mask is a writer that replaces every secret by ***. It works line by line, and by pieces in very long lines.
type mask struct {
	to      io.Writer
	secrets *Secrets
	pending []byte // the unfinished line
}

// maxPending limits a line without an end.
const maxPending = 64 << 10

func (m *mask) Write(text []byte) (int, error) {
	end := bytes.LastIndexAny(text, "\r\n") + 1
	if end > 0 {
		end += len(m.pending)
	}
	m.pending = append(m.pending, text...)
	if end == 0 && len(m.pending) > maxPending { // only the last bytes can be part of a secret that follows
		m.pending = []byte(m.secrets.Mask(string(m.pending)))
		end = max(0, len(m.pending)-m.secrets.longest)
	}
	return len(text), m.writeOut(end)
}

// Flush writes the last line, which may lack its end.
func (m *mask) Flush() error { return m.writeOut(len(m.pending)) }

func (m *mask) writeOut(end int) error {
	_, err := io.WriteString(m.to, m.secrets.Mask(string(m.pending[:end])))
	m.pending = append(m.pending[:0], m.pending[end:]...)
	return err
}

// Reader returns the text of r without secrets. It returns whole lines as soon as they are read.
func (s *Secrets) Reader(r io.Reader) io.Reader {
	if s == nil {
		return r
	}
	m := &maskReader{from: r}
	m.mask = mask{to: &m.ready, secrets: s}
	return m
}

type maskReader struct {
	from  io.Reader
	mask  mask
	ready bytes.Buffer
	chunk [32 << 10]byte
	err   error
}

func (m *maskReader) Read(p []byte) (int, error) {
	for m.ready.Len() == 0 && m.err == nil {
		n, err := m.from.Read(m.chunk[:])
		m.mask.Write(m.chunk[:n]) // a buffer takes everything
		if m.err = err; err != nil {
			m.mask.Flush()
		}
	}
	if m.ready.Len() > 0 {
		return m.ready.Read(p)
	}
	return 0, m.err
}

// OpenOutput returns a file for the output of a program, and a function to call after its end. It is the log itself,
// unless the log is no file or the output contains secrets; then it is a pipe that this process reads and masks.
func OpenOutput(log io.Writer, secrets []string) (out *os.File, finish func() error, err error) {
	if f, ok := log.(*os.File); ok && len(secrets) == 0 {
		return f, func() error { return nil }, nil
	}
	read, write, err := os.Pipe()
	if err != nil {
		return nil, nil, err
	}
	masked := &mask{to: log, secrets: NewSecrets(secrets...)}
	copied := make(chan error, 1)
	go func() {
		_, err := io.Copy(masked, read)
		copied <- errors.Join(err, masked.Flush())
	}()
	return write, func() error {
		write.Close()
		read.SetReadDeadline(time.Now().Add(time.Second)) // a process that escaped may keep the pipe open
		err := <-copied
		read.Close()
		if errors.Is(err, os.ErrDeadlineExceeded) {
			return nil
		}
		return err
	}, nil
}
