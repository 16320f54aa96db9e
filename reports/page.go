package reports

import (
	"fmt"
	"slices"
)

// Page is everything that a reader sees, in order, as plain values.
type Page struct {
	Title    string    `json:"title"`
	Question string    `json:"question,omitempty"`
	Expect   string    `json:"expect,omitempty"`
	Answers  []Answer  `json:"answers,omitempty"` // the lines of the first screen, one per outcome of the question
	Effects  []Effect  `json:"effects,omitempty"` // rows of the forest plot: claims on the first set and in training
	Run      string    `json:"run,omitempty"`     // model, tasks, seeds, updates, hours, commit
	Limits   []string  `json:"limits,omitempty"`  // of the result, with the notes of the report
	Failures []Failure `json:"failures,omitempty"`
	First    []Part    `json:"-"` // forest plots and the table of initialisations and methods, on the first screen
	Sections []Section `json:"-"`
	Evidence *Evidence `json:"-"` // nil for numbers that no store contains

	looks map[string]look // of the arms, by label
}

// Section is a chapter of the page.
type Section struct {
	ID, Title string
	Lead      string
	Folded    bool // for reference: behind a fold in HTML
	Parts     []Part
}

// Part is an element of a section; exactly one of the first three fields is set.
type Part struct {
	Table       *Table
	Figure      *Figure
	Transcripts *Transcripts

	set string // of tasks; "" for a part that does not exist once for each set
}

// Failure is a stage without a result.
type Failure struct {
	Address string   `json:"address"`
	Cause   string   `json:"cause"`         // "failed: …", "was skipped: …"
	Log     []string `json:"log,omitempty"` // its last lines
}

// check is a way to check the page: a sentence and a command.
type check struct{ Text, Command string }

// Checks returns how a reader checks the page; nil without evidence.
func (p *Page) Checks() []check {
	if p.Evidence == nil {
		return nil
	}
	file, cell := slug(p.Title)+".html", "TABLE.r1c2"
	if tables := p.tables(); len(tables) > 0 {
		cell = cellID(tables[0].ID, 1, 2)
	}
	return []check{
		{Text: "Every number has an id. Click a number, or press Enter on it, to see its id, its source and the command " +
			"that recomputes it. Ids count rows and columns from 1."},
		{"This recomputes the whole page from the stored artifacts and compares every value and every byte:",
			"rcgrpo verify " + file},
		{"This recomputes one number:", "rcgrpo reproduce '" + file + "#" + cell + "'"},
		{"This runs the experiment, and reuses every result that exists:", "rcgrpo run " + slug(p.Title) + ".hcl"},
	}
}

func (p *Page) tables() []*Table { return collect(p, func(part Part) *Table { return part.Table }) }

func (p *Page) figures() []*Figure { return collect(p, func(part Part) *Figure { return part.Figure }) }

func collect[T any](p *Page, of func(Part) *T) []*T {
	var all []*T
	for _, s := range append([]Section{{Parts: p.First}}, p.Sections...) {
		for _, part := range s.Parts {
			if one := of(part); one != nil {
				all = append(all, one)
			}
		}
	}
	return all
}

// Page computes the page: the answers, then the sections. Empty sections are left out.
func (s *Study) Page() *Page {
	p := s.complete()
	p.Title, p.Question, p.Expect, p.Failures = s.Name, s.Question, s.Expect, s.Failures
	p.Limits = append(slices.Clone(s.Notes), s.limits()...)
	for i := range p.Sections {
		p.Sections[i].trim()
	}
	lead := Section{Parts: p.First}
	lead.trim()
	p.First = lead.Parts
	p.Sections = slices.DeleteFunc(p.Sections, func(s Section) bool { return len(s.Parts) == 0 })
	return p
}

// complete computes the answers, the line of the run and all sections, with the tables, columns and rows that a page
// omits: a part of the artifacts may lack the values that keep them on the page.
func (s *Study) complete() *Page {
	s.tested = map[string][]*Contrast{}
	defer func() { s.tested = nil }()
	p := &Page{Answers: s.answers(), Effects: s.effects(), Run: s.runLine(), First: s.first(), Sections: s.sections()}
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
	s.dress(p)
	return p
}

