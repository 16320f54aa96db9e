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

// columnOf returns the values of a metric in the rows. It computes two metrics that no update logs: the mean of
// "successes_" (meanSuccesses) and unbiasedBound (unbiasedProp2).
func columnOf(rows []rl.Metric, metric string) (updates, values []float64, found bool) {
	for _, row := range rows {
		v, ok := row.Values[metric]
		switch metric {
		case "successes_":
			v, ok = meanSuccesses(row.Values)
		case unbiasedBound:
			sigma2, known := row.Values["sigma2"]
			excess, logged := row.Values["prop2_excess"]
			v, ok = sigma2-excess, known && logged
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

// trainings selects the trainings of an arm that logged any of some metrics. Tables and figures show measures of this
// selection, as they show measures of a selection of episodes.
type trainings struct {
	metrics []string
	runs    []SeedRun // with the selected updates
	windows Windows
	bound   string // as in stretch
}

// logged selects the trainings of the arm that logged any of the metrics.
func (a *Arm) logged(w Windows, metrics ...string) trainings {
	t := trainings{metrics: metrics, windows: w}
	for _, r := range a.Runs {
		if slices.ContainsFunc(metrics, func(metric string) bool { _, _, ok := r.values(metric); return ok }) {
			t.runs = append(t.runs, r)
		}
	}
	return t
}

// each returns the selection of each training.
func (t trainings) each() (all []trainings) {
	for i := range t.runs {
		one := t
		one.runs = t.runs[i : i+1]
		all = append(all, one)
	}
	return all
}

// source returns the source of a value from the selected trainings.
func (t trainings) source(by string) page.Source {
	source := page.Source{By: by, Rows: strings.Join(t.metrics, ", ")}
	for _, r := range t.runs {
		source.From = append(source.From, r.CurveFrom)
	}
	if t.runs != nil && t.bound != "" && !slices.Contains(source.From, t.bound) {
		source.From = append(source.From, t.bound)
	}
	return source
}

// cell returns a number of the selected trainings, with its source.
func (t trainings) cell(m measure[trainings]) page.Cell { return m.number(t).From(t.source(m.by)) }

// means returns the means of the first metric over the early or the late window of each training that is long enough
// for both.
func (t trainings) means(late bool) (all []float64) {
	n := t.windows.Early
	if late {
		n = t.windows.Late
	}
	for _, r := range t.runs {
		if _, values, ok := r.values(t.metrics[0]); ok && t.windows.fit(len(values)) {
			all = append(all, window(values, n, late))
		}
	}
	return all
}

// before returns a metric of the update with the forecast, from each training whose row with the forecast has it.
func (t trainings) before(metric string) (values []float64) {
	for _, r := range t.runs {
		if v, ok := r.forecast()[metric]; ok {
			values = append(values, v)
		}
	}
	return values
}

// correlations returns a correlation of the first two metrics for each training with updates that logged both.
func (t trainings) correlations(correlation func(x, y []float64) float64) (all []float64) {
	for _, r := range t.runs {
		if x, y, ok := r.both(t.metrics[0], t.metrics[1]); ok {
			all = append(all, correlation(x, y))
		}
	}
	return all
}

// meanCell shows the mean over seeds, and below it the range of several seeds; a dash without values.
func meanCell(values []float64, text, end func(float64) string) page.Cell {
	if len(values) == 0 {
		return page.Text("–")
	}
	mean := stats.Mean(values)
	c := page.Cell{Text: text(mean), Value: &mean}
	if len(values) > 1 {
		c = c.With("%s", page.Range(end(slices.Min(values)), end(slices.Max(values))))
	}
	return c
}

func meanNumber(values []float64) page.Cell {
	return meanCell(values, page.Significant, page.Significant)
}

func meanShare(shares []float64) page.Cell {
	return meanCell(shares, page.Percent, func(v float64) string { return fmt.Sprintf("%.1f", 100*v) })
}

// hasCurve reports whether a training by RL belongs to the arm.
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

// Methods of measures of trainings.
const (
	byEarly = "mean over the early window, then over seeds"
	byLate  = "mean over the late window, then over seeds"
)

// Measures of trainings.
var (
	earlyMean = measure[trainings]{byEarly, func(t trainings) page.Cell { return meanNumber(t.means(false)) }}
	lateMean  = measure[trainings]{byLate, func(t trainings) page.Cell { return meanNumber(t.means(true)) }}
	earlyGap  = measure[trainings]{byEarly + ", t-interval",
		func(t trainings) page.Cell { return meanWithT(t.means(false)) }}
	lateGap = measure[trainings]{byLate + ", t-interval",
		func(t trainings) page.Cell { return meanWithT(t.means(true)) }}
	change = measure[trainings]{"late over early window, minus 1", func(t trainings) page.Cell {
		return changeCell(stats.Mean(t.means(false)), stats.Mean(t.means(true)))
	}}
	ofUpdates = overRuns("Pearson's correlation over the updates of a run", pearson)
	ofChanges = overRuns("Pearson's correlation of the differences between updates",
		func(x, y []float64) float64 { return pearson(differences(x), differences(y)) })
	oneApart = overRuns("Pearson's correlation of the entropy with the next reward",
		func(x, y []float64) float64 { return pearson(x[:len(x)-1], y[1:]) })
)

// overRuns returns the measure of a correlation, its mean over seeds.
func overRuns(by string, correlation func(x, y []float64) float64) measure[trainings] {
	return measure[trainings]{by + ", t-interval over seeds",
		func(t trainings) page.Cell { return meanWithT(t.correlations(correlation)) }}
}

func pearson(x, y []float64) float64 { return stats.Correlate(x, y).Pearson }

// stretch is the trainings of an arm with at least a number of updates, cut to them: the windows of all stretches of
// one length cover the same updates.
type stretch struct {
	Arm
	at      int // index of the arm
	updates int
	windows Windows
	// bound is the port of a training that ends there, for which longer ones are cut; "" for the longest trainings.
	bound string
}

// stretches returns the stretches of each length of a training that both windows fit into, the longest first.
func (s *Study) stretches() (all []stretch) {
	ends := map[int]string{}
	for _, r := range s.runs {
		if n := len(r.Curve); s.Windows.fit(n) && ends[n] == "" {
			ends[n] = r.CurveFrom
		}
	}
	for k, n := range slices.Backward(slices.Sorted(maps.Keys(ends))) {
		for i, a := range s.Arms {
			x := stretch{Arm: Arm{Label: a.Label}, at: i, updates: n, windows: s.Windows}
			if k < len(ends)-1 {
				x.bound = ends[n]
			}
			for _, r := range a.Runs {
				if len(r.Curve) >= n {
					r.Curve = r.Curve[:n]
					x.Runs = append(x.Runs, r)
				}
			}
			if x.Runs != nil {
				all = append(all, x)
			}
		}
	}
	return all
}

// early and late return the updates of the windows: "1–20", "131–150".
func (x *stretch) early() string { return updatesBetween(1, x.windows.Early) }

func (x *stretch) late() string { return updatesBetween(x.updates-x.windows.Late+1, x.updates) }

func updatesBetween(first, last int) string {
	if first == last {
		return fmt.Sprint(first)
	}
	return fmt.Sprintf("%d–%d", first, last)
}

// logged selects the trainings of the stretch that logged any of the metrics.
func (x *stretch) logged(metrics ...string) trainings {
	t := x.Arm.logged(x.windows, metrics...)
	t.bound = x.bound
	return t
}

func (s *Study) windowNote() string {
	note := fmt.Sprintf("Windows: the first %d and the last %d updates.", s.Windows.Early, s.Windows.Late)
	if all := s.stretches(); len(all) > 0 && all[0].updates != all[len(all)-1].updates {
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
	for _, x := range s.stretches() {
		entropy, both := x.logged("entropy"), x.logged("entropy", "reward")
		if len(entropy.means(false)) > 0 {
			t.Add(x.at, page.Text("%s", x.Label), page.Text("%s, %s", x.early(), x.late()), entropy.cell(earlyMean),
				entropy.cell(lateMean), entropy.cell(change), both.cell(ofUpdates), both.cell(ofChanges), both.cell(oneApart))
		}
	}
	return t
}

// correlationTable shows the correlation of entropy and reward of each run with its p-values.
func (s *Study) correlationTable() *page.Table {
	t := &page.Table{
		ID: "entropy-runs", Title: "Correlation of entropy and reward, each run", Folded: true,
		Columns: page.Columns("<Arm", "<Seed", "<Updates", "ρ", "p, n updates", "Effective n", "p, effective n"),
		Notes: []string{"The first p-value treats updates as independent, as in the paper. The second uses the effective " +
			"number of updates of two series with these lag-one autocorrelations."},
	}
	for _, x := range s.stretches() {
		for _, run := range x.logged("entropy", "reward").each() {
			entropy, reward, ok := run.runs[0].both("entropy", "reward")
			if !ok {
				continue
			}
			c, by := stats.Correlate(entropy, reward), run.source
			t.Add(x.at, page.Text("%s", x.Label), page.Text("%s", cmp.Or(run.runs[0].Name(), "–")),
				page.Text("%s", updatesBetween(1, x.updates)).From(by("updates of the run")),
				page.Number(c.Pearson).From(by("Pearson's correlation over the updates of the run")),
				page.Text("%s", page.Probability(c.P)).From(by("p of Pearson's correlation, every update counts")),
				page.Number(c.NEff).From(by("effective number of updates")),
				page.Text("%s", page.Probability(c.PEff)).
					From(by("p of Pearson's correlation with the effective number of updates")))
		}
	}
	return t
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

// windowTable shows the means of metrics over the late window, a row per stretch; nil if nothing was logged.
func (s *Study) windowTable(id, title string, all []lateColumn, note string) *page.Table {
	t := &page.Table{ID: id, Title: title, Columns: page.Columns("<Arm", "<Updates")}
	var used []string
	for _, c := range all {
		if slices.ContainsFunc(s.Arms, func(a Arm) bool { return len(a.logged(s.Windows, c.metric).means(true)) > 0 }) {
			t.Columns = append(t.Columns, page.Column{Name: c.head})
			used = append(used, c.metric)
		}
	}
	if len(used) == 0 {
		return nil
	}
	for _, x := range s.stretches() {
		cells := []page.Cell{page.Text("%s", x.Label), page.Text("%s", x.late())}
		for _, metric := range used {
			cells = append(cells, x.logged(metric).cell(lateMean))
		}
		t.Add(x.at, cells...)
	}
	t.Notes = []string{s.windowNote() + " Several seeds: mean, and below it the lowest and highest seed.", note}
	return t
}

func (s *Study) trainingGapTable() *page.Table {
	t := &page.Table{
		ID: "gap-training", Title: "The token's effect on sampled episodes during training",
		Columns: page.Columns("<Arm", "<Updates", "High, early", "Low, early", "Gap, early", "High, late", "Low, late",
			"Gap, late"),
		Notes: []string{s.windowNote(), "Gaps of three seeds or more have their t-interval over seeds, which treats seeds " +
			"as independent."},
	}
	for _, x := range s.stretches() {
		high, low, gap := x.logged("reward_high"), x.logged("reward_low"), x.logged("token_gap")
		if len(high.means(false)) > 0 && len(low.means(false)) > 0 {
			t.Add(x.at, page.Text("%s", x.Label), page.Text("%s, %s", x.early(), x.late()), high.cell(earlyMean),
				low.cell(earlyMean), gap.cell(earlyGap), high.cell(lateMean), low.cell(lateMean), gap.cell(lateGap))
		}
	}
	return t
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

// valuesTable lists all logged values with their definition in package objective and their mean over the late window,
// so that the page contains also the values without a figure.
func (s *Study) valuesTable() *page.Table {
	t := &page.Table{
		ID: "values", Title: "All logged values, means over the late window", Folded: true,
		Columns: page.Columns("<Value", "<Definition", "<Unit"),
	}
	var shown []stretch // the longest one of each arm
	names := map[string]bool{}
	all := s.stretches()
	for i := range s.Arms {
		maps.Copy(names, s.Arms[i].metricNames())
		if longest := slices.IndexFunc(all, func(x stretch) bool { return x.at == i }); longest >= 0 {
			x := all[longest]
			shown = append(shown, x)
			t.Columns = append(t.Columns, page.Column{Name: x.Label + ", updates " + x.late()})
		}
	}
	if len(shown) == 0 {
		return nil
	}
	for _, info := range objective.Metrics {
		for _, name := range sortedKeys(names) {
			if name != info.Name && !(strings.HasSuffix(info.Name, "_") && strings.HasPrefix(name, info.Name)) {
				continue
			}
			cells := []page.Cell{page.Text("%s", name), page.Text("%s", info.Formula), page.Text("%s", info.Unit)}
			for _, x := range shown {
				cells = append(cells, x.Arm.logged(s.Windows, name).cell(lateMean))
			}
			t.Add(page.NoArm, cells...)
		}
	}
	if names["prop2_bound"] {
		t.Notes = []string{"prop2_bound and prop2_slack contain the square of a gap with sampling error and are biased " +
			"(the bound upwards); prop2_excess and the figure of Proposition 2 subtract the sampling variance."}
	}
	return t
}
