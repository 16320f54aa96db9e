package reports

import (
	"bytes"
	"cmp"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"

	"github.com/dustin/go-humanize/english"

	"rcgrpo/reports/page"
	"rcgrpo/reports/stats"
	"rcgrpo/stages/rl"
)

// leastEpisodes is the number of episodes of an arm, of all its policies, below which no arm is marked as the best.
const leastEpisodes = 30

// mainTable is the paper's main table for one set: success by the paper's reward, greedy, overall and by category, with
// the official verdict and the success of sampled episodes beside it.
func (s *Study) mainTable(set string) *page.Table {
	categories := s.categories(set)
	most, anySampled := 0, false
	decoding, decodingNotes := s.decoding(set)
	t := &page.Table{ID: "main-" + setID(set), Title: "Success on " + setName(set) + ", " + decoding}
	for i := range s.Arms {
		a := &s.Arms[i]
		greedy, sampled := a.scored(set, true), a.scored(set, false)
		most = max(most, len(greedy.policies))
		anySampled = anySampled || len(sampled.runs) > 0
		if len(greedy.runs) == 0 {
			continue
		}
		cells := []page.Cell{s.armName(a, greedy.source(byReward.by)), greedy.cell(byReward), greedy.cell(overPolicies)}
		for _, c := range categories {
			cells = append(cells, greedy.inCategory(c).cell(byReward))
		}
		t.Add(i, append(cells, greedy.cell(byVerdict), sampled.cell(byReward))...)
	}
	several := most >= methodPolicies
	t.Columns = append(page.Columns("<Arm", "Overall"), page.Column{Name: "95 % over seeds", Omitted: !several})
	t.Columns = append(t.Columns, categoryColumns(categories)...)
	t.Columns = append(t.Columns, page.Column{Name: "Official verdict", Omitted: s.taskSources() == ownTasks},
		page.Column{Name: "Sampled", Omitted: !anySampled})
	if len(t.Rows) == 0 {
		return nil
	}
	s.markBest(t, set)
	if most > 1 {
		t.Lead = "Percentage of the pooled episodes of all policies of an arm. A policy that several seeds evaluate " +
			"counts once."
	}
	starred := slices.ContainsFunc(t.Rows, func(r page.Row) bool { return r.Cells[1].Mark == page.MarkBest })
	t.Notes = slices.Concat(s.mainNotes(set, several, starred), decodingNotes)
	return t
}

// repliesTable shows malformed replies beside success: by arm, reward token and decoding, for a set. A page omits it if
// no score has counted its replies.
func (s *Study) repliesTable(set string) *page.Table {
	t := &page.Table{ID: "replies-" + setID(set), Title: "Malformed replies on " + setName(set), Omitted: true,
		Columns: page.Columns("<Arm", "<Token", "<Decoding", "Success", "Malformed replies"),
		Notes: []string{"A malformed reply contains the beginning of a call and no call that can be read, so the " +
			"environment executes nothing. Other failures are calls that are wrong or missing. Replies of API models are " +
			"never malformed, because the vendor reads the calls. Intervals: 95 % Wilson, clustered by task " +
			"family: families are independent."}}
	for i := range s.Arms {
		a := &s.Arms[i]
		for _, token := range []string{rl.TokenNone, rl.TokenHigh, rl.TokenLow} {
			for _, greedy := range []bool{true, false} {
				all := a.under(token, set, greedy)
				if len(all.runs) == 0 {
					continue
				}
				replies := all.cell(byMalformed)
				t.Omitted = t.Omitted && replies.Counts == nil
				t.Add(i, page.Text("%s", a.Label), page.Text("%s", cmp.Or(token, "none")),
					page.Text("%s", decodingName(greedy)), all.cell(byReward), replies)
			}
		}
	}
	return t
}

