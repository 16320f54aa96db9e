package reports

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// Page is everything that a reader sees, in order, as plain values.
type Page struct {
	Title    string
	Question string
	Expect   string
	Answers  []string // one sentence per tested pair of the first comparison and of those with an expectation
	Facts    []string // arms, seeds, tasks, and limits of the numbers
	Failures []Failure
	Sections []Section
	Arms     []string  // labels in the order of their colours
	Evidence *Evidence // nil for numbers that no store contains
}

// Section is a chapter of the page.
type Section struct {
	ID, Title string
	Lead      string
	Parts     []Part
}

// Part is an element of a section; exactly one of the first four fields is set.
type Part struct {
	Table       *Table
	Figure      *Figure
	Transcripts *Transcripts
	Text        string // a paragraph

	set string // of tasks; "" for a part that does not exist once for each set
}

// Failure is a stage without a result.
type Failure struct {
	Address string   `json:"address"`
	Cause   string   `json:"cause"`         // "failed: …", "was skipped: …"
	Log     []string `json:"log,omitempty"` // its last lines
}

// tables returns the tables of the page, in order.
func (p *Page) tables() []*Table {
	var all []*Table
	for _, s := range p.Sections {
		for _, part := range s.Parts {
			if part.Table != nil {
				all = append(all, part.Table)
			}
		}
	}
	return all
}

// figures returns the figures of the page, in order.
func (p *Page) figures() []*Figure {
	var all []*Figure
	for _, s := range p.Sections {
		for _, part := range s.Parts {
			if part.Figure != nil {
				all = append(all, part.Figure)
			}
		}
	}
	return all
}

// Page computes the page: the answers, then the sections. Empty sections are left out.
func (s *Study) Page() *Page {
	p := s.complete()
	p.Title, p.Question, p.Expect, p.Failures, p.Arms = s.Name, s.Question, s.Expect, s.Failures, s.labels()
	p.Answers, p.Facts = s.answers(), append(slices.Clone(s.Notes), s.facts()...)
	for i := range p.Sections {
		p.Sections[i].trim()
	}
	p.Sections = slices.DeleteFunc(p.Sections, func(s Section) bool { return len(s.Parts) == 0 })
	return p
}

// complete computes all sections with the tables, columns and rows that a page omits: a part of the artifacts may lack
// the values that keep them on the page.
func (s *Study) complete() *Page {
	p := &Page{Sections: s.sections()}
	ids := map[string]bool{} // different labels may have equal slugs
	unique := func(id *string) {
		name := *id
		for n := 2; ids[*id]; n++ {
			*id = fmt.Sprintf("%s-%d", name, n)
		}
		ids[*id] = true
	}
	for _, t := range p.tables() {
		unique(&t.ID)
	}
	for _, f := range p.figures() {
		unique(&f.ID)
	}
	return p
}

// trim removes the spare parts of the section. It keeps a note of several tables only below the last of them.
func (s *Section) trim() {
	s.Parts = slices.DeleteFunc(s.Parts, func(p Part) bool { return p.Table != nil && p.Table.trim() == nil })
	seen := map[string]bool{}
	for _, part := range slices.Backward(s.Parts) {
		if t := part.Table; t != nil {
			t.Notes = slices.DeleteFunc(t.Notes, func(note string) bool { return seen[note] })
			for _, note := range t.Notes {
				seen[note] = true
			}
		}
	}
}

// labels returns the labels of the arms, in the order of their colours.
func (s *Study) labels() []string {
	var labels []string
	for _, a := range s.Arms {
		labels = append(labels, a.Label)
	}
	return labels
}

// facts returns sentences about the origin of the numbers.
func (s *Study) facts() []string {
	var facts, fewer []string
	seeds := map[int64]bool{}
	longest := 0
	for _, a := range s.Arms {
		evaluated, identities := 0, map[string]bool{}
		for i := range a.Runs {
			r := &a.Runs[i]
			longest = max(longest, len(r.Curve))
			if r.Seed != nil {
				seeds[*r.Seed] = true
			}
			if len(r.Scores) > 0 {
				evaluated++
				identities[r.identity()] = true
			}
		}
		if len(identities) < evaluated {
			policies := "one policy"
			if len(identities) > 1 {
				policies = fmt.Sprintf("%d policies", len(identities))
			}
			fewer = append(fewer, fmt.Sprintf("%s (%s, %d evaluations)", a.Label, policies, evaluated))
		}
	}
	if len(s.Arms) > 0 {
		facts = s.size(seeds)
	}
	if len(fewer) > 0 {
		facts = append(facts, "More evaluations than trainings, which does not add seeds: "+strings.Join(fewer, "; ")+".")
	}
	if longest > 0 {
		facts = append(facts, fmt.Sprintf("Up to %d updates of training per arm.", longest))
	}
	return append(facts, s.uncompared()...)
}

// size counts arms, seeds and tasks.
func (s *Study) size(seeds map[int64]bool) []string {
	text := plural(len(s.Arms), "arm")
	if len(seeds) > 0 {
		var names []string
		for _, n := range slices.Sorted(maps.Keys(seeds)) {
			names = append(names, fmt.Sprint(n))
		}
		text += fmt.Sprintf(", %s (%s)", plural(len(seeds), "seed"), strings.Join(names, ", "))
	}
	drawn := false // evaluations have different tasks
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
	facts := []string{text + "."}
	if drawn && len(seeds) > 1 {
		facts = append(facts, "Evaluations of one set have different tasks, so intervals over seeds include the variance of the draw.")
	}
	return facts
}

// taskCount returns the largest number of tasks of a set in one evaluation, and the number of different tasks in all.
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

// addTables appends the tables that are not nil.
func addTables(parts []Part, tables ...*Table) []Part {
	for _, t := range tables {
		if t != nil {
			parts = append(parts, Part{Table: t})
		}
	}
	return parts
}

// addFigure appends a figure that is not nil.
func addFigure(parts []Part, f *Figure) []Part {
	if f == nil {
		return parts
	}
	return append(parts, Part{Figure: f})
}
