package page

import (
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	_ "embed"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"html/template"
	"io"
	"math"
	"slices"
	"strings"
	"sync"
)

//go:embed assets/page.html
var pageTemplate string

//go:embed assets/page.css
var pageStyle string

//go:embed assets/page.js
var pageScript string

//go:embed assets/echarts-5.6.0.min.js.gz
var packedLibrary []byte

var library = sync.OnceValues(func() (string, error) {
	z, err := gzip.NewReader(bytes.NewReader(packedLibrary))
	if err != nil {
		return "", fmt.Errorf("unpack the chart library: %w", err)
	}
	text, err := io.ReadAll(z)
	return string(text), err
})

var parsedTemplate = sync.OnceValues(func() (*template.Template, error) {
	return template.New("page").Funcs(pageFunctions).Parse(pageTemplate)
})

// HTML writes the page as one file that loads nothing: it contains style, script, options and data, and its policy
// forbids every connection. The same page gives the same bytes.
func (p *Page) HTML(w io.Writer) error {
	t, err := parsedTemplate()
	if err != nil {
		return err
	}
	if err := p.Draw(); err != nil {
		return err
	}
	view, err := p.view()
	if err != nil {
		return err
	}
	return t.Execute(w, view)
}

// Scripts returns the scripts of every page with figures: the chart library and this package's own.
func Scripts() (charts, own string, err error) {
	charts, err = library()
	return charts, pageScript, err
}

// pageView is the page for its template. Values of the types template.JS, CSS and URL are written without escapes, so
// they contain only text of this package or text that is escaped in this file.
type pageView struct {
	*Page
	Policy   string
	Style    template.CSS
	Footer   string
	Palettes template.JS
	Library  template.JS // "" without figures and transcripts
	Script   template.JS
}

func (p *Page) view() (*pageView, error) {
	classes := map[string]string{}
	for label, l := range p.Looks {
		classes[label] = l.class()
	}
	palettes, err := json.Marshal(map[string]any{"light": slices.Concat(lightColours, LightSteps),
		"dark": slices.Concat(darkColours, darkSteps), "looks": classes,
		"steps": len(LightSteps)})
	if err != nil {
		return nil, err
	}
	view := &pageView{
		Page: p, Style: template.CSS(colourStyle() + pageStyle), Palettes: template.JS(palettes),
		Footer: "Made by rcgrpo. Charts: Apache ECharts 5.6.0 (Apache License 2.0), included in this file. It opens no " +
			"connection.",
	}
	scripts := "'none'"
	if len(p.Tables()) < len(slices.Collect(p.parts)) {
		text, err := library()
		if err != nil {
			return nil, err
		}
		view.Library, view.Script = template.JS(text), template.JS(pageScript)
		scripts = sourceHash(text) + " " + sourceHash(pageScript)
	}
	view.Policy = "default-src 'none'; img-src data: blob:; style-src 'unsafe-inline'; script-src " + scripts +
		"; base-uri 'none'; form-action 'none'"
	return view, nil
}

// colourStyle returns the colours as variables and classes: --c0 and .c0 for arms, --s0 and .s0 for steps.
func colourStyle() string {
	variables := func(name string, colours []string) (text string) {
		for i, colour := range colours {
			text += fmt.Sprintf("--%s%d:%s;", name, i, colour)
		}
		return text
	}
	root := func(colours, steps []string) string {
		return ":root{" + variables("c", colours) + variables("s", steps) + "}"
	}
	style := root(lightColours, LightSteps) + "\n@media screen and (prefers-color-scheme: dark){" +
		root(darkColours, darkSteps) + "}\n"
	for i := range lightColours {
		style += fmt.Sprintf(".c%d{color:var(--c%d)}", i, i)
	}
	for i := range LightSteps {
		style += fmt.Sprintf(".s%d{color:var(--s%d)}", i, i)
	}
	return style + "\n"
}

// block is a table, transcripts, or consecutive figures.
type block struct {
	Part
	Figures []*Figure
}

// Blocks returns the parts of the section with consecutive figures together.
func (s *Section) Blocks() []block {
	var blocks []block
	for _, part := range s.Parts {
		last, f := len(blocks)-1, part.Figure
		if f == nil {
			blocks = append(blocks, block{Part: part})
			continue
		}
		if last < 0 || blocks[last].Figures == nil || blocks[last].Figures[0].Folded != f.Folded {
			blocks = append(blocks, block{})
			last++
		}
		blocks[last].Figures = append(blocks[last].Figures, f)
	}
	return blocks
}