// decoding names how the arms of the main table of a set decode, with a note if API models are among them.
func (s *Study) decoding(set string) (name string, notes []string) {
	endpoints := map[string]bool{} // digests
	for _, r := range s.Stages {
		if r.Kind == "endpoint" {
			endpoints[quoted(r.Manifest.Outputs["policy"].Digest)] = true
		}
	}
	models, checkpoints := false, false
	for i := range s.Arms {
		for _, r := range s.Arms[i].scored(set, true).runs {
			models, checkpoints = models || endpoints[r.Policy], checkpoints || !endpoints[r.Policy]
		}
	}
	if !models {
		return "greedy decoding", nil
	}
	name = "sampling of the API models"
	if checkpoints {
		name = "greedy decoding of checkpoints, " + name
	}
	return name, []string{"An API model plays one episode per task, at the temperature of its endpoint, or at the " +
		"vendor's if the model refuses a temperature."}
}

// The tasks of a study by their source.
const (
	benchmarkTasks = 1 << iota // tasks of the benchmark, or drills
	ownTasks                   // tasks of a program or an MCP server
)

// taskSources returns the sources of the study's tasks. Without a record of them they are the benchmark's.
func (s *Study) taskSources() (sources int) {
	for _, r := range s.Stages {
		switch source := r.Settings["source"]; {
		case r.Kind != "tasks":
		case source == `"command"` || source == `"mcp"`:
			sources |= ownTasks
		default:
			sources |= benchmarkTasks
		}
	}
	return cmp.Or(sources, benchmarkTasks)
}

// successNotes explains success on a set.
func (s *Study) successNotes(set string) (notes []string) {
	sources := s.taskSources()
	if sources&benchmarkTasks != 0 {
		notes = append(notes, "Success is the paper's reward (final state equal and every ground-truth call made); the "+
			"official verdict is the benchmark's own checker on the same episodes.")
	}
	if sources&ownTasks == 0 {
		return notes
	}
	notes = append(notes, "Success on your own tasks is a reward of 1.")
	graded, all := 0, 0
	for row := range s.scores {
		if row.Set == set {
			all++
			if row.Reward > 0 && row.Reward < 1 {
				graded++
			}
		}
	}
	if graded > 0 {
		notes = append(notes, fmt.Sprintf("%d of %s have a reward between 0 and 1, which counts as no success here. "+
			"Trainings learn from it and log its mean, which a block compare with outcome = \"reward\" compares.", graded,
			english.Plural(all, "episode", "")))
	}
	return notes
}

// mainNotes explains the columns.
func (s *Study) mainNotes(set string, several, starred bool) []string {
	notes := append(s.successNotes(set),
		"Below each percentage: the 95 % Wilson interval ("+s.tasksOf(set)+"), clustered by task "+
			"family, because the episodes of one family pass and fail together. It treats families as independent and "+
			"holds for these policies.")
	if several {
		notes = append(notes, fmt.Sprintf("Over seeds: the 95 %% t-interval of the mean over distinct policies, which "+
			"treats policies as independent, with that mean if it is not the overall share; a dash with fewer than %d "+
			"policies. A t-interval beyond 0 or 100 %% is cut there, and the cell shows this.", methodPolicies))
	}
	if starred {
		notes = append(notes, "★ marks an arm that beats every other arm by the tests of this page, Holm-adjusted together "+
			"with all claims on the set.")
	}
	return notes
}

// policyMean returns the mean over policies of their shares with its t-interval; a dash below three policies.
func policyMean(shares []float64) page.Cell {
	if len(shares) < methodPolicies {
		return page.Text("–")
	}
	return shareMean(shares)
}

// overPoliciesCell shows the t-interval of the mean over policies, and the mean if it is not the pooled share; a dash
// below three policies.
func overPoliciesCell(all []policy) page.Cell {
	c := policyMean(rates(all, passed))
	if c.Value == nil {
		return c
	}
	details := c.Lines()[1:]
	if c.Interval == nil {
		c.Text, details = "–", c.Lines()
	} else {
		c.Text = page.PercentRange(*c.Interval)
	}
	if share := pooled(all, passed).total().Mean(); math.Abs(*c.Value-share) > 1e-9 {
		details = append([]string{"mean " + page.Percent(*c.Value)}, details...)
	}
	return c.With("%s", strings.Join(details, " · "))
}

