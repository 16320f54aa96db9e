package reports

import (
	"cmp"
	"fmt"
	"math"
	"slices"

	"rcgrpo/bfcl"
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

// slug makes an element id, and part of a file's name, of foreign text: at most 80 letters, digits and hyphens.
func slug(text string) string {
	id := []byte(prefix(text, 80))
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

// counted are the successes and episodes of each run of the arm on a set, greedy, among the outcomes for which counts
// holds; runs without any are left out.
func (a *Arm) counted(set string, counts, passes func(outcome) bool) (passed, of []int) {
	return countedIn(a.Runs, a.condition(), set, counts, passes)
}

func countedIn(runs []Run, token, set string, counts, passes func(outcome) bool) (passed, of []int) {
	for i := range runs {
		if k, n := runs[i].greedy(set, token).count(counts, passes); n > 0 {
			passed, of = append(passed, k), append(of, n)
		}
	}
	return passed, of
}

func ofCategory(c string) func(outcome) bool {
	return func(o outcome) bool { return o.category == c }
}

// shownCategories are those of a set that get a column; a single one is the overall column already.
func (s *Study) shownCategories(set string) []string {
	categories := s.categories(set)
	if len(categories) < 2 {
		return nil
	}
	return categories
}

// mainTable is the paper's main table for one set: success by the paper's reward, greedy, overall and by category,
// with the official verdict beside it.
func (s *Study) mainTable(set string) *Table {
	categories := s.shownCategories(set)
	seeds := 0
	for i := range s.Arms {
		_, of := s.Arms[i].counted(set, anyOutcome, rewarded)
		seeds = max(seeds, len(of))
	}
	t := &Table{ID: "main-" + setID(set), Title: "Success on " + setName(set) + ", greedy decoding"}
	t.Columns = []Column{{Name: "Arm", Left: true}, {Name: "Overall"}}
	if seeds > 1 || s.Part {
		t.Columns = append(t.Columns, Column{Name: "Mean over seeds"})
	}
	for _, c := range categories {
		t.Columns = append(t.Columns, Column{Name: c})
	}
	t.Columns = append(t.Columns, Column{Name: "Official verdict"})
	sampled := s.hasSampled(set)
	if sampled {
		t.Columns = append(t.Columns, Column{Name: "Sampled"})
	}

	var shown []*Arm
	for i := range s.Arms {
		a := &s.Arms[i]
		k, n := a.counted(set, anyOutcome, rewarded)
		if len(k) == 0 {
			continue
		}
		row := Row{Arm: i, Cells: []Cell{Words("%s", a.Label), pooledShare(k, n).From(a.scored(set, "", byReward))}}
		if token := a.condition(); token != rl.TokenNone {
			row.Cells[0] = row.Cells[0].With("conditioned on %s", token)
		}
		if seeds > 1 || s.Part {
			row.Cells = append(row.Cells, seedMean(k, n).From(a.scored(set, "", byMean)))
		}
		for _, c := range categories {
			row.Cells = append(row.Cells, pooledShare(a.counted(set, ofCategory(c), rewarded)).From(a.scored(set, c, byReward)))
		}
		row.Cells = append(row.Cells, unlessMerged(a.Runs, set, pooledShare(a.counted(set, anyOutcome, officially)).From(a.scored(set, "", byVerdict))))
		if sampled {
			row.Cells = append(row.Cells, a.sampledCell(set))
		}
		t.Rows = append(t.Rows, row)
		shown = append(shown, a)
	}
	if len(t.Rows) == 0 {
		return nil
	}
	s.markBest(t, shown, set)
	t.Notes = []string{"Success is the paper's reward (final state equal and every ground-truth call made); the official verdict is the benchmark's own checker on the same episodes."}
	if seeds > 1 {
		t.Lead = fmt.Sprintf("Per cent, successes of episodes and 95 %% Wilson interval of %s pooled; beside the overall figure the mean over seeds with its 95 %% t-interval.", plural(seeds, "seed"))
		t.Notes = append(t.Notes, "A Wilson interval takes the pooled episodes as independent; those of one seed share a training, so it is somewhat too narrow. Each seed's own counts stand in the next table.")
	} else {
		t.Notes = append(t.Notes, "Below each percentage: successes of tasks, and the 95 % Wilson interval.")
	}
	t.Notes = append(t.Notes, fmt.Sprintf("★ marks an arm that beats every other one by the tests of this page (Holm-adjusted); no mark means that the data do not decide. Cells below %d tasks are never marked.", smallest))
	return t
}

// unlessMerged returns a cell of official verdicts, or a dash where the requests of the set's tasks are merged: the official
// checker compares turns, and these episodes have one.
func unlessMerged(runs []Run, set string, verdicts Cell) Cell {
	for _, r := range runs {
		for _, row := range r.Scores {
			if row.Set == set && row.Prompt == bfcl.PromptMerged {
				return Words("–").With("merged prompt")
			}
		}
	}
	return verdicts
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

func (a *Arm) sampledCell(set string) Cell {
	token := a.condition()
	var k, n []int
	for j := range a.Runs {
		if passed, of := a.Runs[j].sampled(set, token); of > 0 {
			k, n = append(k, passed), append(n, of)
		}
	}
	return pooledShare(k, n).From(scoresOf(a.Runs, byReward, set, token, "", false))
}

// How the cells of scores are computed.
const (
	byReward      = "share of reward 1, Wilson interval"
	byVerdict     = "share of passed official verdicts, Wilson interval"
	byMean        = "mean over seeds of the share of reward 1, t-interval"
	byVerdictMean = "mean over seeds of the share of passed official verdicts, t-interval"
)

// scored is the source of a value made from the arm's greedy episodes on a set, of one category or of all ("").
func (a *Arm) scored(set, category, by string) Source {
	return scoresOf(a.Runs, by, set, a.condition(), category, true)
}

// scoresOf is the source of a value made from the episodes of some runs on a set under a token, of one category or of
// all (""): the evaluations that have such episodes.
func scoresOf(runs []Run, by, set, token, category string, greedy bool) Source {
	s := Source{By: by, Rows: "set " + cmp.Or(set, "test")}
	for i := range runs {
		rows := runs[i].Scores
		for _, stretch := range runs[i].ScoresFrom {
			own := rows[:stretch.N]
			rows = rows[stretch.N:]
			if slices.ContainsFunc(own, func(row rl.Score) bool {
				return row.Greedy == greedy && row.Set == set && row.Token == token && (category == "" || row.Category == category)
			}) {
				s.From = append(s.From, stretch.Address)
			}
		}
	}
	if token != rl.TokenNone {
		s.Rows += ", token " + token
	}
	if category != "" {
		s.Rows += ", category " + category
	}
	s.Rows += map[bool]string{true: ", greedy", false: ", sampled"}[greedy]
	return s
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

// seedTable shows each seed by itself and the mean over seeds of every column; nil for a single seed.
func (s *Study) seedTable(set string) *Table {
	categories := s.shownCategories(set)
	t := &Table{
		ID: "seeds-" + setID(set), Title: "The same, each seed by itself (" + setName(set) + ")", Folded: true,
		Columns: []Column{{Name: "Arm", Left: true}, {Name: "Seed", Left: true}, {Name: "Overall"}},
		Notes:   []string{"Counts with 95 % Wilson intervals; means over seeds with their 95 % t-intervals."},
	}
	for _, c := range categories {
		t.Columns = append(t.Columns, Column{Name: c})
	}
	t.Columns = append(t.Columns, Column{Name: "Official verdict"})
	several := false
	for i := range s.Arms {
		a := &s.Arms[i]
		several = several || len(a.Runs) > 1
		shown := 0
		for j := range a.Runs {
			if len(a.Runs[j].greedy(set, a.condition())) == 0 {
				continue
			}
			shown++
			t.Rows = append(t.Rows, Row{Arm: i, Cells: a.seedCells(a.Runs[j:j+1], a.Runs[j].Name(), set, categories, pooledShare)})
		}
		if shown > 1 {
			t.Rows = append(t.Rows, Row{Arm: i, Cells: a.seedCells(a.Runs, "mean", set, categories, seedMean)})
		}
	}
	if !several && !s.Part || len(t.Rows) == 0 {
		return nil
	}
	return t
}

// seedCells is a row of the table by seeds: a cell for each column, made from the counts of some of the arm's runs.
func (a *Arm) seedCells(runs []Run, name, set string, categories []string, cell func(counts, sizes []int) Cell) []Cell {
	reward, verdict := byReward, byVerdict
	if len(runs) > 1 {
		reward, verdict = byMean, byVerdictMean
	}
	of := func(category, by string, counts, passes func(outcome) bool) Cell {
		return cell(countedIn(runs, a.condition(), set, counts, passes)).From(scoresOf(runs, by, set, a.condition(), category, true))
	}
	cells := []Cell{Words("%s", a.Label), Words("%s", name), of("", reward, anyOutcome, rewarded)}
	for _, c := range categories {
		cells = append(cells, of(c, reward, ofCategory(c), rewarded))
	}
	return append(cells, unlessMerged(runs, set, of("", verdict, anyOutcome, officially)))
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
	all := together("", "") // p-values are adjusted over the table, so every pair has a part in them
	for i := range pairs {
		all = together("", "", all, pairs[i].Source)
	}
	for i := range pairs {
		p := &pairs[i]
		mean, adjustedBy := p.Mean, together("", p.Source.Rows, p.Source, all)
		by := func(source Source, how string) Source { source.By = how; return source }
		row := Row{Arm: NoArm, Cells: []Cell{Words("%s → %s", p.A, p.B), p.side(false), p.side(true),
			Cell{Text: points(mean), Value: &mean, Interval: &p.Families.Interval}.From(by(p.Source, "mean over seeds of the difference paired by task, family bootstrap"))}}
		if method {
			row.Cells = append(row.Cells, Words("%s", p.OverSeeds.points()).With("p = %s, adjusted %s", probability(p.OverSeedsP), probability(adjusted[i][0])).
				From(by(adjustedBy, "paired t-interval over seeds, p Holm-adjusted over the table")))
		}
		row.Cells = append(row.Cells, Words("%s", p.Families.points()).With("%d families", p.Families.Units).From(by(p.Source, "bootstrap over families, 2,000 resamples")))
		mcnemar := p.mcnemarCell(adjusted[i], method)
		if method {
			mcnemar.Source = by(p.Source, byMcNemar)
		} else {
			mcnemar.Source = by(adjustedBy, byMcNemar+", p Holm-adjusted over the table")
		}
		row.Cells = append(row.Cells, mcnemar, p.verdictCell(verdicts[i]).From(by(adjustedBy, "tests of the table, Holm-adjusted; smallest detectable difference")))
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
		by := func(how string) Source { return Source{From: p.Source.From, Rows: p.Source.Rows, By: how} }
		t.Rows = append(t.Rows, Row{Arm: i, Cells: []Cell{Words("%s", a.Label), p.side(true), p.side(false),
			Cell{Text: points(gap), Value: &gap, Interval: &interval}.From(by("mean over seeds of high minus low, paired by task")),
			Words("%s", interval.points()).With("%s", over).From(by("interval " + over)), p.mcnemarCell(nil, true).From(by(byMcNemar))}})
	}
	if len(t.Rows) == 0 {
		return nil
	}
	return t
}

// categoryFigure shows success by category with intervals; nil where nothing was scored.
func (s *Study) categoryFigure(set string) *Figure {
	categories := s.shownCategories(set)
	f := &Figure{
		ID: "fig-categories-" + setID(set), Title: "Success on " + setName(set), X: "category", Y: "success", Share: true,
		Note: "Points: all seeds pooled, with the 95 % Wilson interval. Small rings: each seed by itself.", Categories: append([]string{"Overall"}, categories...),
	}
	several := false
	for i := range s.Arms {
		a := &s.Arms[i]
		if _, n := a.counted(set, anyOutcome, rewarded); len(n) == 0 {
			continue
		}
		series := Series{Name: a.Label, Arm: i, Points: []Point{a.point(set, "", anyOutcome)}}
		for _, c := range categories {
			series.Points = append(series.Points, a.point(set, c, ofCategory(c)))
		}
		several = several || len(series.Points[0].Each) > 1
		f.Series = append(f.Series, series)
	}
	if len(f.Series) == 0 {
		return nil
	}
	if !several {
		f.Note = "Points with the 95 % Wilson interval."
	}
	return f
}

func (a *Arm) point(set, category string, counts func(outcome) bool) Point {
	k, n := a.counted(set, counts, rewarded)
	p := Point{Value: math.NaN(), Interval: unknown, Source: a.scored(set, category, byReward)}
	if c := pooledShare(k, n); c.Of > 0 {
		p.Value, p.Interval, p.Label = *c.Value, *c.Interval, fraction(c)
	}
	if len(k) > 1 {
		for i := range k {
			p.Each = append(p.Each, float64(k[i])/float64(n[i]))
		}
	}
	return p
}
