package reports

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"

	"rcgrpo/reports/stats"
)

// Verdict is the decision about a claim, in a word or two.
type Verdict string

const (
	Yes          Verdict = "Yes"           // the expected difference is decided
	No           Verdict = "No"            // the interval excludes every expected difference that matters
	TheOpposite  Verdict = "The opposite"  // the opposite of the expected difference is decided
	NotDecided   Verdict = "Not decided"   // anything else
	Higher       Verdict = "Higher"        // without an expectation: B has more of the outcome
	Lower        Verdict = "Lower"         // without an expectation: B has less of the outcome
	NoDifference Verdict = "No difference" // without an expectation: the interval excludes every difference that matters
)

// Effect is the difference of an outcome between two arms, B minus A: a row of the forest plot. All numbers of effects
// are in Unit.
type Effect struct {
	Claim   string  `json:"claim"`         // label of the comparison: the property that only B has
	Outcome string  `json:"outcome"`       // "success", "sampled success", "groups without variance"
	Set     string  `json:"set,omitempty"` // "test tasks"; "" for an outcome of training
	A       string  `json:"a"`             // labels of the arms
	B       string  `json:"b"`
	Expect  string  `json:"expect,omitempty"` // "higher", "lower"
	Verdict Verdict `json:"verdict"`

	Unit   string  `json:"unit"` // "points", or the unit of the metric
	Effect float64 `json:"effect"`
	// Low and High bound the interval that contains both the interval over seeds and the interval over task families;
	// nil if neither can be estimated.
	Low     *float64  `json:"low,omitempty"`
	High    *float64  `json:"high,omitempty"`
	PerSeed []float64 `json:"per_seed,omitempty"` // the difference of each pair of policies; none if tasks are unpaired
	// About is the scope of the verdict: "3 seeds" (the methods), or "these two checkpoints".
	About string `json:"about"`

	// Detectable is the smallest difference that a test at 5 % detects with a power of 80 %, from the observed
	// variance; nil without an interval.
	Detectable *float64 `json:"detectable,omitempty"`
	// Adjusted is the p-value, Holm-adjusted over all claims of the table; nil without a test.
	Adjusted *float64 `json:"adjusted,omitempty"`
	Excludes string   `json:"excludes,omitempty"` // of an undecided claim: "excludes gains above 2.2 points and …"
	// Reference is the same difference as a publication reports it; nil without such a report.
	Reference     *float64 `json:"reference,omitempty"`
	ReferenceName string   `json:"reference_name,omitempty"`
	Source        Source   `json:"source,omitzero"`
}

// Answer is one line of the first screen: the decision about a claim for one outcome. Its effect is that of the weakest
// pair, because a claim about several pairs holds only if it holds for every pair. Each compared pair is in one of the
// counts Clear, Opposite, Toward and Away.
type Answer struct {
	Effect
	Pairs    int `json:"pairs"`    // pairs of arms that the claim is about
	Clear    int `json:"clear"`    // the expected difference is decided
	Opposite int `json:"opposite"` // the opposite of the expected difference is decided
	Toward   int `json:"toward"`   // not decided, the difference has the expected sign
	Away     int `json:"away"`     // not decided, the difference has the other sign or is 0

	Unadjusted int `json:"unadjusted"` // not decided, because the p-value is adjusted: the interval excludes 0
}

// Number returns the effect with its interval: "−0.7 points [−3.5, +2.2]".
func (e Effect) Number() string {
	if e.Unit == e.Outcome {
		return e.number("")
	}
	return e.number(e.Unit)
}

// number formats the effect, in a unit that follows it, with its interval.
func (e *Effect) number(unit string) string {
	text := strings.TrimSuffix(e.amount(e.Effect)+" "+unit, " ")
	if e.Low != nil && e.High != nil {
		text += fmt.Sprintf(" [%s, %s]", e.amount(*e.Low), e.amount(*e.High))
	}
	return text
}

// amount formats a difference in the unit of the effect, with its sign.
func (e *Effect) amount(v float64) string {
	if e.Unit == pointsUnit {
		return points(v / 100)
	}
	if v > 0 {
		return "+" + significant(v)
	}
	return significant(v)
}

const pointsUnit = "points"

