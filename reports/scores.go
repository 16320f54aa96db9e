package reports

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"

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

// samples of some policies, of a category (all with ""), those without episodes left out.
func samples(all []policy, category string, official bool) []sample {
	var found []sample
	for i := range all {
		if one := all[i].sample(category, official); len(one) > 0 {
			found = append(found, one)
		}
	}
	return found
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
	most := 0
	for i := range s.Arms {
		most = max(most, len(s.Arms[i].policies(set, true)))
	}
	overSeeds := most >= methodPolicies || s.Part
	t := &Table{ID: "main-" + setID(set), Title: "Success on " + setName(set) + ", greedy decoding"}
	t.Columns = []Column{{Name: "Arm", Left: true}, {Name: "Overall"}}
	if overSeeds {
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
		all := a.policies(set, true)
		if len(all) == 0 {
			continue
		}
		share := func(category string, official bool) Cell { return pooled(samples(all, category, official)).share() }
		row := Row{Arm: i, Cells: []Cell{Words("%s", a.Label), share("", false).From(a.scored(set, "", byReward))}}
		if token := a.condition(); token != rl.TokenNone {
			row.Cells[0] = row.Cells[0].With("conditioned on %s", token)
		}
		if overSeeds {
			row.Cells = append(row.Cells, seedMean(rates(samples(all, "", false))).From(a.scored(set, "", byMean)))
		}
		for _, c := range categories {
			row.Cells = append(row.Cells, share(c, false).From(a.scored(set, c, byReward)))
		}
		row.Cells = append(row.Cells, unlessMerged(a.Runs, set, share("", true).From(a.scored(set, "", byVerdict))))
		if sampled {
			row.Cells = append(row.Cells, pooled(samples(a.policies(set, false), "", false)).share().
				From(scoresOf(a.Runs, byReward, set, a.condition(), "", false)))
		}
		t.Rows = append(t.Rows, row)
		shown = append(shown, a)
	}
	if len(t.Rows) == 0 {
		return nil
	}
	s.markBest(t, shown, set)
	t.Notes = []string{
		"Success is the paper's reward (final state equal and every ground-truth call made); the official verdict is the benchmark's own checker on the same episodes.",
		"Below each percentage: successes of episodes, and the 95 % Wilson interval clustered by task family, because the episodes of one family pass and fail together. It takes families as independent and holds for these policies.",
	}
	if most > 1 {
		t.Lead = "Per cent of the episodes of all policies of an arm together. A policy that several seeds evaluate counts once."
	}
	if overSeeds {
		t.Notes = append(t.Notes, fmt.Sprintf("Mean over seeds: of distinct policies, with its 95 %% t-interval, which takes policies as independent; a dash with fewer than %d of them. A t-interval beyond 0 or 100 %% is cut there, and the cell says so.", methodPolicies))
	}
	t.Notes = append(t.Notes, fmt.Sprintf("★ marks an arm that beats every other one by the tests of this page, Holm-adjusted together with all comparisons on the set; no mark means that the data do not decide. Cells below %d episodes are never marked.", smallest))
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
	return slices.ContainsFunc(s.Arms, func(a Arm) bool { return len(a.policies(set, false)) > 0 })
}

// How the cells of scores are computed.
const (
	byReward      = "share of reward 1, Wilson interval clustered by family"
	byVerdict     = "share of passed official verdicts, Wilson interval clustered by family"
	byMean        = "mean over policies of the share of reward 1, t-interval"
	byVerdictMean = "mean over policies of the share of passed official verdicts, t-interval"
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
	all := s.contrasts(set, false) // every test of the set is adjusted for
	type test struct{ at, won int }
	var against []test
	for i, a := range arms {
		if i == best {
			continue
		}
		how := Comparison{Unpaired: unmatched(a.side(), arms[best].side(), set, true).tooMany()}
		made := func(names ...string) int {
			return slices.IndexFunc(all, func(c Contrast) bool { return c.tests(how, [2]string(names)) })
		}
		if at := made(a.Label, arms[best].Label); at >= 0 {
			against = append(against, test{at, 1})
			continue
		}
		if at := made(arms[best].Label, a.Label); at >= 0 {
			against = append(against, test{at, -1})
			continue
		}
		c, ok := compareEvaluations(a.side(), arms[best].side(), set, how)
		if !ok {
			return
		}
		against, all = append(against, test{len(all), 1}), append(all, c)
	}
	judge(all)
	for _, one := range against {
		if all[one.at].Verdict != one.won {
			return
		}
	}
	t.Rows[best].Cells[1].Mark = MarkBest
}

