package reports

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"

	"rcgrpo/reports/page"
	"rcgrpo/reports/stats"
	"rcgrpo/stages/rl"
	"rcgrpo/stages/rl/objective"
)

// values returns the values of a metric of the training with their updates; NaN for updates without it. found is false
// if no update logged the metric.
func (r *SeedRun) values(metric string) (updates, values []float64, found bool) {
	return columnOf(r.Curve, metric)
}

func columnOf(rows []rl.Metric, metric string) (updates, values []float64, found bool) {
	for _, row := range rows {
		v, ok := row.Values[metric]
		switch metric {
		case "successes_":
			v, ok = meanSuccesses(row.Values)
		case unbiasedBound:
			v, ok = unbiasedProp2(row.Values)
		}
		if !ok {
			v = math.NaN()
		}
		found = found || ok
		updates, values = append(updates, float64(row.Update)), append(values, v)
	}
	return updates, values, found
}

// meanSuccesses returns the mean number of successes per group, from the shares of groups with 0, 1, … successes (the
// metrics "successes_K").
func meanSuccesses(values map[string]float64) (mean float64, ok bool) {
	for k := 0; ; k++ {
		share, known := values[fmt.Sprintf("successes_%d", k)]
		if !known {
			return mean, k > 0
		}
		mean += float64(k) * share
	}
}

// unbiasedBound is the name of Proposition 2's bound without the sampling variance of the gap, which the logged
// prop2_bound contains: gap² of a noisy gap is on average too large by the square of its standard error.
const unbiasedBound = "sigma2 - prop2_excess"

func unbiasedProp2(values map[string]float64) (bound float64, ok bool) {
	sigma2, known := values["sigma2"]
	excess, ok := values["prop2_excess"]
	return sigma2 - excess, ok && known
}

// window returns the mean of the first or the last n logged values.
func window(values []float64, n int, late bool) float64 {
	logged := slices.DeleteFunc(slices.Clone(values), math.IsNaN)
	n = min(n, len(logged))
	if late {
		return stats.Mean(logged[len(logged)-n:])
	}
	return stats.Mean(logged[:n])
}

// lateValue returns the mean over the late window; NaN if the windows do not fit. A value that was logged once, such as
// a forecast, needs no window.
func lateValue(values []float64, w Windows) float64 {
	if logged := slices.DeleteFunc(slices.Clone(values), math.IsNaN); len(logged) == 1 {
		return logged[0]
	}
	if !w.fit(len(values)) {
		return math.NaN()
	}
	return window(values, w.Late, true)
}

// summary holds the means of a metric in both windows, for every run that logged it and is long enough for them.
type summary struct{ early, late []float64 }

func (a *Arm) summary(metric string, w Windows) summary {
	var s summary
	for i := range a.Runs {
		if _, values, ok := a.Runs[i].values(metric); ok && w.fit(len(values)) {
			s.early = append(s.early, window(values, w.Early, false))
			s.late = append(s.late, window(values, w.Late, true))
		}
	}
	return s
}

// ends returns the means of a metric over the early and the late window, as in the tables; nil without windows.
func (a *Arm) ends(metric string, w Windows) *[2]float64 {
	both := a.summary(metric, w)
	if len(both.early) == 0 {
		return nil
	}
	return &[2]float64{stats.Mean(both.early), stats.Mean(both.late)}
}

// meanNumber returns the mean over seeds, with the range of several seeds.
func meanNumber(values []float64) page.Cell {
	if len(values) == 0 {
		return page.Text("–")
	}
	c := page.Number(stats.Mean(values))
	if len(values) > 1 {
		c = c.With("%s", page.Range(page.Significant(slices.Min(values)), page.Significant(slices.Max(values))))
	}
	return c
}

// meanShare returns the mean of shares over seeds, with the range of several seeds.
func meanShare(shares []float64) page.Cell {
	mean := stats.Mean(shares)
	c := page.Cell{Text: page.Percent(mean), Value: &mean}
	if len(shares) > 1 {
		c = c.With("%s", page.PercentRange(stats.Interval{Low: slices.Min(shares), High: slices.Max(shares)}))
	}
	return c
}

func (a *Arm) hasCurve() bool {
	return slices.ContainsFunc(a.Runs, func(r SeedRun) bool { return r.Curve != nil })
}

