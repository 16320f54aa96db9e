// Package output writes the answers of a command: text for the width of a terminal, tables and JSON.
package output

import (
	"bufio"
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"syscall"

	"golang.org/x/term"

	"rcgrpo/reports/page"
)

// Writer is the standard output of a command. It stores the first error: a command whose output is lost must not exit
// with 0.
type Writer struct {
	file   *os.File
	stderr io.Writer
	err    error
}

// New returns the standard output; stderr gets the first error.
func New(file *os.File, stderr io.Writer) *Writer { return &Writer{file: file, stderr: stderr} }

func (w *Writer) Write(b []byte) (int, error) {
	n, err := w.file.Write(b)
	if err != nil && w.err == nil {
		w.err = err
		if errors.Is(err, syscall.EPIPE) {
			fmt.Fprintln(w.stderr, "rcgrpo: standard output was closed; the command continues without it")
		} else {
			fmt.Fprintf(w.stderr, "rcgrpo: %v\n", err)
		}
	}
	return n, err
}

// Fd returns the descriptor, so that a Writer may be a terminal.
func (w *Writer) Fd() uintptr { return w.file.Fd() }

// Lost reports whether something could not be written. A reader that closed the pipe is no error.
func (w *Writer) Lost() bool { return w.err != nil && !errors.Is(w.err, syscall.EPIPE) }

// JSON prints a value, indented.
func JSON(w io.Writer, v any) error {
	e := json.NewEncoder(Data(w))
	e.SetEscapeHTML(false)
	e.SetIndent("", "  ")
	return e.Encode(v)
}

// descriptor is a writer that may be a terminal.
type descriptor interface{ Fd() uintptr }

// Colored reports whether a writer is a terminal that shows colours.
func Colored(w io.Writer) bool {
	return os.Getenv("NO_COLOR") == "" && IsTerminal(w)
}

// IsTerminal reports whether a stream is a terminal.
func IsTerminal(stream any) bool {
	f, ok := stream.(descriptor)
	return ok && term.IsTerminal(int(f.Fd()))
}

// DefaultWidth is the width of tables and texts without a terminal.
const DefaultWidth = 100

// TerminalSize returns the size of the terminal that w is: 80 by 24 if it reports none or one below 20 by 5, 0 by 0 if
// w is no terminal.
func TerminalSize(w io.Writer) (width, height int) {
	if !IsTerminal(w) {
		return 0, 0
	}
	width, height, err := term.GetSize(int(w.(descriptor).Fd()))
	if err != nil || width < 20 || height < 5 {
		return 80, 24
	}
	return width, height
}

// Table is a table that is written as text.
type Table struct{ page.Table }

// NewTable returns a table. A "<" before its name marks a column of text.
func NewTable(title string, columns ...string) *Table {
	return &Table{page.Table{Title: title, Columns: page.Columns(columns...)}}
}

// Row adds a row. A cell is a page.Cell or any value that fmt prints; an empty string is shown as "-".
func (t *Table) Row(cells ...any) {
	row := page.Row{Arm: page.NoArm}
	for _, value := range cells {
		cell, ok := value.(page.Cell)
		if !ok {
			cell = page.Text("%s", cmp.Or(fmt.Sprint(value), "-"))
		}
		row.Cells = append(row.Cells, cell)
	}
	t.Rows = append(t.Rows, row)
}

// Write prints the table below a heading.
func (t *Table) Write(w io.Writer, heading string, width int) error {
	var b bytes.Buffer
	p := page.Page{Sections: []page.Section{{Title: heading, Parts: []page.Part{{Table: &t.Table}}}}}
	if err := p.Text(&b, width); err != nil {
		return err
	}
	_, err := fmt.Fprintln(w, "\n"+strings.Trim(b.String(), "\n"))
	return err
}

// LineReader returns a function that reads the next line of stdin, or io.EOF; on a terminal with a prompt.
// The terminal is in raw mode only while a line is read.
func LineReader(stdin io.Reader, stdout io.Writer) (next func() (string, error)) {
	stdout = Raw(stdout)
	in, ok := stdin.(*os.File)
	if !ok || !IsTerminal(stdout) || !IsTerminal(in) {
		lines := bufio.NewReader(stdin)
		return func() (string, error) {
			line, err := lines.ReadString('\n')
			if line != "" { // the last line may have no end
				err = nil
			}
			return strings.TrimRight(line, "\r\n"), err
		}
	}
	editor := term.NewTerminal(struct {
		io.Reader
		io.Writer
	}{in, stdout}, "> ")
	return func() (string, error) {
		state, err := term.MakeRaw(int(in.Fd()))
		if err != nil {
			return "", err
		}
		line, err := editor.ReadLine()
		if errors.Is(err, io.EOF) { // ^D leaves the cursor behind the prompt
			fmt.Fprint(stdout, "\r\n")
		}
		return line, errors.Join(err, term.Restore(int(in.Fd()), state))
	}
}
