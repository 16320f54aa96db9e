package reports

import (
	"cmp"
	"math"
	"slices"

	"github.com/dustin/go-humanize/english"

	"rcgrpo/reports/page"
	"rcgrpo/reports/stats"
)

// effect returns the contrast as plain values in the unit of its outcome.
func (s *Study) effect(c *Contrast, set string) page.Effect {
	e := page.Effect{Claim: c.Label, Outcome: c.outcomeName(), A: c.A, B: c.B, Expect: c.Expect, Verdict: c.verdict(),
		Unit: c.unit(), Effect: c.scale() * c.Mean, About: c.about(),
		Matters: c.Matters, Source: c.own("mean difference, the interval over seeds and over families, Holm-adjusted p")}
	if !c.ofTraining() {
		e.Set = setName(set)
	}
	if i := c.hull(); i.Known() {
		low, high := c.scale()*i.Low, c.scale()*i.High
		e.Low, e.High = &low, &high
	}
	if !c.Unpaired {
		for _, p := range c.Pairs {
			e.PerSeed = append(e.PerSeed, c.scale()*p.Difference)
		}
	}
	if d := c.scale() * c.detectable(); !math.IsNaN(d) {
		e.Detectable = &d
	}
	if !math.IsNaN(c.Adjusted) && c.Tests > 0 {
		e.Adjusted = &c.Adjusted
	}
	published := s.referenceEffect(c.A, c.B, set)
	if published != nil && cmp.Or(c.Outcome, OutcomeSuccess) == OutcomeSuccess {
		difference := c.scale() * *published.Difference.Value
		e.Reference, e.ReferenceName = &difference, published.Reference
	}
	return e
}

// about returns the scope of the verdict.
func (c *Contrast) about() string {
	switch {
	case c.method():
		return english.Plural(min(c.PoliciesA, c.PoliciesB), "seed", "")
	case c.PoliciesA == 1 && c.PoliciesB == 1:
		return "these two policies"
	}
	return "these policies"
}

// scale converts the outcome to its unit: shares to percentage points.
func (c *Comparison) scale() float64 {
	if c.inPoints() {
		return 100
	}
	return 1
}

// effects returns the claims of the first set of tasks and of training, in the order of their table.
func (s *Study) effects() []page.Effect {
	var all []page.Effect
	for _, c := range s.claims(s.firstSet()) {
		all = append(all, s.effect(c, s.firstSet()))
	}
	return all
}

// leading returns the comparisons that answer the question: the first one and every other one with an expectation.
func (s *Study) leading() (all []Comparison) {
	for i, how := range s.comparisons() {
		if i == 0 || how.Expect != "" {
			all = append(all, how)
		}
	}
	return all
}

// answers returns the answers of the leading comparisons, on the first set of tasks or in training. A comparison
// without an expectation has an answer for each pair.
func (s *Study) answers() []page.Answer {
	var all []page.Answer
	set := s.firstSet()
	for _, how := range s.leading() {
		claims := how.contrastsIn(s.decided(set))
		switch {
		case len(claims) == 0:
		case how.Expect != "":
			weakest, verdict := conjunction(claims)
			answer := page.Answer{Effect: s.effect(weakest, set), Subject: how.subject(), Pairs: len(how.Pairs)}
			answer.Verdict = verdict
			count(&answer, weakest, claims)
			if len(claims) < len(how.Pairs) && verdict == page.Yes {
				answer.Verdict = page.NotDecided // a pair could not be compared
			}
			all = append(all, answer)
		default:
			for _, c := range claims {
				all = append(all, page.Answer{Effect: s.effect(c, set), Subject: c.B, Pairs: 1})
			}
		}
	}
	return all
}

// subject names what a comparison is about: the second arm of all its pairs, or its label.
func (c *Comparison) subject() string {
	if len(c.Pairs) == 0 || slices.ContainsFunc(c.Pairs, func(p []string) bool { return p[1] != c.Pairs[0][1] }) {
		return c.Label
	}
	return c.Pairs[0][1]
}

