package page

import (
	"encoding/csv"
	"encoding/json"
	"errors"
	"io"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// CSV returns the table as rows of text, the first being the head, for its CSV file. Numbers are unrounded (shares as
// shares of one). The other fields of the cells follow their column: count and of, low and high, other details, mark,
// source.
func (t *Table) CSV() [][]string {
	rows := make([][]string, len(t.Rows)+1)
	for i, column := range t.Columns {
		for _, field := range t.fields(i) {
			name := column.Name
			if field.name != "" {
				name += ", " + field.name
			}
			rows[0] = append(rows[0], name)
			for r, row := range t.Rows {
				text := ""
				if i < len(row.Cells) {
					text = field.of(row.Cells[i])
				}
				rows[r+1] = append(rows[r+1], text)
			}
		}
	}
	return rows
}

type field struct {
	name string
	of   func(Cell) string
}

// fields returns the fields that any cell of a column has, the value first.
func (t *Table) fields(column int) []field {
	numeric := t.any(column, func(c Cell) bool { return c.Value != nil })
	fields := []field{{"", func(c Cell) string {
		switch {
		case c.Value != nil:
			return exact(*c.Value)
		case numeric:
			return ""
		}
		return c.Text
	}}}
	optional := func(name string, has func(Cell) bool, of func(Cell) string) {
		if t.any(column, has) {
			fields = append(fields, field{name, func(c Cell) string {
				if !has(c) {
					return ""
				}
				return of(c)
			}})
		}
	}
	share := func(c Cell) bool { return c.Counts != nil }
	bounds := func(c Cell) bool { return c.Interval != nil && c.Interval.Known() }
	optional("count", share, func(c Cell) string { return strconv.Itoa(c.Count) })
	optional("of", share, func(c Cell) string { return strconv.Itoa(c.Of) })
	optional("low", bounds, func(c Cell) string { return exact(c.Interval.Low) })
	optional("high", bounds, func(c Cell) string { return exact(c.Interval.High) })
	optional("detail", func(c Cell) bool { return c.Detail != "" && c.Counts == nil && c.Interval == nil },
		func(c Cell) string { return c.Detail })
	optional("mark", func(c Cell) bool { return c.Mark != MarkNone }, func(c Cell) string { return string(c.Mark) })
	optional("source", func(c Cell) bool { return c.Source.By != "" }, func(c Cell) string { return c.Source.String() })
	return fields
}

func (t *Table) any(column int, has func(Cell) bool) bool {
	return slices.ContainsFunc(t.Rows, func(r Row) bool { return column < len(r.Cells) && has(r.Cells[column]) })
}

// exact formats a number without loss; "" for NaN.
func exact(v float64) string {
	if math.IsNaN(v) {
		return ""
	}
	return strconv.FormatFloat(v, 'g', -1, 64)
}

// csvText returns rows as comma-separated values.
func csvText(rows [][]string) string {
	var text strings.Builder
	csv.NewWriter(&text).WriteAll(Inert(rows)) // a builder accepts every write
	return text.String()
}

// Inert returns rows in which no cell is a formula of a spreadsheet: a text that would be one begins with a quote.
func Inert(rows [][]string) [][]string {
	all := make([][]string, len(rows))
	for i, row := range rows {
		for _, cell := range row {
			if _, err := strconv.ParseFloat(cell, 64); err != nil && strings.IndexAny(cell, "=+-@＝＋－＠\t\r\n") == 0 {
				cell = "'" + cell
			}
			all[i] = append(all[i], cell)
		}
	}
	return all
}

// JSON writes the page as data, for programs. NaN and infinite numbers are left out.
func (p *Page) JSON(w io.Writer) error {
	if err := p.Draw(); err != nil {
		return err
	}
	e := json.NewEncoder(w)
	e.SetIndent("", " ")
	return e.Encode(p)
}

// finite returns nil for a number that JSON cannot represent.
func finite(v *float64) *float64 {
	if v == nil || math.IsNaN(*v) || math.IsInf(*v, 0) {
		return nil
	}
	return v
}

// WriteCSV writes a file for each table and figure into a new folder.
func (p *Page) WriteCSV(folder string) error {
	if err := os.Mkdir(folder, 0o755); err != nil {
		return err
	}
	write := func(id string, rows [][]string) error {
		return os.WriteFile(filepath.Join(folder, id+".csv"), []byte(csvText(rows)), 0o644)
	}
	var errs []error
	for _, t := range p.Tables() {
		errs = append(errs, write(t.ID, t.CSV()))
	}
	for _, f := range p.Figures() {
		errs = append(errs, write(f.ID, f.CSV()))
	}
	return errors.Join(errs...)
}
