package page

import (
	"cmp"
	"fmt"
	"io"
	"strings"

	"github.com/mitchellh/go-wordwrap"
	"github.com/olekukonko/tablewriter"
	"github.com/olekukonko/tablewriter/renderer"
	"github.com/olekukonko/tablewriter/tw"
)

// format describes the layout of a page in a text format. Strings are formats of package fmt for escaped text.
type format struct {
	escape                                                      func(string) string
	title, name, expect, answer, run, limit, failure, log, lead string
	section, transcripts                                        string

	line   func(string) // writes a paragraph
	table  func(*Table) error
	figure func(*Figure)
}

// Text writes the page for a terminal of the given width: complete tables, and of each curve two numbers.
func (p *Page) Text(w io.Writer, width int) error {
	out := &sticky{w: w}
	return p.write(out, format{
		escape: clean, title: "%s", name: "experiment: %s", expect: "expected: %s", answer: "→ %s",
		run: "\n%s", limit: "· %s",
		failure: "MISSING %s: %s", log: "  | %s", section: "── %s ", lead: "%s", transcripts: "%s, in the HTML page",
		line:   func(text string) { out.wrapped(text, width) },
		table:  func(t *Table) error { return t.text(out, width) },
		figure: func(f *Figure) { f.text(out, width) },
	}, width)
}

// Markdown writes the page as GitHub-flavoured Markdown: complete tables, and of each curve two numbers.
func (p *Page) Markdown(w io.Writer) error {
	out := &sticky{w: w}
	return p.write(out, format{
		escape: escaped, title: "# %s", name: "\nExperiment: %s", expect: "\nExpected: %s", answer: "- **%s**",
		run: "\n%s", limit: "- %s",
		failure: "**%s** %s\n", log: "    %s", section: "## %s", lead: "\n%s", transcripts: "- %s, in the HTML page",
		line:   out.line,
		table:  func(t *Table) error { return t.markdown(out) },
		figure: func(f *Figure) { f.markdown(out) },
	}, 0)
}

// write writes the page. The heads of sections are filled with a rule up to the width.
func (p *Page) write(out *sticky, f format, width int) error {
	paragraph := func(format string, texts ...string) {
		if texts[0] == "" {
			return
		}
		var args []any
		for _, text := range texts {
			args = append(args, f.escape(text))
		}
		f.line(fmt.Sprintf(format, args...))
	}
	f.line(fmt.Sprintf(f.title, f.escape(cmp.Or(p.Question, p.Title))))
	if p.Question != "" {
		paragraph(f.name, p.Title)
	}
	paragraph(f.expect, p.Expect)
	for _, term := range p.Terms {
		paragraph(f.limit, term.Name+": "+term.Text)
	}
	out.line("")
	for _, answer := range p.Answers {
		paragraph(f.answer, answer.String())
	}
	if err := p.writeParts(out, f, paragraph, p.First.Parts); err != nil {
		return err
	}
	paragraph(f.run, p.Run)
	if len(p.Limits) > 0 {
		out.line("")
		paragraph(f.lead, p.LimitsTitle())
		out.line("")
	}
	for _, limit := range p.Limits {
		paragraph(f.limit, limit)
	}
	for _, failure := range p.Failures {
		out.line("")
		paragraph(f.failure, failure.Address, failure.Cause)
		for _, l := range failure.Log {
			out.line(fmt.Sprintf(f.log, clean(l)))
		}
	}
	for _, s := range p.Sections {
		head := fmt.Sprintf(f.section, f.escape(s.Title))
		out.line("\n" + head + strings.Repeat("─", max(0, width-len([]rune(head)))))
		paragraph(f.lead, s.Lead)
		if err := p.writeParts(out, f, paragraph, s.Parts); err != nil {
			return err
		}
	}
	for i, c := range p.Checks() {
		if i == 0 {
			out.line("\n" + fmt.Sprintf(f.section, "Check this page"))
		}
		paragraph(f.limit, strings.TrimSpace(c.Text+" "+c.Command))
	}
	return out.err
}

