package reports

import (
	"cmp"
	"fmt"
	"hash/fnv"
	"math"
	"slices"
	"strings"

	"rcgrpo/stages/rl"
	"rcgrpo/stages/rl/objective"
)

// Contrast compares an outcome of two arms: B minus A. The unit of a claim about a method is a trained policy; seeds are
// never pooled in a test, because the episodes of one policy are not independent.
type Contrast struct {
	A, B       string
	Comparison // its label, outcome, expectation, and whether tasks are paired

	Pairs                []PolicyPair
	PoliciesA, PoliciesB int     // distinct ones
	Mean                 float64 // difference of the means over policies; paired: mean over Pairs

	OverSeeds  Interval  // of the difference over policies; unknown below three on either side
	OverSeedsP float64   // its p-value; NaN where the interval is unknown
	Families   Bootstrap // families resampled with all their tasks and policies; of training outcomes: none
	Newcombe   Interval  // unpaired: from the intervals of both sides

	CellA, CellB Cell // the outcome of each side

	// After judge:
	Adjusted float64 // p-value of the claim, Holm-adjusted
	Tests    int     // that were adjusted together
	Verdict  int     // +1: B has more of the outcome, -1: A has more, 0: not decided

	Source Source // of the outcomes; By is for the cell to say
}

// PolicyPair is one policy of each side.
type PolicyPair struct {
	Name          string // of its seeds
	N             int    // tasks of both, or of A and B together where they are unpaired
	OnlyA, OnlyB  int    // greedy and paired: tasks that one side alone passes
	Difference, P float64
}

// methodPolicies is the number of distinct policies per side from which a page speaks about the method instead of these
// checkpoints.
const methodPolicies = 3

// side is one side of a contrast of evaluations.
type side struct {
	name  string
	runs  []Run
	token string
}

func (a *Arm) side() side { return side{a.Label, a.Runs, a.condition()} }

// mostLost is the share of its tasks that either side of a paired comparison may lose.
const mostLost = 0.1

// loss says how many tasks of an arm have no partner when tasks are paired.
type loss struct {
	arm      string
	lost, of int
}

func (l loss) tooMany() bool { return float64(l.lost) > mostLost*float64(l.of) }

// unmatched is the larger loss of two sides on a set, among the runs that are compared with each other.
func unmatched(a, b side, set string, greedy bool) loss {
	var worst loss
	matched(a, b, func(x, y *Run) {
		left, right := x.outcomes(set, a.token, greedy), y.outcomes(set, b.token, greedy)
		if len(left) == 0 || len(right) == 0 {
			return
		}
		shared := 0
		for id := range left {
			if _, both := right[id]; both {
				shared++
			}
		}
		for _, one := range []loss{{a.name, len(left) - shared, len(left)}, {b.name, len(right) - shared, len(right)}} {
			if float64(one.lost)*float64(max(1, worst.of)) > float64(worst.lost)*float64(one.of) {
				worst = one
			}
		}
	})
	return worst
}

// matched calls compare with the runs of both sides that belong together: those of one seed. A run without seed belongs to
// every seed of the other side.
func matched(a, b side, compare func(x, y *Run)) {
	for i := range a.runs {
		for j := range b.runs {
			x, y := &a.runs[i], &b.runs[j]
			if x.Seed == nil || y.Seed == nil || *x.Seed == *y.Seed {
				compare(x, y)
			}
		}
	}
}

// compareEvaluations compares the success of two sides on a set of tasks. Paired, it takes runs by seed and their tasks by
// id; tasks that only one side has are left out. Unpaired, every policy counts with all its tasks. ok is false when there
// is nothing to compare.
func compareEvaluations(a, b side, set string, how Comparison) (c Contrast, ok bool) {
	greedy := how.Outcome != OutcomeSampled
	left, right := scoresOf(a.runs, "", set, a.token, "", greedy), scoresOf(b.runs, "", set, b.token, "", greedy)
	c = Contrast{A: a.name, B: b.name, Comparison: how, OverSeeds: unknown, OverSeedsP: math.NaN(), Newcombe: unknown,
		Source: together("", left.Rows, left, right)}
	if right.Rows != left.Rows {
		c.Source.Rows += "; " + right.Rows
	}
	seed := nameSeed(a.name + "\x00" + b.name + "\x00" + set)
	if how.Unpaired {
		ok = c.unpaired(policies(a.runs, set, a.token, greedy), policies(b.runs, set, b.token, greedy), greedy, seed)
	} else {
		ok = c.paired(a, b, set, greedy, seed)
	}
	return c, ok
}

