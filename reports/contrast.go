package reports

import (
	"cmp"
	"fmt"
	"hash/fnv"
	"math"
	"slices"
	"strings"

	"rcgrpo/reports/page"
	"rcgrpo/reports/stats"
	"rcgrpo/stages/rl"
)

// Contrast compares an outcome of two arms: B minus A. A claim about a method compares trained policies. Seeds are
// never pooled in a test, because the episodes of one policy are not independent.
type Contrast struct {
	A, B       string
	Comparison // label, outcome, expectation, pairing

	Pairs                []PolicyPair
	PoliciesA, PoliciesB int     // distinct policies
	Mean                 float64 // difference of the means over policies; paired: mean over Pairs

	OverSeeds  stats.Interval  // interval of the difference over policies; unknown below three policies on either side
	OverSeedsP float64         // its p-value; NaN if the interval is unknown
	Families   stats.Bootstrap // families resampled with all tasks and policies; unknown for outcomes of training
	Newcombe   stats.Interval  // unpaired: from the intervals of both sides

	CellA, CellB page.Cell // the outcome of each side

	// Set by judge:
	Adjusted float64 // Holm-adjusted p-value of the claim
	Tests    int     // number of tests that were adjusted together
	Decided  int     // +1: B has more of the outcome, -1: A has more, 0: not decided

	Source page.Source // source of the outcomes; each cell sets By
}

// PolicyPair compares one policy of each side.
type PolicyPair struct {
	Tasks         int // tasks of both sides; paired evaluations only
	OnlyA, OnlyB  int // greedy and paired: tasks that only one side passes
	Difference, P float64

	a, b policy // paired evaluations: with the tasks that both have
}

// name returns the seeds of the pair: "seed 3", or "seed 1, seed 2" for different ones of unpaired sides.
func (p *PolicyPair) name() string {
	names := []string{p.a.name(), p.b.name()}
	names = slices.DeleteFunc(names, func(name string) bool { return name == "" })
	return strings.Join(slices.Compact(names), ", ")
}

// methodPolicies is the number of distinct policies per side from which a verdict is about the method instead of
// individual checkpoints.
const methodPolicies = 3

// tokenSides returns the greedy episodes of the arm on a set under each token.
func (a *Arm) tokenSides(set string) (high, low episodes) {
	high, low = a.under(rl.TokenHigh, set, true), a.under(rl.TokenLow, set, true)
	high.name, low.name = a.Label+", high", a.Label+", low"
	return high, low
}

// mostLost is the share of its tasks that either side of a paired comparison may lose.
const mostLost = 0.1

// loss counts the tasks of an arm without a partner in a paired comparison.
type loss struct {
	arm      string
	lost, of int
}

func (l loss) tooMany() bool { return float64(l.lost) > mostLost*float64(l.of) }

// unmatched returns the larger loss of two sides, among the runs that are compared with each other.
func unmatched(a, b episodes) loss {
	var worst loss
	matched(a.runs, b.runs, func(x, y counted) {
		shared := 0
		for id := range x.outcomes {
			if _, both := y.outcomes[id]; both {
				shared++
			}
		}
		for _, one := range []loss{{a.name, len(x.outcomes) - shared, len(x.outcomes)},
			{b.name, len(y.outcomes) - shared, len(y.outcomes)}} {
			if float64(one.lost)*float64(max(1, worst.of)) > float64(worst.lost)*float64(one.of) {
				worst = one
			}
		}
	})
	return worst
}

// pairs reports whether two runs are of one seed. A run without seed is of every seed.
func (r *SeedRun) pairs(other *SeedRun) bool {
	return r.Seed == nil || other.Seed == nil || *r.Seed == *other.Seed
}

// matched calls compare with the pairs of runs of one seed.
func matched(a, b []counted, compare func(x, y counted)) {
	for _, x := range a {
		for _, y := range b {
			if x.pairs(y.SeedRun) {
				compare(x, y)
			}
		}
	}
}