// writeParts writes tables and figures, and a line for transcripts.
func (p *Page) writeParts(out *sticky, f format, paragraph func(string, ...string), parts []Part) error {
	for _, part := range parts {
		out.line("")
		switch {
		case part.Table != nil:
			if err := f.table(part.Table); err != nil {
				return err
			}
		case part.Figure != nil:
			f.figure(part.Figure)
		default:
			paragraph(f.transcripts, part.Talks.Summary)
		}
	}
	return nil
}

// LimitsTitle is the heading of the limits, with their number.
func (p *Page) LimitsTitle() string { return fmt.Sprintf("Limits of this result (%d)", len(p.Limits)) }

// text writes the table with the details below their values. A table that is wider than the terminal continues below
// with its first column repeated.
func (t *Table) text(out *sticky, width int) error {
	title := clean(t.Title)
	if t.ID != "" {
		title += " [" + t.ID + "]"
	}
	out.wrapped(title, width)
	if t.Lead != "" {
		out.wrapped(clean(t.Lead), width)
	}
	pads := t.pads()
	rows := t.rows(func(r, c int, cell Cell) string {
		text := clean(cell.Text) + strings.Repeat("\u00a0", len(pads[r][c]))
		if c == 0 {
			text = t.Rows[r].Look.glyph() + text
		}
		return marked(cell, strings.TrimSuffix(text+"\n"+strings.ReplaceAll(clean(cell.Detail), " · ", "\n"), "\n"))
	})
	widths := t.widths(rows)
	for r := range rows { // long text beside a wide first column
		for i := 1; i < len(rows[r]); i++ {
			rows[r][i] = wordwrap.WrapString(rows[r][i], uint(max(20, width-widths[0]-2)))
		}
	}
	style := tw.Rendition{Borders: tw.BorderNone, Symbols: tw.NewSymbols(tw.StyleLight), Settings: tw.Settings{
		Separators: tw.Separators{BetweenColumns: tw.Off, BetweenRows: tw.Off},
		Lines:      tw.Lines{ShowHeaderLine: tw.On, ShowTop: tw.Off, ShowBottom: tw.Off, ShowFooterLine: tw.Off},
	}}
	for _, columns := range split(t.widths(rows), width) {
		head := func(c Column) string { return strings.TrimSuffix(clean(c.Name)+"\n"+c.Detail, "\n") }
		group := func(text string) string { return "── " + clean(text) }
		if err := t.write(out, renderer.NewBlueprint(style), rows, columns, head, group); err != nil {
			return fmt.Errorf("table %s: %w", t.ID, err)
		}
	}
	for _, note := range t.Notes {
		out.wrapped("  "+clean(note), width)
	}
	return out.err
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

// write writes some columns of the table, with rows as text, in the layout of a renderer.
func (t *Table) write(out *sticky, layout tw.Renderer, rows [][]string, columns []int, head func(Column) string,
	group func(string) string) error {
	var heads []string
	var align []tw.Align
	for _, i := range columns {
		side := tw.AlignRight
		if i == 0 || t.Columns[i].Left {
			side = tw.AlignLeft
		}
		heads, align = append(heads, head(t.Columns[i])), append(align, side)
	}
	table := tablewriter.NewTable(out, tablewriter.WithRenderer(layout),
		tablewriter.WithHeaderAutoFormat(tw.Off),
		tablewriter.WithHeaderAutoWrap(tw.WrapNone),
		tablewriter.WithRowAutoWrap(tw.WrapNone),
		tablewriter.WithAlignment(align),
		tablewriter.WithHeaderAlignmentConfig(tw.CellAlignment{PerColumn: align}),
	)
	table.Header(heads)
	for r, row := range rows {
		if name := t.groupHead(r); name != "" {
			if err := table.Append(append([]string{group(name)}, make([]string, len(columns)-1)...)); err != nil {
				return err
			}
		}
		var picked []string
		for _, i := range columns {
			picked = append(picked, row[i])
		}
		if err := table.Append(picked); err != nil {
			return err
		}
	}
	return table.Render()
}

// rows returns the cells as text.
func (t *Table) rows(write func(row, column int, c Cell) string) [][]string {
	rows := make([][]string, len(t.Rows))
	for i, r := range t.Rows {
		rows[i] = make([]string, len(t.Columns))
		for j, c := range r.Cells[:min(len(r.Cells), len(t.Columns))] {
			rows[i][j] = write(i, j, c)
		}
	}
	return rows
}

func (t *Table) widths(rows [][]string) []int {
	widths := make([]int, len(t.Columns))
	for i, c := range t.Columns {
		widths[i] = max(len([]rune(c.Name)), len(c.Detail)) + 2
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

// text writes the figure as text: of each series its first and its last number.
func (f *Figure) text(out *sticky, width int) {
	out.wrapped(strings.TrimSuffix(clean(f.Title)+" – "+clean(f.noteInText()), " – "), width)
	for _, line := range f.lines() {
		out.wrapped("  "+clean(line), width)
	}
}

// noteInText returns the note of the figure and what its numbers are.
func (f *Figure) noteInText() string {
	if !f.curves() {
		return f.Note
	}
	numbers := "Numbers: at the first and at the last " + f.X
	if f.Smooth > 1 {
		numbers += fmt.Sprintf(", as a moving average over %d", f.Smooth)
	}
	return strings.TrimSpace(f.Note + " " + numbers + ".")
}

// lines returns a line for each effect, category, point or series. A map has none, because the table below has its
// numbers, and the spans of lanes are in the CSV file.
func (f *Figure) lines() (lines []string) {
	switch {
	case f.Scale != "" || f.Lanes != nil:
	case f.Effects != nil:
		return f.forestLines()
	case f.Categories != nil || f.Diagonal != "":
		for _, row := range f.CSV()[1:] {
			lines = append(lines, strings.Join(row, " · "))
		}
	default:
		for i := range f.Series {
			s := &f.Series[i]
			first, last := f.ends(s)
			lines = append(lines, fmt.Sprintf("%s: %s → %s", s.full(), Significant(first), Significant(last)))
		}
	}
	return lines
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

// sticky is a writer that stores its first error.
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

// wrapped writes a paragraph in lines of at most width, with following lines indented.
func (s *sticky) wrapped(text string, width int) {
	for i, line := range strings.Split(wordwrap.WrapString(text, uint(width-2)), "\n") {
		if i > 0 {
			line = "  " + line
		}
		s.line(line)
	}
}

func (t *Table) markdown(out *sticky) error {
	out.line("### " + escaped(t.Title) + "\n\n`" + t.ID + "`\n")
	if t.Lead != "" {
		out.line(escaped(t.Lead) + "\n")
	}
	var all []int
	for c := range t.Columns {
		all = append(all, c)
	}
	rows := t.rows(func(_, _ int, c Cell) string { return marked(c, escaped(c.Line())) })
	head := func(c Column) string { return escaped(strings.TrimSuffix(c.Name+", "+c.Detail, ", ")) }
	group := func(text string) string { return "*" + escaped(text) + "*" }
	if err := t.write(out, renderer.NewMarkdown(), rows, all, head, group); err != nil {
		return fmt.Errorf("table %s: %w", t.ID, err)
	}
	if len(t.Notes) > 0 {
		out.line("")
	}
	for _, n := range t.Notes {
		out.line("- " + escaped(n))
	}
	return out.err
}

func (f *Figure) markdown(out *sticky) {
	out.line(fmt.Sprintf("**%s.** %s\n", escaped(f.Title), escaped(f.noteInText())))
	for _, line := range f.lines() {
		out.line("- " + escaped(line))
	}
}

// markdownEscapes escapes the characters with a meaning in Markdown, including HTML.
var markdownEscapes = strings.NewReplacer(`\`, `\\`, "|", `\|`, "*", `\*`, "_", `\_`, "`", "\\`", "[", `\[`, "]", `\]`,
	"<", "&lt;", ">", "&gt;", "&", "&amp;", "~", `\~`, "#", `\#`)

func escaped(text string) string { return markdownEscapes.Replace(clean(text)) }