// paired computes the contrast from the tasks that both sides have.
func (c *Contrast) paired(a, b side, set string, greedy bool, seed uint64) bool {
	type pair struct{ a, b policy }
	var pairs []pair
	sideA, sideB := map[string]outcomes{}, map[string]outcomes{} // by policy, the tasks that are paired
	matched(a, b, func(x, y *Run) {
		left, right := x.outcomes(set, a.token, greedy), y.outcomes(set, b.token, greedy)
		if len(left) == 0 || len(right) == 0 {
			return
		}
		at := slices.IndexFunc(pairs, func(p pair) bool { return p.a.identity == x.identity() && p.b.identity == y.identity() })
		if at < 0 {
			at = len(pairs)
			pairs = append(pairs, pair{policy{identity: x.identity(), outcomes: outcomes{}}, policy{identity: y.identity(), outcomes: outcomes{}}})
		}
		p := &pairs[at]
		p.b.seeds = append(p.b.seeds, cmp.Or(y.Name(), x.Name()))
		for id, one := range left {
			if other, both := right[id]; both {
				p.a.add(id, one, greedy)
				p.b.add(id, other, greedy)
			}
		}
	})
	var perPair, perTask []float64
	var families []string
	for i := range pairs {
		p := &pairs[i]
		if len(p.a.outcomes) == 0 {
			continue
		}
		one := PolicyPair{Name: p.b.name(), N: len(p.a.outcomes)}
		var differences []float64
		var own []string
		for _, id := range sortedKeys(p.a.outcomes) {
			x, y := p.a.outcomes[id], p.b.outcomes[id]
			differences, own = append(differences, y.rate()-x.rate()), append(own, x.family)
			switch {
			case x.passed > 0 && y.passed == 0:
				one.OnlyA++
			case y.passed > 0 && x.passed == 0:
				one.OnlyB++
			}
		}
		one.Difference = Mean(differences)
		if greedy {
			one.P, _ = McNemar(one.OnlyA, one.OnlyB)
		} else {
			sums, sizes := byFamily(differences, own)
			one.P = tTest(one.Difference, meanVariance(sums, sizes), float64(len(sums)-1))
		}
		c.Pairs, perPair = append(c.Pairs, one), append(perPair, one.Difference)
		perTask, families = append(perTask, differences...), append(families, own...)
		for _, s := range []struct {
			of  map[string]outcomes
			one policy
		}{{sideA, p.a}, {sideB, p.b}} {
			if s.of[s.one.identity] == nil {
				s.of[s.one.identity] = outcomes{}
			}
			for id, count := range s.one.outcomes {
				if _, known := s.of[s.one.identity][id]; !known { // a policy with several partners counts once
					s.of[s.one.identity][id] = count
				}
			}
		}
	}
	if len(c.Pairs) == 0 {
		return false
	}
	c.Mean, c.PoliciesA, c.PoliciesB = Mean(perPair), len(sideA), len(sideB)
	if min(c.PoliciesA, c.PoliciesB) >= methodPolicies {
		n := float64(len(perPair))
		c.OverSeeds = TInterval(perPair, Level)
		c.OverSeedsP = tTest(c.Mean, StandardDeviation(perPair)*StandardDeviation(perPair)/n, n-1)
	}
	c.Families = ClusterBootstrap(perTask, families, seed, Replicates, Level)
	c.widen()
	c.CellA, c.CellB = pooled(samplesOf(sideA)).share(), pooled(samplesOf(sideB)).share()
	return true
}

func samplesOf(policies map[string]outcomes) []sample {
	var all []sample
	for _, id := range sortedKeys(policies) {
		all = append(all, policies[id].sample("", false))
	}
	return all
}

