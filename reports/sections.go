package reports

import (
	"fmt"
	"slices"

	"rcgrpo/reports/page"
)

// Page computes the page: the answers, then the sections. Empty sections are left out.
func (s *Study) Page() *page.Page {
	p := s.complete()
	p.Title, p.Question, p.Expect, p.Failures = s.Name, s.Question, s.Expect, s.Failures
	p.Terms = s.terms()
	p.Limits = append(slices.Clone(s.Notes), s.limits()...)
	for i := range p.Sections {
		p.Sections[i].Trim()
	}
	p.First.Trim()
	p.Sections = slices.DeleteFunc(p.Sections, func(s page.Section) bool { return len(s.Parts) == 0 })
	return p
}

// complete computes the answers, the line of the run and all sections, with the tables, columns and rows that a page
// omits: a part of the artifacts may lack the values that keep them on the page.
func (s *Study) complete() *page.Page {
	s.tested = map[string][]*Contrast{}
	defer func() { s.tested = nil }()
	p := &page.Page{Answers: s.answers(), Effects: s.effects(), Run: s.runLine(), Sections: s.sections(),
		First: page.Section{Parts: s.first()}}
	ids := map[string]bool{} // different labels may have equal slugs
	unique := func(id *string) {
		name := *id
		for n := 2; ids[*id]; n++ {
			*id = fmt.Sprintf("%s-%d", name, n)
		}
		ids[*id] = true
	}
	for _, t := range p.Tables() {
		unique(&t.ID)
	}
	for _, f := range p.Figures() {
		unique(&f.ID)
	}
	s.finishTables(p)
	return p
}

func (s *Study) labels() []string {
	var labels []string
	for _, a := range s.Arms {
		labels = append(labels, a.Label)
	}
	return labels
}

// taskCount returns the largest number of tasks of a set in one evaluation, and the number of different tasks in all.
func (s *Study) taskCount(set string) (each, all int) {
	different := map[string]bool{}
	for i := range s.Arms {
		for _, r := range s.Arms[i].scored(set, true).runs {
			each = max(each, len(r.outcomes))
			for task := range r.outcomes {
				different[task] = true
			}
		}
	}
	return each, len(different)
}

// item is a table or a figure that a page can show, or several of one kind (one for each set of tasks, for example).
type item struct {
	name    string // in the section block of a report: "main", "fig-reward"
	section string // id of its section on the usual page
	parts   func(*Study) []page.Part
}

// usual are the sections of a page without section blocks, in their order.
var usual = []page.Section{
	{ID: "map", Title: "Map of the effect"},
	{ID: "results", Title: "Results"},
	{ID: "differences", Title: "Differences"},
	{ID: "token", Title: "The reward token"},
	{ID: "training", Title: "Training dynamics"},
	{ID: "transcripts", Title: "Transcripts", Lead: "Complete episodes, selected by a hash of their names. Half of " +
		"them are failures, if there are enough."},
	{ID: "tasks", Title: "Data", Folded: true},
	{ID: "setup", Title: "Settings", Folded: true},
	{ID: "cost", Title: "Runs", Folded: true},
	{ID: "sources", Title: "Evidence", Folded: true},
}

