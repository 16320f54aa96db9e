package page

import (
	"fmt"
	"math"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/dustin/go-humanize"
	"github.com/dustin/go-humanize/english"

	"rcgrpo/reports/stats"
)

// Table is a table as a plain value; the writers lay it out.
type Table struct {
	ID      string   `json:"id"` // unique on the page: "main-test"
	Title   string   `json:"title"`
	Lead    string   `json:"lead,omitempty"` // one sentence above: the meaning of a row
	Columns []Column `json:"columns"`
	Rows    []Row    `json:"rows"`
	Notes   []string `json:"notes,omitempty"`  // below: how to read the table
	Folded  bool     `json:"folded,omitempty"` // behind a fold in HTML

	Omitted bool `json:"-"` // repeats another table, so that a page omits it; Reproduce computes it
}

// Column is the head of a column.
type Column struct {
	Name   string `json:"name"`
	Detail string `json:"detail,omitempty"` // printed smaller below the name; no part of it: "1500 episodes"
	Left   bool   `json:"left,omitempty"`   // text; numbers are aligned to the right

	Omitted bool `json:"-"` // has no values, so that a page omits it
}

// Columns returns columns with these heads. A "<" marks a column of text.
func Columns(heads ...string) []Column {
	var all []Column
	for _, head := range heads {
		name, left := strings.CutPrefix(head, "<")
		all = append(all, Column{Name: name, Left: left})
	}
	return all
}

// Row is one row. Arm selects the colour and marker of its swatch; NoArm shows none. A writer prints Group above the
// first of consecutive rows with the same one.
type Row struct {
	Arm   int    `json:"arm"`
	Group string `json:"group,omitempty"`
	Cells []Cell `json:"cells"`

	Look Look `json:"look,omitzero"`

	Omitted bool `json:"-"` // repeats another table, so that a page omits it
}

// NoArm is the Arm of a row or series that belongs to no arm.
const NoArm = -1

// Add appends a row of an arm, or of NoArm.
func (t *Table) Add(arm int, cells ...Cell) { t.Rows = append(t.Rows, Row{Arm: arm, Cells: cells}) }

// Trim removes the omitted parts of the table. It returns nil if nothing remains.
func (t *Table) Trim() *Table {
	if t == nil || t.Omitted {
		return nil
	}
	t.Rows = slices.DeleteFunc(t.Rows, func(r Row) bool { return r.Omitted })
	for c, column := range slices.Backward(t.Columns) {
		if column.Omitted {
			t.Columns = slices.Delete(t.Columns, c, c+1)
			for i := range t.Rows {
				t.Rows[i].Cells = slices.Delete(t.Rows[i].Cells, c, c+1)
			}
		}
	}
	if len(t.Rows) == 0 {
		return nil
	}
	return t
}

// groupHead returns the group of a row if the row above has another one.
func (t *Table) groupHead(row int) string {
	if row > 0 && t.Rows[row-1].Group == t.Rows[row].Group {
		return ""
	}
	return t.Rows[row].Group
}