// unpaired computes the contrast of sides with different tasks, whose families are taken as independent.
func (c *Contrast) unpaired(a, b []policy, greedy bool, seed uint64) bool {
	if len(a) == 0 || len(b) == 0 {
		return false
	}
	samples := func(all []policy) []sample {
		var samples []sample
		for i := range all {
			samples = append(samples, all[i].sample("", false))
		}
		return samples
	}
	compare := func(x, y *policy, name string) {
		left, right := x.sample("", false), y.sample("", false)
		kA, nA := left.count()
		kB, nB := right.count()
		pair := PolicyPair{Name: name, N: len(x.outcomes) + len(y.outcomes), Difference: float64(kB)/float64(nB) - float64(kA)/float64(nA)}
		if greedy {
			pair.P, _, _ = Fisher(kA, nA, kB, nB)
		} else {
			_, pair.P = welch(pair.Difference, clusteredVariance(left.families()), float64(len(left)-1),
				clusteredVariance(right.families()), float64(len(right)-1), Level)
		}
		c.Pairs = append(c.Pairs, pair)
	}
	for i := range a {
		for j := range b {
			if slices.ContainsFunc(a[i].seeds, func(seed string) bool { return slices.Contains(b[j].seeds, seed) }) || len(a[i].seeds) == 0 || len(b[j].seeds) == 0 {
				compare(&a[i], &b[j], cmp.Or(b[j].name(), a[i].name()))
			}
		}
	}
	if len(c.Pairs) == 0 { // no seed in common: each with each
		for i := range a {
			for j := range b {
				compare(&a[i], &b[j], a[i].name()+" against "+b[j].name())
			}
		}
	}
	left, right := samples(a), samples(b)
	sharesA, sharesB := rates(left), rates(right)
	c.Mean, c.PoliciesA, c.PoliciesB = Mean(sharesB)-Mean(sharesA), len(a), len(b)
	if min(len(a), len(b)) >= methodPolicies {
		variance := func(shares []float64) (of, df float64) {
			n := float64(len(shares))
			return StandardDeviation(shares) * StandardDeviation(shares) / n, n - 1
		}
		varianceA, dfA := variance(sharesA)
		varianceB, dfB := variance(sharesB)
		c.OverSeeds, c.OverSeedsP = welch(c.Mean, varianceA, dfA, varianceB, dfB, Level)
	}
	var s sides
	for _, f := range pooled(left).families() {
		s.sumsA, s.sizesA = append(s.sumsA, float64(f.Passed)), append(s.sizesA, float64(f.Episodes))
	}
	for _, f := range pooled(right).families() {
		s.sumsB, s.sizesB = append(s.sumsB, float64(f.Passed)), append(s.sizesB, float64(f.Episodes))
	}
	c.Families = s.UnpairedBootstrap(seed, Replicates, Level)
	c.CellA, c.CellB = pooled(left).share(), pooled(right).share()
	if c.CellA.Interval != nil && c.CellB.Interval != nil {
		c.Newcombe = Newcombe(*c.CellA.Value, *c.CellA.Interval, *c.CellB.Value, *c.CellB.Interval)
	}
	if c.Families.Low == c.Families.High { // nothing to resample: the intervals of the shares know more
		c.Families.Interval = c.Newcombe
	}
	return true
}

// widen replaces the point that resampling gives where all families show one difference.
func (c *Contrast) widen() {
	if c.Families.Low == c.Families.High {
		c.Families.Interval = uniform(c.Families.Mean, c.Families.Units, Level)
	}
}

