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

	"rcgrpo/bfcl"
	"rcgrpo/reports/page"
	"rcgrpo/reports/stats"
	"rcgrpo/stages/rl"
)

// leastEpisodes is the number of episodes of an arm, of all its policies, below which no arm is marked as the best.
const leastEpisodes = 30

// Methods of the cells of scores.
const (
	byReward      = "share of reward 1, Wilson interval clustered by family"
	byVerdict     = "share of passed official verdicts, Wilson interval clustered by family"
	byMalformed   = "share of malformed replies, Wilson interval clustered by family"
	byMean        = "mean over policies of the share of reward 1, t-interval"
	byVerdictMean = "mean over policies of the share of passed official verdicts, t-interval"
)

// sourceOfScores returns the source of a value from the arm's greedy episodes on a set, of one category or of all ("").
func (a *Arm) sourceOfScores(set, category, by string) page.Source {
	return sourceOfScores(a.Runs, by, set, a.condition(), category, true)
}

// sourceOfScores returns the source of a value from the episodes of some runs on a set under a token, of one category
// or of all (""): the evaluations with such episodes.
func sourceOfScores(runs []SeedRun, by, set, token, category string, greedy bool) page.Source {
	s := page.Source{By: by, Rows: "set " + cmp.Or(set, "test")}
	for i := range runs {
		rows := runs[i].Scores
		for _, from := range runs[i].ScoresFrom {
			own := rows[:from.N]
			rows = rows[from.N:]
			if slices.ContainsFunc(own, func(row rl.Score) bool {
				return row.Greedy == greedy && row.Set == set && row.Token == token && (category == "" || row.Category == category)
			}) {
				s.From = append(s.From, from.Address)
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

// mainTable is the paper's main table for one set: success by the paper's reward, greedy, overall and by category, with
// the official verdict beside it.
func (s *Study) mainTable(set string) *page.Table {
	categories := s.categories(set)
	most, sampled := 0, false
	for i := range s.Arms {
		most = max(most, len(s.Arms[i].policies(set, true)))
		sampled = sampled || len(s.Arms[i].policies(set, false)) > 0
	}
	overSeeds := most >= methodPolicies
	decoding, decodingNotes := s.decoding(set)
	t := &page.Table{ID: "main-" + setID(set), Title: "Success on " + setName(set) + ", " + decoding}
	t.Columns = append(page.Columns("<Arm", "Overall"), page.Column{Name: "95 % over seeds", Omitted: !overSeeds})
	t.Columns = append(append(t.Columns, categoryColumns(categories)...), page.Column{Name: "Official verdict",
		Omitted: s.taskSources() == ownTasks})
	if sampled {
		t.Columns = append(t.Columns, page.Column{Name: "Sampled"})
	}
	for i, a := range s.Arms {
		all := a.policies(set, true)
		if len(all) == 0 {
			continue
		}
		share := func(category, by string) page.Cell {
			return pooled(samples(all, category, by == byVerdict)).share().From(a.sourceOfScores(set, category, by))
		}
		cells := []page.Cell{s.armName(&a, a.sourceOfScores(set, "", byReward)), share("", byReward),
			overSeedsCell(samples(all, "", false)).From(a.sourceOfScores(set, "", byMean))}
		for _, c := range categories {
			cells = append(cells, share(c, byReward))
		}
		cells = append(cells, unlessMerged(a.Runs, set, share("", byVerdict)))
		if sampled {
			cells = append(cells, pooled(samples(a.policies(set, false), "", false)).share().
				From(sourceOfScores(a.Runs, byReward, set, a.condition(), "", false)))
		}
		t.Add(i, cells...)
	}
	if len(t.Rows) == 0 {
		return nil
	}
	s.markBest(t, set)
	if most > 1 {
		t.Lead = "Percentage of the pooled episodes of all policies of an arm. A policy that several seeds evaluate " +
			"counts once."
	}
	starred := slices.ContainsFunc(t.Rows, func(r page.Row) bool { return r.Cells[1].Mark == page.MarkBest })
	t.Notes = slices.Concat(s.mainNotes(set, overSeeds, starred), decodingNotes)
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
				all := policies(a.Runs, set, token, greedy)
				if len(all) == 0 {
					continue
				}
				var malformed []sample
				for j := range all {
					malformed = append(malformed, all[j].malformed())
				}
				replies := pooled(malformed)
				t.Omitted = t.Omitted && len(replies) == 0
				from := func(by string) page.Source { return sourceOfScores(a.Runs, by, set, token, "", greedy) }
				t.Add(i, page.Text("%s", a.Label), page.Text("%s", cmp.Or(token, "none")),
					page.Text("%s", map[bool]string{true: "greedy", false: "sampled"}[greedy]),
					pooled(samples(all, "", false)).share().From(from(byReward)),
					replies.share().From(from(byMalformed)))
			}
		}
	}
	return t.OrNil()
}

// decoding names how the arms of the main table of a set decode, with a note if API models are among them.
func (s *Study) decoding(set string) (name string, notes []string) {
	endpoints := map[string]bool{} // digests
	for _, r := range s.Records {
		if r.Kind == "endpoint" && r.Manifest != nil {
			endpoints[fmt.Sprintf("%q", r.Manifest.Outputs["policy"].Digest)] = true
		}
	}
	models, checkpoints := false, false
	for a, r := range s.runs {
		if len(r.outcomes(set, a.condition(), true)) > 0 {
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
	benchmarkTasks = 1 << iota // of the benchmark, or drills
	ownTasks                   // of a program or an MCP server
)

// taskSources returns the sources of the study's tasks. Without a record of them they are the benchmark's.
func (s *Study) taskSources() (sources int) {
	for _, r := range s.Records {
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
func (s *Study) mainNotes(set string, overSeeds, starred bool) []string {
	notes := append(s.successNotes(set),
		"Below each percentage: the 95 % Wilson interval ("+s.tasksOf(set)+"), clustered by task "+
			"family, because the episodes of one family pass and fail together. It treats families as independent and "+
			"holds for these policies.")
	if overSeeds {
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

// unlessMerged returns a cell of official verdicts, or a dash if the tasks of the set have merged requests: the
// official checker compares turns, and these episodes have one.
func unlessMerged(runs []SeedRun, set string, verdicts page.Cell) page.Cell {
	for _, r := range runs {
		for _, row := range r.Scores {
			if row.Set == set && row.Prompt == bfcl.PromptMerged {
				return page.Text("–").With("merged prompt")
			}
		}
	}
	return verdicts
}

// seedMean returns the mean over policies of their shares with its t-interval; a dash below three policies.
func seedMean(shares []float64) page.Cell {
	if len(shares) < methodPolicies {
		return page.Text("–")
	}
	return shareMean(shares)
}

// overSeedsCell shows the t-interval of the mean over policies, and the mean if it is not the pooled share; a dash
// below three policies.
func overSeedsCell(all []sample) page.Cell {
	c := seedMean(rates(all))
	if c.Value == nil {
		return c
	}
	details := c.Lines()[1:]
	if c.Interval == nil {
		c.Text, details = "–", c.Lines()
	} else {
		c.Text = page.PercentRange(*c.Interval)
	}
	if pool := pooled(all).total(); math.Abs(*c.Value-pool.Mean()) > 1e-9 {
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
		how := Comparison{Unpaired: unmatched(a.side(), winner.side(), set, true).tooMany()}
		c := contrastOf(all, how, []string{winner.Label, a.Label})
		if c == nil {
			c = contrastOf(all, how, []string{a.Label, winner.Label})
		}
		if c == nil {
			if c = compareEvaluations(a.side(), winner.side(), set, how); c == nil {
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
	for i, a := range s.Arms {
		all := a.policies(set, true)
		if len(all) > 1 {
			t.Omitted = false
		}
		for j := range all {
			t.Add(i, a.seedCells(all[j:j+1], a.runsOf(&all[j]), all[j].name(), set, categories)...)
		}
		if len(all) >= methodPolicies {
			t.Add(i, a.seedCells(all, a.Runs, "mean", set, categories)...)
		}
	}
	return t.OrNil()
}

// seedCells returns a row of the table by seeds, from some policies of the arm and the runs that evaluated them.
func (a *Arm) seedCells(all []policy, runs []SeedRun, name, set string, categories []string) []page.Cell {
	reward, verdict := byReward, byVerdict
	if len(all) > 1 {
		reward, verdict = byMean, byVerdictMean
	}
	of := func(category, by string) page.Cell {
		found := samples(all, category, by == verdict)
		cell := pooled(found).share()
		if len(all) > 1 {
			cell = seedMean(rates(found))
		}
		return cell.From(sourceOfScores(runs, by, set, a.condition(), category, true))
	}
	cells := []page.Cell{page.Text("%s", a.Label), page.Text("%s", name), of("", reward)}
	for _, c := range categories {
		cells = append(cells, of(c, reward))
	}
	return append(cells, unlessMerged(runs, set, of("", verdict)))
}

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
		all := a.policies(set, true)
		if len(all) == 0 {
			continue
		}
		series := page.Series{Name: a.Label, Arm: i}
		for x, c := range categories {
			found := samples(all, c, false)
			share := pooled(found).share()
			if share.Of == 0 {
				continue
			}
			p := page.Point{X: float64(x), Value: *share.Value, Interval: stats.Unknown, Label: page.Fraction(share),
				Source: a.sourceOfScores(set, c, byReward)}
			if share.Interval != nil {
				p.Interval = *share.Interval
			}
			if len(found) > 1 {
				p.Each = rates(found)
				f.Note = "Points: all policies pooled, with the 95 % Wilson interval clustered by task family: families are " +
					"independent. Small rings: each policy separately."
			}
			series.Points = append(series.Points, p)
		}
		f.Series = append(f.Series, series)
	}
	return f.OrNil()
}

// passTable shows pass@k by arm, from the sampled episodes of each task: the unbiased estimate of the probability that
// one of k succeeds, mean over tasks, then over policies. k doubles up to the number of episodes that every task has.
// nil without passFigure.
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
	most := 0
	for _, series := range f.Series {
		most = max(most, len(series.X))
	}
	for p := range most {
		t.Columns = append(t.Columns, page.Column{Name: fmt.Sprintf("k = %d", 1<<p)})
	}
	t.Columns = append(t.Columns, page.Column{Name: "Episodes"})
	for _, series := range f.Series {
		a := &s.Arms[series.Arm]
		cells := []page.Cell{page.Text("%s", a.Label)}
		for p := range most {
			var values []float64
			for _, curve := range series.Curves {
				if p < len(curve.Y) {
					values = append(values, curve.Y[p])
				}
			}
			cell := shareList(values)
			if len(values) >= methodPolicies {
				cell = shareMean(values)
			}
			by := fmt.Sprintf("pass@%d, mean over tasks, then over policies", 1<<p)
			cells = append(cells, cell.From(sourceOfScores(a.Runs, by, set, a.condition(), "", false)))
		}
		episodes, tasks := 0, map[string]bool{}
		for _, one := range a.policies(set, false) {
			for task, tally := range one.outcomes {
				episodes += tally.episodes
				tasks[task] = true
			}
		}
		cells = append(cells, page.Whole(episodes).With("of %s", english.Plural(len(tasks), "task", "")).
			From(sourceOfScores(a.Runs, "number of sampled episodes, of all policies", set, a.condition(), "", false)))
		t.Add(series.Arm, cells...)
	}
	return t
}

// passFigure draws the curves of passTable, one for each policy; nil unless a policy sampled
// each of its tasks at least twice.
func (s *Study) passFigure(set string) *page.Figure {
	f := &page.Figure{
		ID: "fig-pass-at-k-" + setID(set), Title: "pass@k on " + setName(set), X: "k", Y: "pass@k", Share: true,
		Note: "The probability that at least one of k sampled episodes of a task succeeds, mean over tasks; several " +
			"seeds: their mean, and a band from the lowest to the highest.",
	}
	most := 0
	for i, a := range s.Arms {
		series := page.Series{Name: a.Label, Arm: i}
		for _, one := range a.policies(set, false) {
			curve := one.passCurve()
			for p := len(series.X); p < len(curve); p++ {
				series.X = append(series.X, float64(int(1)<<p))
			}
			most = max(most, len(curve))
			source := sourceOfScores(a.runsOf(&one), "pass@k, mean over tasks", set, a.condition(), "", false)
			series.Curves = append(series.Curves, page.Curve{Name: one.name(), Y: curve, Source: source})
		}
		if len(series.Curves) > 0 {
			f.Series = append(f.Series, series)
		}
	}
	if most < 2 {
		return nil
	}
	return f
}

// passCurve returns pass@1, pass@2, pass@4, … of a policy's sampled episodes.
func (p *policy) passCurve() []float64 {
	fewest := math.MaxInt
	for _, one := range p.outcomes {
		fewest = min(fewest, one.episodes)
	}
	var curve []float64
	for k := 1; len(p.outcomes) > 0 && k <= fewest; k *= 2 {
		sum := 0.0
		for _, task := range sortedKeys(p.outcomes) { // the order determines the rounding of the sum
			sum += rl.PassAtK(p.outcomes[task].episodes, p.outcomes[task].passed, k)
		}
		curve = append(curve, sum/float64(len(p.outcomes)))
	}
	return curve
}

// shareList shows the share of each seed; a single share has a value. A dash without shares.
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

// episode is a column of the outcome figure: a task of one seed.
type episode struct{ seed, task string }

// outcomesByEpisode returns the results of each greedy episode on a set, one character per arm: '1' passed, '0' failed,
// ' ' without this episode. A run without seed belongs to every seed.
func outcomesByEpisode(arms []*Arm, set string) map[episode][]byte {
	results := map[episode][]byte{}
	use := func(arm int, run *SeedRun, add bool) {
		found := run.outcomes(set, arms[arm].condition(), true)
		for task := range found {
			if e := (episode{run.Name(), task}); add && results[e] == nil {
				results[e] = bytes.Repeat([]byte(" "), len(arms))
			}
		}
		for e, passed := range results {
			one, ok := found[e.task]
			if ok && passed[arm] == ' ' && (run.Seed == nil || run.Name() == e.seed) {
				passed[arm] = '0' + byte(min(1, one.passed))
			}
		}
	}
	for _, seeded := range []bool{true, false} { // runs with a seed determine the episodes, if there are any
		add := seeded || len(results) == 0
		for i, a := range arms {
			for j := range a.Runs {
				if run := &a.Runs[j]; (run.Seed != nil) == seeded {
					use(i, run, add)
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
	var arms []*Arm
	for i, a := range s.Arms {
		if len(a.policies(set, true)) > 0 {
			arms, f.Lanes = append(arms, &a), append(f.Lanes, a.Label)
			f.Series = append(f.Series, page.Series{Name: a.Label, Arm: i})
			f.Source = page.Together(f.Source.By, "", f.Source, a.sourceOfScores(set, "", ""))
		}
	}
	if len(arms) < 2 {
		return nil
	}
	f.Data[0] = append(f.Data[0], f.Lanes...)
	results := outcomesByEpisode(arms, set)
	for at, e := range slices.SortedFunc(maps.Keys(results), func(a, b episode) int {
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