// String returns the answer in one or two sentences: "Not decided: success, expected higher in all of 3 comparisons:
// clear in 2, unclear in 1 (higher). Furthest from expected: +0.7 points [−3.5, +2.2], C against B; 3 seeds."
func (a Answer) String() string {
	return fmt.Sprintf("%s: %s%s%s, %s.", a.Verdict, a.Subject(), a.Found(), a.Number(), a.Against())
}

// Against names the arms of the number and the scope of the verdict: "B against A; 3 seeds".
func (a Answer) Against() string { return a.B + " against " + a.A + "; " + a.About }

// Subject names the outcome and the expectation: "success, expected higher in all of 3 comparisons: ".
func (a Answer) Subject() string {
	switch {
	case a.Expect == "":
		return a.Outcome + " "
	case a.Pairs == 1:
		return a.Outcome + ", expected " + a.Expect + ": "
	}
	return fmt.Sprintf("%s, expected %s in all of %d comparisons: ", a.Outcome, a.Expect, a.Pairs)
}

// Found counts the pairs of a claim by their decisions, and introduces the number: "clear in 2, unclear in 1
// (higher). Furthest from expected: "; "" for a claim about one pair. With the subject it has at most three numbers.
func (a Answer) Found() string {
	if a.Pairs == 1 {
		return ""
	}
	text := "clear in " + a.share(a.Clear)
	if a.Opposite > 0 {
		other := map[string]string{"higher": "lower", "lower": "higher"}[a.Expect]
		text += ", clearly " + other + " in " + a.share(a.Opposite)
	}
	if a.Toward+a.Away > 0 {
		text += ", unclear in " + a.unclear()
	}
	if a.Clear+a.Opposite+a.Toward+a.Away < a.Pairs {
		text += ", the others not compared"
	}
	return text + ". Furthest from expected: "
}

// share writes a count of the pairs: "none", "2", "all".
func (a Answer) share(n int) string {
	switch n {
	case 0:
		return "none"
	case a.Pairs:
		return "all"
	}
	return fmt.Sprint(n)
}

// unclear counts the pairs that are not decided, with their direction and the effect of the adjustment.
func (a Answer) unclear() string {
	count, direction, adjusted := a.share(a.Toward+a.Away), "some higher, some lower", a.share(a.Unadjusted)
	if a.Clear > 0 && a.Opposite+a.Unadjusted > 0 {
		count = "the rest"
	}
	if a.Opposite > 0 {
		adjusted = "some"
	}
	if a.Away == 0 {
		direction = a.Expect
	} else if a.Toward == 0 {
		direction = "not " + a.Expect
	}
	if a.Unadjusted > 0 {
		direction += "; " + adjusted + " would be clear without the adjustment for several tests"
	}
	return fmt.Sprintf("%s (%s)", count, direction)
}

// effect returns the contrast as plain values in the unit of its outcome.
func (s *Study) effect(c *Contrast, set string) Effect {
	e := Effect{Claim: c.Label, Outcome: c.outcomeName(), A: c.A, B: c.B, Expect: c.Expect, Verdict: c.word(),
		Unit: c.unit(), Effect: c.scale() * c.Mean, About: c.about(),
		Source: c.own("mean difference, the interval over seeds and over families, Holm-adjusted p")}
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
	if e.Verdict == NotDecided {
		e.Excludes = c.excludes()
	}
	if published := s.published(c, set); published != nil {
		difference := c.scale() * published.Difference
		e.Reference, e.ReferenceName = &difference, published.Reference
	}
	return e
}

// published returns the effect that a reference reports for the success of the contrast's arms, or nil.
func (s *Study) published(c *Contrast, set string) *PublishedEffect {
	if c.ofTraining() || c.Outcome == OutcomeSampled {
		return nil
	}
	return s.referenceEffect(c.A, c.B, set, "")
}

// about returns the scope of the verdict.
func (c *Contrast) about() string {
	switch {
	case c.method():
		return plural(min(c.PoliciesA, c.PoliciesB), "seed")
	case c.PoliciesA == 1 && c.PoliciesB == 1:
		return "these two checkpoints"
	}
	return "these checkpoints"
}

// scale converts the outcome to its unit: shares to percentage points.
func (c *Contrast) scale() float64 {
	if c.inPoints() {
		return 100
	}
	return 1
}