// trim removes the spare parts of the section. It keeps a note of several tables only below the first of them.
func (s *Section) trim() {
	s.Parts = slices.DeleteFunc(s.Parts, func(p Part) bool {
		return p.Table != nil && p.Table.trim() == nil || p.Figure != nil && p.Figure.spare
	})
	seen := map[string]bool{}
	for _, part := range s.Parts {
		if t := part.Table; t != nil {
			t.Notes = slices.DeleteFunc(t.Notes, func(note string) bool { return seen[note] })
			for _, note := range t.Notes {
				seen[note] = true
			}
		}
	}
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

// item is a table or a figure that a page can show, or several of one kind (one for each set of tasks, for example).
type item struct {
	name    string // in the section block of a report: "main", "fig-reward"
	section string // id of its section on the usual page
	parts   func(*Study) []Part
}

// usual are the sections of a page without section blocks, in their order.
var usual = []Section{
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

// items lists all items in the order of the usual page.
func items() []item {
	all := []item{
		{"map", "map", (*Study).mapParts},
		{"main", "results", eachSet((*Study).mainTable)},
		{"reference", "results", (*Study).referenceParts},
		{"ablation", "results", (*Study).ablationTables},
		{"seeds", "results", eachSet((*Study).seedTable)},
		{"fig-categories", "results", eachSet((*Study).categoryFigure)},
		{"pass-at-k", "results", eachSet((*Study).passTable)},
		{"fig-pass-at-k", "results", eachSet((*Study).passFigure)},
		{"fig-outcomes", "results", eachSet((*Study).outcomeFigure)},
		{"fig-effects", "differences", (*Study).effectFigures},
		{"compare", "differences", (*Study).comparisonTables},
		{"gap", "token", eachSet((*Study).gapTable)},
		{"gap-training", "token", one((*Study).trainingGapTable)},
	}
	curves := func(folded bool) {
		for i := range curveFigures {
			if kind := &curveFigures[i]; kind.folded == folded {
				all = append(all, item{"fig-" + kind.id, "training", one(kind.figure)})
			}
		}
	}
	curves(false)
	all = append(all,
		item{"fig-forecast", "training", one((*Study).forecastFigure)},
		item{"entropy", "training", func(s *Study) []Part {
			return append(one((*Study).entropyTable)(s), one((*Study).correlationTable)(s)...)
		}},
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
		item{"statistics", "tasks", one((*Study).statisticsTable)},
		item{"mixtures", "tasks", one((*Study).mixtureTable)},
		item{"examples", "tasks", (*Study).exampleTables},
		item{"versions", "setup", one((*Study).versionsTable)},
		item{"departures", "setup", one((*Study).departuresTable)},
		item{"settings", "setup", one((*Study).settingsTable)},
		item{"runs", "cost", one((*Study).runsTable)},
		item{"fig-timeline", "cost", (*Study).timelineFigures},
		item{"evidence", "sources", one((*Study).artifactsTable)},
	)
}

// partsOf returns a table or a figure as parts; none if it is nil.
func partsOf[T *Table | *Figure](of T, set string) []Part {
	if of == nil {
		return nil
	}
	part := Part{set: set}
	switch of := any(of).(type) {
	case *Table:
		part.Table = of
	case *Figure:
		part.Figure = of
	}
	return []Part{part}
}

func one[T *Table | *Figure](of func(*Study) T) func(*Study) []Part {
	return func(s *Study) []Part { return partsOf(of(s), "") }
}

func eachSet[T *Table | *Figure](of func(*Study, string) T) func(*Study) []Part {
	return func(s *Study) (parts []Part) {
		for _, set := range s.sets() {
			parts = append(parts, partsOf(of(s, set), set)...)
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
		if sections[i].ID == "results" {
			slices.SortStableFunc(sections[i].Parts, func(a, b Part) int {
				return slices.Index(sets, a.set) - slices.Index(sets, b.set)
			})
		}
	}
	return sections
}
