package reports

import (
	"fmt"
	"io"
	"math"
	"strings"

	"github.com/olekukonko/tablewriter"
	"github.com/olekukonko/tablewriter/renderer"
	"github.com/olekukonko/tablewriter/tw"
)

// Text writes the page for a terminal of the given width: tables in full, curves as one line of blocks each.
func (p *Page) Text(w io.Writer, width int) error {
	out := &sticky{w: w}
	out.line(clean(p.Title))
	for _, text := range []string{p.Question, prefixed("expected: ", p.Expect)} {
		if text != "" {
			out.wrapped(clean(text), width)
		}
	}
	out.line("")
	for _, answer := range p.Answers {
		out.wrapped("→ "+clean(answer), width)
	}
	for _, fact := range p.Facts {
		out.wrapped("· "+clean(fact), width)
	}
	for _, f := range p.Failures {
		out.line("")
		out.wrapped("MISSING "+clean(f.Address)+": "+clean(f.Cause), width)
		for _, l := range f.Log {
			out.line("  | " + clean(l))
		}
	}
	for _, s := range p.Sections {
		out.line("")
		out.line("── " + s.Title + " " + strings.Repeat("─", max(0, width-len([]rune(s.Title))-4)))
		if s.Lead != "" {
			out.wrapped(clean(s.Lead), width)
		}
		for _, part := range s.Parts {
			out.line("")
			switch {
			case part.Table != nil:
				if err := part.Table.text(out, width); err != nil {
					return err
				}
			case part.Figure != nil:
				part.Figure.text(out, width)
			case part.Transcripts != nil:
				out.wrapped(clean(part.Transcripts.summary())+", in the HTML page", width)
			default:
				out.wrapped(clean(part.Text), width)
			}
		}
	}
	return out.err
}

// text lays a table out with tablewriter. Details stand beside their value where the terminal is wide enough, below it
// otherwise; a table that is still too wide is continued below with its first column again.
func (t *Table) text(out *sticky, width int) error {
	out.wrapped(clean(t.Title), width)
	if t.Lead != "" {
		out.wrapped(clean(t.Lead), width)
	}
	var rows [][]string
	for _, write := range []func(Cell) string{
		func(c Cell) string { return marked(c, clean(c.line())) },
		func(c Cell) string { return strings.TrimSuffix(marked(c, clean(c.Text))+"\n"+clean(c.Detail), "\n") },
		func(c Cell) string {
			return strings.TrimSuffix(marked(c, clean(c.Text))+"\n"+strings.ReplaceAll(clean(c.Detail), " · ", "\n"), "\n")
		},
	} {
		if rows = t.rows(write); sum(t.widths(rows)) <= width {
			break
		}
	}
	widths := t.widths(rows)
	for _, row := range rows { // words that no terminal has room for beside the first column
		for i := 1; i < len(row); i++ {
			row[i] = broken(row[i], max(20, width-widths[0]-2))
		}
	}
	widths = t.widths(rows)
	for from := 1; from < len(t.Columns) || from == 1; {
		to, used := from, widths[0]
		for to < len(t.Columns) && (to == from || used+widths[to] <= width) {
			used += widths[to]
			to++
		}
		if err := t.textPart(out, rows, from, to); err != nil {
			return fmt.Errorf("table %s: %w", t.ID, err)
		}
		from = max(to, from+1)
	}
	for _, note := range t.Notes {
		out.wrapped("  "+clean(note), width)
	}
	return out.err
}

// textPart writes the first column and those from, up to and without to.
func (t *Table) textPart(out *sticky, rows [][]string, from, to int) error {
	pick := func(cells []string) []string { return append([]string{cells[0]}, cells[from:to]...) }
	head := make([]string, len(t.Columns))
	align := make([]tw.Align, 0, to-from+1)
	for i, c := range t.Columns {
		head[i] = clean(c.Name)
		switch {
		case i == 0 || i >= from && i < to && c.Left:
			align = append(align, tw.AlignLeft)
		case i >= from && i < to:
			align = append(align, tw.AlignRight)
		}
	}
	table := tablewriter.NewTable(out,
		tablewriter.WithRenderer(renderer.NewBlueprint(tw.Rendition{
			Borders: tw.Border{Left: tw.Off, Right: tw.Off, Top: tw.Off, Bottom: tw.Off},
			Symbols: tw.NewSymbols(tw.StyleLight),
			Settings: tw.Settings{
				Separators: tw.Separators{BetweenColumns: tw.Off, BetweenRows: tw.Off},
				Lines:      tw.Lines{ShowHeaderLine: tw.On, ShowTop: tw.Off, ShowBottom: tw.Off, ShowFooterLine: tw.Off},
			},
		})),
		tablewriter.WithHeaderAutoFormat(tw.Off),
		tablewriter.WithHeaderAutoWrap(tw.WrapNone),
		tablewriter.WithRowAutoWrap(tw.WrapNone),
		tablewriter.WithAlignment(align),
		tablewriter.WithHeaderAlignmentConfig(tw.CellAlignment{PerColumn: align}),
	)
	table.Header(pick(head))
	for _, row := range rows {
		if err := table.Append(pick(row)); err != nil {
			return err
		}
	}
	return table.Render()
}

func (t *Table) rows(write func(Cell) string) [][]string {
	rows := make([][]string, len(t.Rows))
	for i, r := range t.Rows {
		rows[i] = make([]string, len(t.Columns))
		for j, c := range r.Cells {
			rows[i][j] = write(c)
		}
	}
	return rows
}