// effects returns the claims of the first set of tasks and of training, in the order of their table.
func (s *Study) effects() []Effect {
	var all []Effect
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
func (s *Study) answers() []Answer {
	var all []Answer
	set := s.firstSet()
	for _, how := range s.leading() {
		claims := how.claims(s.decided(set))
		switch {
		case len(claims) == 0:
		case how.Expect != "":
			weakest, verdict := conjunction(claims)
			answer := Answer{Effect: s.effect(weakest, set), Pairs: len(how.Pairs)}
			answer.Verdict = verdict
			answer.count(claims)
			if missing := len(how.Pairs) - len(claims); missing > 0 && verdict == Yes {
				answer.Verdict, answer.Excludes = NotDecided, plural(missing, "pair")+" of the claim could not be compared"
			}
			all = append(all, answer)
		default:
			for _, c := range claims {
				all = append(all, Answer{Effect: s.effect(c, set), Pairs: 1})
			}
		}
	}
	return all
}

// count counts the claims by the decision about the expected difference.
func (a *Answer) count(claims []*Contrast) {
	for _, c := range claims {
		sign := c.expectedSign()
		switch decided := sign * float64(c.Verdict); {
		case decided > 0:
			a.Clear++
		case decided < 0:
			a.Opposite++
		case sign*c.Mean > 0:
			a.Toward++
		default:
			a.Away++
		}
		if c.Verdict == 0 && c.hull().Excludes(0) {
			a.Unadjusted++
		}
	}
}

// conjunction decides a claim that holds only if every pair has the expected difference. The verdict is that of the
// weakest pair; if only some pairs are the opposite of the claim, it is No.
func conjunction(pairs []*Contrast) (weakest *Contrast, verdict Verdict) {
	strength := []Verdict{TheOpposite, No, NotDecided, Yes}
	weakest = slices.MinFunc(pairs, func(a, b *Contrast) int {
		return cmp.Or(slices.Index(strength, a.word())-slices.Index(strength, b.word()),
			cmp.Compare(a.expectedSign()*a.Mean, b.expectedSign()*b.Mean))
	})
	verdict = weakest.word()
	if verdict == TheOpposite && slices.ContainsFunc(pairs, func(c *Contrast) bool { return c.word() != TheOpposite }) {
		verdict = No
	}
	return weakest, verdict
}

// expectedSign returns the sign of the expected difference; +1 without an expectation.
func (c *Contrast) expectedSign() float64 {
	if c.Expect == "lower" {
		return -1
	}
	return 1
}

// word returns the verdict of the contrast.
func (c *Contrast) word() Verdict {
	sign, i, matters := c.expectedSign(), c.hull(), c.Matters/c.scale()
	switch {
	case c.Verdict != 0 && c.Expect == "" && c.Verdict > 0:
		return Higher
	case c.Verdict != 0 && c.Expect == "":
		return Lower
	case float64(c.Verdict)*sign > 0:
		return Yes
	case c.Verdict != 0:
		return TheOpposite
	case matters <= 0 || !i.Known():
		return NotDecided
	case c.Expect == "" && -matters < i.Low && i.High < matters:
		return NoDifference
	case c.Expect == "higher" && i.High < matters, c.Expect == "lower" && i.Low > -matters:
		return No
	}
	return NotDecided
}

// hull returns the smallest interval that contains the interval over seeds and the interval over families.
func (c *Contrast) hull() stats.Interval {
	hull := stats.Unknown
	for _, i := range []stats.Interval{c.OverSeeds, c.Families.Interval} {
		switch {
		case !i.Known():
		case !hull.Known():
			hull = i
		default:
			hull = stats.Interval{Low: min(hull.Low, i.Low), High: max(hull.High, i.High)}
		}
	}
	return hull
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

// outcomeName names the outcome of the contrast: "success", "sampled success", "groups without variance".
func (c *Contrast) outcomeName() string {
	name := "success"
	switch {
	case c.ofTraining():
		return strings.TrimSuffix(outcomeName(c.Outcome), ", late in training")
	case c.Outcome == OutcomeSampled:
		name = "sampled success"
	}
	if c.Unpaired {
		name += ", unpaired"
	}
	return name
}

// unit returns the unit of differences of the outcome.
func (c *Contrast) unit() string {
	if c.inPoints() {
		return pointsUnit
	}
	return c.metric().Unit
}