// seedTable shows each policy by itself and the mean over policies of every column; nil where each arm has one.
func (s *Study) seedTable(set string) *Table {
	categories := s.shownCategories(set)
	t := &Table{
		ID: "seeds-" + setID(set), Title: "The same, each seed by itself (" + setName(set) + ")", Folded: true,
		Columns: []Column{{Name: "Arm", Left: true}, {Name: "Seed", Left: true}, {Name: "Overall"}},
		Notes:   []string{"Counts with 95 % Wilson intervals clustered by family; means over seeds with their 95 % t-intervals. A policy that several seeds evaluate has one row."},
	}
	for _, c := range categories {
		t.Columns = append(t.Columns, Column{Name: c})
	}
	t.Columns = append(t.Columns, Column{Name: "Official verdict"})
	several := false
	for i := range s.Arms {
		a := &s.Arms[i]
		all := a.policies(set, true)
		several = several || len(all) > 1
		for j := range all {
			own := slices.DeleteFunc(slices.Clone(a.Runs), func(r Run) bool { return r.identity() != all[j].identity })
			t.Rows = append(t.Rows, Row{Arm: i, Cells: a.seedCells(all[j:j+1], own, all[j].name(), set, categories)})
		}
		if len(all) >= methodPolicies {
			t.Rows = append(t.Rows, Row{Arm: i, Cells: a.seedCells(all, a.Runs, "mean", set, categories)})
		}
	}
	if !several && !s.Part || len(t.Rows) == 0 {
		return nil
	}
	return t
}

// seedCells is a row of the table by seeds: a cell for each column, made from some policies of the arm and the runs that
// evaluated them.
func (a *Arm) seedCells(all []policy, runs []Run, name, set string, categories []string) []Cell {
	reward, verdict := byReward, byVerdict
	if len(all) > 1 {
		reward, verdict = byMean, byVerdictMean
	}
	of := func(category, by string, official bool) Cell {
		found := samples(all, category, official)
		cell := pooled(found).share()
		if len(all) > 1 {
			cell = seedMean(rates(found))
		}
		return cell.From(scoresOf(runs, by, set, a.condition(), category, true))
	}
	cells := []Cell{Words("%s", a.Label), Words("%s", name), of("", reward, false)}
	for _, c := range categories {
		cells = append(cells, of(c, reward, false))
	}
	return append(cells, unlessMerged(runs, set, of("", verdict, true)))
}

// How the cells of comparisons are computed.
const (
	byMcNemar  = "McNemar's exact test, each pair of policies by itself"
	byFisher   = "Fisher's exact test, each pair of policies by itself"
	byClusters = "t-test over task families, each pair of policies by itself"

	byAdjusted = ", p Holm-adjusted over all tests of the set"
)

// exactTest is the head of the column of the tests of checkpoints, and how they are computed.
func (c *Comparison) exactTest() (head, by string) {
	switch {
	case c.Outcome == OutcomeSampled:
		return "t over families", byClusters
	case c.Unpaired:
		return "Fisher's exact", byFisher
	}
	return "Exact McNemar", byMcNemar
}

