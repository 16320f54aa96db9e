package reports

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"

	"rcgrpo/stages/rl/objective"

	"rcgrpo/reports/stats"
)

// interval returns the interval beside the difference: over policies if there are enough, over families otherwise.
func (c *Contrast) interval() (stats.Interval, string) {
	if c.method() {
		return c.OverSeeds, "over seeds"
	}
	return c.Families.Interval, "over task families"
}

// inPoints reports whether the outcome is a share, whose differences are percentage points.
func (c *Contrast) inPoints() bool {
	if !c.ofTraining() {
		return true
	}
	return c.metric().Unit == "share"
}

// metric describes the outcome of a comparison of trainings.
func (c *Contrast) metric() objective.MetricInfo {
	info, _ := objective.MetricNamed(c.Outcome)
	return info
}

func (c *Contrast) value(v float64) string {
	if c.inPoints() {
		return percent(v)
	}
	return significant(v)
}

// difference formats a difference of the outcome, with its sign.
func (c *Contrast) difference(v float64) string {
	if c.inPoints() {
		return points(v)
	}
	if v > 0 {
		return "+" + significant(v)
	}
	return significant(v)
}

// between formats an interval of a difference; a dash if it is unknown.
func (c *Contrast) between(i stats.Interval) string {
	if !i.Known() {
		return "–"
	}
	return c.difference(i.Low) + "\u00a0…\u00a0" + c.difference(i.High)
}

func (c *Contrast) verdict() string {
	switch {
	case c.Verdict == 0:
		return "not decided"
	case c.ofTraining() && c.Verdict > 0:
		return c.B + " is higher"
	case c.ofTraining():
		return c.B + " is lower"
	}
	return c.winner() + " is better"
}

// expected compares the decision with the expectation; "" if one of them is missing.
func (c *Contrast) expected() string {
	switch {
	case c.Verdict == 0 || c.Expect == "":
		return ""
	case (c.Verdict > 0) == (c.Expect == "higher"):
		return "as expected"
	}
	return "the opposite of the expectation"
}

// excludes names the effects that both intervals of an undecided contrast exclude.
func (c *Contrast) excludes() string {
	low, high := math.Inf(1), math.Inf(-1)
	for _, i := range []stats.Interval{c.OverSeeds, c.Families.Interval} {
		if i.Known() {
			low, high = min(low, i.Low), max(high, i.High)
		}
	}
	size := func(v float64) string {
		if c.inPoints() {
			return fmt.Sprintf("%.1f points", 100*v)
		}
		return significant(v)
	}
	up, down := "gains", "losses"
	if c.ofTraining() {
		up, down = "increases", "decreases"
	}
	switch {
	case low > high:
		return "too few policies for an interval"
	case low >= 0: // the adjusted p-value does not decide
		return "excludes " + up + " above " + size(high) + ", and " + down + " only without the adjustment"
	case high <= 0:
		return "excludes " + down + " above " + size(-low) + ", and " + up + " only without the adjustment"
	}
	return "excludes " + up + " above " + size(high) + " and " + down + " above " + size(-low)
}

func fraction(c Cell) string { return fmt.Sprintf("%d/%d", c.Count, c.Of) }