// count counts the claims beside the weakest one by the decision about the expected difference.
func count(a *page.Answer, weakest *Contrast, claims []*Contrast) {
	for _, c := range claims {
		switch decided := c.expectedSign() * float64(c.Decided); {
		case c == weakest:
		case decided > 0:
			a.Clear++
		case decided < 0:
			a.Opposite++
		default:
			a.Unclear++
		}
		if c.Decided == 0 && c.hull().Excludes(0) {
			a.Unadjusted++
		}
	}
}

// conjunction decides a claim that holds only if every pair has the expected difference. The verdict is that of the
// weakest pair; if only some pairs are the opposite of the claim, it is No.
func conjunction(pairs []*Contrast) (weakest *Contrast, verdict page.Verdict) {
	strength := []page.Verdict{page.TheOpposite, page.No, page.NotDecided, page.Yes}
	weakest = slices.MinFunc(pairs, func(a, b *Contrast) int {
		return cmp.Or(slices.Index(strength, a.verdict())-slices.Index(strength, b.verdict()),
			cmp.Compare(a.expectedSign()*a.Mean, b.expectedSign()*b.Mean))
	})
	verdict = weakest.verdict()
	other := func(c *Contrast) bool { return c.verdict() != page.TheOpposite }
	if verdict == page.TheOpposite && slices.ContainsFunc(pairs, other) {
		verdict = page.No
	}
	return weakest, verdict
}

// expectedSign returns the sign of the expected difference; +1 without an expectation.
func (c *Comparison) expectedSign() float64 {
	if c.Expect == "lower" {
		return -1
	}
	return 1
}

// verdict returns the decision about the contrast in words.
func (c *Contrast) verdict() page.Verdict {
	sign, i, matters := c.expectedSign(), c.hull(), c.Matters/c.scale()
	switch {
	case c.Decided != 0 && c.Expect == "" && c.Decided > 0:
		return page.Higher
	case c.Decided != 0 && c.Expect == "":
		return page.Lower
	case float64(c.Decided)*sign > 0:
		return page.Yes
	case c.Decided != 0:
		return page.TheOpposite
	case matters <= 0 || !i.Known():
		return page.NotDecided
	case c.Expect == "" && -matters < i.Low && i.High < matters:
		return page.NoDifference
	case c.Expect == "higher" && i.High < matters, c.Expect == "lower" && i.Low > -matters:
		return page.No
	}
	return page.NotDecided
}

// hull returns the smallest interval that contains the interval over seeds and the interval over families.
func (c *Contrast) hull() stats.Interval {
	x, y := c.OverSeeds, c.Families.Interval
	switch {
	case !x.Known():
		return y
	case !y.Known():
		return x
	}
	return stats.Interval{Low: min(x.Low, y.Low), High: max(x.High, y.High)}
}

// detectable returns the smallest effect that the test detects with a power of 80 %, NaN without an interval: the
// larger of both intervals' half widths, which are quantile × standard error, times (quantile + power quantile) /
// quantile.
func (c *Contrast) detectable() float64 {
	largest := math.NaN()
	for _, one := range []struct {
		stats.Interval
		df float64
	}{{c.OverSeeds, float64(min(c.PoliciesA, c.PoliciesB) - 1)}, {c.Families.Interval, math.Inf(1)}} {
		if !one.Known() {
			continue
		}
		if d := stats.Detectable(one.Interval, one.df, stats.Level, 0.8); !(d <= largest) {
			largest = d
		}
	}
	return largest
}

// outcomeName names the outcome of the comparison: "success", "sampled success", "groups without variance".
func (c *Comparison) outcomeName() string {
	name := "success"
	switch {
	case c.ofTraining():
		return metricTitle(c.Outcome)
	case c.Outcome == OutcomeSampled:
		name = "sampled success"
	}
	if c.Unpaired {
		name += ", unpaired"
	}
	return name
}

// unit returns the unit of differences of the outcome.
func (c *Comparison) unit() string {
	if c.inPoints() {
		return page.PointsUnit
	}
	return metricInfo(c.Outcome).Unit
}
