package page

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// Talks are the shown episodes of one arm.
type Talks struct {
	Label    string       `json:"label"`
	Summary  string       `json:"summary"`
	Episodes []Transcript `json:"episodes"`
}

// Draw completes the page as plain data, from which alone HTML is written: it draws the figures and lists each
// source once. A page that was read from JSON is drawn already, and its cells get their sources back.
func (p *Page) Draw() error {
	if p.Drawn {
		for _, t := range p.Tables() {
			for _, row := range t.Rows {
				for i, c := range row.Cells {
					if 0 < c.SourceAt && c.SourceAt <= len(p.Sources) {
						row.Cells[i].Source = p.Sources[c.SourceAt-1]
					}
				}
			}
		}
		return nil
	}
	at := map[string]int{}
	number := func(s Source) int {
		if s.By == "" {
			return 0
		}
		key := fmt.Sprintf("%q", append([]string{s.By, s.Rows}, s.From...))
		if at[key] == 0 {
			p.Sources = append(p.Sources, s)
			at[key] = len(p.Sources)
		}
		return at[key]
	}
	for part := range p.parts {
		switch {
		case part.Table != nil:
			for _, row := range part.Table.Rows {
				for i := range row.Cells { // as JSON gives it back
					c := &row.Cells[i]
					if c.SourceAt, c.Value = number(c.Source), finite(c.Value); c.Interval != nil &&
						(finite(&c.Low) == nil || finite(&c.High) == nil) {
						c.Interval = nil
					}
				}
			}
		case part.Figure != nil:
			if err := part.Figure.draw(number); err != nil {
				return fmt.Errorf("figure %s: %w", part.Figure.ID, err)
			}
		}
	}
	p.Drawn = true
	return nil
}

// draw completes the figure as plain data. number numbers a source.
func (f *Figure) draw(number func(Source) int) (err error) {
	f.Caption, f.Wide = strings.TrimSpace(f.Note+" "+f.drawing()), f.Categories != nil || f.Lanes != nil || f.Scale != ""
	switch {
	case f.Apart+f.Lower != "":
		f.Height = 460
	case f.Effects != nil:
		f.Height, f.Key = 36+f.forestHeight(), f.key()
	case f.Lanes != nil:
		f.Height = 70 + 26*len(f.Lanes)
	}
	f.Data, f.Sources = Inert(f.CSV()), map[string]int{}
	sources := f.sources()
	for _, suffix := range slices.Sorted(maps.Keys(sources)) {
		f.Sources[suffix] = number(sources[suffix])
	}
	f.Options, err = f.options()
	return err
}
