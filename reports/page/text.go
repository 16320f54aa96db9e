package page

import (
	"cmp"
	"fmt"
	"io"
	"math"
	"slices"
	"strings"

	"github.com/mitchellh/go-wordwrap"

	"rcgrpo/reports/stats"
)

// format describes the layout of a page in a text format. Strings are formats of package fmt for escaped text.
type format struct {
	escape                                                      func(string) string
	title, name, expect, answer, run, limit, failure, log, lead string
	section, transcripts                                        string

	width  int // of a line; 0: lines are not wrapped
	table  func(*Table, *document)
	figure func(*Figure, *document)
}

// Text writes the page for a terminal of the given width: complete tables, and one line of blocks for each curve.
func (p *Page) Text(w io.Writer, width int) error {
	return p.write(w, format{
		escape: clean, title: "%s", name: "experiment: %s", expect: "expected: %s", answer: "→ %s",
		run: "\n%s", limit: "· %s",
		failure: "MISSING %s: %s", log: "  | %s", section: "── %s ", lead: "%s", transcripts: "%s, in the HTML page",
		width:  width,
		table:  func(t *Table, d *document) { t.text(d, width) },
		figure: func(f *Figure, d *document) { f.text(d, width) },
	})
}

// Markdown writes the page as GitHub-flavoured Markdown: complete tables, and of each curve two numbers.
func (p *Page) Markdown(w io.Writer) error {
	return p.write(w, format{
		escape: escaped, title: "# %s", name: "\nExperiment: %s", expect: "\nExpected: %s", answer: "- **%s**",
		run: "\n%s", limit: "- %s",
		failure: "**%s** %s\n", log: "    %s", section: "## %s", lead: "\n%s", transcripts: "- %s, in the HTML page",
		table: (*Table).markdown, figure: (*Figure).markdown,
	})
}

// write writes the page in a format. The heads of sections are filled with a rule up to the width.
func (p *Page) write(w io.Writer, f format) error {
	d := new(document)
	paragraph := func(format string, texts ...string) {
		if texts[0] == "" {
			return
		}
		var args []any
		for _, text := range texts {
			args = append(args, f.escape(text))
		}
		d.wrapped(fmt.Sprintf(format, args...), f.width)
	}
	parts := func(parts []Part) {
		for _, part := range parts {
			d.line("")
			switch {
			case part.Table != nil:
				f.table(part.Table, d)
			case part.Figure != nil:
				f.figure(part.Figure, d)
			default:
				paragraph(f.transcripts, part.Transcripts.Summary())
			}
		}
	}
	d.wrapped(fmt.Sprintf(f.title, f.escape(cmp.Or(p.Question, p.Title))), f.width)
	if p.Question != "" {
		paragraph(f.name, p.Title)
	}
	paragraph(f.expect, p.Expect)
	d.line("")
	for _, answer := range p.Answers {
		paragraph(f.answer, answer.String())
	}
	parts(p.First.Parts)
	paragraph(f.run, p.Run)
	if len(p.Limits) > 0 {
		d.line("")
		paragraph(f.lead, p.LimitsTitle())
		d.line("")
	}
	for _, limit := range p.Limits {
		paragraph(f.limit, limit)
	}
	for _, failure := range p.Failures {
		d.line("")
		paragraph(f.failure, failure.Address, failure.Cause)
		for _, l := range failure.Log {
			d.line(fmt.Sprintf(f.log, clean(l)))
		}
	}
	for _, s := range p.Sections {
		head := fmt.Sprintf(f.section, f.escape(s.Title))
		d.line("\n" + head + strings.Repeat("─", max(0, f.width-len([]rune(head)))))
		paragraph(f.lead, s.Lead)
		parts(s.Parts)
	}
	for i, c := range p.Checks() {
		if i == 0 {
			d.line("\n" + fmt.Sprintf(f.section, "Check this page"))
		}
		paragraph(f.limit, strings.TrimSpace(c.Text+" "+c.Command))
	}
	return d.writeTo(w)
}

// LimitsTitle is the heading of the limits, with their number.
func (p *Page) LimitsTitle() string { return fmt.Sprintf("Limits of this result (%d)", len(p.Limits)) }