// metricNames returns the names of all metrics that the arm's trainings by RL logged.
func (a *Arm) metricNames() map[string]bool {
	names := map[string]bool{}
	for _, r := range a.Runs {
		for _, row := range r.Curve {
			for name := range row.Values {
				names[name] = true
			}
		}
	}
	return names
}

// logged returns the source of a value from metrics that the arm's trainings logged.
func (a *Arm) logged(by string, metrics ...string) page.Source {
	s := page.Source{By: by, Rows: strings.Join(metrics, ", ")}
	for i := range a.Runs {
		if slices.ContainsFunc(metrics, func(metric string) bool { _, _, ok := a.Runs[i].values(metric); return ok }) {
			s.From = append(s.From, a.Runs[i].CurveFrom)
		}
	}
	return s
}

// Methods of the cells of trainings.
const (
	byEarly = "mean over the early window, then over seeds"
	byLate  = "mean over the late window, then over seeds"
)

// block is the study cut to a number of updates: the trainings with at least that many updates, each cut to them. The
// windows of all trainings of a block cover the same updates.
type block struct {
	*Study
	updates int
	// bound is a training that ends there and causes longer ones to be cut; "" for the longest trainings.
	bound string
}

// blocks returns one block for each length of a training that both windows fit into, the longest first.
func (s *Study) blocks() []block {
	ends := map[int]string{}
	for _, r := range s.runs {
		if n := len(r.Curve); s.Windows.fit(n) && ends[n] == "" {
			ends[n] = r.CurveFrom
		}
	}
	var all []block
	for n := range ends {
		all = append(all, block{updates: n, bound: ends[n]})
	}
	slices.SortFunc(all, func(a, b block) int { return b.updates - a.updates })
	for i := range all {
		cut := *s
		cut.Arms = make([]Arm, len(s.Arms))
		for j, a := range s.Arms {
			cut.Arms[j].Label = a.Label
			for _, r := range a.Runs {
				if len(r.Curve) >= all[i].updates {
					r.Curve = r.Curve[:all[i].updates]
					cut.Arms[j].Runs = append(cut.Arms[j].Runs, r)
				}
			}
		}
		all[i].Study = &cut
		if i == 0 {
			all[i].bound = ""
		}
	}
	return all
}

// trainings iterates over the arms of all blocks that have a training there.
func (s *Study) trainings(yield func(b *block, arm int) bool) {
	for _, b := range s.blocks() {
		for i := range b.Arms {
			if b.Arms[i].hasCurve() && !yield(&b, i) {
				return
			}
		}
	}
}

// early and late return the updates of the windows: "1–20", "131–150".
func (b *block) early() string { return updatesBetween(1, b.Windows.Early) }

func (b *block) late() string { return updatesBetween(b.updates-b.Windows.Late+1, b.updates) }

func updatesBetween(first, last int) string {
	if first == last {
		return fmt.Sprint(first)
	}
	return fmt.Sprintf("%d–%d", first, last)
}

// logged returns the source of a value of an arm within the block.
func (b *block) logged(arm int, by string, metrics ...string) page.Source {
	return b.within(b.Arms[arm].logged(by, metrics...))
}

// within adds the training that bounds the block to a source.
func (b *block) within(source page.Source) page.Source {
	if b.bound == "" || len(source.From) == 0 {
		return source
	}
	return page.Together(source.By, source.Rows, source, page.Source{From: []string{b.bound}})
}

func (s *Study) windowNote() string {
	note := fmt.Sprintf("Windows: the first %d and the last %d updates.", s.Windows.Early, s.Windows.Late)
	if len(s.blocks()) > 1 {
		note += " If trainings have different lengths, each row names its updates, and a longer training has a second " +
			"row with the updates of a shorter one."
	}
	return note
}

// longest returns the number of updates of the longest training by RL, 0 without a training.
func (s *Study) longest() int {
	longest := 0
	for _, r := range s.runs {
		longest = max(longest, len(r.Curve))
	}
	return longest
}