// plainNumber matches a number without exponent and unit.
var plainNumber = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^[−+]?\d+(\.\d+)?$`) })

// pads returns the characters that follow each number so that the decimal points of a column are aligned: ".00" after
// 7 above 7.25.
func (t *Table) pads() [][]string {
	fraction := func(text string) string {
		_, digits, ok := strings.Cut(text, ".")
		if !ok {
			return ""
		}
		return "." + digits
	}
	longest := make([]string, len(t.Columns))
	for _, row := range t.Rows {
		for c, cell := range row.Cells {
			if f := fraction(cell.Text); plainNumber().MatchString(cell.Text) && len(f) > len(longest[c]) {
				longest[c] = "." + strings.Repeat("0", len(f)-1)
			}
		}
	}
	pads := make([][]string, len(t.Rows))
	for r, row := range t.Rows {
		pads[r] = make([]string, len(t.Columns))
		for c, cell := range row.Cells {
			if plainNumber().MatchString(cell.Text) && !t.Columns[c].Left && c > 0 {
				pads[r][c] = longest[c][len(fraction(cell.Text)):]
			}
		}
	}
	return pads
}

// CountOnce moves the numbers of episodes out of the cells into the heads of the columns, with a sentence about the
// rows that have other numbers. What a cell shows then depends on that cell alone.
func (t *Table) CountOnce() {
	counts := make([][]string, len(t.Rows)) // each row has "Overall 80", "Long context 18"
	often, usual, most := map[string]int{}, "", 0
	for r, row := range t.Rows {
		for c := range row.Cells {
			cell := &row.Cells[c]
			if cell.Counts == nil {
				continue
			}
			cell.Detail = strings.TrimPrefix(strings.TrimPrefix(cell.Detail, Fraction(*cell)), " · ")
			if c < len(t.Columns) && !t.Columns[c].Omitted {
				counts[r] = append(counts[r], t.Columns[c].Name+" "+humanize.Comma(int64(cell.Of)))
			}
		}
		text := strings.Join(counts[r], ", ")
		if often[text]++; text != "" && often[text] > often[usual] {
			usual, most = text, r
		}
	}
	if usual == "" {
		return
	}
	for c, cell := range t.Rows[most].Cells {
		if cell.Counts != nil {
			t.Columns[c].Detail = english.Plural(cell.Of, "episode", "")
		}
	}
	var others []string
	for r, row := range t.Rows {
		if text := strings.Join(counts[r], ", "); text != "" && text != usual && !strings.HasPrefix(usual, text+", ") {
			others = append(others, row.Cells[0].Text+": "+text)
		}
	}
	if len(others) > 3 {
		others = append(others[:3], fmt.Sprintf("%d more rows with other numbers (in the CSV file)", len(others)-3))
	}
	if len(others) > 0 {
		t.Lead = strings.TrimSpace(t.Lead + " Rows with other numbers of episodes: " + strings.Join(others, "; ") + ".")
	}
}

// Mark is an annotation of a cell.
type Mark string

const (
	MarkNone    Mark = ""
	MarkBest    Mark = "best"    // better than every other row by the tests of the page
	MarkDiffers Mark = "differs" // departs from the paper
)

// Cell is one value of a table.
type Cell struct {
	Text            string   `json:"text"`             // as printed: "85.0 %", "−0.151"
	Detail          string   `json:"detail,omitempty"` // printed smaller: "68/80 · 75.6 … 91.2"
	Value           *float64 `json:"value,omitempty"`  // the unrounded number of Text; nil for text
	*Counts                  // numbers of a share
	*stats.Interval          // in the unit of Value
	Mark            Mark     `json:"mark,omitempty"`
	Source          Source   `json:"-"`                // zero for fixed text
	SourceAt        int      `json:"source,omitempty"` // Source in Page.Sources, from 1; 0 without one
}

// Counts are the numbers of a share: Count of Of.
type Counts struct {
	Count int `json:"count"`
	Of    int `json:"of"`
}

// Text returns a cell of text.
func Text(format string, args ...any) Cell {
	if len(args) > 0 {
		format = fmt.Sprintf(format, args...)
	}
	return Cell{Text: format}
}

// Number returns a cell with a value, shown with three significant digits.
func Number(v float64) Cell {
	if math.IsNaN(v) {
		return Cell{Text: "–"}
	}
	return Cell{Text: Significant(v), Value: &v}
}

// Share returns a cell with a proportion of independent episodes: per cent, count and Wilson interval.
func Share(count, of int) Cell { return ShareCell(count, of, stats.Wilson(count, of, stats.Level)) }

// ShareCell returns a cell with a proportion: per cent, count and interval; a dash without episodes.
func ShareCell(count, of int, i stats.Interval) Cell {
	if of == 0 {
		return Cell{Text: "–"}
	}
	v := float64(count) / float64(of)
	c := Cell{Text: Percent(v), Detail: fmt.Sprintf("%d/%d", count, of), Value: &v, Counts: &Counts{count, of}}
	if i.Known() {
		c.Detail, c.Interval = c.Detail+" · "+PercentRange(i), &i
	}
	return c
}

// With returns the cell with a detail under its text.
func (c Cell) With(format string, args ...any) Cell {
	c.Detail = fmt.Sprintf(format, args...)
	return c
}

// From returns the cell with its source.
func (c Cell) From(source Source) Cell {
	c.Source = source
	return c
}

// Whole returns a cell with a count.
func Whole(n int) Cell {
	v := float64(n)
	return Cell{Text: fmt.Sprint(n), Value: &v}
}

// Line returns the text of the cell with its detail in parentheses.
func (c Cell) Line() string {
	if c.Detail == "" {
		return c.Text
	}
	return c.Text + " (" + c.Detail + ")"
}

// Percent formats a share as a percentage with one decimal.
func Percent(share float64) string {
	if math.IsNaN(share) {
		return "–"
	}
	return signed(fmt.Sprintf("%.1f\u00a0%%", 100*share))
}

// Points formats a difference of shares in percentage points, with its sign.
func Points(difference float64) string {
	text := fmt.Sprintf("%+.1f", 100*difference)
	if text == "+0.0" || text == "-0.0" {
		return "0.0"
	}
	return signed(text)
}

// PercentRange formats the interval of a share in per cent, without the sign.
func PercentRange(i stats.Interval) string {
	return signed(Range(fmt.Sprintf("%.1f", 100*i.Low), fmt.Sprintf("%.1f", 100*i.High)))
}

// Range writes both ends of an interval, the only notation of a page: "−1.4 to +2.4".
func Range(low, high string) string { return low + "\u00a0to\u00a0" + high }

// Significant formats a number with three significant digits, without an exponent if that is short.
func Significant(v float64) string {
	switch size := math.Abs(v); {
	case math.IsNaN(v):
		return "–"
	case math.IsInf(v, 0):
		return signed(strings.TrimPrefix(strconv.FormatFloat(v, 'g', -1, 64), "+"))
	case v == 0:
		return "0"
	case size < 1e-4 || size >= 1e6:
		return signed(strconv.FormatFloat(v, 'e', 2, 64))
	case size >= 100:
		return signed(strconv.FormatFloat(v, 'f', 0, 64))
	default:
		return signed(strconv.FormatFloat(v, 'f', 2-int(math.Floor(math.Log10(size))), 64))
	}
}

func signed(text string) string { return strings.ReplaceAll(text, "-", "−") }

// Probability formats a p-value with three decimals, or as "< 0.001".
func Probability(p float64) string {
	switch {
	case math.IsNaN(p):
		return "–"
	case p < 0.001:
		return "<\u00a00.001"
	case p > 0.999:
		return "1"
	}
	return strconv.FormatFloat(p, 'f', 3, 64)
}

// Slug converts foreign text to a part of an element id or file name: at most 80 letters, digits and hyphens.
func Slug(text string) string {
	id := []byte(Prefix(text, 80))
	for i, c := range id {
		switch {
		case c >= 'a' && c <= 'z', c >= '0' && c <= '9':
		case c >= 'A' && c <= 'Z':
			id[i] = c + 'a' - 'A'
		default:
			id[i] = '-'
		}
	}
	return string(id)
}

// Fraction returns the counts of a share: "68/80".
func Fraction(c Cell) string { return fmt.Sprintf("%d/%d", c.Count, c.Of) }

// Prefix returns at most n bytes of a text.
func Prefix(text string, n int) string { return text[:min(n, len(text))] }

// Lines returns the lines of the cell's detail.
func (c Cell) Lines() []string {
	if c.Detail == "" {
		return nil
	}
	return strings.Split(c.Detail, " · ")
}
