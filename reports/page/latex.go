package page

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"unicode"
)

// LaTeX writes the answers, the forest plots and the tables of the page for \input in a document. A table is a
// longtable with the rules of booktabs. A table that is wider than the text continues with its first column repeated.
// Details are below their value; a mark is bold (best) or italic (departs from the paper).
func (p *Page) LaTeX(w io.Writer) error {
	out := &sticky{w: w}
	out.line("% Tables of: " + clean(p.Title))
	out.line(`% The document requires \usepackage[T1]{fontenc} and \usepackage{array,booktabs,longtable}, one column`)
	out.line(fmt.Sprintf("%% of text, and lines of at least %d pt.", latexLine))
	p.latexHead(out)
	for _, f := range p.Figures() {
		if f.Effects != nil {
			f.latexForest(out)
		}
	}
	for _, t := range p.Tables() {
		t.latex(out)
	}
	return out.err
}

// latexHead writes the question, its answers, the run, and the limits of the result.
func (p *Page) latexHead(out *sticky) {
	paragraph := func(bold, text string) {
		if bold+text != "" {
			out.line(`{\raggedright\noindent\textbf{` + latexText(bold) + `} ` + latexText(text) + `\par}`)
		}
	}
	paragraph(p.Question, "")
	for _, a := range p.Answers {
		paragraph(string(a.Verdict)+":", strings.TrimPrefix(a.String(), string(a.Verdict)+": "))
	}
	if p.Run != "" {
		paragraph("Run:", p.Run+".")
	}
	if len(p.Limits) > 0 {
		paragraph(p.LimitsTitle()+":", strings.Join(p.Limits, " "))
	}
}

// latexForest draws the effects with the picture environment.
func (f *Figure) latexForest(out *sticky) {
	const rowHeight = 20 // points
	rows := f.forestRows()
	low, high := f.extent()
	at := func(v float64) float64 { return latexLine * (v - low) / (high - low) }
	put := func(x, y float64, what string) { out.line(fmt.Sprintf(`\put(%.1f,%.1f){%s}`, x, y, what)) }
	out.line("\n\\begin{figure}[htbp]\n\\setlength{\\unitlength}{1pt}\\scriptsize")
	out.line(fmt.Sprintf(`\begin{picture}(%d,%d)`, latexLine, rowHeight*len(rows)))
	for i, row := range rows {
		base := float64(rowHeight * (len(rows) - 1 - i))
		if row.Effect == nil {
			put(0, base+8, `\textbf{`+latexText(row.text)+`}`)
			switch row.expect {
			case "higher":
				put(at(0), base+2, fmt.Sprintf(`\vector(1,0){%.1f}`, at(high)-at(0)))
			case "lower":
				put(at(0), base+2, fmt.Sprintf(`\vector(-1,0){%.1f}`, at(0)-at(low)))
			}
			continue
		}
		y := base + 4
		put(0, base+10, latexText(row.text))
		put(latexLine, base+10, `\makebox(0,0)[br]{`+latexText(row.Number())+`}`)
		if d := row.Detectable; d != nil {
			put(at(-*d), y-3, fmt.Sprintf(`\framebox(%.1f,6){}`, at(*d)-at(-*d)))
		}
		put(at(0), y-4, `\line(0,1){8}`)
		if row.Low != nil && row.High != nil {
			put(at(*row.Low), y, fmt.Sprintf(`\line(1,0){%.1f}`, at(*row.High)-at(*row.Low)))
			put(at(*row.Low), y-2, `\line(0,1){4}`)
			put(at(*row.High), y-2, `\line(0,1){4}`)
		}
		for _, v := range row.PerSeed {
			put(at(v), y, `\circle{3}`)
		}
		put(at(row.Effect.Effect), y, `\circle*{4}`)
	}
	out.line("\\end{picture}")
	text := f.Title + ", " + f.X + "."
	for _, k := range f.Key() {
		text += " " + k.Name + ": " + k.Text + "."
	}
	out.line(`\caption{` + latexText(text+" "+f.Note) + `}\label{fig:` + Slug(f.ID) + "}\n\\end{figure}")
}

// Widths in points.
const (
	latexLine = 345 // narrowest line of text for the tables (the class article)
	latexGap  = 6   // between two columns
	latexWide = 110 // widest column of text
)

func (t *Table) latex(out *sticky) {
	least, natural := make([]float64, len(t.Columns)), make([]float64, len(t.Columns))
	for i, c := range t.Columns {
		texts := []string{c.Name}
		for _, r := range t.Rows {
			if i < len(r.Cells) {
				texts = append(append(texts, r.Cells[i].Text), r.Cells[i].Lines()...)
			}
		}
		for _, text := range texts {
			l, n := latexWidths(text)
			least[i], natural[i] = max(least[i], l), max(natural[i], n)
		}
		natural[i] = max(least[i], min(natural[i], latexWide))
	}
	with := slices.Clone(natural)
	for i := range with {
		with[i] += latexGap
	}
	for _, columns := range split(with, latexLine) {
		t.latexPart(out, columns, least, natural)
	}
	for _, n := range append([]string{t.Lead}, t.Notes...) {
		if n != "" {
			out.line(`{\footnotesize\raggedright ` + latexText(n) + `\par}`)
		}
	}
}

