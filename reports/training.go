package reports

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"rcgrpo/stages/rl"
	"rcgrpo/stages/rl/objective"
)

// values of one metric of a training, with the updates they belong to; NaN where an update did not log it. found is
// false when no update did.
func (r *Run) values(metric string) (updates, values []float64, found bool) {
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

// meanSuccesses is how many members of a group succeed on average, from the shares of groups with 0, 1, … successes: what
// the family of metrics "successes_" says in one number.
func meanSuccesses(values map[string]float64) (mean float64, ok bool) {
	for k := 0; ; k++ {
		share, known := values[fmt.Sprintf("successes_%d", k)]
		if !known {
			return mean, k > 0
		}
		mean += float64(k) * share
	}
}

// unbiasedBound stands for Proposition 2's bound without the sampling variance of the gap, which the logged
// prop2_bound contains: gap² of a noisy gap is on average too large by the square of its standard error.
const unbiasedBound = "sigma2 - prop2_excess"

func unbiasedProp2(values map[string]float64) (bound float64, ok bool) {
	sigma2, known := values["sigma2"]
	excess, ok := values["prop2_excess"]
	return sigma2 - excess, ok && known
}

// window is the mean of the first or the last n logged values.
func window(values []float64, n int, late bool) float64 {
	var logged []float64
	for _, v := range values {
		if !math.IsNaN(v) {
			logged = append(logged, v)
		}
	}
	n = min(n, len(logged))
	if late {
		return Mean(logged[len(logged)-n:])
	}
	return Mean(logged[:n])
}

// summary is one metric in both windows of every run that logged it.
type summary struct{ early, late []float64 }

func (a *Arm) summary(metric string, w Windows) summary {
	var s summary
	for i := range a.Runs {
		if _, values, ok := a.Runs[i].values(metric); ok {
			fit := w.fit(len(values))
			s.early = append(s.early, window(values, fit.Early, false))
			s.late = append(s.late, window(values, fit.Late, true))
		}
	}
	return s
}

// ends are the means of a metric over the early and the late window, as in the tables.
func (a *Arm) ends(metric string, w Windows) *[2]float64 {
	both := a.summary(metric, w)
	return &[2]float64{Mean(both.early), Mean(both.late)}
}

// meanNumber is the mean over seeds, with their range when there are several.
func meanNumber(values []float64) Cell {
	if len(values) == 0 {
		return Words("–")
	}
	c := Number(Mean(values))
	if len(values) > 1 {
		low, high := math.Inf(1), math.Inf(-1)
		for _, v := range values {
			low, high = math.Min(low, v), math.Max(high, v)
		}
		c = c.With("%s\u00a0…\u00a0%s", significant(low), significant(high))
	}
	return c
}

// hasCurve says whether a run of the arm is a training by RL.
func (a *Arm) hasCurve() bool {
	return slices.ContainsFunc(a.Runs, func(r Run) bool { return r.Curve != nil })
}

// logged is the source of a value made from metrics that the arm's trainings logged.
func (a *Arm) logged(by string, metrics ...string) Source {
	s := Source{By: by, Rows: strings.Join(metrics, ", ")}
	for i := range a.Runs {
		if slices.ContainsFunc(metrics, func(metric string) bool { _, _, ok := a.Runs[i].values(metric); return ok }) {
			s.From = append(s.From, a.Runs[i].CurveFrom)
		}
	}
	return s
}

// How the cells of trainings are computed.
const (
	byEarly = "mean over the early window, then over seeds"
	byLate  = "mean over the late window, then over seeds"
)

// block is the study as far as a number of updates: the trainings that have as many, and of each no more than those. The
// windows of all trainings of a block cover the same updates.
type block struct {
	*Study
	updates int
	// bound is a training that ends there, "" for the longest ones: a longer training is cut because of it.
	bound string
}

// blocks are one for each length that trainings of the study have, the longest first.
func (s *Study) blocks() []block {
	ends := map[int]string{}
	for i := range s.Arms {
		for _, r := range s.Arms[i].Runs {
			if n := len(r.Curve); n > 0 && ends[n] == "" {
				ends[n] = r.CurveFrom
			}
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

// early and late name the updates of the windows: "1–20", "131–150".
func (b *block) early() string { return updatesBetween(1, b.Windows.fit(b.updates).Early) }

func (b *block) late() string {
	return updatesBetween(b.updates-b.Windows.fit(b.updates).Late+1, b.updates)
}

func updatesBetween(first, last int) string {
	if first == last {
		return fmt.Sprint(first)
	}
	return fmt.Sprintf("%d–%d", first, last)
}

// logged is the source of a value of an arm within the block, to which the training that cuts the others belongs.
func (b *block) logged(arm int, by string, metrics ...string) Source {
	source := b.Arms[arm].logged(by, metrics...)
	if b.bound == "" || len(source.From) == 0 {
		return source
	}
	return together(source.By, source.Rows, source, Source{From: []string{b.bound}})
}

// windowNote says how the windows were chosen.
func (s *Study) windowNote() string {
	note := fmt.Sprintf("Windows: the first %d and the last %d updates", s.Windows.Early, s.Windows.Late)
	all := s.blocks()
	for _, b := range all {
		if b.Windows.fit(b.updates) != s.Windows {
			note += "; a training too short for both has a fifth of its updates in each, the share of the paper's 70 of 350"
			break
		}
	}
	note += "."
	if len(all) > 1 {
		note += " Where trainings have different lengths, a row holds the updates that it names, and longer ones stand beside a shorter one with the same updates."
	}
	return note
}

// entropyTable is the paper's table of entropy and its correlation with the reward.
func (s *Study) entropyTable() *Table {
	t := &Table{
		ID: "entropy", Title: "Entropy, and its correlation with the reward",
		Columns: []Column{{Name: "Arm", Left: true}, {Name: "Updates", Left: true}, {Name: "Early"}, {Name: "Late"}, {Name: "Δ"}, {Name: "ρ(entropy, reward)"},
			{Name: "p, n updates"}, {Name: "p, effective n"}},
	}
	for _, b := range s.blocks() {
		for i := range b.Arms {
			a := &b.Arms[i]
			both := a.summary("entropy", s.Windows)
			if len(both.early) == 0 {
				continue
			}
			row := Row{Arm: i, Cells: []Cell{Words("%s", a.Label), Words("%s, %s", b.early(), b.late()), meanNumber(both.early).From(b.logged(i, byEarly, "entropy")),
				meanNumber(both.late).From(b.logged(i, byLate, "entropy")),
				changeCell(Mean(both.early), Mean(both.late)).From(b.logged(i, "late over early window, minus 1", "entropy"))}}
			var rho []float64
			var plainP, effectiveP, effectiveN []string
			for j := range a.Runs {
				entropy, reward, ok := a.Runs[j].both("entropy", "reward")
				if !ok {
					continue
				}
				c := Correlate(entropy, reward)
				rho = append(rho, c.Pearson)
				plainP = append(plainP, probability(c.P))
				effectiveP = append(effectiveP, probability(c.PEff))
				effectiveN = append(effectiveN, significant(c.NEff))
			}
			row.Cells = append(row.Cells, meanWithT(rho).From(b.logged(i, "Pearson's correlation over the updates of a run, t-interval over seeds", "entropy", "reward")),
				Words("%s", strings.Join(plainP, "; ")).From(b.logged(i, "p of Pearson's correlation, every update counts", "entropy", "reward")),
				Words("%s", strings.Join(effectiveP, "; ")).With("n = %s", strings.Join(effectiveN, "; ")).
					From(b.logged(i, "p of Pearson's correlation with the effective number of updates", "entropy", "reward")))
			t.Rows = append(t.Rows, row)
		}
	}
	if len(t.Rows) == 0 {
		return nil
	}
	t.Notes = []string{s.windowNote(),
		"ρ: Pearson's correlation over the updates of a run, as in the paper; three seeds or more: mean, t-interval over seeds, one p-value per seed. The first p-value takes all updates as independent (the paper's way), the second counts only as many as two series with these lag-one autocorrelations are worth."}
	return t
}

// both are two metrics at the updates that logged both.
func (r *Run) both(first, second string) (x, y []float64, ok bool) {
	for _, row := range r.Curve {
		a, okA := row.Values[first]
		b, okB := row.Values[second]
		if okA && okB {
			x, y = append(x, a), append(y, b)
		}
	}
	return x, y, len(x) > 0
}

// changeCell is the change from early to late in per cent of early.
func changeCell(early, late float64) Cell {
	if early == 0 || math.IsNaN(early) || math.IsNaN(late) {
		return Words("–")
	}
	change := late/early - 1
	arrow := "↑"
	if change < 0 {
		arrow = "↓"
	}
	return Cell{Text: fmt.Sprintf("%s\u00a0%.0f\u00a0%%", arrow, 100*math.Abs(change)), Value: &change}
}

// column of a table over the late window: a metric and its head.
type lateColumn struct{ metric, head string }

// lateMetrics are the paper's four, the spread in each of its readings.
var lateMetrics = []lateColumn{
	{"reward", "Reward"},
	{"spread_within", "Spread in group"},
	{"spread_batch", "Spread in batch, ddof 0"},
	{"spread_batch_ddof1", "Spread in batch, ddof 1"},
	{"kl", "KL"},
	{"grad_norm", "‖g‖"},
	{"entropy", "Entropy"},
}

// signalMetrics say how much an update can learn from, whatever the batch size.
var signalMetrics = []lateColumn{
	{"zero_variance", "Groups without variance"},
	{"all_right", "all right"},
	{"all_wrong", "all wrong"},
	{"sigma2", "Mean σ²"},
	{"mean_abs_advantage", "Mean |A|"},
	{"successes_", "Successes per group"},
	{"effective_sample_size", "Effective sample"},
}

// lateTable is the paper's table of the late phase.
func (s *Study) lateTable() *Table {
	return s.windowTable("late", "Late phase of training", lateMetrics,
		"Spread in group is the paper's caption read literally: largest minus smallest advantage of a group, mean over all groups, 0 where a group has no variance. In batch: over all groups of an update, with the standard deviation divided by n (ddof 0) or n−1 (ddof 1); these two grow with the batch.")
}

// signalTable stands beside it, with what does not depend on the batch size.
func (s *Study) signalTable() *Table {
	return s.windowTable("signal", "Learning signal in the late phase", signalMetrics,
		"Groups whose episodes all have the same reward have no variance: all right or all wrong. σ² is the variance of the rewards of a group, A the advantage; means over all groups and episodes. Successes: members of a group with reward 1. Effective sample: (Σ|A|)² / ΣA².")
}

// windowTable holds the means of metrics over the late window, a row per arm with a curve; nil when nothing was
// logged.
func (s *Study) windowTable(id, title string, columns []lateColumn, note string) *Table {
	t := &Table{ID: id, Title: title, Columns: []Column{{Name: "Arm", Left: true}, {Name: "Updates", Left: true}}}
	var used []string
	for _, c := range columns {
		for i := range s.Arms {
			if len(s.Arms[i].summary(c.metric, s.Windows).late) > 0 {
				t.Columns, used = append(t.Columns, Column{Name: c.head}), append(used, c.metric)
				break
			}
		}
	}
	for _, b := range s.blocks() {
		for i := range b.Arms {
			a := &b.Arms[i]
			if !a.hasCurve() {
				continue
			}
			row := Row{Arm: i, Cells: []Cell{Words("%s", a.Label), Words("%s", b.late())}}
			for _, metric := range used {
				row.Cells = append(row.Cells, meanNumber(a.summary(metric, s.Windows).late).From(b.logged(i, byLate, metric)))
			}
			t.Rows = append(t.Rows, row)
		}
	}
	if len(t.Rows) == 0 || len(used) == 0 {
		return nil
	}
	t.Notes = []string{s.windowNote() + " Several seeds: mean, and below it the lowest and highest seed.", note}
	return t
}

// trainingGapTable follows the reward under each token through training.
func (s *Study) trainingGapTable() *Table {
	t := &Table{
		ID: "gap-training", Title: "The token's effect on sampled episodes during training",
		Columns: []Column{{Name: "Arm", Left: true}, {Name: "Updates", Left: true}, {Name: "High, early"}, {Name: "Low, early"}, {Name: "Gap, early"}, {Name: "High, late"}, {Name: "Low, late"}, {Name: "Gap, late"}},
		Notes:   []string{s.windowNote(), "Gaps of three seeds or more have their t-interval over seeds."},
	}
	for _, b := range s.blocks() {
		for i := range b.Arms {
			a := &b.Arms[i]
			high, low, gap := a.summary("reward_high", s.Windows), a.summary("reward_low", s.Windows), a.summary("token_gap", s.Windows)
			if len(high.early) == 0 || len(low.early) == 0 {
				continue
			}
			t.Rows = append(t.Rows, Row{Arm: i, Cells: []Cell{Words("%s", a.Label), Words("%s, %s", b.early(), b.late()),
				meanNumber(high.early).From(b.logged(i, byEarly, "reward_high")), meanNumber(low.early).From(b.logged(i, byEarly, "reward_low")), meanWithT(gap.early).From(b.logged(i, byEarly+", t-interval", "token_gap")),
				meanNumber(high.late).From(b.logged(i, byLate, "reward_high")), meanNumber(low.late).From(b.logged(i, byLate, "reward_low")), meanWithT(gap.late).From(b.logged(i, byLate+", t-interval", "token_gap"))}})
		}
	}
	if len(t.Rows) == 0 {
		return nil
	}
	return t
}

// meanWithT is the mean over trainings with its t-interval, from three of them on.
func meanWithT(values []float64) Cell {
	c := meanNumber(values)
	if i := TInterval(values, Level); len(values) >= methodPolicies && i.Known() {
		c.Interval = &i
		c = c.With("t\u00a0%s\u00a0…\u00a0%s", significant(i.Low), significant(i.High))
	}
	return c
}

// curveFigures are the figures over updates; each is a row of this list. A figure that no arm logged is left out.
var curveFigures = []struct {
	id, title, note, y string
	metrics            []string // several: drawn solid, dashed, dotted
	names              []string // what tells them apart
	share              bool
	folded             bool // secondary
	tuning             bool // of the fine-tuning before RL, not of RL
}{
	{id: "reward", title: "Training reward", y: "mean reward", metrics: []string{"reward"}, share: true,
		note: "Mean reward of the sampled episodes of an update."},
	{id: "spread", title: "Advantage spread within groups", y: "spread", metrics: []string{"spread_within"},
		note: "Largest minus smallest advantage of a group, mean over the groups of an update (0 for groups without variance)."},
	{id: "spread-batch", folded: true, title: "Advantage spread over the batch", y: "spread", metrics: []string{"spread_batch", "spread_batch_ddof1"}, names: []string{"ddof 0", "ddof 1"},
		note: "Largest minus smallest advantage among all episodes of an update."},
	{id: "zero-variance", title: "Groups without variance", y: "share of groups", metrics: []string{"zero_variance"}, share: true,
		note: "Groups whose episodes all have the same reward teach nothing."},
	{id: "zero-variance-split", folded: true, title: "All right, and all wrong", y: "share of groups", metrics: []string{"all_right", "all_wrong"}, names: []string{"all right", "all wrong"}, share: true,
		note: "The two sorts of groups without variance."},
	{id: "entropy", title: "Entropy", y: "nats per token", metrics: []string{"entropy"},
		note: "Mean over the tokens the policy sampled."},
	{id: "kl", title: "KL to the reference policy", y: "nats", metrics: []string{"kl"},
		note: "The estimator that stands in the loss."},
	{id: "kl-estimators", folded: true, title: "KL by estimator", y: "nats per token", metrics: []string{"kl_k1", "kl_k3", "kl_exact"}, names: []string{"k1", "k3", "exact"},
		note: "Policy to reference; k1 and k3 from the sampled tokens, exact over the vocabulary."},
	{id: "grad-norm", title: "Gradient norm", y: "norm before clipping", metrics: []string{"grad_norm"}},
	{id: "clip", folded: true, title: "Clip fraction", y: "share of ratios", metrics: []string{"clip_fraction"}, share: true,
		note: "Where the clipped term is strictly smaller."},
	{id: "tokens-reward", title: "Reward by token", y: "mean reward", metrics: []string{"reward_high", "reward_low"}, names: []string{"high", "low"}, share: true,
		note: "Sampled episodes, by the token they were conditioned on."},
	{id: "tokens-gap", title: "Gap between the tokens", y: "high minus low", metrics: []string{"token_gap"}},
	{id: "variance", title: "Reward variance within groups, and Proposition 2", y: "reward²", metrics: []string{"sigma2", unbiasedBound}, names: []string{"measured mean σ²", "bound (G−1)/G·p(1−p)·(gap² − se²)"},
		note: "Population variance of the rewards of a group, mean over groups, and how much of it the token guarantees. The bound is unbiased: the sampling variance se² of the gap is taken off gap², so that single updates may lie below 0."},
	{id: "log-ratio", folded: true, title: "Log-ratio quantiles", y: "nats", metrics: []string{"log_ratio_p50", "log_ratio_p05", "log_ratio_p95"}, names: []string{"median", "5 %", "95 %"},
		note: "Of the ratios that are clipped."},
	{id: "turns", folded: true, title: "User turns reached", y: "turns per episode", metrics: []string{"turns"}},
	{id: "calls", folded: true, title: "Tool calls per episode", y: "calls", metrics: []string{"calls"}},
	{id: "tool-errors", folded: true, title: "Calls answered by an error", y: "share of calls", metrics: []string{"tool_errors"}, share: true},
	{id: "stops", folded: true, title: "Episodes cut short", y: "share of episodes", metrics: []string{"stop_turn_limit", "stop_length", "stop_step"}, names: []string{"turn limit", "context full", "reply too long"}, share: true,
		note: "By the reason why the episode ended."},
	{id: "length", folded: true, title: "Length of an episode", y: "sampled tokens", metrics: []string{"sampled_tokens"}},
	{id: "tuning", folded: true, title: "Fine-tuning loss", y: "nats per token", metrics: []string{"loss"}, tuning: true,
		note: "Of the stages before RL that are shown; their updates are their own."},
}

// curveSeries are the curves of a metric, one for each run that logged it.
func (a *Arm) curveSeries(metric string, tuning bool) Series {
	series := Series{Name: a.Label}
	for i := range a.Runs {
		run := &a.Runs[i]
		rows := run.Curve
		if tuning {
			rows = run.Tuning
		}
		updates, values, ok := columnOf(rows, metric)
		if !ok {
			continue
		}
		by := "as logged"
		if metric == unbiasedBound {
			by = "difference of logged values"
		}
		if len(updates) > len(series.X) {
			series.X = updates
		}
		series.Runs = append(series.Runs, Curve{Name: run.Name(), Y: values, Source: Source{From: []string{run.CurveFrom}, Rows: metric, By: by}})
	}
	return series
}

// curveFigure is a row of curveFigures over the updates of all arms that logged it; nil where none did.
func (s *Study) curveFigure(row int) *Figure {
	kind := &curveFigures[row]
	f := &Figure{ID: "fig-" + kind.id, Title: kind.title, Note: kind.note, X: "update", Y: kind.y, Share: kind.share, Folded: kind.folded}
	for i, name := range kind.names {
		f.Note += []string{" Solid: ", "; dashed: ", "; dotted: "}[i] + name
	}
	if len(kind.names) > 0 {
		f.Note += "."
	}
	longest := 0
	for m, metric := range kind.metrics {
		for i := range s.Arms {
			series := s.Arms[i].curveSeries(metric, kind.tuning)
			series.Arm, series.Dash = i, m
			if !kind.tuning {
				series.Ends = s.Arms[i].ends(metric, s.Windows)
			}
			if len(kind.names) > 1 {
				series.Variant = kind.names[m]
			}
			if len(series.Runs) > 0 {
				f.Series = append(f.Series, series)
				longest = max(longest, len(series.X))
			}
		}
	}
	if len(f.Series) == 0 {
		return nil
	}
	f.Smooth = longest / 20
	return f
}

// valuesTable lists everything the trainings logged, by the metrics table of package rl, with its mean over the late
// window: a value that no figure shows still reaches the page.
func (s *Study) valuesTable() *Table {
	t := &Table{
		ID: "values", Title: "All logged values, means over the late window", Folded: true,
		Columns: []Column{{Name: "Value", Left: true}, {Name: "Definition", Left: true}, {Name: "Unit", Left: true}},
	}
	type column struct {
		block *block
		arm   int
	}
	var columns []column
	logged := map[string]bool{}
	all := s.blocks()
	for i := range s.Arms {
		for _, r := range s.Arms[i].Runs {
			for _, row := range r.Curve {
				for name := range row.Values {
					logged[name] = true
				}
			}
		}
		for j := range all { // an arm's trainings of the greatest length
			if b := &all[j]; b.Arms[i].hasCurve() {
				columns = append(columns, column{b, i})
				t.Columns = append(t.Columns, Column{Name: s.Arms[i].Label + ", updates " + b.late()})
				break
			}
		}
	}
	for _, info := range objective.Metrics {
		for _, name := range sortedKeys(logged) {
			if name != info.Name && !(strings.HasSuffix(info.Name, "_") && strings.HasPrefix(name, info.Name)) {
				continue
			}
			row := Row{Arm: NoArm, Cells: []Cell{Words("%s", name), Words("%s", info.Formula), Words("%s", info.Unit)}}
			for _, c := range columns {
				a := &c.block.Arms[c.arm]
				row.Cells = append(row.Cells, meanNumber(a.summary(name, s.Windows).late).From(a.logged(byLate, name)))
			}
			t.Rows = append(t.Rows, row)
		}
	}
	if len(t.Rows) == 0 {
		return nil
	}
	return t
}
