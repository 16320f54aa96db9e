package proc

import (
	"bytes"
	"errors"
	"io"
	"os"
	"slices"
	"strings"
	"time"
)

// mask is a writer that replaces every secret by ***. It works line by line, and by pieces in very long lines.
type mask struct {
	to      io.Writer
	secrets *strings.Replacer
	longest int
	pending []byte // the unfinished line
}

// SecretLines returns the non-empty lines of a secret. Each of them is masked by itself.
func SecretLines(secret string) (lines []string) {
	for line := range strings.Lines(secret) {
		if line = strings.Trim(line, "\r\n"); line != "" {
			lines = append(lines, line)
		}
	}
	return lines
}

func newMask(to io.Writer, secrets []string) *mask {
	var lines, pairs []string
	for _, s := range secrets {
		lines = append(lines, SecretLines(s)...)
	}
	slices.SortFunc(lines, func(a, b string) int { return len(b) - len(a) }) // one may contain another
	m := &mask{to: to}
	for _, line := range lines {
		pairs, m.longest = append(pairs, line, "***"), max(m.longest, len(line))
	}
	m.secrets = strings.NewReplacer(pairs...)
	return m
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
		m.pending = []byte(m.secrets.Replace(string(m.pending)))
		end = max(0, len(m.pending)-m.longest)
	}
	return len(text), m.writeOut(end)
}

// Flush writes the last line, which may lack its end.
func (m *mask) Flush() error { return m.writeOut(len(m.pending)) }

func (m *mask) writeOut(end int) error {
	_, err := m.secrets.WriteString(m.to, string(m.pending[:end]))
	m.pending = append(m.pending[:0], m.pending[end:]...)
	return err
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
	masked := newMask(log, secrets)
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