// compareEvaluations compares the success of two sides on a set of tasks. A paired comparison matches runs by seed and
// their tasks by id; tasks that only one side has are left out. An unpaired one counts every policy with all its tasks.
// The result is nil if there is nothing to compare.
func compareEvaluations(a, b episodes, how Comparison) *Contrast {
	left, right := a.source(""), b.source("")
	c := newContrast(a.name, b.name, how)
	c.Source = page.Together("", left.Rows, left, right)
	if right.Rows != left.Rows {
		c.Source.Rows += "; " + right.Rows
	}
	switch {
	case !how.Unpaired:
		if c.Pairs = pairPolicies(a, b); len(c.Pairs) == 0 {
			return nil
		}
		c.paired(a.greedy, a.set)
	case len(a.runs) == 0 || len(b.runs) == 0:
		return nil
	default:
		c.unpaired(a.policies, b.policies, a.greedy, a.set)
	}
	return c
}

func newContrast(a, b string, how Comparison) *Contrast {
	return &Contrast{A: a, B: b, Comparison: how, OverSeeds: stats.Unknown, OverSeedsP: math.NaN(),
		Newcombe: stats.Unknown, Families: stats.Bootstrap{Interval: stats.Unknown}}
}

// seed derives the seed of a bootstrap from the names of the compared sides, so that a page is reproducible.
func (c *Contrast) seed(set string) uint64 {
	h := fnv.New64a()
	h.Write([]byte(c.A + "\x00" + c.B + "\x00" + set))
	return h.Sum64()
}

// pairPolicies matches the policies of two sides by seed and their tasks by id.
func pairPolicies(a, b episodes) []PolicyPair {
	var pairs []PolicyPair
	matched(a.runs, b.runs, func(x, y counted) {
		one := PolicyPair{a: policy{identity: x.identity(), outcomes: outcomes{}},
			b: policy{identity: y.identity(), outcomes: outcomes{}}}
		p := findOrAdd(&pairs, one,
			func(p PolicyPair) bool { return p.a.identity == one.a.identity && p.b.identity == one.b.identity })
		p.a.runs, p.b.runs = append(p.a.runs, *x.SeedRun), append(p.b.runs, *y.SeedRun)
		for id, one := range x.outcomes {
			if other, both := y.outcomes[id]; both {
				p.a.add(id, one, a.greedy)
				p.b.add(id, other, a.greedy)
			}
		}
	})
	return slices.DeleteFunc(pairs, func(p PolicyPair) bool { return len(p.a.outcomes) == 0 })
}

// compare tests the pair and returns the differences of its tasks with their families.
func (p *PolicyPair) compare(greedy bool) (differences []float64, families []string) {
	p.Tasks = len(p.a.outcomes)
	for _, id := range sortedKeys(p.a.outcomes) {
		x, y := p.a.outcomes[id], p.b.outcomes[id]
		differences, families = append(differences, y.rate()-x.rate()), append(families, x.family)
		switch {
		case x.passed > 0 && y.passed == 0:
			p.OnlyA++
		case y.passed > 0 && x.passed == 0:
			p.OnlyB++
		}
	}
	p.Difference = stats.Mean(differences)
	if greedy {
		p.P = stats.McNemar(p.OnlyA, p.OnlyB)
	} else {
		sums := stats.ByFamily(differences, families)
		p.P = stats.TTest(p.Difference, stats.Variance(sums), float64(len(sums)-1))
	}
	return differences, families
}

// paired computes the contrast from the tasks that both sides of its pairs have.
func (c *Contrast) paired(greedy bool, set string) {
	var sideA, sideB []policy
	count := func(side *[]policy, p policy) {
		counted := findOrAdd(side, policy{identity: p.identity, outcomes: outcomes{}},
			func(other policy) bool { return other.identity == p.identity })
		for id, one := range p.outcomes {
			counted.add(id, one, true) // a policy with several partners counts once
		}
	}
	var differences []float64
	var families []string
	for i := range c.Pairs {
		p := &c.Pairs[i]
		d, f := p.compare(greedy)
		differences, families = append(differences, d...), append(families, f...)
		count(&sideA, p.a)
		count(&sideB, p.b)
	}
	c.PoliciesA, c.PoliciesB = len(sideA), len(sideB)
	c.pairedOverSeeds()
	c.Families = stats.ClusterBootstrap(stats.ByFamily(differences, families), c.seed(set), stats.Replicates, stats.Level)
	if c.Families.Low == c.Families.High { // no spread to resample
		c.Families.Interval = stats.UniformInterval(c.Families.Mean, c.Families.Families, stats.Level)
	}
	c.CellA, c.CellB = pooled(sideA, passed).share(), pooled(sideB, passed).share()
}