func plural(n int, noun string) string {
	if n == 1 {
		return "one " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}

// outcomeName names a metric of training as the tables of the late window do.
func outcomeName(metric string) string {
	for _, c := range slices.Concat(signalMetrics, lateMetrics) {
		if c.metric == metric {
			return strings.ToLower(c.head[:1]) + c.head[1:] + ", late in training"
		}
	}
	return metric + ", late in training"
}

const byAdjusted = ", p Holm-adjusted over all tests of the set"

// exactTest describes a test of checkpoints: the head of its column, its method and its explanation.
type exactTest struct{ head, by, note string }

var (
	mcNemar = exactTest{"Exact McNemar", "McNemar's exact test, each pair of policies separately",
		"McNemar's exact test compares each pair of policies separately (tasks passed only without / only with) and " +
			"assumes independent tasks."}
	fisher = exactTest{"Fisher's exact", "Fisher's exact test, each pair of policies separately",
		"Fisher's exact test compares each pair of policies separately and assumes independent tasks."}
	clusteredT = exactTest{"t over families", "t-test over task families, each pair of policies separately",
		"The t-test over task families compares each pair of policies separately."}
)

func (c *Comparison) exactTest() exactTest {
	switch {
	case c.Outcome == OutcomeSampled:
		return clusteredT
	case c.Unpaired:
		return fisher
	}
	return mcNemar
}

// comparisonTables returns the tables of all comparisons: on each set, then in training.
func (s *Study) comparisonTables() []Part {
	var parts []Part
	tables := func(set string, training bool) {
		judged := s.judged(set, training)
		for _, c := range s.comparisons() {
			if c.ofTraining() == training {
				parts = append(parts, partsOf(s.comparisonTable(c, set, judged), "")...)
			}
		}
	}
	for _, set := range s.sets() {
		tables(set, false)
	}
	tables("", true)
	return parts
}

// comparisonTable shows the outcome of each pair and whether the difference is decided. all are the contrasts of the
// set, or of training, judged together.
func (s *Study) comparisonTable(how Comparison, set string, all []*Contrast) *Table {
	t := &Table{ID: "compare-" + slug(how.Label) + "-" + setID(set), Title: "Effect of " + how.Label + " on " +
		setName(set)}
	switch {
	case how.ofTraining():
		t.ID, t.Title = "compare-"+slug(how.Label)+"-training", "Effect of "+how.Label+" on "+outcomeName(how.Outcome)
	case how.Outcome == OutcomeSampled:
		t.ID, t.Title = t.ID+"-sampled", t.Title+", sampled"
	}
	var shown []*Contrast
	method := false
	for _, names := range how.Pairs {
		if c := contrastOf(all, how, names); c != nil {
			shown = append(shown, c)
			method = method || c.method()
		}
	}
	if len(shown) == 0 {
		return nil
	}
	unit := "Δ"
	if shown[0].inPoints() {
		unit = "Δ points"
	}
	t.Columns = append(columns("<Without → with", "Without", "With", unit),
		Column{Name: "95 % over seeds", spare: !method && !how.ofTraining()})
	if how.Unpaired {
		t.Columns = append(t.Columns, Column{Name: "95 % Newcombe"})
	}
	if !how.ofTraining() {
		t.Columns = append(t.Columns, columns("95 % over families", how.exactTest().head)...)
	}
	t.Columns = append(t.Columns, columns("<Verdict")...)
	every := Source{} // p-values are adjusted over all contrasts, so each cell with one depends on all of them
	for _, c := range all {
		every = together("", "", every, c.Source)
	}
	for _, c := range shown {
		t.add(NoArm, c.cells(every)...)
	}
	t.Notes = comparisonNotes(how, shown[0].Tests)
	return t
}

// cells returns the row of the contrast. every is the source of all contrasts that were judged together.
func (c *Contrast) cells(every Source) []Cell {
	own := func(by string) Source { return Source{From: c.Source.From, Rows: c.Source.Rows, By: by} }
	adjusted := func(by string) Source { return together(by+byAdjusted, c.Source.Rows, c.Source, every) }
	interval, bySide, byMean := c.Families.Interval, byReward, "mean of the differences, paired by task, family bootstrap"
	bySeeds := "paired t-interval over seeds"
	switch {
	case c.ofTraining():
		interval, bySide, byMean = c.OverSeeds, byLate, byLate+", paired by seed"
	case c.Unpaired:
		byMean, bySeeds = "difference of the mean shares, bootstrap by family on each side", "Welch's t-interval over seeds"
	}
	difference := Cell{Text: c.difference(c.Mean), Value: &c.Mean}
	if interval.Known() {
		difference.Interval = &interval
	}
	overSeeds := Text("–")
	if c.method() {
		overSeeds = Text("%s", c.between(c.OverSeeds)).
			With("p %s, adjusted %s", equals(probability(c.OverSeedsP)), probability(c.Adjusted))
	}
	cells := []Cell{Text("%s → %s", c.A, c.B), c.CellA.From(own(bySide)), c.CellB.From(own(bySide)),
		difference.From(own(byMean)), overSeeds.From(adjusted(bySeeds))}
	if c.Unpaired {
		by := "Newcombe's interval from the clustered Wilson intervals of both sides"
		cells = append(cells, Text("%s", c.between(c.Newcombe)).From(own(by)))
	}
	if !c.ofTraining() {
		cells = append(cells, Text("%s", c.between(c.Families.Interval)).With("%d families", c.Families.Families).
			From(own("bootstrap over families, 2,000 resamples")), c.exactCell().From(adjusted(c.exactTest().by)))
	}
	verdict := Text("%s", c.verdict()).With("%s", c.expected())
	if c.Verdict == 0 {
		verdict = verdict.With("%s", c.excludes())
	}
	return append(cells, verdict.From(adjusted("tests of the set; excluded effects from both intervals")))
}

// equals adds "=" before a p-value without a sign.
func equals(p string) string {
	if strings.HasPrefix(p, "<") {
		return p
	}
	return "= " + p
}

func comparisonNotes(how Comparison, tests int) []string {
	if how.ofTraining() {
		return []string{"Mean over the late window of a training, which ends at the same update on both sides; below it " +
			"the lowest and the highest seed. Differences are paired by seed, and the t-interval assumes independent seeds.",
			fmt.Sprintf("A verdict requires %d seeds per side. p-values are Holm-adjusted over all tests of training "+
				"outcomes (%d), in all tables.", methodPolicies, tests)}
	}
	pairing := "Differences are paired by task. The bootstrap resamples task families with all their tasks and " +
		"policies (2,000 resamples); the t-interval assumes independent seeds."
	if how.Unpaired {
		pairing = "The two sides have different tasks, which are not paired. Newcombe's interval combines the " +
			"clustered intervals of both sides; the bootstrap resamples the families of each side (2,000 resamples); the " +
			"interval over seeds is Welch's."
	}
	claim := fmt.Sprintf("A verdict about the methods requires %d policies per side, and both intervals must exclude 0. "+
		"With fewer policies a verdict is about these checkpoints only: every pair must reject, so the largest p counts, "+
		"and the interval over families must exclude 0. p-values are Holm-adjusted over all tests of the set (%d), in "+
		"all tables.", methodPolicies, tests)
	return []string{pairing, how.exactTest().note, claim}
}

// exactCell lists the tests of the pairs of policies and, if they decide, the adjusted value.
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

// gapTable shows the effect of the reward token: success under high and under low for every arm that was evaluated
// under both.
func (s *Study) gapTable(set string) *Table {
	t := &Table{
		ID: "gap-" + setID(set), Title: "Effect of the reward token on " + setName(set),
		Columns: columns("<Policy", "High", "Low", "Gap, points", "95 % interval", "Exact McNemar"),
		Notes: []string{"Greedy success of one checkpoint when conditioned on each token, paired by task; gap is high " +
			"minus low. Over seeds: t-interval, which assumes independent policies. Over task families: bootstrap, which " +
			"assumes independent families; if no task differs, the interval comes from Clopper and Pearson's bound for " +
			"the share of families in which one could. p-values of this table are not adjusted and decide nothing."},
	}
	for i := range s.Arms {
		high, low := s.Arms[i].tokenSides()
		c := compareEvaluations(low, high, set, Comparison{})
		if c == nil {
			continue
		}
		interval, over := c.interval()
		by := func(how string) Source { return Source{From: c.Source.From, Rows: c.Source.Rows, By: how} }
		gap := Cell{Text: points(c.Mean), Value: &c.Mean}
		if interval.Known() {
			gap.Interval = &interval
		}
		t.add(i, Text("%s", s.Arms[i].Label), c.CellB.From(by(byReward)), c.CellA.From(by(byReward)),
			gap.From(by("mean over policies of high minus low, paired by task")),
			Text("%s", c.between(interval)).With("%s", over).From(by("interval "+over)), c.exactCell().From(by(mcNemar.by)))
	}
	return t.orNil()
}

// comparable reports whether both arms have the outcome of a comparison, on at least one set.
func (s *Study) comparable(how Comparison, names []string) bool {
	a, b := s.arm(names[0]), s.arm(names[1])
	if how.ofTraining() {
		return compareTraining(a, b, s.Windows, how) != nil
	}
	greedy := how.Outcome != OutcomeSampled
	return slices.ContainsFunc(s.sets(), func(set string) bool {
		return len(a.policies(set, greedy)) > 0 && len(b.policies(set, greedy)) > 0
	})
}

// uncompared returns sentences about comparisons that the page cannot make.
func (s *Study) uncompared() []string {
	var missing, impossible []string
	for _, c := range s.Compare {
		for _, pair := range c.Pairs {
			absent := slices.DeleteFunc(slices.Clone(pair), func(label string) bool { return s.arm(label) != nil })
			for _, label := range absent {
				if !slices.Contains(missing, label) {
					missing = append(missing, label)
				}
			}
			if len(absent) == 0 && !s.comparable(c, pair) {
				impossible = append(impossible, fmt.Sprintf("%s → %s (%s)", pair[0], pair[1], c.Label))
			}
		}
	}
	var facts []string
	if len(missing) > 0 {
		facts = append(facts, "Not scored, so missing from the comparisons: "+strings.Join(missing, ", ")+".")
	}
	if len(impossible) > 0 {
		facts = append(facts, "Not compared, because no task set or training has the outcome of both arms: "+
			strings.Join(impossible, "; ")+".")
	}
	return facts
}

// setName names a task set in titles.
func setName(set string) string {
	switch cmp.Or(set, "test") {
	case "test":
		return "test tasks"
	case "test_new":
		return "test tasks with new wording"
	}
	return "set " + set
}

// setID returns the set as part of an element id.
func setID(set string) string { return slug(cmp.Or(set, "test")) }