// items lists all items in the order of the usual page. A new name joins the comment of Section.Show (kind.go).
func items() []item {
	all := []item{
		{"map", "map", (*Study).mapParts},
		{"main", "results", eachSet((*Study).mainTable)},
		{"reference", "results", (*Study).referenceParts},
		{"ablation", "results", (*Study).ablationTables},
		{"calls", "results", func(s *Study) []page.Part { return s.callsTable().Parts(s.firstSet()) }},
		{"seeds", "results", eachSet((*Study).seedTable)},
		{"replies", "results", eachSet((*Study).repliesTable)},
		{"fig-categories", "results", eachSet((*Study).categoryFigure)},
		{"pass-at-k", "results", eachSet((*Study).passTable)},
		{"fig-pass-at-k", "results", eachSet((*Study).passFigure)},
		{"fig-outcomes", "results", eachSet((*Study).outcomeFigure)},
		{"fig-effects", "differences", (*Study).effectFigures},
		{"compare", "differences", (*Study).comparisonTables},
		{"gap", "token", eachSet((*Study).gapTable)},
		{"gap-training", "token", single((*Study).trainingGapTable)},
	}
	curves := func(folded bool) {
		for _, kind := range curveFigures {
			if kind.folded == folded {
				all = append(all, item{"fig-" + kind.id, "training", single(kind.figure)})
			}
		}
	}
	curves(false)
	all = append(all,
		item{"fig-forecast", "training", single((*Study).forecastFigure)},
		item{"entropy", "training", func(s *Study) []page.Part {
			return append(single((*Study).entropyTable)(s), single((*Study).correlationTable)(s)...)
		}},
		item{"late", "training", single((*Study).lateTable)},
		item{"signal", "training", single((*Study).signalTable)},
		item{"forecast", "training", single((*Study).forecastTable)},
		item{"efficiency", "training", single((*Study).efficiencyTable)})
	curves(true)
	return append(all,
		item{"fig-successes", "training", (*Study).successFigures},
		item{"values", "training", single((*Study).valuesTable)},
		item{"transcripts", "transcripts", (*Study).transcriptParts},
		item{"data", "tasks", single((*Study).dataTable)},
		item{"certificate", "tasks", single((*Study).certificateTable)},
		item{"statistics", "tasks", single((*Study).statisticsTable)},
		item{"mixtures", "tasks", single((*Study).originTable)},
		item{"examples", "tasks", (*Study).exampleTables},
		item{"versions", "setup", single((*Study).versionsTable)},
		item{"departures", "setup", single((*Study).departuresTable)},
		item{"settings", "setup", single((*Study).settingsTable)},
		item{"runs", "cost", single((*Study).runsTable)},
		item{"fig-timeline", "cost", (*Study).timelineFigures},
		item{"evidence", "sources", single((*Study).artifactsTable)},
	)
}

// shown is a table or a figure.
type shown interface{ Parts(set string) []page.Part }

func single[T shown](of func(*Study) T) func(*Study) []page.Part {
	return func(s *Study) []page.Part { return of(s).Parts("") }
}

func eachSet[T shown](of func(*Study, string) T) func(*Study) []page.Part {
	return func(s *Study) (parts []page.Part) {
		for _, set := range s.sets() {
			parts = append(parts, of(s, set).Parts(set)...)
		}
		return parts
	}
}

// itemNames returns the names that a section block may contain.
func itemNames() []string {
	var names []string
	for _, p := range items() {
		names = append(names, p.name)
	}
	return names
}

// sections returns the sections of the report, or the usual ones.
func (s *Study) sections() []page.Section {
	if len(s.Sections) == 0 {
		return s.usualSections()
	}
	all := items()
	var sections []page.Section
	for i, c := range s.Sections {
		section := page.Section{ID: fmt.Sprintf("section-%d", i+1), Title: c.Title, Lead: c.Lead}
		for _, name := range c.Show {
			if at := slices.IndexFunc(all, func(p item) bool { return p.name == name }); at >= 0 {
				section.Parts = append(section.Parts, all[at].parts(s)...)
			}
		}
		sections = append(sections, section)
	}
	return sections
}

// usualSections returns each section with its items. The results of one task set are together.
func (s *Study) usualSections() []page.Section {
	sections, sets := slices.Clone(usual), s.sets()
	for i := range sections {
		for _, it := range items() {
			if it.section == sections[i].ID {
				sections[i].Parts = append(sections[i].Parts, it.parts(s)...)
			}
		}
		if sections[i].ID == "results" {
			slices.SortStableFunc(sections[i].Parts, func(a, b page.Part) int {
				return slices.Index(sets, a.Set) - slices.Index(sets, b.Set)
			})
		}
	}
	return sections
}
