package proc

import (
	"bytes"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"html"
	"io"
	"os"
	"regexp"
	"strconv"
	"strings"
	"time"
	"unicode/utf16"
)

// Secrets replaces secret values by *** wherever foreign text contains them: as they are, with characters escaped as
// in JSON, Go, HTML or URLs (one of them in another too), in base64 and in hexadecimal digits. A nil *Secrets replaces
// nothing.
// The work for a text hardly depends on the number of secrets, since each line of a private key is one.
type Secrets struct {
	lines   [256][]string // by their first byte
	codes   [256][]string // in base64 and hexadecimal digits, by their first byte with caseBit
	longest int           // bytes of a match
}

// NewSecrets returns the replacement of values, each of whose lines is a secret; nil without any.
func NewSecrets(values ...string) *Secrets {
	s := &Secrets{}
	for _, value := range values {
		for line := range strings.Lines(value) {
			if line = strings.Trim(line, "\r\n"); line == "" {
				continue
			}
			s.longest = max(s.longest, longestCharacter*len(line))
			s.lines[line[0]] = append(s.lines[line[0]], line)
			for _, code := range []string{base64.RawStdEncoding.EncodeToString([]byte(line)),
				base64.RawURLEncoding.EncodeToString([]byte(line)), hex.EncodeToString([]byte(line))} {
				if len(line) >= leastEncoded {
					s.codes[code[0]|caseBit] = append(s.codes[code[0]|caseBit], code)
				}
			}
		}
	}
	if s.longest == 0 {
		return nil
	}
	return s
}

const (
	leastEncoded     = 8  // bytes of a secret whose encodings are not found in ordinary text
	longestCharacter = 12 // bytes of an escaped character
	longestEscape    = 32 // bytes of an escape sequence that is read
	caseBit          = 'a' - 'A'
)

// Mask returns the text without secrets.
func (s *Secrets) Mask(text string) string {
	if s == nil {
		return text
	}
	text = replace(text, s.find(text))
	if !strings.ContainsAny(text, `&%\`) {
		return text
	}
	once, at, nested := decode(text)
	if !nested {
		return text
	}
	found := s.find(once)
	for i, offset := range found {
		found[i] = at[offset]
	}
	return replace(text, found)
}

// find returns the offsets of the starts and ends of secrets.
func (s *Secrets) find(text string) (found []int) {
	for i := 0; i < len(text); {
		slashes := backslashes(text[i:])
		if end := s.match(text[i:], slashes); end > 0 {
			found = append(found, i, i+end)
			i += end
		} else {
			i += slashes + 1 // the character after the backslashes was compared too
		}
	}
	return found
}

func replace(text string, found []int) string {
	var masked strings.Builder
	written := 0
	for i := 0; i < len(found); i += 2 {
		masked.WriteString(text[written:found[i]] + "***")
		written = found[i+1]
	}
	return masked.String() + text[written:]
}

// decode returns a text with its escape sequences decoded once, the offset in the text of each byte and of the end, and
// whether there may be escape sequences within escape sequences.
func decode(text string) (once string, at []int, nested bool) {
	var out strings.Builder
	for i := 0; i < len(text); {
		keep := backslashes(text[i:])
		char, n := escaped(text[i+keep:], keep > 0)
		if n > 0 && !strings.Contains("&%", text[i+keep:i+keep+1]) {
			keep, n = keep-1, n+1 // the others may be backslashes of the text
		} else if n == 0 && keep == 0 {
			keep = 1
		}
		for range keep {
			at = append(at, i+len(at)-out.Len())
		}
		out.WriteString(text[i : i+keep])
		for range len(char) {
			at = append(at, i+keep)
		}
		out.WriteString(char)
		nested = nested || strings.ContainsAny(char, `&#;%\`)
		i += keep + n
	}
	return out.String(), append(at, len(text)), nested
}

// match returns the length of the longest secret at the start of a text with that number of backslashes before its
// first character; 0: none.
func (s *Secrets) match(text string, slashes int) (end int) {
	rest, first := text[slashes:], ""
	if slashes > 0 {
		first = `\`
	}
	if rest != "" {
		char, _ := escaped(rest, slashes > 0)
		first += rest[:1] + string([]byte{short(rest[0], slashes > 0)}) + char[:min(1, len(char))]
		for _, code := range s.codes[rest[0]|caseBit] {
			if n := len(code); n <= len(rest) && strings.EqualFold(rest[:n], code) {
				end = max(end, len(text)-len(strings.TrimLeft(rest[n:], "=")))
			}
		}
	}
	for i := range len(first) {
		if strings.IndexByte(first, first[i]) == i {
			for _, line := range s.lines[first[i]] {
				end = max(end, match(text, line))
			}
		}
	}
	return end
}

// match returns the length of a secret at the start of a text, any characters of which may be escaped; -1: none.
func match(text, line string) (at int) {
	for ; line != ""; line = line[1:] {
		next := at + backslashes(text[at:])
		if char, n := escaped(text[next:], next > at); n > 0 && strings.HasPrefix(line, char) {
			if rest := match(text[next+n:], line[len(char):]); rest >= 0 {
				return next + n + rest
			} // the secret has such a sequence itself
		}
		if line[0] == '\\' && next > at {
			at++
		} else if next == len(text) || text[next] != line[0] && short(text[next], next > at) != line[0] {
			return -1
		} else {
			at = next + 1
		}
	}
	return at
}

// short returns the byte that one of a text represents in a URL or, behind a backslash, in JSON and Go.
func short(b byte, slash bool) byte {
	if code := strings.IndexByte("abtnvfr", b); slash && code >= 0 {
		return '\a' + byte(code)
	}
	if b == '+' {
		return ' '
	}
	return b
}

func backslashes(text string) int { return len(text) - len(strings.TrimLeft(text, `\`)) }

var escape = regexp.MustCompile(`^(?:(?i:(&(?:#x[0-9a-f]+;?|#[0-9]+;?|[a-z]+;))|u(d[89ab][0-9a-f]{2})\\{1,8}` +
	`u(d[c-f][0-9a-f]{2}))|U([0-9a-fA-F]{8})|(?i:u([0-9a-f]{4}))|(?i:[x%]([0-9a-f]{2})))`)

// escaped returns the character, or the byte of one, that an escape sequence at the start of a text represents, and the
// length of the sequence without its backslashes; 0: none.
func escaped(text string, slash bool) (char string, n int) {
	if text == "" || text[0] != '&' && text[0] != '%' && !(slash && strings.Contains("uUxX", text[:1])) {
		return "", 0
	}
	m := escape.FindStringSubmatch(text[:min(len(text), longestEscape)])
	if m == nil {
		return "", 0
	}
	if m[1] != "" {
		return html.UnescapeString(m[1]), len(m[1])
	}
	code, _ := strconv.ParseUint(m[2]+m[4]+m[5]+m[6], 16, 32)
	low, _ := strconv.ParseUint(m[3], 16, 32)
	switch {
	case m[6] != "":
		return string([]byte{byte(code)}), len(m[0])
	case m[3] != "":
		return string(utf16.DecodeRune(rune(code), rune(low))), len(m[0])
	}
	return string(rune(code)), len(m[0])
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
