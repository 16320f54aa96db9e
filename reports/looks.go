package reports

import (
	"cmp"

	"rcgrpo/reports/page"
)

// looks returns the look of each arm. A hue belongs to one initialisation; the methods of an initialisation have
// different shades and markers, and a method has the same marker everywhere. An initialisation with more arms than its
// hue has combinations continues with the next hue. Combinations repeat when all are used.
func (s *Study) looks() []page.Look {
	var families, methods []string
	grey := 0
	used := map[page.Look]bool{}
	all := make([]page.Look, len(s.Arms))
	for i, a := range s.Arms {
		one := page.Look{Known: true}
		if s.baseline(&a) {
			one.Colour, one.Marker = page.Baselines*page.Shades+grey%page.Shades, grey%len(page.Markers)
			grey++
		} else {
			family := page.IndexOrAppend(&families, a.initial()) % page.Baselines
			one.Marker = page.IndexOrAppend(&methods, a.Method) % len(page.Markers)
			one.Colour = family*page.Shades + one.Marker%page.Shades
		}
		combinations := page.Shades * len(page.Markers) // of a hue
		for n := 1; used[one] && n <= combinations*page.Baselines; n++ {
			one.Marker = (one.Marker + 1) % len(page.Markers)
			if n%len(page.Markers) == 0 {
				one.Colour = one.Colour/page.Shades*page.Shades + (one.Colour+1)%page.Shades
			}
			if n%combinations == 0 && one.Colour < page.Baselines*page.Shades {
				one.Colour = (one.Colour + page.Shades) % (page.Baselines * page.Shades)
			}
		}
		used[one] = true
		all[i] = one
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
	of := func(arm int) page.Look {
		if arm < 0 || arm >= len(looks) {
			return page.Look{}
		}
		return looks[arm]
	}
	for _, t := range p.Tables() {
		for i := range t.Rows {
			if row := &t.Rows[i]; of(row.Arm).Known {
				row.Look, row.Group = of(row.Arm), cmp.Or(row.Group, s.group(&s.Arms[row.Arm]))
			}
		}
		t.DropSingleGroup()
		t.CountOnce()
	}
	for _, f := range p.Figures() {
		for i := range f.Series {
			f.Series[i].Look = of(f.Series[i].Arm)
		}
	}
}