// shareMean returns the mean of shares with its t-interval. An interval beyond 0 or 1 is cut, and the detail shows the
// full one.
func shareMean(shares []float64) page.Cell {
	mean, i := stats.Mean(shares), stats.TInterval(shares, stats.Level)
	c := page.Cell{Text: page.Percent(mean), Value: &mean}
	if !i.Known() {
		return c.With("all equal, no interval")
	}
	cut := stats.Interval{Low: math.Max(0, i.Low), High: math.Min(1, i.High)}
	c.Interval, c.Detail = &cut, "t\u00a0"+page.PercentRange(cut)
	if cut != i {
		c.Detail += " · cut from " + page.PercentRange(i)
	}
	return c
}

// markBest marks the overall cell of the arm that is better than every other one.
func (s *Study) markBest(t *page.Table, set string) {
	best := &t.Rows[0]
	for i := range t.Rows {
		if v := t.Rows[i].Cells[1].Value; v != nil && *v > *best.Cells[1].Value {
			best = &t.Rows[i]
		}
	}
	if len(t.Rows) < 2 || best.Cells[1].Of < leastEpisodes {
		return
	}
	winner := &s.Arms[best.Arm]
	ofWinner := winner.scored(set, true)
	var all, against []*Contrast // the adjustment covers every test of the set
	for _, c := range s.decided(set) {
		again := *c
		all = append(all, &again)
	}
	for _, row := range t.Rows {
		if row.Arm == best.Arm {
			continue
		}
		a := &s.Arms[row.Arm]
		how := Comparison{Unpaired: unmatched(a.scored(set, true), ofWinner).tooMany()}
		c := cmp.Or(contrastOf(all, how, []string{winner.Label, a.Label}),
			contrastOf(all, how, []string{a.Label, winner.Label}))
		if c == nil {
			if c = compareEvaluations(a.scored(set, true), ofWinner, how); c == nil {
				return
			}
			all = append(all, c)
		}
		against = append(against, c)
	}
	judge(all)
	won := func(c *Contrast) bool {
		return c.Decided > 0 && c.B == winner.Label || c.Decided < 0 && c.A == winner.Label
	}
	if !slices.ContainsFunc(against, func(c *Contrast) bool { return !won(c) }) {
		best.Cells[1].Mark = page.MarkBest
	}
}

// seedTable shows each policy and the mean over policies of every column. A page omits it if each arm has one policy.
func (s *Study) seedTable(set string) *page.Table {
	categories := s.categories(set)
	t := &page.Table{
		ID: "seeds-" + setID(set), Title: "Each seed separately (" + setName(set) + ")", Folded: true, Omitted: true,
		Columns: append(append(page.Columns("<Arm", "<Seed", "Overall"), categoryColumns(categories)...),
			page.Column{Name: "Official verdict"}),
		Notes: []string{"Counts with 95 % Wilson intervals clustered by family; means over seeds with their 95 % " +
			"t-intervals. They treat task families and policies as independent. A policy that several seeds evaluate has " +
			"one row."},
	}
	for i := range s.Arms {
		all := s.Arms[i].scored(set, true)
		row := func(selected episodes, name string, reward, verdict measure[[]policy]) {
			cells := []page.Cell{page.Text("%s", s.Arms[i].Label), page.Text("%s", name), selected.cell(reward)}
			for _, c := range categories {
				cells = append(cells, selected.inCategory(c).cell(reward))
			}
			t.Add(i, append(cells, selected.cell(verdict))...)
		}
		each := all.each()
		t.Omitted = t.Omitted && len(each) < 2
		for _, one := range each {
			row(one, one.policies[0].name(), byReward, byVerdict)
		}
		if len(each) >= methodPolicies {
			row(all, "mean", byMean, byVerdictMean)
		}
	}
	return t
}