// widths are the columns' widths with their padding.
func (t *Table) widths(rows [][]string) []int {
	widths := make([]int, len(t.Columns))
	for i, c := range t.Columns {
		widths[i] = len([]rune(c.Name)) + 2
		for _, r := range rows {
			for line := range strings.SplitSeq(r[i], "\n") {
				widths[i] = max(widths[i], len([]rune(line))+2)
			}
		}
	}
	return widths
}

func sum(values []int) int {
	sum := 0
	for _, v := range values {
		sum += v
	}
	return sum
}

func marked(c Cell, text string) string {
	switch c.Mark {
	case MarkBest:
		return text + " ★"
	case MarkDiffers:
		return text + " ≠"
	}
	return text
}

// text draws each series as a line of blocks between the two values that the tables have of it.
func (f *Figure) text(out *sticky, width int) {
	note := f.Note
	if f.Categories == nil && f.Lanes == nil && f.Diagonal == "" {
		note += " " + f.numbers()
		if f.Smooth > 1 {
			note += fmt.Sprintf(" Blocks: moving average over %d %ss.", f.Smooth, f.X)
		}
	}
	out.wrapped(clean(f.Title)+prefixed(" – ", clean(strings.TrimSpace(note))), width)
	if f.Categories != nil || f.Diagonal != "" {
		for _, row := range f.data()[1:] {
			out.line("  " + clean(strings.Join(row, "  ")))
		}
		return
	}
	names := 0
	if f.Lanes != nil {
		for _, lane := range f.Lanes {
			names = max(names, len([]rune(lane)))
		}
		places := max(10, min(80, width-names-3))
		for i, lane := range f.Lanes {
			out.line(fmt.Sprintf("  %-*s %s", names, clean(lane), sparkline(f.coverage(i, places), 0, 1, places)))
		}
		return
	}
	low, high := math.Inf(1), math.Inf(-1)
	for _, s := range f.Series {
		names = max(names, len([]rune(s.full())))
		for _, v := range movingAverage(s.mean(), f.Smooth) {
			if !math.IsNaN(v) {
				low, high = math.Min(low, v), math.Max(high, v)
			}
		}
	}
	for _, s := range f.Series {
		y := movingAverage(s.mean(), f.Smooth)
		first, last := s.values()
		out.line(fmt.Sprintf("  %-*s %8s %s %s", names, clean(s.full()), significant(first),
			sparkline(y, low, high, max(10, min(60, width-names-24))), significant(last)))
	}
}

// sparkline draws values between low and high with eight heights, averaging where there are more values than
// places.
func sparkline(y []float64, low, high float64, places int) string {
	const blocks = "▁▂▃▄▅▆▇█"
	places = min(places, len(y))
	var b strings.Builder
	for i := range places {
		sum, n := 0.0, 0
		for _, v := range y[i*len(y)/places : (i+1)*len(y)/places] {
			if !math.IsNaN(v) {
				sum += v
				n++
			}
		}
		switch {
		case n == 0:
			b.WriteByte(' ')
		case high > low:
			b.WriteRune([]rune(blocks)[int(math.Round(7*(sum/float64(n)-low)/(high-low)))])
		default:
			b.WriteRune('▄')
		}
	}
	return b.String()
}

func firstOf(y []float64) float64 {
	for _, v := range y {
		if !math.IsNaN(v) {
			return v
		}
	}
	return math.NaN()
}

func lastOf(y []float64) float64 {
	for i := len(y) - 1; i >= 0; i-- {
		if !math.IsNaN(y[i]) {
			return y[i]
		}
	}
	return math.NaN()
}

// clean takes control characters out of foreign text, so that a log cannot steer the terminal.
func clean(text string) string {
	return strings.Map(func(r rune) rune {
		if r < ' ' || r >= 0x7f && r < 0xa0 {
			return ' '
		}
		return r
	}, text)
}

func prefixed(prefix, text string) string {
	if text == "" {
		return ""
	}
	return prefix + text
}

// sticky is a writer that keeps its first error.
type sticky struct {
	w   io.Writer
	err error
}

func (s *sticky) Write(p []byte) (int, error) {
	if s.err != nil {
		return 0, s.err
	}
	n, err := s.w.Write(p)
	s.err = err
	return n, err
}

func (s *sticky) line(text string) { fmt.Fprintln(s, strings.TrimRight(text, " ")) }

// broken is text in lines of at most width, broken at spaces; a longer word stays whole.
func broken(text string, width int) string {
	var lines []string
	for line := range strings.SplitSeq(text, "\n") {
		for len([]rune(line)) > width {
			at := strings.LastIndexByte(string([]rune(line)[:width]), ' ')
			if at <= 0 {
				break
			}
			lines = append(lines, line[:at])
			line = line[at+1:]
		}
		lines = append(lines, line)
	}
	return strings.Join(lines, "\n")
}

// wrapped writes a paragraph in lines of at most width, broken at spaces.
func (s *sticky) wrapped(text string, width int) {
	line := ""
	for _, word := range strings.Split(text, " ") {
		if line != "" && len([]rune(line))+1+len([]rune(word)) > width {
			s.line(line)
			line = "  " + word
			continue
		}
		if line != "" {
			line += " "
		}
		line += word
	}
	s.line(line)
}
