package lint

import (
	"cmp"
	"encoding/csv"
	"fmt"
	"io"
	"slices"
	"strings"
)

// ReadTable reads a table of percentages from CSV: a header, then rows. The last cells of a row, one for each
// denominator, are percentages ("4.54%", "4.54 %" or "4.54"), in Markdown's **bold** or __underlined__ if the table
// marked them. The cells before them name the row. If there are two, the first is its block, and an empty cell repeats
// the block above. overall names the column over all tasks; with "" it is the first column whose denominator is the sum
// of the other denominators, if there is one.
func ReadTable(r io.Reader, denominators []int, overall string) (Table, error) {
	t := Table{Denominators: denominators, Overall: -1}
	if len(denominators) == 0 {
		return t, fmt.Errorf("no denominators; name one for each column of percentages")
	}
	for _, n := range denominators {
		if n < 1 {
			return t, fmt.Errorf("a denominator is the number of tasks behind a column, at least 1; got %d", n)
		}
	}
	rows, err := csv.NewReader(r).ReadAll() // checks that every row is as long as the header
	if err != nil {
		return t, fmt.Errorf("read the table: %w", err)
	}
	if len(rows) < 2 {
		return t, fmt.Errorf("the table has %d rows; want a header and at least one row below it", len(rows))
	}
	names := len(rows[0]) - len(denominators)
	if names < 1 || names > 2 {
		return t, fmt.Errorf("the table has %d columns and there are %d denominators; want one or two columns of names "+
			"before the percentages", len(rows[0]), len(denominators))
	}
	for _, name := range rows[0][names:] {
		t.Columns = append(t.Columns, strings.TrimSpace(name))
	}
	if t.Overall, err = overallColumn(t.Columns, denominators, overall); err != nil {
		return t, err
	}
	block := ""
	for _, cells := range rows[1:] {
		if names == 2 {
			block = cmp.Or(strings.TrimSpace(cells[0]), block)
		}
		row := Row{Block: block, Name: strings.TrimSpace(cells[names-1])}
		for _, text := range cells[names:] {
			row.Cells = append(row.Cells, ParseCell(text))
		}
		t.Rows = append(t.Rows, row)
	}
	return t, nil
}

// overallColumn returns the index of the column over all tasks, -1 for none.
func overallColumn(columns []string, denominators []int, name string) (int, error) {
	if name != "" {
		i := slices.Index(columns, name)
		if i < 0 {
			return -1, fmt.Errorf("no column is called %q; there are %s", name, strings.Join(columns, ", "))
		}
		return i, nil
	}
	if len(denominators) < 3 { // one other column is not a sum
		return -1, nil
	}
	all := 0
	for _, n := range denominators {
		all += n
	}
	return slices.IndexFunc(denominators, func(n int) bool { return n == all-n }), nil
}

// ParseCell reads a percentage with its marks: "**48.75%**" is bold, "__46.25%__" underlined.
func ParseCell(text string) Cell {
	c := Cell{Text: strings.TrimSpace(text)}
	for len(c.Text) > 4 {
		mark := c.Text[:2]
		if mark != "**" && mark != "__" || !strings.HasSuffix(c.Text, mark) {
			break
		}
		c.Bold, c.Underline = c.Bold || mark == "**", c.Underline || mark == "__"
		c.Text = strings.TrimSpace(c.Text[2 : len(c.Text)-2])
	}
	return c
}