// categoryFigure draws the success of each arm on a set, greedy: overall and by category, pooled and by policy.
func (s *Study) categoryFigure(set string) *page.Figure {
	categories := append([]string{""}, s.categories(set)...)
	f := &page.Figure{
		ID: "fig-categories-" + setID(set), Title: "Success on " + setName(set), X: "category", Y: "success", Share: true,
		Note:       "Points with the 95 % Wilson interval, clustered by task family: families are independent.",
		Categories: []string{"Overall"},
	}
	for _, c := range categories[1:] {
		f.Categories = append(f.Categories, categoryName(c))
	}
	for i, a := range s.Arms {
		series, every := page.Series{Name: a.Label, Arm: i}, a.scored(set, true)
		for x, c := range categories {
			selected := every.inCategory(c)
			share := selected.cell(byReward)
			if share.Counts == nil {
				continue
			}
			p := page.Point{X: float64(x), Value: *share.Value, Interval: stats.Unknown, Label: page.Fraction(share),
				Source: share.Source}
			if share.Interval != nil {
				p.Interval = *share.Interval
			}
			if all := selected.policies; len(all) > 1 {
				p.Each = rates(all, passed)
				f.Note = "Points: all policies pooled, with the 95 % Wilson interval clustered by task family: families are " +
					"independent. Small rings: each policy separately."
			}
			series.Points = append(series.Points, p)
		}
		f.Add(series)
	}
	return f
}

// passTable shows pass@k by arm, from the sampled episodes of each task: the unbiased estimate of the probability that
// one of k succeeds, mean over tasks, then over policies. nil without passFigure.
func (s *Study) passTable(set string) *page.Table {
	f := s.passFigure(set)
	if f == nil {
		return nil
	}
	t := &page.Table{ID: "pass-at-k-" + setID(set), Title: "pass@k on " + setName(set) + ", sampled",
		Columns: page.Columns("<Arm"),
		Notes: []string{"The probability that at least one of k sampled episodes of a task succeeds, by the unbiased " +
			"estimator of Chen et al. 2021 (eq. 1), mean over tasks. From three policies on: the mean over policies with " +
			"its 95 % t-interval, which treats policies as independent; below three: each policy separately."}}
	var measures []measure[[]policy]
	for _, x := range slices.MaxFunc(f.Series, func(a, b page.Series) int { return len(a.X) - len(b.X) }).X {
		k := int(x)
		t.Columns = append(t.Columns, page.Column{Name: fmt.Sprintf("k = %d", k)})
		measures = append(measures, measure[[]policy]{fmt.Sprintf("pass@%d, mean over tasks, then over policies", k),
			func(all []policy) page.Cell { return passCell(all, k) }})
	}
	t.Columns = append(t.Columns, page.Column{Name: "Episodes"})
	measures = append(measures, measure[[]policy]{"number of sampled episodes, of all policies", episodeCount})
	for _, series := range f.Series {
		a := &s.Arms[series.Arm]
		cells := []page.Cell{page.Text("%s", a.Label)}
		for _, m := range measures {
			cells = append(cells, a.scored(set, false).cell(m))
		}
		t.Add(series.Arm, cells...)
	}
	return t
}

// episodeCount counts the episodes and the tasks of some policies.
func episodeCount(all []policy) page.Cell {
	n, tasks := 0, map[string]bool{}
	for _, one := range all {
		for task, tally := range one.outcomes {
			n, tasks[task] = n+tally.episodes, true
		}
	}
	return page.Whole(n).With("of %s", english.Plural(len(tasks), "task", ""))
}

// passFigure draws the curves of passTable, one for each policy. k doubles up to the number of episodes that every task
// has. nil unless a policy sampled each of its tasks at least twice.
func (s *Study) passFigure(set string) *page.Figure {
	f := &page.Figure{
		ID: "fig-pass-at-k-" + setID(set), Title: "pass@k on " + setName(set), X: "k", Y: "pass@k", Share: true,
		Note: "The probability that at least one of k sampled episodes of a task succeeds, mean over tasks; several " +
			"seeds: their mean, and a band from the lowest to the highest.",
	}
	several := false
	for i, a := range s.Arms {
		series := page.Series{Name: a.Label, Arm: i}
		for _, selected := range a.scored(set, false).each() {
			one := selected.policies[0]
			curve := page.Curve{Name: one.name(), Source: selected.source("pass@k, mean over tasks")}
			for k := 1; k <= one.fewest(); k *= 2 {
				if len(curve.Y) == len(series.X) {
					series.X = append(series.X, float64(k))
				}
				curve.Y = append(curve.Y, one.passAt(k))
			}
			several = several || len(curve.Y) > 1
			series.Curves = append(series.Curves, curve)
		}
		f.Add(series)
	}
	if !several {
		return nil
	}
	return f
}