// withoutWindows returns a sentence about trainings that the tables of windows omit; none if there are none.
func (s *Study) withoutWindows() []string {
	var short []string
	for a, r := range s.runs {
		if n := len(r.Curve); n > 0 && !s.Windows.fit(n) {
			short = append(short, strings.TrimSpace(fmt.Sprintf("%s %s (%d updates)", a.Label, r.Name(), n)))
		}
	}
	switch {
	case len(short) == 0:
		return nil
	case s.Windows.Late == 0:
		return []string{fmt.Sprintf("No tables of the early and the late phase of training: the longest training has %d "+
			"updates, fewer than the paper's two windows of 70, and the report sets no others.", s.longest())}
	}
	return []string{fmt.Sprintf("Too short for windows of %d and %d updates, so missing from the tables of early and "+
		"late training: %s.", s.Windows.Early, s.Windows.Late, strings.Join(short, ", "))}
}

// entropyTable is the paper's table of entropy and its correlation with the reward.
func (s *Study) entropyTable() *page.Table {
	t := &page.Table{
		ID: "entropy", Title: "Entropy, and its correlation with the reward",
		Columns: page.Columns("<Arm", "<Updates", "Early", "Late", "Δ", "ρ(entropy, reward)", "ρ of changes",
			"ρ, one update apart"),
		Notes: []string{s.windowNote(), "ρ: Pearson's correlation over the updates of a run, as in the paper; below three " +
			"seeds the range, else the t-interval over seeds, which treats seeds as independent. The table of correlations " +
			"has each run with its p-values.",
			"Two causes make ρ negative in every arm. Slow trends: entropy falls while the reward rises. The draw of tasks: " +
				"an update with hard tasks has a lower reward and a higher entropy, whatever the policy learns. ρ of changes " +
				"correlates the differences between consecutive updates, which removes trends and keeps the draw. ρ one update " +
				"apart correlates the entropy with the reward of the next update, which has other tasks: it removes the draw " +
				"and keeps trends. If ρ of changes is about as negative as ρ, the difficulty of the tasks explains it."},
	}
	for b, i := range s.trainings {
		a := &b.Arms[i]
		both := a.summary("entropy", s.Windows)
		if len(both.early) == 0 {
			continue
		}
		var plain, changes, apart []float64
		for _, c := range a.correlations() {
			plain, changes, apart = append(plain, c.Pearson), append(changes, c.changes), append(apart, c.apart)
		}
		by := func(how string) page.Source { return b.logged(i, how, "entropy", "reward") }
		t.Add(i, page.Text("%s", a.Label), page.Text("%s, %s", b.early(), b.late()),
			meanNumber(both.early).From(b.logged(i, byEarly, "entropy")),
			meanNumber(both.late).From(b.logged(i, byLate, "entropy")),
			changeCell(stats.Mean(both.early), stats.Mean(both.late)).From(b.logged(i, "late over early window, minus 1",
				"entropy")),
			meanWithT(plain).From(by("Pearson's correlation over the updates of a run, t-interval over seeds")),
			meanWithT(changes).From(by("Pearson's correlation of the differences between updates, t-interval over seeds")),
			meanWithT(apart).From(by("Pearson's correlation of the entropy with the next reward, t-interval over seeds")))
	}
	return t.OrNil()
}

// correlationTable shows the correlation of entropy and reward of each run with its p-values.
func (s *Study) correlationTable() *page.Table {
	t := &page.Table{
		ID: "entropy-runs", Title: "Correlation of entropy and reward, each run", Folded: true,
		Columns: page.Columns("<Arm", "<Seed", "<Updates", "ρ", "p, n updates", "Effective n", "p, effective n"),
		Notes: []string{"The first p-value treats updates as independent, as in the paper. The second uses the effective " +
			"number of updates of two series with these lag-one autocorrelations."},
	}
	for b, i := range s.trainings {
		a := &b.Arms[i]
		for _, c := range a.correlations() {
			by := func(how string) page.Source { return b.within(page.SourceOf(c.from, "entropy, reward", how)) }
			t.Add(i, page.Text("%s", a.Label), page.Text("%s", cmp.Or(c.seed, "–")),
				page.Text("%s", updatesBetween(1, b.updates)).From(by("updates of the run")),
				page.Number(c.Pearson).From(by("Pearson's correlation over the updates of the run")),
				page.Text("%s", page.Probability(c.P)).From(by("p of Pearson's correlation, every update counts")),
				page.Number(c.NEff).From(by("effective number of updates")),
				page.Text("%s", page.Probability(c.PEff)).
					From(by("p of Pearson's correlation with the effective number of updates")))
		}
	}
	return t.OrNil()
}

