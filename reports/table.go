package reports

import (
	"fmt"
	"math"
	"strconv"
	"strings"
)

// Table is a table as a plain value; the renderers only lay it out.
type Table struct {
	ID      string // ours, unique on the page: "main-test"
	Title   string
	Lead    string // one sentence above: what a row is
	Columns []Column
	Rows    []Row
	Notes   []string // below: how to read it
	Folded  bool     // shown behind a fold in HTML
}

// Column is the head of a column.
type Column struct {
	Name string
	Left bool // words; numbers stand to the right
}

// Row is one line. Arm picks the colour of its swatch, NoArm shows none.
type Row struct {
	Arm   int
	Cells []Cell
}

// NoArm is the Arm of a row or series that belongs to no arm.
const NoArm = -1

// Mark is what is said about a cell besides its value.
type Mark string

const (
	MarkNone    Mark = ""
	MarkBest    Mark = "best"    // better than every other row by the tests of the page
	MarkDiffers Mark = "differs" // departs from the paper
)

// Cell is one value with what it rests on.
type Cell struct {
	Text     string   // as printed: "85.0 %", "−0.151"
	Detail   string   // printed smaller: "68/80 · 75.6 … 91.2"
	Value    *float64 // the number behind Text, unrounded; nil for words
	Count    int      // of Of; Of 0 means that the value is no share
	Of       int
	Interval *Interval // in the unit of Value
	Mark     Mark
	Source   Source // what it was computed from; zero for words of our own
}

// Words is a cell of text.
func Words(format string, args ...any) Cell {
	if len(args) > 0 {
		format = fmt.Sprintf(format, args...)
	}
	return Cell{Text: format}
}

// Number is a cell with a value, shown with three significant digits.
func Number(v float64) Cell {
	if math.IsNaN(v) {
		return Cell{Text: "–"}
	}
	return Cell{Text: significant(v), Value: &v}
}

// Share is a cell with a proportion of independent episodes: per cent, count and Wilson interval.
func Share(count, of int) Cell { return shareCell(count, of, Wilson(count, of, Level)) }

// shareCell is a cell with a proportion: per cent, count and interval; a dash without episodes.
func shareCell(count, of int, i Interval) Cell {
	if of == 0 {
		return Cell{Text: "–"}
	}
	v := float64(count) / float64(of)
	c := Cell{Text: percent(v), Detail: fmt.Sprintf("%d/%d", count, of), Value: &v, Count: count, Of: of}
	if i.Known() {
		c.Detail, c.Interval = c.Detail+" · "+i.percent(), &i
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

// line is the whole cell in one line, for Markdown and terminals.
func (c Cell) line() string {
	if c.Detail == "" {
		return c.Text
	}
	return c.Text + " (" + c.Detail + ")"
}

// percent writes a share as a percentage with one decimal.
func percent(share float64) string {
	if math.IsNaN(share) {
		return "–"
	}
	return signed(strconv.FormatFloat(100*share, 'f', 1, 64)) + "\u00a0%"
}

// points writes a difference of shares in percentage points, with its sign.
func points(difference float64) string {
	text := strconv.FormatFloat(100*difference, 'f', 1, 64)
	if text == "-0.0" {
		text = "0.0"
	}
	if !strings.HasPrefix(text, "-") && text != "0.0" {
		text = "+" + text
	}
	return signed(text)
}

// percent writes the interval of a share in per cent, without the sign.
func (i Interval) percent() string {
	return signed(fmt.Sprintf("%.1f\u00a0…\u00a0%.1f", 100*i.Low, 100*i.High))
}

// significant writes a number with three significant digits, without an exponent where that stays short.
func significant(v float64) string {
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

// signed gives negative numbers a real minus sign.
func signed(text string) string { return strings.ReplaceAll(text, "-", "−") }

// probability writes a p-value.
func probability(p float64) string {
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