// pairedOverSeeds sets the mean of the paired differences and, with enough policies, its t-interval and test.
func (c *Contrast) pairedOverSeeds() {
	var differences []float64
	most := 0.0
	for _, p := range c.Pairs {
		differences = append(differences, p.Difference)
		most = max(most, math.Abs(p.Difference))
	}
	if c.Mean = stats.Mean(differences); math.Abs(c.Mean) < 1e-12*most {
		c.Mean = 0 // the rounding of a sum, not an effect
	}
	if min(c.PoliciesA, c.PoliciesB) >= methodPolicies {
		c.OverSeeds = stats.TInterval(differences, stats.Level)
		variance, df := stats.MeanError(differences)
		c.OverSeedsP = stats.TTest(c.Mean, variance, df)
	}
}

// unpaired computes the contrast of sides with different tasks, assuming independent families.
func (c *Contrast) unpaired(a, b []policy, greedy bool, set string) {
	var every []PolicyPair
	for i := range a {
		for j := range b {
			pair := compareUnpaired(&a[i], &b[j], greedy)
			left, right := a[i].seeds(), b[j].seeds()
			if every = append(every, pair); len(left) == 0 || len(right) == 0 ||
				slices.ContainsFunc(left, func(seed string) bool { return slices.Contains(right, seed) }) {
				c.Pairs = append(c.Pairs, pair)
			}
		}
	}
	if len(c.Pairs) == 0 { // no seed in common
		c.Pairs = every
	}
	left, right := pooled(a, passed), pooled(b, passed)
	sharesA, sharesB := rates(a, passed), rates(b, passed)
	c.Mean, c.PoliciesA, c.PoliciesB = stats.Mean(sharesB)-stats.Mean(sharesA), len(a), len(b)
	if min(len(a), len(b)) >= methodPolicies {
		varianceA, dfA := stats.MeanError(sharesA)
		varianceB, dfB := stats.MeanError(sharesB)
		c.OverSeeds, c.OverSeedsP = stats.Welch(c.Mean, varianceA, dfA, varianceB, dfB, stats.Level)
	}
	c.Families = stats.UnpairedBootstrap(left.families(), right.families(), c.seed(set), stats.Replicates, stats.Level)
	c.CellA, c.CellB = left.share(), right.share()
	if c.CellA.Interval != nil && c.CellB.Interval != nil {
		c.Newcombe = stats.Newcombe(*c.CellA.Value, *c.CellA.Interval, *c.CellB.Value, *c.CellB.Interval)
	}
	if c.Families.Low == c.Families.High { // no spread to resample: the intervals of the shares are wider
		c.Families.Interval = c.Newcombe
	}
}

func compareUnpaired(x, y *policy, greedy bool) PolicyPair {
	left, right := pooled([]policy{*x}, passed), pooled([]policy{*y}, passed)
	a, b := left.total(), right.total()
	pair := PolicyPair{Difference: b.Mean() - a.Mean(), a: *x, b: *y}
	if greedy {
		pair.P = stats.Fisher(int(a.Sum), int(a.N), int(b.Sum), int(b.N))
	} else {
		_, pair.P = stats.Welch(pair.Difference, stats.Variance(left.families()), float64(len(left)-1),
			stats.Variance(right.families()), float64(len(right)-1), stats.Level)
	}
	return pair
}