// runCorrelation is the correlation of entropy and reward of a run.
type runCorrelation struct {
	seed, from string
	stats.Correlation
	changes, apart float64 // of the differences between updates; of the entropy with the next reward
}

func (a *Arm) correlations() []runCorrelation {
	var all []runCorrelation
	for _, r := range a.Runs {
		x, y, ok := r.both("entropy", "reward")
		if !ok {
			continue
		}
		all = append(all, runCorrelation{r.Name(), r.CurveFrom, stats.Correlate(x, y),
			stats.Correlate(differences(x), differences(y)).Pearson, stats.Correlate(x[:len(x)-1], y[1:]).Pearson})
	}
	return all
}

// differences returns the differences between neighbours.
func differences(x []float64) []float64 {
	var d []float64
	for i := 1; i < len(x); i++ {
		d = append(d, x[i]-x[i-1])
	}
	return d
}

// both returns the values of two metrics at the updates that logged both.
func (r *SeedRun) both(first, second string) (x, y []float64, ok bool) {
	for _, row := range r.Curve {
		a, okA := row.Values[first]
		b, okB := row.Values[second]
		if okA && okB {
			x, y = append(x, a), append(y, b)
		}
	}
	return x, y, len(x) > 0
}

// changeCell shows the change from early to late in per cent of early.
func changeCell(early, late float64) page.Cell {
	if early == 0 || math.IsNaN(early) || math.IsNaN(late) {
		return page.Text("–")
	}
	change := late/early - 1
	arrow := "↑"
	if change < 0 {
		arrow = "↓"
	}
	return page.Cell{Text: fmt.Sprintf("%s\u00a0%.0f\u00a0%%", arrow, 100*math.Abs(change)), Value: &change}
}

// lateColumn is a column of a table over the late window.
type lateColumn struct{ metric, head string }

// lateMetrics are the paper's four metrics, the spread in each of its interpretations.
var lateMetrics = []lateColumn{
	{"reward", "Reward"},
	{"spread_within", "Spread in group"},
	{"spread_batch", "Spread in batch, ddof 0"},
	{"spread_batch_ddof1", "Spread in batch, ddof 1"},
	{"kl", "KL"},
	{"grad_norm", "‖g‖"},
	{"entropy", "Entropy"},
}

// signalMetrics measure the learning signal of an update independently of the batch size.
var signalMetrics = []lateColumn{
	{"zero_variance", "Groups without variance"},
	{"all_right", "all right"},
	{"all_wrong", "all wrong"},
	{"sigma2", "Mean σ²"},
	{"mean_abs_advantage", "Mean |A|"},
	{"successes_", "Successes per group"},
	{"effective_sample_size", "Effective sample"},
}

func (s *Study) lateTable() *page.Table {
	return s.windowTable("late", "Late phase of training", lateMetrics,
		"Spread in group is the paper's caption read literally: largest minus smallest advantage of a group, mean over "+
			"all groups, 0 for a group without variance. In batch: over all groups of an update, with the standard "+
			"deviation divided by n (ddof 0) or n−1 (ddof 1); these two grow with the batch. The paper's values (3.22 to "+
			"3.58) correspond to Spread in batch, ddof 1: with groups of five and binary rewards one group spans at most "+
			"3.162 (ddof 0) or 2.828 (ddof 1), and a batch at most 3.578 under ddof 1.")
}

func (s *Study) signalTable() *page.Table {
	return s.windowTable("signal", "Learning signal in the late phase", signalMetrics,
		"Groups whose episodes all have the same reward have no variance: all right or all wrong. σ² is the variance "+
			"of the rewards of a group, A the advantage; means over all groups and episodes. Successes: members of a "+
			"group with reward 1. Effective sample: (Σ|A|)² / ΣA².")
}

