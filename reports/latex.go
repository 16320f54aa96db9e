package reports

import (
	"fmt"
	"io"
	"strings"
)

// LaTeX writes the tables of the page, each as a table environment with the rules of booktabs, to be put into a
// document by \input. Details stand below their value; a mark is bold (best) or italic (departs from the paper).
func (p *Page) LaTeX(w io.Writer) error {
	out := &sticky{w: w}
	out.line("% Tables of: " + clean(p.Title))
	out.line(`% The document needs \usepackage{booktabs}.`)
	for _, s := range p.Sections {
		for _, part := range s.Parts {
			if part.Table != nil {
				part.Table.latex(out)
			}
		}
	}
	return out.err
}

func (t *Table) latex(out *sticky) {
	layout := ""
	heads := make([]string, len(t.Columns))
	for i, c := range t.Columns {
		heads[i] = latexText(c.Name)
		if c.Left || i == 0 {
			layout += "l"
		} else {
			layout += "r"
		}
	}
	out.line("\n\\begin{table}\n\\centering")
	out.line(`\caption{` + latexText(t.Title) + `}\label{tab:` + slug(t.ID) + `}`)
	out.line(`\begin{tabular}{` + layout + "}\n\\toprule")
	out.line(strings.Join(heads, " & ") + " \\\\\n\\midrule")
	for _, r := range t.Rows {
		cells := make([]string, len(t.Columns))
		for i, c := range r.Cells {
			cells[i] = c.latex(layout[i])
		}
		out.line(strings.Join(cells, " & ") + ` \\`)
	}
	out.line("\\bottomrule\n\\end{tabular}")
	for _, n := range append([]string{t.Lead}, t.Notes...) {
		if n != "" {
			out.line(`\par\smallskip{\footnotesize ` + latexText(n) + `}`)
		}
	}
	out.line(`\end{table}`)
}

// latex stacks text and details, to the side of their column ('l' or 'r').
func (c Cell) latex(side byte) string {
	text := latexText(c.Text)
	switch c.Mark {
	case MarkBest:
		text = `\textbf{` + text + `}`
	case MarkDiffers:
		text = `\textit{` + text + `}`
	}
	if c.Detail == "" {
		return text
	}
	var below []string
	for line := range strings.SplitSeq(c.Detail, " · ") {
		below = append(below, `{\scriptsize `+latexText(line)+`}`)
	}
	return fmt.Sprintf(`\shortstack[%c]{%s\\%s}`, side, text, strings.Join(below, `\\`))
}

// latexEscapes are the characters that mean something to LaTeX, and those of our own tables that no text font has.
var latexEscapes = strings.NewReplacer(`\`, `\textbackslash{}`, "{", `\{`, "}", `\}`, "$", `\$`, "&", `\&`, "#", `\#`, "^", `\textasciicircum{}`,
	"_", `\_`, "~", `\textasciitilde{}`, "%", `\%`, "<", `\textless{}`, ">", `\textgreater{}`, "|", `\textbar{}`, `"`, `\textquotedbl{}`,
	"\u00a0", "~", "\u202f", `\,`, "−", `$-$`, "–", "--", "…", `\ldots{}`, "→", `$\to$`, "↑", `$\uparrow$`, "↓", `$\downarrow$`,
	"Δ", `$\Delta$`, "ρ", `$\rho$`, "σ", `$\sigma$`, "Σ", `$\Sigma$`, "²", `$^2$`, "³", `$^3$`, "·", `$\cdot$`, "‖", `$\|$`, "★", `$\star$`, "≠", `$\neq$`)

// latexText is foreign text as LaTeX, in one line.
func latexText(text string) string { return latexEscapes.Replace(clean(text)) }