// compareTraining compares a metric of training, mean over the late window, paired by seed. The window ends at the same
// update for both trainings of a pair: the last update of the shorter one. The result is nil if there is no pair.
func compareTraining(a, b *Arm, windows Windows, how Comparison) *Contrast {
	c := newContrast(a.Label, b.Label, how)
	valuesA, valuesB := map[string]float64{}, map[string]float64{} // by training
	for _, x := range a.logged(windows, how.Outcome).runs {
		for _, y := range b.logged(windows, how.Outcome).runs {
			_, left, _ := x.values(how.Outcome)
			_, right, _ := y.values(how.Outcome)
			n := min(len(left), len(right))
			va, vb := lateValue(left[:n], windows), lateValue(right[:n], windows)
			if !x.pairs(&y) || math.IsNaN(va) || math.IsNaN(vb) {
				continue
			}
			valuesA[x.CurveFrom], valuesB[y.CurveFrom] = va, vb
			c.Pairs = append(c.Pairs, PolicyPair{Difference: vb - va, P: math.NaN(), a: policy{runs: []SeedRun{x}},
				b: policy{runs: []SeedRun{y}}})
			c.Source = page.Together("", how.Outcome, c.Source, page.Source{From: []string{x.CurveFrom, y.CurveFrom}})
		}
	}
	if len(c.Pairs) == 0 {
		return nil
	}
	c.PoliciesA, c.PoliciesB = len(valuesA), len(valuesB)
	c.pairedOverSeeds()
	cell := func(of map[string]float64) page.Cell {
		var all []float64
		for _, from := range sortedKeys(of) { // the order determines the rounding of the sum
			all = append(all, of[from])
		}
		return c.mean(all)
	}
	c.CellA, c.CellB = cell(valuesA), cell(valuesB)
	return c
}

// contrasts computes the tests of a set of tasks and, with the first set, those of metrics of training. A pair of arms
// in several comparisons counts once for each outcome.
func (s *Study) contrasts(set string) []*Contrast {
	var all []*Contrast
	for _, how := range s.comparisons() {
		if how.ofTraining() && set != s.firstSet() {
			continue
		}
		for _, names := range how.Pairs {
			if contrastOf(all, how, names) != nil {
				continue
			}
			if c := s.compare(how, names, set); c != nil {
				all = append(all, c)
			}
		}
	}
	return all
}

// compare compares two labels on a set of tasks or in training; nil if either lacks the outcome.
func (s *Study) compare(how Comparison, names []string, set string) *Contrast {
	a, b := s.arm(names[0]), s.arm(names[1])
	switch {
	case a == nil || b == nil:
		return nil
	case how.ofTraining():
		return compareTraining(a, b, s.Windows, how)
	}
	greedy := how.Outcome != OutcomeSampled
	return compareEvaluations(a.scored(set, greedy), b.scored(set, greedy), how)
}

// firstSet returns the first set of tasks, "" if no set was evaluated.
func (s *Study) firstSet() string { return append(s.sets(), "")[0] }

// contrastOf returns the contrast that is the test of a pair of labels in a comparison, or nil.
func contrastOf(all []*Contrast, how Comparison, names []string) *Contrast {
	outcome := cmp.Or(how.Outcome, OutcomeSuccess)
	for _, c := range all {
		if c.A == names[0] && c.B == names[1] && cmp.Or(c.Outcome, OutcomeSuccess) == outcome && c.Unpaired == how.Unpaired {
			return c
		}
	}
	return nil
}

// decided returns the contrasts of a set, their p-values adjusted together. Each set is tested once per page.
func (s *Study) decided(set string) []*Contrast {
	all, known := s.tested[set]
	if !known {
		all = judge(s.contrasts(set))
		if s.tested != nil {
			s.tested[set] = all
		}
	}
	return all
}

