package reports

import (
	"fmt"
	"slices"
	"strings"
)

// piece is a table or a figure, or several of one sort (one for each set of tasks, say), that a page can show.
type piece struct {
	name  string // as in a report's section: "main", "fig-reward"
	what  string
	parts func(*Study) []Part
}

// pieces are all that there are, in the order of the usual page. The figures over updates follow from curveFigures.
func pieces() []piece {
	all := []piece{
		{"main", "success of every arm, the paper's main table", eachSet((*Study).mainTable)},
		{"seeds", "the same for each seed", eachSet((*Study).seedTable)},
		{"fig-categories", "success by category, with intervals", eachSetFigure((*Study).categoryFigure)},
		{"fig-outcomes", "which arm passes which task", eachSetFigure((*Study).outcomeFigure)},
		{"pass-at-k", "pass@k from several sampled episodes of a task", eachSet((*Study).passTable)},
		{"fig-pass-at-k", "the same as curves over k", eachSetFigure((*Study).passFigure)},
		{"compare", "differences of the compared pairs, with tests", func(s *Study) []Part {
			var parts []Part
			tables := func(set string, training bool) {
				judged := s.judged(set, training)
				for _, c := range s.comparisons() {
					if c.ofTraining() == training {
						parts = add(parts, s.comparisonTable(c, set, judged))
					}
				}
			}
			for _, set := range s.sets() {
				tables(set, false)
			}
			tables("", true)
			return parts
		}},
		{"gap", "what the reward token does to a policy", eachSet((*Study).gapTable)},
		{"gap-training", "the same during training", one((*Study).trainingGapTable)},
	}
	for i, figure := range curveFigures {
		all = append(all, piece{"fig-" + figure.id, strings.ToLower(figure.title[:1]) + figure.title[1:] + " over the updates", func(s *Study) []Part {
			return addFigures(nil, s.curveFigure(i))
		}})
	}
	return append(all,
		piece{"entropy", "entropy early and late, and its correlation with the reward", one((*Study).entropyTable)},
		piece{"late", "the late phase of training", one((*Study).lateTable)},
		piece{"signal", "how much an update can learn from", one((*Study).signalTable)},
		piece{"forecast", "groups without variance, as forecast and at the first update", one((*Study).forecastTable)},
		piece{"fig-forecast", "the same, a point for each training", func(s *Study) []Part { return addFigures(nil, s.forecastFigure()) }},
		piece{"fig-successes", "successes per group over the updates", func(s *Study) []Part { return addFigures(nil, s.successFigures()...) }},
		piece{"values", "every logged value", one((*Study).valuesTable)},
		piece{"transcripts", "episodes in full", (*Study).transcriptParts},
		piece{"data", "the task sets", one((*Study).dataTable)},
		piece{"certificate", "what test and training tasks share", one((*Study).certificateTable)},
		piece{"mixtures", "what fine-tuning data are made of", one((*Study).mixtureTable)},
		piece{"departures", "settings that depart from the paper's", func(s *Study) []Part { t, _ := s.settingsTables(); return add(nil, t) }},
		piece{"settings", "all settings of the training stages", func(s *Study) []Part { _, t := s.settingsTables(); return add(nil, t) }},
		piece{"runs", "what it cost", one((*Study).runsTable)},
		piece{"fig-timeline", "when the stages ran", func(s *Study) []Part { return addFigures(nil, s.timelineFigure()) }},
		piece{"evidence", "digests and keys of the artifacts", one((*Study).evidenceTable)},
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
	return func(s *Study) []Part { return add(nil, table(s)) }
}

// pieceNames are the names that a section may show.
func pieceNames() []string {
	var names []string
	for _, p := range pieces() {
		names = append(names, p.name)
	}
	return names
}

// Chosen is a section that a report asks for: pieces in this order.
type Chosen struct {
	Title string   `json:"title"`
	Lead  string   `json:"lead,omitempty"`
	Show  []string `json:"show"`
}

// sections of the page: the chosen ones, or the usual ones.
func (s *Study) sections() []Section {
	if len(s.Chosen) == 0 {
		return s.usualSections()
	}
	all := pieces()
	var sections []Section
	for i, c := range s.Chosen {
		section := Section{ID: fmt.Sprintf("section-%d", i+1), Title: c.Title, Lead: c.Lead}
		for _, name := range c.Show {
			if at := slices.IndexFunc(all, func(p piece) bool { return p.name == name }); at >= 0 {
				section.Parts = append(section.Parts, all[at].parts(s)...)
			}
		}
		sections = append(sections, section)
	}
	return sections
}

// usualSections are in the order of importance: the answer, the scores, the differences, the training, and what it all
// rests on. Sections that nothing was recorded for are empty.
func (s *Study) usualSections() []Section {
	parts := map[string][]Part{}
	for _, p := range pieces() {
		parts[p.name] = p.parts(s)
	}
	of := func(names ...string) []Part {
		var all []Part
		for _, name := range names {
			all = append(all, parts[name]...)
		}
		return all
	}
	var curves, folded []Part
	for _, figure := range curveFigures {
		for _, part := range parts["fig-"+figure.id] {
			if part.Figure.Folded {
				folded = append(folded, part)
			} else {
				curves = append(curves, part)
			}
		}
	}
	training := slices.Concat(curves, of("fig-forecast", "entropy", "late", "signal", "forecast"), folded, of("fig-successes", "values"))
	return []Section{
		{ID: "results", Title: "Results", Parts: s.bySet(of("main", "seeds", "fig-categories", "pass-at-k", "fig-pass-at-k", "fig-outcomes"))},
		{ID: "differences", Title: "Differences", Parts: of("compare")},
		{ID: "token", Title: "The reward token", Parts: of("gap", "gap-training")},
		{ID: "training", Title: "Training dynamics", Parts: training},
		{ID: "transcripts", Title: "Transcripts", Lead: "Episodes in full. Which ones is decided by a hash of their names, half of them failures where there are enough.", Parts: of("transcripts")},
		{ID: "tasks", Title: "Data", Parts: of("data", "certificate", "mixtures")},
		{ID: "setup", Title: "Settings", Parts: of("departures", "settings")},
		{ID: "cost", Title: "Runs", Parts: of("runs", "fig-timeline")},
		{ID: "sources", Title: "Evidence", Parts: of("evidence")},
	}
}

// bySet puts parts that exist once for each set together by set, each set's in the order given.
func (s *Study) bySet(parts []Part) []Part {
	sets := s.sets()
	slices.SortStableFunc(parts, func(a, b Part) int { return slices.Index(sets, a.set) - slices.Index(sets, b.set) })
	return parts
}
