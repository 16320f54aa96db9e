package main

import (
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

	"rcgrpo/cmd/rcgrpo/internal/display"
	"rcgrpo/reports/page"
)

// output is the standard output of a command. It stores the first error: a command whose output is lost must not exit
// with 0.
type output struct {
	file   *os.File
	stderr io.Writer
	err    error
}

func (o *output) Write(b []byte) (int, error) {
	n, err := o.file.Write(b)
	if err != nil && o.err == nil {
		o.err = err
		if errors.Is(err, syscall.EPIPE) {
			fmt.Fprintln(o.stderr, "rcgrpo: standard output was closed; the command continues without it")
		} else {
			fmt.Fprintf(o.stderr, "rcgrpo: %v\n", err)
		}
	}
	return n, err
}

func (o *output) Fd() uintptr { return o.file.Fd() }

// code returns the exit code of the process for the exit code of a command. A reader that closed the pipe is no error.
func (o *output) code(code int) int {
	if code == exitDone && o.err != nil && !errors.Is(o.err, syscall.EPIPE) {
		return exitFailed
	}
	return code
}

func printJSON(w io.Writer, v any) error {
	e := json.NewEncoder(w)
	e.SetEscapeHTML(false)
	e.SetIndent("", "  ")
	return e.Encode(v)
}

// descriptor is a writer that may be a terminal.
type descriptor interface{ Fd() uintptr }

// colored reports whether a writer is a terminal that shows colours.
func colored(w io.Writer) bool {
	return os.Getenv("NO_COLOR") == "" && isTerminal(w)
}

func isTerminal(stream any) bool {
	f, ok := stream.(descriptor)
	return ok && term.IsTerminal(int(f.Fd()))
}

// terminalSize returns the size of the terminal that w is: 80 by 24 if it reports none or one below 20 by 5, 0 by 0 if
// w is no terminal.
func terminalSize(w io.Writer) (width, height int) {
	if !isTerminal(w) {
		return 0, 0
	}
	width, height, err := term.GetSize(int(w.(descriptor).Fd()))
	if err != nil || width < 20 || height < 5 {
		return 80, 24
	}
	return width, height
}

// printable replaces the characters of a foreign text that could control the terminal.
func printable(text string) string { return strings.Map(display.Printable, text) }

type table struct{ page.Table }

// newTable returns a table. A "<" before its name marks a column of text.
func newTable(title string, columns ...string) *table {
	return &table{page.Table{Title: title, Columns: page.Columns(columns...)}}
}

// row adds a row. A cell is a page.Cell or any value that fmt prints; an empty string is shown as "-".
func (t *table) row(cells ...any) {
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

func (t *table) write(w io.Writer, heading string, width int) error {
	var b bytes.Buffer
	p := page.Page{Sections: []page.Section{{Title: heading, Parts: []page.Part{{Table: &t.Table}}}}}
	if err := p.Text(&b, width); err != nil {
		return err
	}
	_, err := fmt.Fprintln(w, "\n"+strings.Trim(b.String(), "\n"))
	return err
}
