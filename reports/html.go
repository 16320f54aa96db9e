package reports

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

// library unpacks the chart library once.
var library = sync.OnceValues(func() (string, error) {
	z, err := gzip.NewReader(bytes.NewReader(packedLibrary))
	if err != nil {
		return "", fmt.Errorf("unpack the chart library: %w", err)
	}
	text, err := io.ReadAll(z)
	return string(text), err
})

var parsedTemplate = sync.OnceValues(func() (*template.Template, error) {
	return template.New("page").Parse(pageTemplate)
})

// HTML writes the page as one file that loads nothing: it contains style, script, options and data, and its policy
// forbids every connection. The same page gives the same bytes.
func (p *Page) HTML(w io.Writer) error {
	t, err := parsedTemplate()
	if err != nil {
		return err
	}
	view, err := p.view()
	if err != nil {
		return err
	}
	return t.Execute(w, view)
}

// The view is the page for its template. Values of the types template.HTML, JS, CSS and URL are written without
// escapes, so they contain only text of this package or text that is escaped in this file.
type (
	pageView struct {
		Page     *Page
		Policy   string
		Style    template.CSS
		Sections []sectionView
		Footer   string
		Evidence string // packed; "" without
		Palettes template.JS
		Library  template.JS // "" without figures and transcripts
		Script   template.JS
	}
	sectionView struct {
		ID, Title, Lead string
		Runs            []runView
	}
	// runView is a table, transcripts, a paragraph, or consecutive figures.
	runView struct {
		Figures []figureView
		More    string // titles of figures behind a fold; "" without a fold
		Table   *tableView
		Talks   *transcriptsView
		Text    string
	}
	figureView struct {
		*Figure
		Wide    bool
		Height  int // of the drawing in pixels; 0 for the default
		Options template.JS
		Packed  string // CSV file
	}
	tableView struct {
		*Table
		Lines []lineView
		CSV   template.URL
	}
	lineView struct {
		Head  *cellView
		Cells []cellView
	}
	cellView struct {
		Cell
		ID, Class, Swatch string
		Details           []string // lines below the text
	}
)

func (p *Page) view() (*pageView, error) {
	palettes, err := json.Marshal(map[string]any{"light": slices.Concat(lightColours, lightSteps),
		"dark": slices.Concat(darkColours, darkSteps), "arms": len(lightColours)})
	if err != nil {
		return nil, err
	}
	view := &pageView{
		Page: p, Style: template.CSS(pageStyle), Palettes: template.JS(palettes),
		Footer: "Made by rcgrpo. Charts: Apache ECharts 5.6.0 (Apache License 2.0), included in this file. It opens no " +
			"connection.",
	}
	scripts := "'none'"
	if len(p.figures()) > 0 || p.hasTranscripts() {
		text, err := library()
		if err != nil {
			return nil, err
		}
		view.Library, view.Script = template.JS(text), template.JS(pageScript)
		scripts = sourceHash(text) + " " + sourceHash(pageScript)
	}
	view.Policy = "default-src 'none'; img-src data: blob:; style-src 'unsafe-inline'; script-src " + scripts +
		"; base-uri 'none'; form-action 'none'"
	if p.Evidence != nil {
		if view.Evidence, err = p.packedEvidence(); err != nil {
			return nil, fmt.Errorf("evidence: %w", err)
		}
	}
	for _, s := range p.Sections {
		section, err := s.view()
		if err != nil {
			return nil, err
		}
		view.Sections = append(view.Sections, section)
	}
	return view, nil
}

func (s *Section) view() (sectionView, error) {
	section := sectionView{ID: s.ID, Title: s.Title, Lead: s.Lead}
	for _, part := range s.Parts {
		last := len(section.Runs) - 1
		switch {
		case part.Figure != nil:
			figure, err := part.Figure.view()
			if err != nil {
				return section, fmt.Errorf("figure %s: %w", part.Figure.ID, err)
			}
			if last < 0 || section.Runs[last].Figures == nil || (section.Runs[last].More != "") != figure.Folded {
				section.Runs = append(section.Runs, runView{})
				last++
			}
			run := &section.Runs[last]
			run.Figures = append(run.Figures, figure)
			if figure.Folded {
				run.More = strings.TrimPrefix(run.More+" · "+figure.Title, " · ")
			}
		case part.Table != nil:
			table, err := part.Table.view()
			if err != nil {
				return section, fmt.Errorf("table %s: %w", part.Table.ID, err)
			}
			section.Runs = append(section.Runs, runView{Table: table})
		case part.Transcripts != nil:
			talks, err := part.Transcripts.view()
			if err != nil {
				return section, fmt.Errorf("transcripts of %s: %w", part.Transcripts.Label, err)
			}
			section.Runs = append(section.Runs, runView{Talks: talks})
		default:
			section.Runs = append(section.Runs, runView{Text: part.Text})
		}
	}
	return section, nil
}

func (p *Page) hasTranscripts() bool {
	for _, s := range p.Sections {
		if slices.ContainsFunc(s.Parts, func(part Part) bool { return part.Transcripts != nil }) {
			return true
		}
	}
	return false
}

// sourceHash returns the hash by which a content security policy allows a script.
func sourceHash(script string) string {
	sum := sha256.Sum256([]byte(script))
	return "'sha256-" + base64.StdEncoding.EncodeToString(sum[:]) + "'"
}

func (f *Figure) view() (figureView, error) {
	options, err := f.chart()
	if err != nil {
		return figureView{}, err
	}
	text, err := csvText(f.data())
	if err != nil {
		return figureView{}, err
	}
	file, err := packed([]byte(text))
	view := figureView{Figure: f, Wide: f.Categories != nil || f.Lanes != nil, Options: template.JS(options), Packed: file}
	if f.Lanes != nil {
		view.Height = 70 + 26*len(f.Lanes)
	}
	return view, err
}

// csvAddress returns a data address with rows as comma-separated values.
func csvAddress(rows [][]string) (template.URL, error) {
	text, err := csvText(rows)
	return template.URL("data:text/csv;charset=utf-8," + dataEscapes.Replace(text)), err
}

// dataEscapes escapes characters for a data address. html/template escapes the result again for the attribute.
var dataEscapes = strings.NewReplacer("%", "%25", "\n", "%0A", "\r", "%0D", "#", "%23", `"`, "%22", "'", "%27",
	"<", "%3C", ">", "%3E", "&", "%26", " ", "%20")

// HeadID returns the id of the head of a column, from 0.
func (t *tableView) HeadID(column int) string { return cellID(t.ID, 0, column+1) }

func (t *Table) view() (*tableView, error) {
	address, err := csvAddress(t.data())
	view := &tableView{Table: t, CSV: address}
	for r, row := range t.Rows {
		var line lineView
		for i, c := range row.Cells {
			cell := cellView{Cell: c, ID: cellID(t.ID, r+1, i+1), Class: string(c.Mark), Details: c.details()}
			if i < len(t.Columns) && t.Columns[i].Left {
				cell.Class = strings.TrimSpace("left " + cell.Class)
			}
			if i > 0 {
				line.Cells = append(line.Cells, cell)
				continue
			}
			if row.Arm != NoArm {
				cell.Swatch = fmt.Sprintf("arm%d", row.Arm%len(lightColours))
				if row.Arm/len(lightColours)%2 == 1 {
					cell.Swatch += " again"
				}
			}
			line.Head = &cell
		}
		view.Lines = append(view.Lines, line)
	}
	return view, err
}