// claims returns the rows of a set's table: the contrasts of every comparison, decided together. A test that several
// comparisons make is one row with all their labels, unless they expect different outcomes.
func (s *Study) claims(set string) []*Contrast {
	var all []*Contrast
	for _, how := range s.comparisons() {
		for _, c := range how.contrastsIn(s.decided(set)) {
			row := contrastOf(all, how, []string{c.A, c.B})
			switch {
			case row == nil || how.Expect != "" && how.Expect != row.Expect:
				all = append(all, c)
			case !slices.Contains(strings.Split(row.Label, "; "), how.Label):
				row.Label += "; " + how.Label
			}
		}
	}
	return all
}

// contrastsIn returns the decided contrasts of the comparison's pairs, with its label and expectation.
func (c Comparison) contrastsIn(decided []*Contrast) []*Contrast {
	var found []*Contrast
	for _, names := range c.Pairs {
		if test := contrastOf(decided, c, names); test != nil {
			claim := *test
			claim.Comparison = c
			found = append(found, &claim)
		}
	}
	return found
}

// judge decides contrasts whose p-values are adjusted together (Holm).
func judge(all []*Contrast) []*Contrast {
	var ps []float64
	tests := 0
	for _, c := range all {
		ps = append(ps, c.p())
		if !math.IsNaN(c.p()) {
			tests++
		}
	}
	for i, adjusted := range stats.Holm(ps) {
		all[i].Adjusted, all[i].Tests = adjusted, tests
		all[i].Decided = all[i].decide()
	}
	return all
}

// pairable returns an error if a pair of a comparison loses more than a tenth of either side's tasks by pairing.
func (s *Study) pairable(how Comparison) error {
	if how.Unpaired || how.ofTraining() {
		return nil
	}
	for _, names := range how.Pairs {
		a, b := s.arm(names[0]), s.arm(names[1])
		if a == nil || b == nil {
			continue
		}
		greedy := how.Outcome != OutcomeSampled
		for _, set := range s.sets() {
			if l := unmatched(a.scored(set, greedy), b.scored(set, greedy)); l.tooMany() {
				return fmt.Errorf("compare %q pairs the tasks of %q with those of %q, but %d of %d tasks of %q in set %s "+
					"have no partner, more than a tenth: evaluate both on the same tasks, or set unpaired = true to compare "+
					"different tasks", how.Label, names[0], names[1], l.lost, l.of, l.arm, cmp.Or(set, "test"))
			}
		}
	}
	return nil
}

// check returns an error if the data do not allow a comparison of the report.
func (s *Study) check() error {
	for _, how := range s.Compare {
		if err := s.pairable(how); err != nil {
			return err
		}
	}
	for _, m := range s.Maps {
		if err := s.mapped(m); err != nil {
			return err
		}
	}
	for i := range s.Arms {
		for _, set := range s.sets() {
			high, low := s.Arms[i].tokenSides(set)
			if l := unmatched(low, high); l.tooMany() {
				return fmt.Errorf("%d of %d tasks of %q in set %s have no partner under the other token, more than a tenth: "+
					"evaluate both tokens on the same tasks", l.lost, l.of, l.arm, cmp.Or(set, "test"))
			}
		}
	}
	return nil
}

// method reports whether the contrast is about the methods: at least three policies per side with an observed spread.
func (c *Contrast) method() bool { return c.OverSeeds.Known() }

// p returns the p-value that decides the contrast: over policies, or, for a claim about checkpoints, the largest of the
// pairs, because every pair must reject (an intersection-union test). NaN without a test.
func (c *Contrast) p() float64 {
	if c.method() {
		return c.OverSeedsP
	}
	largest := 0.0
	for _, p := range c.Pairs {
		largest = math.Max(largest, p.P) // NaN stays NaN
	}
	return largest
}

// decide returns the side with more of the outcome: +1 for B, -1 for A, 0 for not decided. A claim about the methods
// requires that the interval over seeds excludes 0; one about checkpoints requires differences in one direction for
// every pair. Both require the adjusted p-value and, for evaluations, the interval over families.
func (c *Contrast) decide() int {
	if !(c.Adjusted < 1-stats.Level) || !c.ofTraining() && !c.Families.Excludes(0) {
		return 0
	}
	sign := 1
	if c.Mean < 0 {
		sign = -1
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