// comparisonTable is an ablation: the outcome of each pair without and with, and whether the difference is decided. all
// are the contrasts of the set, or of training, judged together.
func (s *Study) comparisonTable(how Comparison, set string, all []Contrast) *Table {
	t := &Table{ID: "compare-" + slug(how.Label) + "-" + setID(set), Title: "Effect of " + how.Label + " on " + setName(set)}
	switch {
	case how.ofTraining():
		t.ID, t.Title = "compare-"+slug(how.Label)+"-training", "Effect of "+how.Label+" on "+outcomeWords(how.Outcome)
	case how.Outcome == OutcomeSampled:
		t.ID, t.Title = t.ID+"-sampled", t.Title+", sampled"
	}
	var shown []*Contrast
	method := s.Part
	for _, names := range how.Pairs {
		if at := slices.IndexFunc(all, func(c Contrast) bool { return c.tests(how, names) }); at >= 0 {
			shown = append(shown, &all[at])
			method = method || all[at].method()
		}
	}
	if len(shown) == 0 {
		return nil
	}
	unit := "Δ"
	if shown[0].inPoints() {
		unit = "Δ points"
	}
	t.Columns = []Column{{Name: "Without → with", Left: true}, {Name: "Without"}, {Name: "With"}, {Name: unit}}
	exact, byExact := how.exactTest()
	if method || how.ofTraining() {
		t.Columns = append(t.Columns, Column{Name: "95 % over seeds"})
	}
	if how.Unpaired {
		t.Columns = append(t.Columns, Column{Name: "95 % Newcombe"})
	}
	if !how.ofTraining() {
		t.Columns = append(t.Columns, Column{Name: "95 % over families"}, Column{Name: exact})
	}
	t.Columns = append(t.Columns, Column{Name: "Verdict", Left: true})
	every := together("", "") // p-values are adjusted over all contrasts, so each of them is read
	for i := range all {
		every = together("", "", every, all[i].Source)
	}
	for _, c := range shown {
		own := func(by string) Source { return Source{From: c.Source.From, Rows: c.Source.Rows, By: by} }
		adjusted := func(by string) Source { return together(by+byAdjusted, c.Source.Rows, c.Source, every) }
		mean, shownInterval := c.Mean, c.Families.Interval
		if how.ofTraining() {
			shownInterval = c.OverSeeds
		}
		byMean := "mean of the differences, paired by task, family bootstrap"
		switch {
		case c.ofTraining():
			byMean = byLate + ", paired by seed"
		case c.Unpaired:
			byMean = "difference of the mean shares, bootstrap by family on each side"
		}
		row := Row{Arm: NoArm, Cells: []Cell{Words("%s → %s", c.A, c.B), c.CellA.From(own(byReward)), c.CellB.From(own(byReward)),
			Cell{Text: c.difference(mean), Value: &mean, Interval: shownInterval.ifKnown()}.From(own(byMean))}}
		if c.ofTraining() {
			row.Cells[1].Source.By, row.Cells[2].Source.By = byLate, byLate
		}
		if method || c.ofTraining() {
			cell := Words("–")
			if c.method() {
				cell = Words("%s", c.between(c.OverSeeds)).With("p %s, adjusted %s", equals(probability(c.OverSeedsP)), probability(c.Adjusted))
			}
			by := "paired t-interval over seeds"
			if c.Unpaired {
				by = "Welch's t-interval over seeds"
			}
			row.Cells = append(row.Cells, cell.From(adjusted(by)))
		}
		if c.Unpaired {
			row.Cells = append(row.Cells, Words("%s", c.between(c.Newcombe)).From(own("Newcombe's interval from the clustered Wilson intervals of both sides")))
		}
		if !c.ofTraining() {
			row.Cells = append(row.Cells, Words("%s", c.between(c.Families.Interval)).With("%d families", c.Families.Units).From(own("bootstrap over families, 2,000 resamples")),
				c.exactCell().From(adjusted(byExact)))
		}
		verdict := Words("%s", c.verdict()).With("%s", c.expected())
		if c.Verdict == 0 {
			verdict = verdict.With("%s", c.excludes())
		}
		row.Cells = append(row.Cells, verdict.From(adjusted("tests of the set; excluded effects from both intervals")))
		t.Rows = append(t.Rows, row)
	}
	t.Notes = comparisonNotes(how, shown[0].Tests)
	return t
}

// equals puts "=" before a p-value that has no sign of its own.
func equals(p string) string {
	if strings.HasPrefix(p, "<") {
		return p
	}
	return "= " + p
}

// comparisonNotes say what the columns of a comparison take as independent.
func comparisonNotes(how Comparison, tests int) []string {
	notes := []string{}
	adjusted := fmt.Sprintf("p-values are Holm-adjusted over all tests of the set (%d), in whichever table they stand.", tests)
	claim := fmt.Sprintf("A claim about the methods needs %d policies per side and both intervals to exclude 0. With fewer policies a verdict is about these checkpoints only: every pair must reject, so its largest p counts, and the interval over families must exclude 0.", methodPolicies)
	switch {
	case how.ofTraining():
		return []string{"Mean over the late window of a training, which ends at the same update on both sides; below it the lowest and the highest seed. Differences are paired by seed, and the t-interval takes seeds as independent.",
			fmt.Sprintf("A verdict needs %d seeds per side. p-values are Holm-adjusted over all tests of training outcomes (%d), in whichever table they stand.", methodPolicies, tests)}
	case how.Unpaired:
		notes = append(notes, "The two sides have different tasks, which are not paired. Newcombe's interval combines the clustered intervals of both sides; the bootstrap resamples the families of each side (2,000 resamples); the interval over seeds is Welch's.")
	default:
		notes = append(notes, "Differences are paired by task. The bootstrap resamples task families with all their tasks and policies (2,000 resamples); the t-interval takes seeds as independent.")
	}
	switch {
	case how.Outcome == OutcomeSampled:
		notes = append(notes, "The t-test over task families is made for each pair of policies by itself.")
	case how.Unpaired:
		notes = append(notes, "Fisher's exact test is made for each pair of policies by itself and takes tasks as independent.")
	default:
		notes = append(notes, "McNemar's exact test is made for each pair of policies by itself (tasks passed only without / only with) and takes tasks as independent.")
	}
	return append(notes, claim+" "+adjusted)
}

