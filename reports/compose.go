package reports

import (
	"fmt"
	"slices"
	"strings"
)

// Page computes everything a reader sees, in the order of importance: the answer, the scores, the differences, the
// training, and what it all rests on. Sections that nothing was recorded for are left out.
func (s *Study) Page() *Page {
	p := &Page{Title: s.Name, Question: s.Question, Expect: s.Expect, Failures: s.Failures, Arms: s.labels()}
	p.Answers, p.Facts = s.answers(), append(slices.Clone(s.Notes), s.facts()...)

	ids := map[string]bool{}
	for _, section := range s.sections() {
		if len(section.Parts) > 0 {
			tidy(section.Parts, ids)
			p.Sections = append(p.Sections, section)
		}
	}
	return p
}

// labels of the arms, in the order of their colours.
func (s *Study) labels() []string {
	var labels []string
	for _, a := range s.Arms {
		labels = append(labels, a.Label)
	}
	return labels
}

// tidy says a note that several tables of a section share only below the last of them, and keeps ids apart where
// labels that differ give the same one.
func tidy(parts []Part, ids map[string]bool) {
	unique := func(id string) string {
		name := id
		for n := 2; ids[name]; n++ {
			name = fmt.Sprintf("%s-%d", id, n)
		}
		ids[name] = true
		return name
	}
	said := map[string]bool{}
	for _, part := range slices.Backward(parts) {
		if t := part.Table; t != nil {
			t.Notes = slices.DeleteFunc(t.Notes, func(note string) bool { return said[note] })
			for _, note := range t.Notes {
				said[note] = true
			}
		}
	}
	for _, part := range parts {
		switch {
		case part.Table != nil:
			part.Table.ID = unique(part.Table.ID)
		case part.Figure != nil:
			part.Figure.ID = unique(part.Figure.ID)
		}
	}
}

// add appends the tables that there are.
func add(parts []Part, tables ...*Table) []Part {
	for _, t := range tables {
		if t != nil {
			parts = append(parts, Part{Table: t})
		}
	}
	return parts
}

// addFigures appends the figures that there are.
func addFigures(parts []Part, figures ...*Figure) []Part {
	for _, f := range figures {
		if f != nil {
			parts = append(parts, Part{Figure: f})
		}
	}
	return parts
}

// answers are the sentences of the first comparison on the first set.
func (s *Study) answers() []string {
	comparisons, sets := s.comparisons(), s.sets()
	if len(comparisons) == 0 || len(sets) == 0 {
		return nil
	}
	pairs := s.paired(comparisons[0], sets[0])
	verdicts, _ := decideAll(pairs)
	var answers []string
	for i := range pairs {
		answers = append(answers, pairs[i].sentence(verdicts[i]))
	}
	return answers
}

// facts say what the numbers are made of.
func (s *Study) facts() []string {
	var facts []string
	seeds := map[int64]bool{}
	for _, a := range s.Arms {
		for _, r := range a.Runs {
			if r.Seed != nil {
				seeds[*r.Seed] = true
			}
		}
	}
	if len(s.Arms) > 0 {
		text := plural(len(s.Arms), "arm")
		if len(seeds) > 0 {
			var names []string
			for _, n := range sortedSeeds(seeds) {
				names = append(names, fmt.Sprint(n))
			}
			text += fmt.Sprintf(", %s (%s)", plural(len(seeds), "seed"), strings.Join(names, ", "))
		}
		for _, set := range s.sets() {
			n := 0
			for i := range s.Arms {
				for j := range s.Arms[i].Runs {
					n = max(n, len(s.Arms[i].Runs[j].greedy(set, s.Arms[i].condition())))
				}
			}
			if n > 0 {
				text += fmt.Sprintf(", %d %s", n, setName(set))
				if len(seeds) > 1 {
					text += " per seed"
				}
			}
		}
		facts = append(facts, text+".")
	}
	longest := 0
	for _, a := range s.Arms {
		for _, r := range a.Runs {
			longest = max(longest, len(r.Curve))
		}
	}
	if longest > 0 {
		facts = append(facts, fmt.Sprintf("Up to %d updates of training per arm.", longest))
	}
	var missing []string
	for _, c := range s.Compare {
		for _, pair := range c.Pairs {
			for _, label := range pair {
				if s.arm(label) == nil && !slices.Contains(missing, label) {
					missing = append(missing, label)
				}
			}
		}
	}
	if len(missing) > 0 {
		facts = append(facts, "Not scored, so missing from the comparisons: "+strings.Join(missing, ", ")+".")
	}
	return facts
}

func sortedSeeds(seeds map[int64]bool) []int64 {
	var all []int64
	for n := range seeds {
		all = append(all, n)
	}
	slices.Sort(all)
	return all
}