// windowTable shows the means of metrics over the late window, a row per arm with a curve; nil if nothing was logged.
func (s *Study) windowTable(id, title string, all []lateColumn, note string) *page.Table {
	t := &page.Table{ID: id, Title: title, Columns: page.Columns("<Arm", "<Updates")}
	var used []string
	for _, c := range all {
		if slices.ContainsFunc(s.Arms, func(a Arm) bool { return len(a.summary(c.metric, s.Windows).late) > 0 }) {
			t.Columns, used = append(t.Columns, page.Column{Name: c.head}), append(used, c.metric)
		}
	}
	if len(used) == 0 {
		return nil
	}
	for b, i := range s.trainings {
		a := &b.Arms[i]
		cells := []page.Cell{page.Text("%s", a.Label), page.Text("%s", b.late())}
		for _, metric := range used {
			cells = append(cells, meanNumber(a.summary(metric, s.Windows).late).From(b.logged(i, byLate, metric)))
		}
		t.Add(i, cells...)
	}
	t.Notes = []string{s.windowNote() + " Several seeds: mean, and below it the lowest and highest seed.", note}
	return t.OrNil()
}

func (s *Study) trainingGapTable() *page.Table {
	t := &page.Table{
		ID: "gap-training", Title: "The token's effect on sampled episodes during training",
		Columns: page.Columns("<Arm", "<Updates", "High, early", "Low, early", "Gap, early", "High, late", "Low, late",
			"Gap, late"),
		Notes: []string{s.windowNote(), "Gaps of three seeds or more have their t-interval over seeds, which treats seeds " +
			"as independent."},
	}
	for b, i := range s.trainings {
		a := &b.Arms[i]
		high, low, gap := a.summary("reward_high", s.Windows), a.summary("reward_low", s.Windows),
			a.summary("token_gap", s.Windows)
		if len(high.early) == 0 || len(low.early) == 0 {
			continue
		}
		cells := []page.Cell{page.Text("%s", a.Label), page.Text("%s, %s", b.early(), b.late())}
		window := func(by string, high, low, gap []float64) {
			cells = append(cells, meanNumber(high).From(b.logged(i, by, "reward_high")),
				meanNumber(low).From(b.logged(i, by, "reward_low")),
				meanWithT(gap).From(b.logged(i, by+", t-interval", "token_gap")))
		}
		window(byEarly, high.early, low.early, gap.early)
		window(byLate, high.late, low.late, gap.late)
		t.Add(i, cells...)
	}
	return t.OrNil()
}

// meanWithT returns the mean over trainings with its t-interval, from three trainings on.
func meanWithT(values []float64) page.Cell {
	c := meanNumber(values)
	if i := stats.TInterval(values, stats.Level); len(values) >= methodPolicies && i.Known() {
		c.Interval = &i
		c = c.With("t\u00a0%s", page.Range(page.Significant(i.Low), page.Significant(i.High)))
	}
	return c
}

// valuesTable lists all logged values with their definition in package rl and their mean over the late window, so that
// the page contains also the values without a figure.
func (s *Study) valuesTable() *page.Table {
	t := &page.Table{
		ID: "values", Title: "All logged values, means over the late window", Folded: true,
		Columns: page.Columns("<Value", "<Definition", "<Unit"),
	}
	var shown []*Arm // each cut to the longest block with a training of it
	logged := map[string]bool{}
	all := s.blocks()
	for i := range s.Arms {
		maps.Copy(logged, s.Arms[i].metricNames())
		longest := slices.IndexFunc(all, func(b block) bool { return b.Arms[i].hasCurve() })
		if longest >= 0 {
			shown = append(shown, &all[longest].Arms[i])
			t.Columns = append(t.Columns, page.Column{Name: s.Arms[i].Label + ", updates " + all[longest].late()})
		}
	}
	if len(shown) == 0 {
		return nil
	}
	for _, info := range objective.Metrics {
		for _, name := range sortedKeys(logged) {
			if name != info.Name && !(strings.HasSuffix(info.Name, "_") && strings.HasPrefix(name, info.Name)) {
				continue
			}
			cells := []page.Cell{page.Text("%s", name), page.Text("%s", info.Formula), page.Text("%s", info.Unit)}
			for _, a := range shown {
				cells = append(cells, meanNumber(a.summary(name, s.Windows).late).From(a.logged(byLate, name)))
			}
			t.Add(page.NoArm, cells...)
		}
	}
	if logged["prop2_bound"] {
		t.Notes = []string{"prop2_bound and prop2_slack contain the square of a gap with sampling error and are biased " +
			"(the bound upwards); prop2_excess and the figure of Proposition 2 subtract the sampling variance."}
	}
	return t.OrNil()
}