// text writes the table with its title and notes. Details are beside their value if the terminal is wide enough, below
// it otherwise. A table that is still too wide continues below with its first column repeated.
func (t *Table) text(out *document, width int) {
	title := clean(t.Title)
	if t.ID != "" {
		title += " [" + t.ID + "]"
	}
	out.wrapped(title, width)
	if t.Lead != "" {
		out.wrapped(clean(t.Lead), width)
	}
	var rows [][]string
	below := func(c Cell, separator string) string {
		detail := strings.ReplaceAll(clean(c.Detail), " · ", separator)
		return strings.TrimSuffix(marked(c, clean(c.Text))+"\n"+detail, "\n")
	}
	for _, write := range []func(Cell) string{
		func(c Cell) string { return marked(c, clean(c.Line())) },
		func(c Cell) string { return below(c, " · ") },
		func(c Cell) string { return below(c, "\n") },
	} {
		rows = t.rows(write)
		sum := 0
		for _, w := range t.widths(rows) {
			sum += w
		}
		if sum <= width {
			break
		}
	}
	widths := t.widths(rows)
	for r, pads := range t.pads() {
		for c, pad := range pads {
			if first, rest, ok := strings.Cut(rows[r][c], "\n"); ok && first == t.Rows[r].Cells[c].Text {
				rows[r][c] = first + strings.Repeat("\u00a0", len(pad)) + "\n" + rest
			}
		}
	}
	for _, row := range rows { // long text beside a wide first column
		for i := 1; i < len(row); i++ {
			row[i] = wordwrap.WrapString(row[i], uint(max(20, width-widths[0]-2)))
		}
	}
	widths = t.widths(rows)
	for _, columns := range split(widths, width) {
		t.textPart(out, rows, columns)
	}
	for _, note := range t.Notes {
		out.wrapped("  "+clean(note), width)
	}
}

// split divides columns into parts that are at most as wide as a line, each with the first column.
func split[N int | float64](widths []N, line N) (parts [][]int) {
	for next := 1; next < len(widths) || parts == nil; {
		columns, used := []int{0}, widths[0]
		for next < len(widths) && (len(columns) == 1 || used+widths[next] <= line) {
			columns, used = append(columns, next), used+widths[next]
			next++
		}
		parts = append(parts, columns)
	}
	return parts
}

// textPart writes the head, a rule and the rows of some columns, each as wide as its longest line.
func (t *Table) textPart(out *document, rows [][]string, columns []int) {
	widths := t.widths(rows)
	for r := range rows {
		if group := t.groupHead(r); group != "" {
			widths[0] = max(widths[0], len([]rune(groupRule+clean(group)))+2)
		}
	}
	line := func(cells []string) {
		for i, c := range columns {
			width, text := widths[c]-2, ""
			if c == 0 || t.Columns[c].Left {
				width = -width
			}
			if i < len(cells) {
				text = cells[i]
			}
			fmt.Fprintf(out, " %*s ", width, text)
		}
		out.WriteString("\n")
	}
	var head []string
	rule := ""
	for _, c := range columns {
		head, rule = append(head, clean(t.Columns[c].Name)), rule+strings.Repeat("─", widths[c])
	}
	line(head)
	out.line(rule)
	for r, row := range rows {
		if group := t.groupHead(r); group != "" {
			line([]string{groupRule + clean(group)})
		}
		var cells [][]string // lines of each column
		height := 0
		for _, c := range columns {
			cells = append(cells, strings.Split(row[c], "\n"))
			height = max(height, len(cells[len(cells)-1]))
		}
		for i := range height {
			var texts []string
			for _, lines := range cells {
				texts = append(texts, slices.Concat(lines, make([]string, height))[i])
			}
			line(texts)
		}
	}
}

// groupRule precedes the name of a group of rows.
const groupRule = "── "

func (t *Table) rows(write func(Cell) string) [][]string {
	rows := make([][]string, len(t.Rows))
	for i, r := range t.Rows {
		rows[i] = make([]string, len(t.Columns))
		for j, c := range r.Cells {
			rows[i][j] = write(c)
		}
		if len(rows[i]) > 0 {
			rows[i][0] = r.Look.glyph() + rows[i][0]
		}
	}
	return rows
}

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

func marked(c Cell, text string) string {
	switch c.Mark {
	case MarkBest:
		return text + " ★"
	case MarkDiffers:
		return text + " ≠"
	}
	return text
}

// text writes each series as a line of blocks between its two numbers.
func (f *Figure) text(out *document, width int) {
	note := f.Note
	if f.curves() {
		note += " " + f.numbers()
		if f.Smooth > 1 {
			note += fmt.Sprintf(" Blocks: moving average over %d %ss.", f.Smooth, f.X)
		}
	}
	out.wrapped(strings.TrimSuffix(clean(f.Title)+" – "+clean(strings.TrimSpace(note)), " – "), width)
	names := 0
	for _, lane := range f.Lanes {
		names = max(names, len([]rune(lane)))
	}
	switch places := max(10, min(80, width-names-3)); {
	case f.Scale != "": // the table below has the numbers
		return
	case f.Effects != nil:
		for _, line := range f.forestText(width) {
			out.line("  " + clean(line))
		}
		return
	case f.Categories != nil || f.Diagonal != "":
		for _, row := range f.CSV()[1:] {
			out.line("  " + clean(strings.Join(row, "  ")))
		}
		return
	case f.Lanes != nil:
		for i, lane := range f.Lanes {
			out.line(fmt.Sprintf("  %-*s %s", names, clean(lane), Sparkline(f.coverage(i, places), 0, 1, places)))
		}
		return
	}
	extent := map[bool]stats.Interval{} // by panel
	for _, s := range f.Series {
		names = max(names, len([]rune(s.Look.glyph()+s.full())))
		for _, v := range movingAverage(s.mean(), f.Smooth) {
			if at, known := extent[s.Lower]; !known && !math.IsNaN(v) {
				extent[s.Lower] = stats.Interval{Low: v, High: v}
			} else if !math.IsNaN(v) {
				extent[s.Lower] = stats.Interval{Low: min(at.Low, v), High: max(at.High, v)}
			}
		}
	}
	for _, s := range f.Series {
		y, low, high := movingAverage(s.mean(), f.Smooth), extent[s.Lower].Low, extent[s.Lower].High
		first, last := s.values()
		out.line(fmt.Sprintf("  %-*s %8s %s %s", names, clean(s.Look.glyph()+s.full()), Significant(first),
			Sparkline(y, low, high, max(10, min(60, width-names-24))), Significant(last)))
	}
}

