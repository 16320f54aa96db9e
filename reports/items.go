package reports

import (
	"fmt"
	"slices"
)

// item is a table or a figure that a page can show, or several of one kind (one for each set of tasks, for example).
type item struct {
	name    string // in the section block of a report: "main", "fig-reward"
	section string // id of its section on the usual page
	parts   func(*Study) []Part
}

// usual are the sections of a page without section blocks, in their order.
var usual = []Section{
	{ID: "results", Title: "Results"},
	{ID: "differences", Title: "Differences"},
	{ID: "token", Title: "The reward token"},
	{ID: "training", Title: "Training dynamics"},
	{ID: "transcripts", Title: "Transcripts", Lead: "Complete episodes, selected by a hash of their names. Half of them are " +
		"failures, if there are enough."},
	{ID: "tasks", Title: "Data"},
	{ID: "setup", Title: "Settings"},
	{ID: "cost", Title: "Runs"},
	{ID: "sources", Title: "Evidence"},
}

// items lists all items in the order of the usual page.
func items() []item {
	all := []item{
		{"main", "results", eachSet((*Study).mainTable)},
		{"seeds", "results", eachSet((*Study).seedTable)},
		{"fig-categories", "results", eachSetFigure((*Study).categoryFigure)},
		{"pass-at-k", "results", eachSet((*Study).passTable)},
		{"fig-pass-at-k", "results", eachSetFigure((*Study).passFigure)},
		{"fig-outcomes", "results", eachSetFigure((*Study).outcomeFigure)},
		{"compare", "differences", (*Study).comparisonTables},
		{"gap", "token", eachSet((*Study).gapTable)},
		{"gap-training", "token", one((*Study).trainingGapTable)},
	}
	curves := func(folded bool) {
		for i := range curveFigures {
			if kind := &curveFigures[i]; kind.folded == folded {
				all = append(all, item{"fig-" + kind.id, "training", oneFigure(kind.figure)})
			}
		}
	}
	curves(false)
	all = append(all,
		item{"fig-forecast", "training", oneFigure((*Study).forecastFigure)},
		item{"entropy", "training", one((*Study).entropyTable)},
		item{"late", "training", one((*Study).lateTable)},
		item{"signal", "training", one((*Study).signalTable)},
		item{"forecast", "training", one((*Study).forecastTable)})
	curves(true)
	return append(all,
		item{"fig-successes", "training", (*Study).successFigures},
		item{"values", "training", one((*Study).valuesTable)},
		item{"transcripts", "transcripts", (*Study).transcriptParts},
		item{"data", "tasks", one((*Study).dataTable)},
		item{"certificate", "tasks", one((*Study).certificateTable)},
		item{"mixtures", "tasks", one((*Study).mixtureTable)},
		item{"departures", "setup", one((*Study).departuresTable)},
		item{"settings", "setup", one((*Study).settingsTable)},
		item{"runs", "cost", one((*Study).runsTable)},
		item{"fig-timeline", "cost", oneFigure((*Study).timelineFigure)},
		item{"evidence", "sources", one((*Study).evidenceTable)},
	)
}

func eachSet(table func(*Study, string) *Table) func(*Study) []Part {
	return func(s *Study) []Part {
		var parts []Part
		for _, set := range s.sets() {
			if t := table(s, set); t != nil {
				parts = append(parts, Part{Table: t, set: set})
			}
		}
		return parts
	}
}

func eachSetFigure(figure func(*Study, string) *Figure) func(*Study) []Part {
	return func(s *Study) []Part {
		var parts []Part
		for _, set := range s.sets() {
			if f := figure(s, set); f != nil {
				parts = append(parts, Part{Figure: f, set: set})
			}
		}
		return parts
	}
}

func one(table func(*Study) *Table) func(*Study) []Part {
	return func(s *Study) []Part { return addTables(nil, table(s)) }
}

func oneFigure(figure func(*Study) *Figure) func(*Study) []Part {
	return func(s *Study) []Part { return addFigure(nil, figure(s)) }
}

// itemNames returns the names that a section block may contain.
func itemNames() []string {
	var names []string
	for _, p := range items() {
		names = append(names, p.name)
	}
	return names
}

// Chosen is a section block of a report.
type Chosen struct {
	Title string   `json:"title"`
	Lead  string   `json:"lead,omitempty"`
	Show  []string `json:"show"` // names of items, in the order of the page
}

// sections returns the sections of the report, or the usual ones.
func (s *Study) sections() []Section {
	if len(s.Chosen) == 0 {
		return s.usualSections()
	}
	all := items()
	var sections []Section
	for i, c := range s.Chosen {
		section := Section{ID: fmt.Sprintf("section-%d", i+1), Title: c.Title, Lead: c.Lead}
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
func (s *Study) usualSections() []Section {
	sections, sets := slices.Clone(usual), s.sets()
	for i := range sections {
		for _, it := range items() {
			if it.section == sections[i].ID {
				sections[i].Parts = append(sections[i].Parts, it.parts(s)...)
			}
		}
	}
	slices.SortStableFunc(sections[0].Parts, func(a, b Part) int { return slices.Index(sets, a.set) - slices.Index(sets, b.set) })
	return sections
}