// compareTraining compares a metric of training, mean over the late window, paired by seed. The window ends at the same
// update for both trainings of a pair, the last one of the shorter.
func compareTraining(a, b *Arm, windows Windows, how Comparison) (c Contrast, ok bool) {
	c = Contrast{A: a.Label, B: b.Label, Comparison: how, OverSeeds: unknown, OverSeedsP: math.NaN(), Newcombe: unknown,
		Families: Bootstrap{Interval: unknown}, Source: Source{Rows: how.Outcome}}
	values := [2]map[string]float64{{}, {}} // by training
	var perPair []float64
	matched(a.side(), b.side(), func(x, y *Run) {
		_, left, okLeft := x.values(how.Outcome)
		_, right, okRight := y.values(how.Outcome)
		if !okLeft || !okRight {
			return
		}
		n := min(len(left), len(right))
		late := windows.fit(n).Late
		va, vb := window(left[:n], late, true), window(right[:n], late, true)
		if math.IsNaN(va) || math.IsNaN(vb) {
			return
		}
		values[0][x.CurveFrom], values[1][y.CurveFrom] = va, vb
		c.Pairs = append(c.Pairs, PolicyPair{Name: cmp.Or(y.Name(), x.Name()), N: late, Difference: vb - va, P: math.NaN()})
		perPair = append(perPair, vb-va)
		c.Source = together("", how.Outcome, c.Source, Source{From: []string{x.CurveFrom, y.CurveFrom}})
	})
	if len(c.Pairs) == 0 {
		return c, false
	}
	c.Mean, c.PoliciesA, c.PoliciesB = Mean(perPair), len(values[0]), len(values[1])
	if min(c.PoliciesA, c.PoliciesB) >= methodPolicies {
		n := float64(len(perPair))
		c.OverSeeds = TInterval(perPair, Level)
		c.OverSeedsP = tTest(c.Mean, StandardDeviation(perPair)*StandardDeviation(perPair)/n, n-1)
	}
	cell := func(of map[string]float64) Cell {
		var all []float64
		for _, from := range sortedKeys(of) {
			all = append(all, of[from])
		}
		mean := Mean(all)
		return Cell{Text: c.value(mean), Value: &mean, Detail: c.value(slices.Min(all)) + "\u00a0…\u00a0" + c.value(slices.Max(all))}
	}
	c.CellA, c.CellB = cell(values[0]), cell(values[1])
	return c, true
}

// contrasts are the comparisons of the study that can be made: on a set of tasks, or, for "", of training. A pair of
// arms that several comparisons name counts once for each outcome.
func (s *Study) contrasts(set string, training bool) []Contrast {
	var all []Contrast
	for _, how := range s.comparisons() {
		if how.ofTraining() != training {
			continue
		}
		for _, names := range how.Pairs {
			a, b := s.arm(names[0]), s.arm(names[1])
			if a == nil || b == nil || slices.ContainsFunc(all, func(c Contrast) bool { return c.tests(how, names) }) {
				continue
			}
			var c Contrast
			var ok bool
			if training {
				c, ok = compareTraining(a, b, s.Windows, how)
			} else {
				c, ok = compareEvaluations(a.side(), b.side(), set, how)
			}
			if ok {
				all = append(all, c)
			}
		}
	}
	return all
}

// tests reports whether the contrast is the test that a comparison makes of a pair of labels.
func (c *Contrast) tests(how Comparison, names [2]string) bool {
	return c.A == names[0] && c.B == names[1] && cmp.Or(c.Outcome, OutcomeSuccess) == cmp.Or(how.Outcome, OutcomeSuccess) && c.Unpaired == how.Unpaired
}

// judged are the contrasts of a set of tasks or of training, decided with their p-values adjusted together.
func (s *Study) judged(set string, training bool) []Contrast {
	all := s.contrasts(set, training)
	judge(all)
	return all
}

// pairable returns an error where a pair of a comparison loses more than a tenth of either side's tasks by pairing.
func (s *Study) pairable(how Comparison) error {
	if how.Unpaired || how.ofTraining() {
		return nil
	}
	for _, names := range how.Pairs {
		a, b := s.arm(names[0]), s.arm(names[1])
		if a == nil || b == nil {
			continue
		}
		for _, set := range s.sets() {
			if l := unmatched(a.side(), b.side(), set, how.Outcome != OutcomeSampled); l.tooMany() {
				return fmt.Errorf("compare %q pairs the tasks of %q with those of %q, but %d of %d tasks of %q in set %s have no partner, more than a tenth: "+
					"evaluate both on the same tasks, or set unpaired = true to compare different tasks",
					how.Label, names[0], names[1], l.lost, l.of, l.arm, cmp.Or(set, "test"))
			}
		}
	}
	return nil
}

