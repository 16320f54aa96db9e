package reports

import (
	"fmt"
	"io"
	"strings"
)

// Markdown writes the page as GitHub-flavoured Markdown: tables in full, of each curve the two values that the
// tables have of it.
func (p *Page) Markdown(w io.Writer) error {
	out := &sticky{w: w}
	out.line("# " + escaped(p.Title))
	for _, text := range []string{p.Question, prefixed("Expected: ", p.Expect)} {
		if text != "" {
			out.line("\n" + escaped(text))
		}
	}
	for _, answer := range p.Answers {
		out.line("\n**" + escaped(answer) + "**")
	}
	out.line("")
	for _, fact := range p.Facts {
		out.line("- " + escaped(fact))
	}
	for _, f := range p.Failures {
		out.line("\n**" + escaped(f.Address) + "** " + escaped(f.Cause) + "\n")
		for _, l := range f.Log {
			out.line("    " + clean(l))
		}
	}
	for _, s := range p.Sections {
		out.line("\n## " + escaped(s.Title))
		if s.Lead != "" {
			out.line("\n" + escaped(s.Lead))
		}
		for _, part := range s.Parts {
			out.line("")
			switch {
			case part.Table != nil:
				part.Table.markdown(out)
			case part.Figure != nil:
				part.Figure.markdown(out)
			case part.Transcripts != nil:
				out.line("- " + escaped(part.Transcripts.summary()) + ", in the HTML page")
			default:
				out.line(escaped(part.Text))
			}
		}
	}
	return out.err
}

func (t *Table) markdown(out *sticky) {
	out.line("### " + escaped(t.Title) + "\n")
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
	for _, r := range t.Rows {
		line := "|"
		for _, c := range r.Cells {
			text := escaped(c.line())
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

func (f *Figure) markdown(out *sticky) {
	note := f.Note
	if f.Categories == nil && f.Lanes == nil && f.Diagonal == "" {
		note = strings.TrimSpace(note + " " + f.numbers())
	}
	out.line(fmt.Sprintf("**%s.** %s\n", escaped(f.Title), escaped(note)))
	if f.Categories != nil || f.Diagonal != "" {
		for _, row := range f.data()[1:] {
			out.line("- " + escaped(strings.Join(row, " · ")))
		}
		return
	}
	if f.Lanes != nil {
		for i, lane := range f.Lanes {
			out.line("- " + escaped(lane) + ": " + sparkline(f.coverage(i, 40), 0, 1, 40))
		}
		return
	}
	for _, s := range f.Series {
		first, last := s.values()
		out.line(fmt.Sprintf("- %s: %s → %s", escaped(s.full()), significant(first), significant(last)))
	}
}

// markdownEscapes are the characters that mean something inside a line or a table of Markdown, HTML included.
var markdownEscapes = strings.NewReplacer(`\`, `\\`, "|", `\|`, "*", `\*`, "_", `\_`, "`", "\\`", "[", `\[`, "]", `\]`,
	"<", "&lt;", ">", "&gt;", "&", "&amp;", "~", `\~`, "#", `\#`)

func escaped(text string) string { return markdownEscapes.Replace(clean(text)) }
