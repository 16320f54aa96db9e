package reports

import (
	"cmp"
	"slices"

	"rcgrpo/reports/page"
)

// looks returns the look of each arm. A hue belongs to one initialisation; the methods of an initialisation have
// different shades and markers, and a method has the same marker everywhere. An initialisation with more arms than its
// hue has combinations continues with the next hue. Combinations repeat when all are used.
func (s *Study) looks() []page.Look {
	var families, methods []string
	greys, markers := 0, len(page.Markers)
	combinations := page.Shades * markers // looks of a hue
	all := make([]page.Look, len(s.Arms))
	for i, a := range s.Arms {
		baseline, hue, first := s.baseline(&a), page.Baselines, greys
		if baseline {
			greys++
		} else {
			hue, first = page.IndexOrAppend(&families, a.initial()), page.IndexOrAppend(&methods, a.Method)%markers
		}
		for n := 0; n == 0 || n <= combinations*page.Baselines && slices.Contains(all[:i], all[i]); n++ {
			family := hue
			if !baseline {
				family = (hue + n/combinations) % page.Baselines
			}
			all[i] = page.Look{Known: true, Colour: family*page.Shades + (first+n/markers)%page.Shades,
				Marker: (first + n) % markers}
		}
	}
	return all
}

// finishTables counts the episodes of each table once, and sets the looks of all rows and series, and the groups of the
// rows, from their arms.
func (s *Study) finishTables(p *page.Page) {
	looks := s.looks()
	p.Looks = map[string]page.Look{}
	for i := range s.Arms {
		p.Looks[s.Arms[i].Label] = looks[i]
	}
	look := func(arm int) page.Look {
		if arm < 0 || arm >= len(looks) {
			return page.Look{}
		}
		return looks[arm]
	}
	for _, t := range p.Tables() {
		for i := range t.Rows {
			if row := &t.Rows[i]; look(row.Arm).Known {
				row.Look, row.Group = look(row.Arm), cmp.Or(row.Group, s.group(&s.Arms[row.Arm]))
			}
		}
		t.DropSingleGroup()
		t.CountOnce()
	}
	for _, f := range p.Figures() {
		for i := range f.Series {
			f.Series[i].Look = look(f.Series[i].Arm)
		}
	}
}