// check returns an error where the data do not allow a comparison of the report.
func (s *Study) check() error {
	for _, how := range s.Compare {
		if err := s.pairable(how); err != nil {
			return err
		}
	}
	for i := range s.Arms {
		high, low := s.Arms[i].tokenSides()
		for _, set := range s.sets() {
			if l := unmatched(low, high, set, true); l.tooMany() {
				return fmt.Errorf("%d of %d tasks of %q in set %s have no partner under the other token, more than a tenth: evaluate both tokens on the same tasks",
					l.lost, l.of, l.arm, cmp.Or(set, "test"))
			}
		}
	}
	return nil
}

// tokenSides are the arm under each token.
func (a *Arm) tokenSides() (high, low side) {
	return side{a.Label + ", high", a.Runs, rl.TokenHigh}, side{a.Label + ", low", a.Runs, rl.TokenLow}
}

// nameSeed derives the seed of a bootstrap from the names of what it compares, so that a page is the same each time.
func nameSeed(name string) uint64 {
	h := fnv.New64a()
	h.Write([]byte(name))
	return h.Sum64()
}

// method reports whether the contrast can be about the methods: at least three policies per side, and a spread among
// them that was seen.
func (c *Contrast) method() bool { return c.OverSeeds.Known() }

// p is the p-value that decides the contrast, one for each claim: over policies, or, for a claim about checkpoints, the
// largest of the pairs, since every pair must reject (an intersection-union test). NaN where there is no test.
func (c *Contrast) p() float64 {
	if c.method() {
		return c.OverSeedsP
	}
	largest := 0.0
	for _, p := range c.Pairs {
		largest = math.Max(largest, p.P) // NaN stays
	}
	return largest
}

// decide says which side has more of the outcome: +1 for B, -1 for A, 0 for not decided. A claim about the methods needs the
// interval over seeds to exclude 0, one about checkpoints a difference in one direction for every pair; both need the
// adjusted p-value, and of evaluations the interval over families.
func (c *Contrast) decide() int {
	sign := 1
	if c.Mean < 0 {
		sign = -1
	}
	if !(c.Adjusted < 1-Level) || !c.ofTraining() && !c.Families.Excludes(0) {
		return 0
	}
	if c.method() {
		if !c.OverSeeds.Excludes(0) {
			return 0
		}
		return sign
	}
	for _, p := range c.Pairs {
		if !(p.Difference*float64(sign) > 0) {
			return 0
		}
	}
	return sign
}

// judge decides contrasts whose p-values are adjusted together (Holm).
func judge(all []Contrast) {
	var ps []float64
	tests := 0
	for i := range all {
		ps = append(ps, all[i].p())
		if !math.IsNaN(all[i].p()) {
			tests++
		}
	}
	for i, adjusted := range Holm(ps) {
		all[i].Adjusted, all[i].Tests = adjusted, tests
		all[i].Verdict = all[i].decide()
	}
}

// interval is the one beside the difference: over policies where there are enough, over families otherwise.
func (c *Contrast) interval() (Interval, string) {
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
	return slices.ContainsFunc(objective.Metrics, func(m objective.MetricInfo) bool { return m.Name == c.Outcome && m.Unit == "share" })
}

// value writes the outcome of one side.
func (c *Contrast) value(v float64) string {
	if c.inPoints() {
		return percent(v)
	}
	return significant(v)
}

// difference writes a difference of the outcome, with its sign.
func (c *Contrast) difference(v float64) string {
	if c.inPoints() {
		return points(v)
	}
	if v > 0 {
		return "+" + significant(v)
	}
	return significant(v)
}

// unit follows a difference in a sentence.
func (c *Contrast) unit() string {
	if c.inPoints() {
		return " points"
	}
	return ""
}

// between writes an interval of a difference; a dash where it is unknown.
func (c *Contrast) between(i Interval) string {
	if !i.Known() {
		return "–"
	}
	return c.difference(i.Low) + "\u00a0…\u00a0" + c.difference(i.High)
}

