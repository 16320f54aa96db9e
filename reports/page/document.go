package page

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
)

// Drawing is a Figure as plain data: the options for the chart library, and its values as text.
type Drawing struct {
	ID      string          `json:"id"`
	Title   string          `json:"title"`
	Caption string          `json:"caption,omitempty"` // the note, and what the curves are
	Share   bool            `json:"share,omitempty"`
	Wide    bool            `json:"wide,omitempty"`
	Folded  bool            `json:"folded,omitempty"`
	Height  int             `json:"height,omitempty"` // in pixels; 0 for the default
	Key     []key           `json:"key,omitempty"`    // of a forest plot
	Options json.RawMessage `json:"options"`
	Data    [][]string      `json:"data"` // the first row is the head
	// Sources are as Cell.SourceAt, of columns (".c2"), rows (".r3") or the whole ("").
	Sources map[string]int `json:"sources,omitempty"`
}

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
			f := part.Figure
			options, err := f.Options()
			if err != nil {
				return fmt.Errorf("figure %s: %w", f.ID, err)
			}
			d := &Drawing{ID: f.ID, Title: f.Title, Caption: f.Caption(), Share: f.Share, Folded: f.Folded,
				Wide: f.Categories != nil || f.Lanes != nil || f.Scale != "", Height: f.height(), Options: options,
				Data: Inert(f.CSV()), Sources: map[string]int{}}
			if f.Effects != nil {
				d.Key = f.Key()
			}
			sources := f.Sources()
			for _, suffix := range slices.Sorted(maps.Keys(sources)) {
				d.Sources[suffix] = number(sources[suffix])
			}
			part.Drawing = d
		}
	}
	p.Drawn = true
	return nil
}

// height returns the height of the drawing in pixels; 0 for the default.
func (f *Figure) height() int {
	switch {
	case f.Apart+f.Lower != "":
		return 460
	case f.Effects != nil:
		return 36 + f.forestHeight()
	case f.Lanes == nil:
		return 0
	}
	return 70 + 26*len(f.Lanes)
}
