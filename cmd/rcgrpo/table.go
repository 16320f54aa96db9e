package main

import (
	"bytes"
	"fmt"
	"io"
	"strings"

	"rcgrpo/reports"
)

// table is a table for the terminal.
type table struct{ reports.Table }

// newTable returns a table. A column whose name starts with < is aligned to the left.
func newTable(title string, columns ...string) *table {
	t := &table{reports.Table{ID: "table", Title: title}}
	for _, name := range columns {
		name, left := strings.CutPrefix(name, "<")
		t.Columns = append(t.Columns, reports.Column{Name: name, Left: left})
	}
	return t
}

// row adds a row. A cell is a reports.Cell or any value that fmt prints; an empty string is shown as "-".
func (t *table) row(cells ...any) {
	row := reports.Row{Arm: reports.NoArm}
	for _, cell := range cells {
		switch cell := cell.(type) {
		case reports.Cell:
			row.Cells = append(row.Cells, cell)
		case string:
			if cell == "" {
				cell = "-"
			}
			row.Cells = append(row.Cells, reports.Text("%s", cell))
		default:
			row.Cells = append(row.Cells, reports.Text("%v", cell))
		}
	}
	t.Rows = append(t.Rows, row)
}

// write prints the table below a heading.
func (t *table) write(w io.Writer, heading string, width int) error {
	var b bytes.Buffer
	page := reports.Page{Sections: []reports.Section{{Title: heading, Parts: []reports.Part{{Table: &t.Table}}}}}
	if err := page.Text(&b, width); err != nil {
		return err
	}
	_, err := fmt.Fprintln(w, "\n"+strings.Trim(b.String(), "\n"))
	return err
}