// fewest returns the number of episodes that every task of the policy has.
func (p *policy) fewest() int {
	fewest := math.MaxInt
	for _, one := range p.outcomes {
		fewest = min(fewest, one.episodes)
	}
	return fewest
}

// passAt returns pass@k, mean over the tasks.
func (p *policy) passAt(k int) (mean float64) {
	for _, task := range sortedKeys(p.outcomes) { // the order determines the rounding of the sum
		mean += rl.PassAtK(p.outcomes[task].episodes, p.outcomes[task].passed, k)
	}
	return mean / float64(len(p.outcomes))
}

// passCell shows pass@k: the mean over policies, or below three of them each policy.
func passCell(all []policy, k int) page.Cell {
	var shares []float64
	for _, one := range all {
		if k <= one.fewest() {
			shares = append(shares, one.passAt(k))
		}
	}
	if len(shares) >= methodPolicies {
		return shareMean(shares)
	}
	return shareList(shares)
}

// shareList shows the share of each policy; a single share has a value. A dash without shares.
func shareList(shares []float64) page.Cell {
	var words []string
	for _, v := range shares {
		words = append(words, page.Percent(v))
	}
	c := page.Cell{Text: cmp.Or(strings.Join(words, "; "), "–")}
	if len(shares) == 1 {
		c.Value = &shares[0]
	}
	return c
}

// seedTask is a column of the outcome figure: a task of one seed.
type seedTask struct{ seed, task string }

// outcomesByEpisode returns the results of each greedy episode of some arms, one character per arm: '1' passed, '0'
// failed, ' ' without this episode. A run without seed belongs to every seed.
func outcomesByEpisode(arms []episodes) map[seedTask][]byte {
	results := map[seedTask][]byte{}
	for _, seeded := range []bool{true, false} { // runs with a seed determine the episodes, if there are any
		add := seeded || len(results) == 0
		for i, a := range arms {
			for _, run := range a.runs {
				if (run.Seed != nil) != seeded {
					continue
				}
				for task := range run.outcomes {
					if e := (seedTask{run.Name(), task}); add && results[e] == nil {
						results[e] = bytes.Repeat([]byte(" "), len(arms))
					}
				}
				for e, passed := range results {
					if one, ok := run.outcomes[e.task]; ok && passed[i] == ' ' && (!seeded || run.Name() == e.seed) {
						passed[i] = '0' + byte(min(1, one.passed))
					}
				}
			}
		}
	}
	return results
}

// outcomeFigure is the matrix of arms and tasks, sorted by the number of arms that pass a task. nil below two arms.
func (s *Study) outcomeFigure(set string) *page.Figure {
	f := &page.Figure{
		ID: "fig-outcomes-" + setID(set), Title: "Passed " + setName(set) + " by arm",
		X: "episodes, sorted by the number of arms that pass", Y: "arm", Folded: true,
		Note: "A row for each arm, a column for each task and seed; coloured if the arm passes the episode of the main " +
			"table by the paper's reward.",
		Data: [][]string{{"seed", "task"}}, Source: page.Source{By: "reward of each episode"},
	}
	var arms []episodes
	for i, a := range s.Arms {
		if all := a.scored(set, true); len(all.runs) > 0 {
			arms = append(arms, all)
			f.Lanes = append(f.Lanes, a.Label)
			f.Series = append(f.Series, page.Series{Name: a.Label, Arm: i})
			f.Source = page.Together(f.Source.By, "", f.Source, all.source(""))
		}
	}
	if len(arms) < 2 {
		return nil
	}
	f.Data[0] = append(f.Data[0], f.Lanes...)
	results := outcomesByEpisode(arms)
	for at, e := range slices.SortedFunc(maps.Keys(results), func(a, b seedTask) int {
		x, y := results[a], results[b]
		return cmp.Or(bytes.Count(y, []byte("1"))-bytes.Count(x, []byte("1")), bytes.Compare(y, x),
			strings.Compare(a.seed, b.seed), strings.Compare(a.task, b.task))
	}) {
		row := []string{e.seed, e.task}
		for lane, result := range results[e] {
			row = append(row, strings.TrimSpace(string(result)))
			if result == '1' {
				f.Series[lane].Extend(lane, float64(at))
			}
		}
		f.Data = append(f.Data, row)
	}
	return f
}
