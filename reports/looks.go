package reports

import (
	"cmp"
	"slices"
	"strings"
)

// Names of the groups of arms, in the order of the rows.
const (
	groupBaselines = "Baselines"
	groupArms      = "Arms"
)

// parts splits the label "MODEL/INIT + METHOD". The method is "" for another label.
func (a *Arm) parts() (model, initialisation, method string) {
	initialisation = a.Label
	if i := strings.Index(a.Label, "/"); i >= 0 {
		model, initialisation = a.Label[:i], a.Label[i+1:]
	}
	initialisation, method, _ = strings.Cut(initialisation, " + ")
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
	for i := range s.Arms {
		a := &s.Arms[i]
		model, _, _ := a.parts()
		rank[a.Label] = []int{place(&models, model), 0, 0}
		if !s.baseline(a) {
			rank[a.Label][1] = 1
		}
		if a.Label == proposed {
			rank[a.Label][2] = 1
		}
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
func (s *Study) looks() []look {
	var families, methods []string
	grey := 0
	used := map[look]bool{}
	all := make([]look, len(s.Arms))
	for i := range s.Arms {
		a := &s.Arms[i]
		one := look{known: true}
		if s.baseline(a) {
			one.colour, one.marker = baselines*shades+grey%shades, grey%len(markers)
			grey++
		} else {
			model, initialisation, method := a.parts()
			family := place(&families, model+"/"+initialisation) % baselines
			one.marker = place(&methods, method) % len(markers)
			one.colour = family*shades + one.marker%shades
		}
		for n := 0; used[one] && n < shades*len(markers); n++ {
			one.marker = (one.marker + 1) % len(markers)
			if n%len(markers) == len(markers)-1 {
				one.colour = one.colour/shades*shades + (one.colour+1)%shades
			}
		}
		used[one] = true
		all[i] = one
	}
	return all
}

// dress sets the looks of all rows and series, and the groups of the rows, from their arms.
func (s *Study) dress(p *Page) {
	looks := s.looks()
	p.looks = map[string]look{}
	for i := range s.Arms {
		p.looks[s.Arms[i].Label] = looks[i]
	}
	of := func(arm int) look {
		if arm < 0 || arm >= len(looks) {
			return look{}
		}
		return looks[arm]
	}
	for _, t := range p.tables() {
		for i := range t.Rows {
			if row := &t.Rows[i]; of(row.Arm).known {
				row.look, row.Group = of(row.Arm), cmp.Or(row.Group, s.group(&s.Arms[row.Arm]))
			}
		}
		t.dropSingleGroup()
		t.countOnce()
	}
	for _, f := range p.figures() {
		for i := range f.Series {
			f.Series[i].look = of(f.Series[i].Arm)
		}
	}
}
