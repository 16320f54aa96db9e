package reports

import (
	"fmt"
	"math"

	"rcgrpo/stages/rl"
)

// smallest is the number of tasks below which no value is marked as the best.
const smallest = 30

// setName is how a task set is called in titles.
func setName(set string) string {
	switch set {
	case "", "test":
		return "test tasks"
	case "test_new":
		return "test tasks with new wording"
	}
	return "set " + set
}

// setID is the set as part of an element id.
func setID(set string) string {
	if set == "" {
		set = "test"
	}
	return slug(set)
}

// slug makes an element id of foreign text: letters, digits and hyphens only.
func slug(text string) string {
	id := []byte(text)
	for i, c := range id {
		switch {
		case c >= 'a' && c <= 'z', c >= '0' && c <= '9':
		case c >= 'A' && c <= 'Z':
			id[i] = c + 'a' - 'A'
		default:
			id[i] = '-'
		}
	}
	return string(id)
}

// mainTable is the paper's main table for one set: success by the paper's reward, greedy, overall and by category,
// with the official verdict beside it.
func (s *Study) mainTable(set string) *Table {
	categories := s.categories(set)
	if len(categories) < 2 {
		categories = nil // the only category is the overall column
	}
	t := &Table{ID: "main-" + setID(set), Title: "Success on " + setName(set) + ", greedy decoding"}
	t.Columns = []Column{{Name: "Arm", Left: true}, {Name: "Overall"}}
	for _, c := range categories {
		t.Columns = append(t.Columns, Column{Name: c})
	}
	t.Columns = append(t.Columns, Column{Name: "Official verdict"})
	sampled := s.hasSampled(set)
	if sampled {
		t.Columns = append(t.Columns, Column{Name: "Sampled"})
	}

	var shown []*Arm
	seeds := 0
	for i := range s.Arms {
		a := &s.Arms[i]
		token := a.condition()
		cell := func(counts, passes func(outcome) bool) Cell {
			var k, n []int
			for j := range a.Runs {
				if o := a.Runs[j].greedy(set, token); len(o) > 0 {
					passed, of := o.count(counts, passes)
					k, n = append(k, passed), append(n, of)
				}
			}
			if len(k) == 0 {
				return Words("–")
			}
			seeds = max(seeds, len(k))
			return meanShare(k, n).From(a.scoresFrom())
		}
		overall := cell(anyOutcome, rewarded)
		if overall.Of == 0 {
			continue
		}
		row := Row{Arm: i, Cells: []Cell{Words("%s", a.Label), overall}}
		if token != rl.TokenNone {
			row.Cells[0] = row.Cells[0].With("conditioned on %s", token)
		}
		for _, c := range categories {
			row.Cells = append(row.Cells, cell(func(o outcome) bool { return o.category == c }, rewarded))
		}
		row.Cells = append(row.Cells, cell(anyOutcome, officially))
		if sampled {
			row.Cells = append(row.Cells, a.sampledCell(set, token))
		}
		t.Rows = append(t.Rows, row)
		shown = append(shown, a)
	}
	s.markBest(t, shown, set)
	t.Notes = []string{"Success is the paper's reward (final state equal and every ground-truth call made); the official verdict is the benchmark's own checker on the same episodes."}
	if seeds > 1 {
		t.Notes = append(t.Notes, fmt.Sprintf("Per cent: mean over %s. Below: successes pooled over seeds, and the 95 %% t-interval of the mean over seeds. Each seed's own counts stand in the next table.", plural(seeds, "seed")))
	} else {
		t.Notes = append(t.Notes, "Below each percentage: successes of tasks, and the 95 % Wilson interval.")
	}
	t.Notes = append(t.Notes, fmt.Sprintf("★ marks an arm that beats every other one by the tests of this page (Holm-adjusted); no mark means that the data do not decide. Cells below %d tasks are never marked.", smallest))
	return t
}

func (s *Study) hasSampled(set string) bool {
	for i := range s.Arms {
		for j := range s.Arms[i].Runs {
			if _, n := s.Arms[i].Runs[j].sampled(set, s.Arms[i].condition()); n > 0 {
				return true
			}
		}
	}
	return false
}

func (a *Arm) sampledCell(set, token string) Cell {
	var k, n []int
	for j := range a.Runs {
		if passed, of := a.Runs[j].sampled(set, token); of > 0 {
			k, n = append(k, passed), append(n, of)
		}
	}
	if len(k) == 0 {
		return Words("–")
	}
	return meanShare(k, n).From(a.scoresFrom())
}