// outcomeWords name a metric of training as the tables of the late phase do.
func outcomeWords(metric string) string {
	for _, c := range slices.Concat(signalMetrics, lateMetrics) {
		if c.metric == metric {
			return strings.ToLower(c.head[:1]) + c.head[1:] + ", late in training"
		}
	}
	return metric + ", late in training"
}

// exactCell lists the tests of the pairs of policies, and their adjusted values where they decide.
func (c *Contrast) exactCell() Cell {
	var ps, details []string
	for _, p := range c.Pairs {
		ps = append(ps, probability(p.P))
		if !c.Unpaired && c.Outcome != OutcomeSampled {
			details = append(details, fmt.Sprintf("%d/%d", p.OnlyA, p.OnlyB))
		}
	}
	cell := Cell{Text: strings.Join(ps, "; "), Detail: strings.Join(details, "; ")}
	if !c.method() && c.Tests > 0 {
		cell.Detail = strings.TrimPrefix(cell.Detail+" · adjusted "+probability(c.Adjusted), " · ")
	}
	return cell
}

// gapTable shows what the reward token does: success under high and under low for every arm evaluated under both,
// before and after RL alike.
func (s *Study) gapTable(set string) *Table {
	t := &Table{
		ID: "gap-" + setID(set), Title: "What the reward token does on " + setName(set),
		Columns: []Column{{Name: "Policy", Left: true}, {Name: "High"}, {Name: "Low"}, {Name: "Gap, points"}, {Name: "95 % interval"}, {Name: "Exact McNemar"}},
		Notes: []string{"Greedy success of one checkpoint when conditioned on each token, paired by task; gap is high minus low. Over seeds: t-interval, which takes policies as independent. " +
			"Over task families: bootstrap, which takes families as independent; where no task differs, the interval comes from Clopper and Pearson's bound for the share of families in which one could. p-values of this table are not adjusted and decide nothing."},
	}
	for i := range s.Arms {
		a := &s.Arms[i]
		high, low := a.tokenSides()
		c, ok := compareEvaluations(low, high, set, Comparison{})
		if !ok {
			continue
		}
		interval, over := c.interval()
		gap := c.Mean
		by := func(how string) Source { return Source{From: c.Source.From, Rows: c.Source.Rows, By: how} }
		t.Rows = append(t.Rows, Row{Arm: i, Cells: []Cell{Words("%s", a.Label), c.CellB.From(by(byReward)), c.CellA.From(by(byReward)),
			Cell{Text: points(gap), Value: &gap, Interval: interval.ifKnown()}.From(by("mean over policies of high minus low, paired by task")),
			Words("%s", c.between(interval)).With("%s", over).From(by("interval " + over)), c.exactCell().From(by(byMcNemar))}})
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
		Note: "Points: all policies pooled, with the 95 % Wilson interval clustered by task family. Small rings: each policy by itself.", Categories: append([]string{"Overall"}, categories...),
	}
	several := false
	for i := range s.Arms {
		a := &s.Arms[i]
		all := a.policies(set, true)
		if len(all) == 0 {
			continue
		}
		series := Series{Name: a.Label, Arm: i, Points: []Point{a.point(all, set, "")}}
		for _, c := range categories {
			series.Points = append(series.Points, a.point(all, set, c))
		}
		several = several || len(series.Points[0].Each) > 1
		f.Series = append(f.Series, series)
	}
	if len(f.Series) == 0 {
		return nil
	}
	if !several {
		f.Note = "Points with the 95 % Wilson interval, clustered by task family."
	}
	return f
}

// point of a category (all with ""), from the policies of the arm.
func (a *Arm) point(all []policy, set, category string) Point {
	found := samples(all, category, false)
	p := Point{Value: math.NaN(), Interval: unknown, Source: a.scored(set, category, byReward)}
	if c := pooled(found).share(); c.Of > 0 {
		p.Value, p.Label = *c.Value, fraction(c)
		if c.Interval != nil {
			p.Interval = *c.Interval
		}
	}
	if len(found) > 1 {
		p.Each = rates(found)
	}
	return p
}
