package output

import (
	"bytes"
	"io"
	"slices"
	"sync"
	"unicode/utf8"

	"rcgrpo/cmd/rcgrpo/internal/display"
)

// Text writes text for people. It replaces the characters that could control a terminal, wherever they come from:
// files, names, records, servers. Only the colours of this program pass, if the writer shows colours.
type Text struct {
	w       io.Writer
	colours bool

	mu   sync.Mutex
	rest []byte // begins a character
}

// NewText returns a writer of text.
func NewText(w io.Writer) *Text { return &Text{w: w, colours: Colored(w)} }

// colours are the sequences of this program.
var colours = [][]byte{[]byte("\x1b[0m"), []byte("\x1b[1m"), []byte("\x1b[2m"), []byte("\x1b[31m"), []byte("\x1b[32m"),
	[]byte("\x1b[33m"), []byte("\x1b[34m"), []byte("\x1b[36m"), []byte("\x1b[31;1m"), []byte("\x1b[33;1m")}

// Write writes the text. A character whose last bytes are missing is written with the next text.
func (t *Text) Write(text []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	in := append(t.rest, text...)
	out := make([]byte, 0, len(in))
	for len(in) > 0 && utf8.FullRune(in) {
		at := -1
		if t.colours && in[0] == '\x1b' {
			at = slices.IndexFunc(colours, func(c []byte) bool { return bytes.HasPrefix(in, c) })
		}
		if at >= 0 {
			out, in = append(out, colours[at]...), in[len(colours[at]):]
			continue
		}
		r, n := utf8.DecodeRune(in)
		out, in = utf8.AppendRune(out, display.Printable(r)), in[n:]
	}
	t.rest = slices.Clone(in)
	_, err := t.w.Write(out)
	return len(text), err
}

// Fd returns the descriptor of the writer, so that Text may be a terminal.
func (t *Text) Fd() uintptr {
	if f, ok := t.w.(descriptor); ok {
		return f.Fd()
	}
	return ^uintptr(0)
}

// Raw returns the writer below a Text, for callers that write sequences of their own or escape foreign text themselves.
func Raw(w io.Writer) io.Writer {
	if t, ok := w.(*Text); ok {
		return t.w
	}
	return w
}

// Data returns the writer of data such as JSON, which must not change on the way to a file or a program. A terminal
// gets it as text.
func Data(w io.Writer) io.Writer {
	if IsTerminal(w) {
		return w
	}
	return Raw(w)
}