// scoresFrom is the address of the arm's scores, without the seed when there are several.
func (a *Arm) scoresFrom() string {
	if len(a.Runs) == 0 {
		return ""
	}
	return a.Runs[0].ScoresFrom
}

// markBest marks the overall cell of the arm that is better than every other one.
func (s *Study) markBest(t *Table, arms []*Arm, set string) {
	best := -1
	for i, row := range t.Rows {
		if v := row.Cells[1].Value; v != nil && (best < 0 || *v > *t.Rows[best].Cells[1].Value) {
			best = i
		}
	}
	if best < 0 || len(arms) < 2 || t.Rows[best].Cells[1].Of < smallest {
		return
	}
	var pairs []Paired
	for i, a := range arms {
		if i == best {
			continue
		}
		p, ok := compareRuns(a.Label, a.Runs, a.condition(), arms[best].Label, arms[best].Runs, arms[best].condition(), set)
		if !ok {
			return
		}
		pairs = append(pairs, p)
	}
	verdicts, _ := decideAll(pairs)
	for _, v := range verdicts {
		if v <= 0 {
			return
		}
	}
	t.Rows[best].Cells[1].Mark = MarkBest
}

// seedTable shows what the means of the main table are made of; nil for a single seed.
func (s *Study) seedTable(set string) *Table {
	t := &Table{
		ID: "seeds-" + setID(set), Title: "The same, each seed by itself (" + setName(set) + ")", Folded: true,
		Columns: []Column{{Name: "Arm", Left: true}, {Name: "Seed", Left: true}, {Name: "Success"}, {Name: "Official verdict"}},
		Notes:   []string{"Counts with 95 % Wilson intervals."},
	}
	several := false
	for i := range s.Arms {
		a := &s.Arms[i]
		several = several || len(a.Runs) > 1
		for j := range a.Runs {
			o := a.Runs[j].greedy(set, a.condition())
			if len(o) == 0 {
				continue
			}
			k, n := o.count(anyOutcome, rewarded)
			official, _ := o.count(anyOutcome, officially)
			t.Rows = append(t.Rows, Row{Arm: i, Cells: []Cell{Words("%s", a.Label), Words("%s", a.Runs[j].Name()),
				Share(k, n).From(a.Runs[j].ScoresFrom), Share(official, n).From(a.Runs[j].ScoresFrom)}})
		}
	}
	if !several {
		return nil
	}
	return t
}

// paired computes the pairs of a comparison on one set; pairs whose labels have no common tasks are left out.
func (s *Study) paired(c Comparison, set string) []Paired {
	var pairs []Paired
	for _, names := range c.Pairs {
		a, b := s.arm(names[0]), s.arm(names[1])
		if a == nil || b == nil {
			continue
		}
		if p, ok := compareRuns(a.Label, a.Runs, a.condition(), b.Label, b.Runs, b.condition(), set); ok {
			pairs = append(pairs, p)
		}
	}
	return pairs
}

// comparisonTable is an ablation: what each pair scores without and with, and whether the difference is decided.
func (s *Study) comparisonTable(c Comparison, set string) *Table {
	pairs := s.paired(c, set)
	if len(pairs) == 0 {
		return nil
	}
	seeds := 0
	for _, p := range pairs {
		seeds = max(seeds, len(p.Seeds))
	}
	method := seeds >= methodSeeds
	t := &Table{ID: "compare-" + slug(c.Label) + "-" + setID(set), Title: "Effect of " + c.Label + " on " + setName(set)}
	t.Columns = []Column{{Name: "Without → with", Left: true}, {Name: "Without"}, {Name: "With"}, {Name: "Δ points"}}
	if method {
		t.Columns = append(t.Columns, Column{Name: "95 % over seeds"})
	}
	t.Columns = append(t.Columns, Column{Name: "95 % over families"}, Column{Name: "Exact McNemar"}, Column{Name: "Verdict", Left: true})
	verdicts, adjusted := decideAll(pairs)
	for i := range pairs {
		p := &pairs[i]
		mean := p.Mean
		row := Row{Arm: NoArm, Cells: []Cell{Words("%s → %s", p.A, p.B), p.side(false), p.side(true),
			{Text: points(mean), Value: &mean, Interval: &p.Families.Interval}}}
		if method {
			row.Cells = append(row.Cells, Words("%s", p.OverSeeds.points()).With("p = %s, adjusted %s", probability(p.OverSeedsP), probability(adjusted[i][0])))
		}
		row.Cells = append(row.Cells, Words("%s", p.Families.points()).With("%d families", p.Families.Units))
		row.Cells = append(row.Cells, p.mcnemarCell(adjusted[i], method), p.verdictCell(verdicts[i]))
		t.Rows = append(t.Rows, row)
	}
	t.Notes = []string{"Differences are paired by task. McNemar's exact test is made for each seed by itself (tasks passed only without / only with); it speaks about those two checkpoints."}
	if method {
		t.Notes = append(t.Notes, "A claim about the method needs both intervals to exclude 0: the paired t-interval over seeds (p-values Holm-adjusted over the table's rows) and the bootstrap over task families (2,000 resamples).")
	} else {
		t.Notes = append(t.Notes, fmt.Sprintf("With fewer than %d seeds nothing is claimed about the method; p-values are Holm-adjusted over the table.", methodSeeds))
	}
	return t
}

