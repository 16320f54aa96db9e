package page

import (
	"fmt"
	"io"
	"strings"
	"unicode"
)

// LaTeX writes the tables of the page for \input in a document: each is a longtable with the rules of booktabs. A mark
// is bold (best) or italic (departs from the paper).
func (p *Page) LaTeX(w io.Writer) error {
	out := &sticky{w: w}
	out.line("% Tables of: " + clean(p.Title))
	out.line(`% The document requires \usepackage[T1]{fontenc} and \usepackage{booktabs,longtable}`)
	for _, t := range p.Tables() {
		t.latex(out)
	}
	return out.err
}

// latexWide is the number of characters of a cell from which on its column is a paragraph.
const latexWide = 40

func (t *Table) latex(out *sticky) {
	layout, heads := "", make([]string, len(t.Columns))
	for i, c := range t.Columns {
		side := "r"
		if c.Left || i == 0 {
			side = "l"
		}
		if t.any(i, func(c Cell) bool { return len([]rune(c.Line())) > latexWide }) {
			side = `p{0.3\linewidth}`
		}
		layout += side
		heads[i] = latexText(strings.TrimSuffix(c.Name+", "+c.Detail, ", "))
	}
	head := strings.Join(heads, " & ") + ` \\`
	out.line("\n{\\footnotesize\n\\begin{longtable}{@{}" + layout + "@{}}")
	out.line(`\caption{` + latexText(t.Title) + `}\label{tab:` + Slug(t.ID) + `} \\`)
	out.line("\\toprule\n" + head + "\n\\midrule\n\\endfirsthead")
	out.line("\\toprule\n" + head + "\n\\midrule\n\\endhead")
	out.line("\\bottomrule\n\\endfoot")
	pads := t.pads()
	for row, cells := range t.rows(func(r, c int, cell Cell) string { return cell.latex(pads[r][c]) }) {
		if group := t.groupHead(row); group != "" {
			out.line(fmt.Sprintf(`\multicolumn{%d}{@{}l}{\textit{%s}} \\`, len(t.Columns), latexText(group)))
		}
		out.line(strings.Join(cells, " & ") + ` \\`)
	}
	out.line("\\end{longtable}}")
	for _, n := range append([]string{t.Lead}, t.Notes...) {
		if n != "" {
			out.line(`{\footnotesize\raggedright ` + latexText(n) + `\par}`)
		}
	}
}

// latex returns the text with an invisible pad after it, and the details.
func (c Cell) latex(pad string) string {
	text := latexText(c.Text)
	if pad != "" {
		text += `\phantom{` + pad + `}`
	}
	switch c.Mark {
	case MarkBest:
		text = `\textbf{` + text + `}`
	case MarkDiffers:
		text = `\textit{` + text + `}`
	}
	if c.Detail != "" {
		text += ` {\scriptsize ` + latexText(c.Detail) + `}`
	}
	return text
}

// latexEscapes escapes the characters with a meaning in LaTeX (also brackets and stars at the start of a row) and the
// characters of our tables that text fonts lack.
var latexEscapes = strings.NewReplacer(
	`\`, `\textbackslash{}`, "{", `\{`, "}", `\}`, "$", `\$`, "&", `\&`, "#", `\#`, "^", `\textasciicircum{}`,
	"_", `\_`, "~", `\textasciitilde{}`, "%", `\%`, "<", `\textless{}`, ">", `\textgreater{}`, "|", `\textbar{}`,
	`"`, `\textquotedbl{}`, "[", "{[}", "]", "{]}", "*", "{*}", "`", `\textasciigrave{}`, "-", "{-}",
	"\u00a0", "~", "\u202f", `\,`, "−", `$-$`, "–", "--", "…", `\ldots{}`, "→", `$\to$`, "←", `$\gets$`, "↑", `$\uparrow$`,
	"↓", `$\downarrow$`, "Δ", `$\Delta$`, "ρ", `$\rho$`, "σ", `$\sigma$`, "Σ", `$\Sigma$`, "π", `$\pi$`, "β", `$\beta$`,
	"ε", `$\varepsilon$`, "α", `$\alpha$`, "γ", `$\gamma$`, "²", `$^2$`, "³", `$^3$`, "·", `$\cdot$`, "×", `$\times$`,
	"±", `$\pm$`, "‖", `$\|$`, "★", `$\star$`, "≠", `$\neq$`, "≤", `$\le$`, "≥", `$\ge$`, "√", `$\surd$`)

// latexText returns foreign text as LaTeX, in one line. A character without a glyph is replaced by its code point.
func latexText(text string) string {
	var b strings.Builder
	for _, r := range clean(text) {
		known := r < 0x7f || latexEscapes.Replace(string(r)) != string(r)
		if letter := unicode.Is(unicode.Latin, r) && r < 0x180; !known && !letter {
			fmt.Fprintf(&b, "{[}U+%04X{]}", r)
		} else {
			b.WriteString(latexEscapes.Replace(string(r)))
		}
	}
	return b.String()
}