// verdict is the decision in words.
func (c *Contrast) verdict() string {
	better := c.B
	if c.Verdict < 0 {
		better = c.A
	}
	switch {
	case c.Verdict == 0:
		return "not decided"
	case c.ofTraining() && c.Verdict > 0:
		return c.B + " is higher"
	case c.ofTraining():
		return c.B + " is lower"
	}
	return better + " is better"
}

// expected says whether the decision is the expected one; "" where nothing was expected or decided.
func (c *Contrast) expected() string {
	switch {
	case c.Verdict == 0 || c.Expect == "":
		return ""
	case (c.Verdict > 0) == (c.Expect == "higher"):
		return "as expected"
	}
	return "the opposite of the expectation"
}

// excludes says which effects of an undecided contrast both of its intervals exclude.
func (c *Contrast) excludes() string {
	low, high := math.Inf(1), math.Inf(-1)
	for _, i := range []Interval{c.OverSeeds, c.Families.Interval} {
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

// scope says what the contrast is about.
func (c *Contrast) scope() string {
	if c.method() {
		return plural(min(c.PoliciesA, c.PoliciesB), "seed")
	}
	if c.PoliciesA == 1 && c.PoliciesB == 1 {
		return "these two checkpoints"
	}
	return "these checkpoints"
}

// sentence answers the question for one pair. on names the outcome: "success on test tasks".
func (c *Contrast) sentence(on string) string {
	var text strings.Builder
	fmt.Fprintf(&text, "%s, %s: %s", c.Label, on, c.verdict())
	if expected := c.expected(); expected != "" {
		text.WriteString(", " + expected)
	}
	count := func(cell Cell) string {
		if cell.Of == 0 {
			return cell.Text
		}
		return cell.Text + " (" + fraction(cell) + ")"
	}
	fmt.Fprintf(&text, ". %s %s against %s for %s: %s%s", c.B, count(c.CellB), count(c.CellA), c.A, c.difference(c.Mean), c.unit())
	var intervals []string
	if c.method() {
		intervals = append(intervals, c.between(c.OverSeeds)+" over seeds")
	}
	if c.Families.Known() {
		intervals = append(intervals, c.between(c.Families.Interval)+" over task families")
	}
	if len(intervals) > 0 {
		text.WriteString(", 95\u00a0% interval " + strings.Join(intervals, ", "))
	}
	fmt.Fprintf(&text, " (%s", c.scope())
	if !c.ofTraining() && !c.Unpaired {
		fmt.Fprintf(&text, ", %d tasks", c.Pairs[0].N)
	}
	text.WriteString(")")
	if c.Verdict == 0 {
		text.WriteString("; " + c.excludes())
		switch {
		case c.Expect == "" || c.Mean == 0:
		case (c.Mean > 0) == (c.Expect == "higher"):
			text.WriteString("; the difference has the expected direction")
		default:
			text.WriteString("; the difference has the direction opposite to the expected one")
		}
	}
	return text.String() + "."
}

func fraction(c Cell) string { return fmt.Sprintf("%d/%d", c.Count, c.Of) }

func plural(n int, noun string) string {
	if n == 1 {
		return "one " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}

// seedMean is the mean over policies of their shares with its t-interval; a dash below three policies, which are too few to
// speak about the method that made them.
func seedMean(shares []float64) Cell {
	if len(shares) < methodPolicies {
		return Words("–")
	}
	return shareMean(shares)
}

// shareMean is the mean of shares with its t-interval. Where the interval leaves what a share can be, it is cut there and
// the cell says so.
func shareMean(shares []float64) Cell {
	mean, i := Mean(shares), TInterval(shares, Level)
	c := Cell{Text: percent(mean), Value: &mean}
	if !i.Known() {
		return c.With("all equal, no interval")
	}
	cut := Interval{math.Max(0, i.Low), math.Min(1, i.High)}
	c.Interval, c.Detail = &cut, "t\u00a0"+cut.percent()
	if cut != i {
		c.Detail += " · cut from " + i.percent()
	}
	return c
}
