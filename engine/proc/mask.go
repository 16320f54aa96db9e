package proc

import (
	"bytes"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"regexp"
	"slices"
	"strings"
	"time"
)

// Secrets replaces secret values by *** wherever foreign text contains them: as they are, with characters escaped as
// in JSON, Go, HTML or URLs (once or more often), in base64 and in hexadecimal digits. A nil *Secrets replaces nothing.
type Secrets struct {
	pattern *regexp.Regexp
	longest int // bytes of a match
}

// NewSecrets returns the replacement of values, each of whose lines is a secret; nil without any.
func NewSecrets(values ...string) *Secrets {
	var lines []string
	for _, value := range values {
		for line := range strings.Lines(value) {
			if line = strings.Trim(line, "\r\n"); line != "" {
				lines = append(lines, line)
			}
		}
	}
	if len(lines) == 0 {
		return nil
	}
	slices.SortFunc(lines, func(a, b string) int { return len(b) - len(a) }) // one may contain another
	var forms []string
	for _, line := range lines {
		var escaped strings.Builder
		for _, r := range line {
			escaped.WriteString(character(r))
		}
		forms = append(forms, escaped.String())
		if len(line) >= leastEncoded {
			for _, text := range []string{base64.StdEncoding.EncodeToString([]byte(line)),
				base64.URLEncoding.EncodeToString([]byte(line))} {
				forms = append(forms, regexp.QuoteMeta(strings.TrimRight(text, "="))+"=*")
			}
			forms = append(forms, "(?i:"+hex.EncodeToString([]byte(line))+")")
		}
	}
	pattern, err := regexp.Compile(strings.Join(forms, "|"))
	if err != nil { // too long for a pattern: the values alone
		for i, line := range lines {
			lines[i] = regexp.QuoteMeta(line)
		}
		pattern, _ = regexp.Compile(strings.Join(lines, "|"))
	}
	return &Secrets{pattern, longestCharacter * len(lines[0])}
}

const (
	leastEncoded     = 8  // bytes of a secret whose encodings are not found in ordinary text
	longestCharacter = 10 // bytes of an escaped character
)

// character returns the pattern of a character and its escaped forms.
func character(r rune) string {
	forms := []string{regexp.QuoteMeta(string(r)), fmt.Sprintf(`(?i:&#x0*%x;?)`, r), fmt.Sprintf(`&#0*%d;?`, r),
		fmt.Sprintf(`(?i:\\+u%04x)`, r)}
	for _, escape := range []string{`%%%02x`, `\\+x%02x`} {
		bytes := ""
		for _, b := range []byte(string(r)) {
			bytes += fmt.Sprintf(escape, b)
		}
		forms = append(forms, "(?i:"+bytes+")")
	}
	return `\\*(?:` + strings.Join(forms, "|") + `)`
}

// Mask returns the text without secrets.
func (s *Secrets) Mask(text string) string {
	if s == nil {
		return text
	}
	return s.pattern.ReplaceAllLiteralString(text, "***")
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