func (p *Paired) mcnemarCell(adjusted []float64, method bool) Cell {
	text, detail := "", ""
	for i, s := range p.Seeds {
		if i > 0 {
			text, detail = text+"; ", detail+"; "
		}
		text += probability(s.P)
		detail += fmt.Sprintf("%d/%d", s.OnlyA, s.OnlyB)
	}
	if !method && len(adjusted) > 0 && !math.IsNaN(adjusted[0]) {
		detail += " · adjusted"
		for i, v := range adjusted {
			if i > 0 {
				detail += ";"
			}
			detail += " " + probability(v)
		}
	}
	return Cell{Text: text, Detail: detail}
}

func (p *Paired) verdictCell(verdict int) Cell {
	switch {
	case verdict == 0 && math.IsInf(p.Detectable, 0):
		return Words("not decided").With("too few tasks differ")
	case verdict == 0:
		return Words("not decided").With("detectable: %.1f points", 100*p.Detectable)
	case verdict > 0:
		return Words("%s is better", p.B)
	}
	return Words("%s is better", p.A)
}

// gapTable shows what the reward token does: success under high and under low for every arm evaluated under both,
// before and after RL alike.
func (s *Study) gapTable(set string) *Table {
	t := &Table{
		ID: "gap-" + setID(set), Title: "What the reward token does on " + setName(set),
		Columns: []Column{{Name: "Policy", Left: true}, {Name: "High"}, {Name: "Low"}, {Name: "Gap, points"}, {Name: "95 % interval"}, {Name: "Exact McNemar"}},
		Notes:   []string{"Greedy success of one checkpoint when conditioned on each token, paired by task; gap is high minus low."},
	}
	for i := range s.Arms {
		a := &s.Arms[i]
		p, ok := compareRuns(a.Label+", low", a.Runs, rl.TokenLow, a.Label+", high", a.Runs, rl.TokenHigh, set)
		if !ok {
			continue
		}
		interval, over := p.interval()
		gap := p.Mean
		t.Rows = append(t.Rows, Row{Arm: i, Cells: []Cell{Words("%s", a.Label), p.side(true), p.side(false),
			{Text: points(gap), Value: &gap, Interval: &interval}, Words("%s", interval.points()).With("%s", over), p.mcnemarCell(nil, true)}})
	}
	if len(t.Rows) == 0 {
		return nil
	}
	return t
}

// categoryFigure shows success by category with intervals.
func (s *Study) categoryFigure(set string) *Figure {
	t := s.mainTable(set)
	if len(t.Rows) == 0 {
		return nil
	}
	f := &Figure{
		ID: "fig-categories-" + setID(set), Title: "Success on " + setName(set), X: "category", Y: "success", Share: true,
		Note: "Points with 95 % intervals: Wilson for one seed, t over seeds otherwise.",
	}
	last := len(t.Columns) - 1
	if t.Columns[last].Name == "Sampled" {
		last--
	}
	for _, c := range t.Columns[1:last] {
		f.Categories = append(f.Categories, c.Name)
	}
	for _, row := range t.Rows {
		series := Series{Name: row.Cells[0].Text, Arm: row.Arm}
		for _, c := range row.Cells[1:last] {
			p := Point{Value: math.NaN(), Interval: unknown, Label: fmt.Sprintf("%d/%d", c.Count, c.Of), Source: c.Source}
			if c.Value != nil {
				p.Value = *c.Value
			}
			if c.Interval != nil {
				p.Interval = *c.Interval
			}
			series.Points = append(series.Points, p)
		}
		f.Series = append(f.Series, series)
	}
	return f
}