// More returns the titles of figures behind a fold; "" without a fold.
func (b block) More() string {
	var titles []string
	for _, f := range b.Figures {
		if f.Folded {
			titles = append(titles, f.Title)
		}
	}
	return strings.Join(titles, " · ")
}

// sourceHash returns the hash by which a content security policy allows a script.
func sourceHash(script string) string {
	sum := sha256.Sum256([]byte(script))
	return "'sha256-" + base64.StdEncoding.EncodeToString(sum[:]) + "'"
}

var pageFunctions = template.FuncMap{
	"headID":  func(table string, column int) string { return CellID(table, 0, column+1) },
	"cellID":  func(table string, row, column int) string { return CellID(table, row+1, column+1) },
	"options": func(f *Figure) template.JS { return template.JS(f.Options) },
	"address": func(t *Table) template.URL {
		return template.URL("data:text/csv;charset=utf-8," + dataEscapes.Replace(csvText(t.CSV())))
	},
	"class": func(t *Table, c Cell, column int) string {
		if column < len(t.Columns) && t.Columns[column].Left {
			return strings.TrimSpace("left " + string(c.Mark))
		}
		return string(c.Mark)
	},
	"parts": (*Table).htmlParts,
	"pads":  (*Table).pads,
	"head":  (*Table).groupHead,
	"cellIDs": func(t *Table) string {
		if len(t.Rows) == 0 {
			return ""
		}
		return fmt.Sprintf("cells %s … %s", CellID(t.ID, 1, 1), CellID(t.ID, len(t.Rows), len(t.Columns)))
	},
	"verdict": func(v Verdict) string { return Slug(string(v)) },
	"swatch":  func(r Row) string { return r.Look.class() },
}

// htmlPart is some columns of a table, including the first one, that fit beside each other on the page.
type htmlPart struct {
	Columns []int
	First   bool    // its first column has the ids
	Fit     float64 // scale of the text with which the part fits on paper, at most 1
}

// Widths in pixels at the usual size of text.
const (
	pageWidth  = 1130
	paperWidth = 650 // letter paper with Chromium's margins
)

// htmlParts splits the columns of a table that is wider than the page, as in the other formats.
func (t *Table) htmlParts() (parts []htmlPart) {
	screen, paper := t.pixels()
	for i, columns := range split(screen, pageWidth) {
		sum := 0.0
		for _, c := range columns {
			sum += paper[c]
		}
		parts = append(parts, htmlPart{columns, i == 0, math.Round(100*min(1, paperWidth/sum)) / 100})
	}
	return parts
}

// pixels estimates the least widths of the columns on the screen and on paper, where columns of text may be narrower:
// words do not break, and letters are as wide as those of the widest common fonts.
func (t *Table) pixels() (screen, paper []float64) {
	const padding, letter, bold = 17, 9.4, 10.2
	longest := func(text string) float64 {
		most := 0
		for _, word := range strings.Split(text, " ") {
			most = max(most, len([]rune(word)))
		}
		return float64(most)
	}
	for i, column := range t.Columns {
		width := max(bold*0.9*longest(column.Name), 0.85*letter*longest(column.Detail))
		text := i > 0 && column.Left // its words break anywhere
		for _, row := range t.Rows {
			if i >= len(row.Cells) || text {
				continue
			}
			size := letter
			if i == 0 {
				size = bold
			}
			width = max(width, size*longest(row.Cells[i].Text))
			for _, line := range row.Cells[i].Lines() {
				width = max(width, 0.85*letter*longest(line))
			}
		}
		if paper = append(paper, width+padding); text {
			width = 128 - padding // as in the style
			if t.any(i, func(c Cell) bool { return c.Detail != "" }) {
				width = 184 - padding
			}
			paper[i] = max(paper[i], 100)
		}
		screen = append(screen, width+padding)
	}
	return screen, paper
}

// dataEscapes escapes characters for a data address. html/template escapes the result again for the attribute.
var dataEscapes = strings.NewReplacer("%", "%25", "\n", "%0A", "\r", "%0D", "#", "%23", `"`, "%22", "'", "%27",
	"<", "%3C", ">", "%3E", "&", "%26", " ", "%20")
