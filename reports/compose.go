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

// answers are the sentences of the first comparison and of every other one that expects something, on the first set of
// tasks or in training.
func (s *Study) answers() []string {
	var asked []Comparison
	for i, c := range s.comparisons() {
		if i == 0 || c.Expect != "" {
			asked = append(asked, c)
		}
	}
	scored, trained := []Contrast{}, s.judged("", true)
	set := ""
	if sets := s.sets(); len(sets) > 0 {
		set = sets[0]
		scored = s.judged(set, false)
	}
	var answers []string
	for _, how := range asked {
		judged, on := scored, "success on "+setName(set)
		switch {
		case how.ofTraining():
			judged, on = trained, outcomeWords(how.Outcome)
		case how.Outcome == OutcomeSampled:
			on = "sampled " + on
		}
		for _, names := range how.Pairs {
			if at := slices.IndexFunc(judged, func(c Contrast) bool { return c.tests(how, names) }); at >= 0 {
				c := judged[at]
				c.Comparison = how // another block may have made the same test
				answers = append(answers, c.sentence(on))
			}
		}
	}
	return answers
}

// facts say what the numbers are made of.
func (s *Study) facts() []string {
	var facts []string
	seeds := map[int64]bool{}
	var fewer []string // arms that were evaluated with more seeds than they have policies
	for _, a := range s.Arms {
		evaluated, identities := 0, map[string]bool{}
		for i := range a.Runs {
			r := &a.Runs[i]
			if r.Seed != nil {
				seeds[*r.Seed] = true
			}
			if len(r.Scores) > 0 {
				evaluated++
				identities[r.identity()] = true
			}
		}
		if len(identities) < evaluated {
			fewer = append(fewer, fmt.Sprintf("%s (%s, %d evaluations)", a.Label, policyCount(len(identities)), evaluated))
		}
	}
	drawn := false // evaluations have different tasks
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
			each, all := s.taskCount(set)
			if each == 0 {
				continue
			}
			text += fmt.Sprintf(", %d %s", each, setName(set))
			switch {
			case all > each:
				text += fmt.Sprintf(" per evaluation (%d different ones)", all)
				drawn = true
			case len(seeds) > 1:
				text += " (the same for every seed)"
			}
		}
		facts = append(facts, text+".")
	}
	if drawn && len(seeds) > 1 {
		facts = append(facts, "Evaluations of one set have different tasks, so intervals over seeds contain the luck of the draw.")
	}
	if len(fewer) > 0 {
		facts = append(facts, "Evaluated more often than trained, which makes no more seeds: "+strings.Join(fewer, "; ")+".")
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
	var missing, impossible []string
	for _, c := range s.Compare {
		for _, pair := range c.Pairs {
			absent := false
			for _, label := range pair {
				if s.arm(label) == nil {
					absent = true
					if !slices.Contains(missing, label) {
						missing = append(missing, label)
					}
				}
			}
			if !absent && !s.comparable(c, pair) {
				impossible = append(impossible, fmt.Sprintf("%s → %s (%s)", pair[0], pair[1], c.Label))
			}
		}
	}
	if len(missing) > 0 {
		facts = append(facts, "Not scored, so missing from the comparisons: "+strings.Join(missing, ", ")+".")
	}
	if len(impossible) > 0 {
		facts = append(facts, "Both sides never have the compared outcome, so not compared: "+strings.Join(impossible, "; ")+".")
	}
	return facts
}

func policyCount(n int) string {
	if n == 1 {
		return "one policy"
	}
	return fmt.Sprintf("%d policies", n)
}

// taskCount is the largest number of tasks of a set in one evaluation, and that of different ones in all of them.
func (s *Study) taskCount(set string) (each, all int) {
	different := map[string]bool{}
	for i := range s.Arms {
		for j := range s.Arms[i].Runs {
			found := s.Arms[i].Runs[j].outcomes(set, s.Arms[i].condition(), true)
			each = max(each, len(found))
			for task := range found {
				different[task] = true
			}
		}
	}
	return each, len(different)
}

// comparable reports whether both arms have the outcome of a comparison, on one set.
func (s *Study) comparable(how Comparison, names [2]string) bool {
	a, b := s.arm(names[0]), s.arm(names[1])
	if how.ofTraining() {
		_, ok := compareTraining(a, b, s.Windows, how)
		return ok
	}
	greedy := how.Outcome != OutcomeSampled
	return slices.ContainsFunc(s.sets(), func(set string) bool {
		return len(a.policies(set, greedy)) > 0 && len(b.policies(set, greedy)) > 0
	})
}

func sortedSeeds(seeds map[int64]bool) []int64 {
	var all []int64
	for n := range seeds {
		all = append(all, n)
	}
	slices.Sort(all)
	return all
}
