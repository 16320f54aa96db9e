package reports

import (
	"cmp"
	"slices"
	"strings"

	"rcgrpo/reports/page"
)

// Names of the groups of arms, in the order of the rows.
const (
	groupBaselines = "Baselines"
	groupArms      = "Arms"
)

// parts splits the label "MODEL/INIT + METHOD". The method is "" for another label.
func (a *Arm) parts() (model, initialisation, method string) {
	model, name := cutGroup(a.Label)
	initialisation, method, _ = strings.Cut(name, " + ")
	return model, initialisation, method
}

// baseline reports whether the arm is only compared with: other arms of the study were trained by RL, this one was
// not.
func (s *Study) baseline(a *Arm) bool {
	_, _, method := a.parts()
	return method == "" && !a.hasCurve() &&
		slices.ContainsFunc(s.Arms, func(b Arm) bool { _, _, m := b.parts(); return m != "" || b.hasCurve() })
}

// group names the rows to which the arm belongs.
func (s *Study) group(a *Arm) string {
	group := groupArms
	if s.baseline(a) {
		group = groupBaselines
	}
	if model, _, _ := a.parts(); model == apiModels {
		return model
	} else if model != "" {
		return model + ": " + strings.ToLower(group)
	}
	return group
}

// groupArms sorts the arms stably into their groups, baselines first, and the proposed method to the end of its group.
func (s *Study) groupArms() {
	models := []string{apiModels} // above the others
	proposed := s.proposed()
	rank := map[string][]int{}
	for _, a := range s.Arms {
		model, _, _ := a.parts()
		last := map[bool]int{true: 1}
		rank[a.Label] = []int{page.IndexOrAppend(&models, model), last[!s.baseline(&a)], last[a.Label == proposed]}
	}
	slices.SortStableFunc(s.Arms, func(a, b Arm) int { return slices.Compare(rank[a.Label], rank[b.Label]) })
}

// proposed returns the second arm of the first comparison if all its pairs have the same one, "" otherwise.
func (s *Study) proposed() string {
	if len(s.Compare) == 0 || len(s.Compare[0].Pairs) == 0 {
		return ""
	}
	pairs := s.Compare[0].Pairs
	if slices.ContainsFunc(pairs, func(p []string) bool { return p[1] != pairs[0][1] }) {
		return ""
	}
	return pairs[0][1]
}

// looks returns the look of each arm. A hue belongs to one initialisation; the methods of an initialisation have
// different shades and markers, and a method has the same marker everywhere. Combinations repeat when all are used.
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
			model, initialisation, method := a.parts()
			family := page.IndexOrAppend(&families, model+"/"+initialisation) % page.Baselines
			one.Marker = page.IndexOrAppend(&methods, method) % len(page.Markers)
			one.Colour = family*page.Shades + one.Marker%page.Shades
		}
		for n := 0; used[one] && n < page.Shades*len(page.Markers); n++ {
			one.Marker = (one.Marker + 1) % len(page.Markers)
			if n%len(page.Markers) == len(page.Markers)-1 {
				one.Colour = one.Colour/page.Shades*page.Shades + (one.Colour+1)%page.Shades
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