// latexPart writes some columns, including the first of the table. Their widths are shares of the line.
func (t *Table) latexPart(out *sticky, columns []int, least, natural []float64) {
	widths, sum := make([]float64, len(columns)), 0.0
	for i, c := range columns {
		widths[i] = natural[c] + latexGap
		sum += widths[i]
	}
	if sum > latexLine { // two columns that do not fit: the wider one shrinks
		wide := 0
		if len(columns) > 1 && natural[columns[1]] > natural[columns[0]] {
			wide = 1
		}
		widths[wide] = max(widths[wide]-(sum-latexLine), least[columns[wide]]+latexGap)
		sum = latexLine
	}
	layout := ""
	heads := make([]string, len(columns))
	for i, c := range columns {
		side := `\raggedleft`
		if t.Columns[c].Left || c == 0 {
			side = `\raggedright`
		}
		layout += fmt.Sprintf(`>{%s\arraybackslash}p{\dimexpr %.4f\linewidth-2\tabcolsep\relax}`, side, widths[i]/latexLine)
		heads[i] = latexText(t.Columns[c].Name)
	}
	title, label := latexText(t.Title), "tab:"+Slug(t.ID)
	first, last := columns[min(1, len(columns)-1)], columns[len(columns)-1]
	if last != len(t.Columns)-1 || first > 1 { // a part of the table
		title += ": " + latexText(t.Columns[first].Name) + " to " + latexText(t.Columns[last].Name)
		label += fmt.Sprintf("-%d", first)
	}
	head := strings.Join(heads, " & ") + ` \\`
	out.line(fmt.Sprintf("\n{\\footnotesize\\tabcolsep=%dpt\n\\begin{longtable}{%s}", latexGap/2, layout))
	out.line(`\caption{` + title + `}\label{` + label + `} \\`)
	out.line("\\toprule\n" + head + "\n\\midrule\n\\endfirsthead")
	out.line("\\toprule\n" + head + "\n\\midrule\n\\endhead")
	out.line("\\bottomrule\n\\endfoot")
	pads := t.pads()
	for row, r := range t.Rows {
		if group := t.groupHead(row); group != "" {
			out.line(fmt.Sprintf(`\multicolumn{%d}{@{}l}{\textit{%s}} \\`, len(columns), latexText(group)))
		}
		cells := make([]string, len(columns))
		for i, c := range columns {
			if c < len(r.Cells) {
				cells[i] = r.Cells[c].latex(pads[row][c])
			}
		}
		out.line(strings.Join(cells, " & ") + ` \\`)
	}
	out.line("\\end{longtable}}")
}

// latex returns the text above the details, with an invisible pad after it.
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
	for _, line := range c.Lines() {
		text += `\par{\scriptsize ` + latexText(line) + `}`
	}
	return text
}

// Lines returns the lines of the cell's detail.
func (c Cell) Lines() []string {
	if c.Detail == "" {
		return nil
	}
	return strings.Split(c.Detail, " · ")
}

// latexWidths estimates the width of a text in one line and of its longest unbreakable chunk.
func latexWidths(text string) (least, natural float64) {
	const spare = 4 // bold letters, and the error of the estimate
	for _, p := range latexChunks(text) {
		chunk := 0.0
		for _, r := range p {
			chunk += latexRuneWidth(r)
		}
		least = max(least, chunk+spare)
		natural += chunk
	}
	return least, natural + spare
}

// latexRuneWidth returns an upper bound of the width of a character of Latin Modern at 8 pt.
func latexRuneWidth(r rune) float64 {
	switch {
	case strings.ContainsRune("mwMW%…→↑↓−–≥≤≠×", r):
		return 8.3
	case unicode.IsUpper(r) || r > 0x7f && r != '\u00a0' || strings.ContainsRune("+=<>&@_#~", r):
		return 6.6
	case strings.ContainsRune("iljt.,;:'|![]()/ \u00a0-", r):
		return 3.4
	}
	return 4.7
}

// latexChunks splits a text where a line may end: after blanks, and in long words after punctuation or after the
// maximal number of characters.
func latexChunks(text string) []string {
	const long, longest = 16, 12 // characters of a word that is split, and of a chunk of it
	var chunks []string
	for _, word := range strings.SplitAfter(clean(text), " ") {
		if len([]rune(word)) <= long {
			chunks = append(chunks, word)
			continue
		}
		var chunk []rune
		for _, r := range word {
			chunk = append(chunk, r)
			if len(chunk) == longest || strings.ContainsRune("._-/@[]=+,;:\u00a0", r) {
				chunks, chunk = append(chunks, string(chunk)), nil
			}
		}
		if len(chunk) > 0 {
			chunks = append(chunks, string(chunk))
		}
	}
	return chunks
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
	for i, chunk := range latexChunks(text) {
		if i > 0 && !strings.HasSuffix(b.String(), " ") {
			b.WriteString(`\allowbreak{}`)
		}
		for _, r := range chunk {
			known := r < 0x7f || latexEscapes.Replace(string(r)) != string(r)
			if letter := unicode.Is(unicode.Latin, r) && r < 0x180; !known && !letter {
				fmt.Fprintf(&b, "{[}U+%04X{]}", r)
			} else {
				b.WriteString(latexEscapes.Replace(string(r)))
			}
		}
	}
	return b.String()
}
