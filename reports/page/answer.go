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
	Matters  float64  `json:"matters,omitempty"` // the smallest difference that matters; 0 if the block names none
	// Reference is the same difference as a publication reports it; nil without such a report.
	Reference     *float64 `json:"reference,omitempty"`
	ReferenceName string   `json:"reference_name,omitempty"`
	Source        Source   `json:"source,omitzero"`
}

// Answer is one entry of the first screen: the decision about a claim for one outcome. Its effect is that of the
// weakest pair, because a claim about several pairs holds only if it holds for every pair. Clear, Opposite and Unclear
// count the other pairs that were compared.
type Answer struct {
	Effect
	Subject  string `json:"subject"`  // what the claim is about: the second arm of all its pairs, or the label
	Pairs    int    `json:"pairs"`    // pairs of arms that the claim is about
	Clear    int    `json:"clear"`    // the expected difference is decided
	Opposite int    `json:"opposite"` // the opposite of the expected difference is decided
	Unclear  int    `json:"unclear"`  // not decided

	Unadjusted int `json:"unadjusted"` // pairs that are undecided only because the p-value is adjusted
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

// size formats the size of a difference without its sign.
func (e *Effect) size(v float64) string { return strings.TrimLeft(e.Amount(v), "+−") }

// in returns the unit after a number; "" if it is the outcome itself.
func (e *Effect) in() string {
	if e.Unit == "" || e.Unit == e.Outcome {
		return ""
	}
	return " " + e.Unit
}

const PointsUnit = "points"

// Number returns the effect with its interval: "−0.7 (−3.5 to +2.2)".
func (e *Effect) Number() string { return e.Amount(e.Effect) + e.between() }

// between returns the interval in parentheses; "" if it is unknown.
func (e *Effect) between() string {
	if e.Low == nil || e.High == nil {
		return ""
	}
	return " (" + Range(e.Amount(*e.Low), e.Amount(*e.High)) + ")"
}

// String returns the answer in sentences: "Success: No. B does not raise success: 4.9 points lower than A (2.9 to 6.9);
// not decided in the 2 other comparisons. 3 seeds."
func (a Answer) String() string {
	return fmt.Sprintf("%s: %s. %s%s%s. %s.", a.Heading(), a.Verdict, a.Claims(), a.Difference(), a.Rest(),
		capital(a.About))
}

// Heading is the outcome with a capital.
func (a Answer) Heading() string { return capital(a.Outcome) }

func capital(text string) string {
	if text == "" {
		return ""
	}
	return strings.ToUpper(text[:1]) + text[1:]
}

// Claims says what is decided: "RCTP-FT + RC-GRPO does not raise success by 3 points or more: ". The margin is part of
// it where the interval excludes nothing else.
func (a Answer) Claims() string {
	verb, opposite := "raise", "lower"
	if a.Expect == "lower" {
		verb, opposite = opposite, verb
	}
	text := a.Subject
	if text != a.B { // the label of an arm stays as it is
		text = capital(text)
	}
	switch a.Verdict {
	case Yes:
		text += " " + verb + "s"
	case TheOpposite:
		text += " " + opposite + "s"
	case No:
		text += " does not " + verb
	case Higher:
		text += " raises"
	case Lower:
		text += " lowers"
	case NoDifference:
		text += " does not change"
	default:
		if a.Expect == "" {
			verb = "change"
		}
		text = "It is not decided whether " + a.Subject + " " + verb + "s"
	}
	what := a.Outcome
	if strings.HasPrefix(what, "groups ") { // a share, which is raised or lowered
		what = "the share of " + what
	}
	text += " " + what
	if (a.Verdict == No || a.Verdict == NoDifference) && a.Low != nil && *a.Low <= 0 && *a.High >= 0 {
		text += " by " + strings.TrimSuffix(a.size(a.Matters), ".0") + a.in() + " or more"
	}
	return text + ": "
}

// Difference is the weakest pair: "4.9 points lower than A (2.9 to 6.9)", or, if its interval contains 0, "+0.5 points
// compared with A (−1.4 to +2.4)". It names both arms if B is not the subject.
func (a Answer) Difference() string {
	of := ""
	if a.Subject != a.B {
		of = a.B + ", "
	}
	if a.Low == nil || a.High == nil || *a.Low < 0 && *a.High > 0 || a.Effect.Effect == 0 {
		return of + a.Amount(a.Effect.Effect) + a.in() + " compared with " + a.A + a.between()
	}
	low, high, than := *a.Low, *a.High, " higher than "
	if a.Effect.Effect < 0 {
		low, high, than = *a.High, *a.Low, " lower than "
	}
	return of + a.size(a.Effect.Effect) + a.in() + than + a.A + " (" + Range(a.size(low), a.size(high)) + ")"
}

// Rest counts the other pairs: "; not decided in the 2 other comparisons".
func (a Answer) Rest() (text string) {
	var parts []string
	add := func(format string, n int) {
		if n > 0 {
			parts = append(parts, fmt.Sprintf(format, n))
		}
	}
	add("as expected in %d", a.Clear)
	add("clearly "+map[string]string{"higher": "lower", "lower": "higher"}[a.Expect]+" in %d", a.Opposite)
	add("not decided in %d", a.Unclear)
	others := a.Pairs - 1
	add("not compared: %d", others-a.Clear-a.Opposite-a.Unclear)
	switch {
	case len(parts) > 1:
		text += fmt.Sprintf("; of the %d other comparisons: %s", others, strings.Join(parts, ", "))
	case others == 1:
		text += "; " + strings.Replace(parts[0], " 1", " the other comparison", 1)
	case others > 1:
		text += "; " + strings.Replace(parts[0], fmt.Sprint(others), fmt.Sprintf("the %d other comparisons", others), 1)
	}
	if a.Unadjusted > 0 {
		text += fmt.Sprintf("; %d would be decided without the adjustment for several tests", a.Unadjusted)
	}
	return text
}
