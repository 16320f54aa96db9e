package page

import (
	"fmt"
	"strings"
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
	// About is the scope of the verdict: "3 seeds" (the methods), or "these two policies".
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
	text := strings.TrimSuffix(e.Amount(e.Effect)+" "+unit, " ")
	if e.Low != nil && e.High != nil {
		text += fmt.Sprintf(" [%s, %s]", e.Amount(*e.Low), e.Amount(*e.High))
	}
	return text
}

// Amount formats a difference in the unit of the effect, with its sign.
func (e *Effect) Amount(v float64) string {
	if e.Unit == PointsUnit {
		return Points(v / 100)
	}
	if v > 0 {
		return "+" + Significant(v)
	}
	return Significant(v)
}

const PointsUnit = "points"

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