// Sparkline returns at most n blocks of eight heights between low and high. Each block is the mean of its values.
func Sparkline(y []float64, low, high float64, n int) string {
	n = min(n, len(y))
	var b strings.Builder
	for i := range n {
		logged := slices.DeleteFunc(slices.Clone(y[i*len(y)/n:(i+1)*len(y)/n]), math.IsNaN)
		switch mean := stats.Mean(logged); {
		case len(logged) == 0:
			b.WriteByte(' ')
		case high > low:
			b.WriteRune([]rune(StripBlocks)[int(math.Round(7*(mean-low)/(high-low)))])
		default:
			b.WriteRune('▄')
		}
	}
	return b.String()
}

// clean replaces control characters of foreign text, so that a log cannot control the terminal.
func clean(text string) string {
	return strings.Map(func(r rune) rune {
		if r < ' ' || r >= 0x7f && r < 0xa0 {
			return ' '
		}
		return r
	}, text)
}

// document collects the text of a page.
type document struct{ strings.Builder }

// writeTo writes the whole text.
func (d *document) writeTo(w io.Writer) error {
	_, err := io.WriteString(w, d.String())
	return err
}

func (d *document) line(text string) { d.WriteString(strings.TrimRight(text, " ") + "\n") }

// wrapped writes a paragraph in lines of at most width, with following lines indented; with a width of 0 in one line.
func (d *document) wrapped(text string, width int) {
	if width == 0 {
		d.line(text)
		return
	}
	for i, line := range strings.Split(wordwrap.WrapString(text, uint(width-2)), "\n") {
		if i > 0 {
			line = "  " + line
		}
		d.line(line)
	}
}

func (t *Table) markdown(out *document) {
	out.line("### " + escaped(t.Title) + "\n\n`" + t.ID + "`\n")
	if t.Lead != "" {
		out.line(escaped(t.Lead) + "\n")
	}
	head, rule := "|", "|"
	for i, c := range t.Columns {
		head += " " + escaped(c.Name) + " |"
		if c.Left || i == 0 {
			rule += "---|"
		} else {
			rule += "--:|"
		}
	}
	out.line(head)
	out.line(rule)
	for i, r := range t.Rows {
		if group := t.groupHead(i); group != "" {
			out.line("| *" + escaped(group) + "* |" + strings.Repeat(" |", len(t.Columns)-1))
		}
		line := "|"
		for _, c := range r.Cells {
			text := escaped(c.Line())
			switch c.Mark {
			case MarkBest:
				text = "**" + text + "**"
			case MarkDiffers:
				text += " ≠"
			}
			line += " " + text + " |"
		}
		out.line(line)
	}
	if len(t.Notes) > 0 {
		out.line("")
	}
	for _, n := range t.Notes {
		out.line("- " + escaped(n))
	}
}

func (f *Figure) markdown(out *document) {
	note := f.Note
	if f.curves() {
		note = strings.TrimSpace(note + " " + f.numbers())
	}
	out.line(fmt.Sprintf("**%s.** %s\n", escaped(f.Title), escaped(note)))
	switch {
	case f.Scale != "": // the table below has the numbers
	case f.Effects != nil:
		for _, line := range f.forestText(110) { // indented lines are code
			out.line("    " + clean(line))
		}
	case f.Categories != nil || f.Diagonal != "":
		for _, row := range f.CSV()[1:] {
			out.line("- " + escaped(strings.Join(row, " · ")))
		}
	case f.Lanes != nil:
		for i, lane := range f.Lanes {
			out.line("- " + escaped(lane) + ": " + Sparkline(f.coverage(i, 40), 0, 1, 40))
		}
	default:
		for _, s := range f.Series {
			first, last := s.values()
			out.line(fmt.Sprintf("- %s: %s → %s", escaped(s.full()), Significant(first), Significant(last)))
		}
	}
}

// markdownEscapes escapes the characters with a meaning in Markdown, including HTML.
var markdownEscapes = strings.NewReplacer(`\`, `\\`, "|", `\|`, "*", `\*`, "_", `\_`, "`", "\\`", "[", `\[`, "]", `\]`,
	"<", "&lt;", ">", "&gt;", "&", "&amp;", "~", `\~`, "#", `\#`)

func escaped(text string) string { return markdownEscapes.Replace(clean(text)) }
