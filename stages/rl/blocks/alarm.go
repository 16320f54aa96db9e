// Package blocks holds the blocks of settings that several kinds of stages share, with their checks.
//
//	Limits                    bounds of an episode
//	Schedule, Optimizer       learning rate and AdamW
//	Split, Arithmetic         micro-batches, precision
//	Alarm, Watch              reactions to trouble during training
//	Effects                   settings without effect, by name
//	Mean, Quantile            of values
//
// Neighbours: rl and the kinds.
package blocks

import (
	"math"
	"slices"

	"github.com/hashicorp/hcl/v2"
)

// Alarm configures the reaction to one kind of trouble during training. It is evaluated after the gradient of an
// update is known and before the gradient is applied.
type Alarm struct {
	Name    string   `hcl:"name,label" doc:"gap: the mean gap between high and low over the window is below"`
	_       struct{} `doc:"limit. zero_variance: the mean share of groups without variance is above it."`
	_       struct{} `doc:"entropy: the mean entropy is below it. spike: the gradient norm exceeds limit times"`
	_       struct{} `doc:"the median of the window. nan: loss or gradient is not finite, updates times in a"`
	_       struct{} `doc:"row. spike and nan count optimizer steps, the others updates"`
	Action  string   `hcl:"action" choices:"stop|skip|lower_rate" doc:"stop ends the stage with the current policy"`
	_       struct{} `doc:"as its result; skip skips the update or its remaining steps; lower_rate multiplies the"`
	_       struct{} `doc:"learning rate by factor from this update on"`
	Limit   *float64 `hcl:"limit,optional" doc:"default: gap 0.02 in reward, zero_variance 0.95, entropy 0.01 nats"`
	_       struct{} `doc:"per token, spike 10 medians"`
	Updates *int     `hcl:"updates,optional" unit:"updates" doc:"window of the alarm; default: gap 10, zero_variance"`
	_       struct{} `doc:"5, entropy 5, spike 20, nan 1"`
	Factor  *float64 `hcl:"factor,optional" doc:"factor of lower_rate; default 0.5"`

	At map[string]hcl.Range `hcl:",ranges"`
}

// Names of alarms.
const (
	AlarmGap          = "gap"
	AlarmZeroVariance = "zero_variance"
	AlarmEntropy      = "entropy"
	AlarmSpike        = "spike"
	AlarmNaN          = "nan"
)

// Actions of alarms.
const (
	ActionStop      = "stop"
	ActionSkip      = "skip"
	ActionLowerRate = "lower_rate"
)

type alarmKind struct {
	name, metric string
	limit        float64
	updates      int
}

var alarmKinds = []alarmKind{
	{AlarmGap, "token_gap", 0.02, 10},
	{AlarmZeroVariance, "zero_variance", 0.95, 5},
	{AlarmEntropy, "entropy", 0.01, 5},
	{AlarmSpike, "grad_norm", 10, 20},
	{AlarmNaN, "grad_norm", 0, 1},
}

func alarmNamed(name string) (alarmKind, bool) {
	i := slices.IndexFunc(alarmKinds, func(k alarmKind) bool { return k.name == name })
	if i < 0 {
		return alarmKind{}, false
	}
	return alarmKinds[i], true
}

// CheckAlarms reports unknown and duplicate names and values out of range. tokens reports whether rollouts draw
// both reward tokens, without which there is no gap.
func CheckAlarms(alarms []Alarm, tokens bool) (diags hcl.Diagnostics) {
	bad := Mistakes(&diags)
	var seen []string
	for _, a := range alarms {
		if _, known := alarmNamed(a.Name); !known {
			bad(true, "Unknown alarm", a.At["name"],
				"The alarms are gap, zero_variance, entropy, spike and nan; got %q.", a.Name)
			continue
		}
		again := slices.Contains(seen, a.Name)
		bad(again, "Duplicate alarm", a.At["name"], "The alarm %s has another block above; keep one of them.", a.Name)
		bad(!again && a.Name == AlarmGap && !tokens, "Alarm without effect", a.At["name"],
			"The gap between high and low exists only if rollouts draw both tokens: in rc-grpo, with tokens.high between "+
				"0 and 1.")
		seen = append(seen, a.Name)
		if a.Limit != nil {
			bad(*a.Limit <= 0 || a.Name == AlarmNaN, "Limit out of range", a.At["limit"],
				"The limit of an alarm is above 0, and alarm nan has none; got %v for %s.", *a.Limit, a.Name)
		}
		if a.Updates != nil {
			bad(*a.Updates < 1, "Number of updates out of range", a.At["updates"],
				"The window of an alarm is at least one update; got %d.", *a.Updates)
		}
		if f := a.Factor; f != nil {
			bad(a.Action != ActionLowerRate || *f <= 0 || *f >= 1, "Factor out of range", a.At["factor"],
				"factor is between 0 and 1, both excluded, and requires action = \"lower_rate\"; got %v.", *f)
		}
	}
	return diags
}

// Watch evaluates the alarms of a run. Its state is a function of the observed values.
type Watch struct {
	watched []watched
	WatchState
}

// WatchState is the state of a Watch that a resumed run needs.
type WatchState struct {
	Rate    float64              `json:"rate"`              // product of the factors of raised alarms
	Stopped bool                 `json:"stopped,omitempty"` // an alarm ended the run
	Windows map[string][]float64 `json:"windows,omitempty"` // last values by alarm, the newest last
}

type watched struct {
	alarmKind
	action string
	factor float64
}

// NewWatch returns a Watch of the alarms.
func NewWatch(alarms []Alarm) *Watch {
	w := &Watch{WatchState: WatchState{Rate: 1}}
	for _, a := range alarms {
		kind, _ := alarmNamed(a.Name)
		kind.limit, kind.updates = or(a.Limit, kind.limit), or(a.Updates, kind.updates)
		w.watched = append(w.watched, watched{kind, a.Action, or(a.Factor, 0.5)})
	}
	return w
}

// or returns the value of a setting, or its default.
func or[T any](setting *T, byDefault T) T {
	if setting == nil {
		return byDefault
	}
	return *setting
}

// Observe evaluates the values of the next update and returns the action of each raised alarm. A missing value
// counts as not finite for nan and is ignored by the other alarms.
func (w *Watch) Observe(values map[string]float64) map[string]string {
	raised := map[string]string{}
	for _, a := range w.watched {
		window, off := a.observe(w.Windows[a.name], values)
		if w.Windows == nil {
			w.Windows = map[string][]float64{}
		}
		w.Windows[a.name] = window
		if !off {
			continue
		}
		raised[a.name] = a.action
		switch a.action {
		case ActionLowerRate:
			w.Rate *= a.factor
		case ActionStop:
			w.Stopped = true
		}
	}
	return raised
}

// observe reports whether the alarm is raised, and returns its next window. Only spike keeps its window when raised.
func (a *watched) observe(window []float64, values map[string]float64) (after []float64, raised bool) {
	x, known := finite(values, a.metric)
	if a.name == AlarmNaN {
		if _, loss := finite(values, "loss"); known && loss {
			return nil, false
		}
	} else if !known {
		return window, false
	}
	after = append(slices.Clone(window), x)
	after = after[max(0, len(after)-a.updates):]
	full := len(after) == a.updates
	switch a.name {
	case AlarmSpike:
		return after, len(window) == a.updates && x > a.limit*Quantile(slices.Sorted(slices.Values(window)), 0.5)
	case AlarmGap, AlarmEntropy:
		raised = full && Mean(after) < a.limit
	case AlarmZeroVariance:
		raised = full && Mean(after) > a.limit
	case AlarmNaN:
		raised = full
	}
	if raised {
		return nil, true
	}
	return after, false
}

// finite returns the named value, or 0 and false if it is missing or not finite.
func finite(values map[string]float64, name string) (x float64, ok bool) {
	x, ok = values[name]
	if math.IsNaN(x) || math.IsInf(x, 0) {
		return 0, false
	}
	return x, ok
}

// Quantile of ascending values, with linear interpolation between order statistics (h = (n-1) q); 0 without
// values.
func Quantile(sorted []float64, q float64) float64 {
	if len(sorted) == 0 {
		return 0
	}
	h := q * float64(len(sorted)-1)
	i := min(int(h), len(sorted)-1)
	if i+1 >= len(sorted) {
		return sorted[i]
	}
	return sorted[i] + (h-float64(i))*(sorted[i+1]-sorted[i])
}

// Mean is 0 without values.
func Mean(values []float64) float64 {
	sum := 0.0
	for _, x := range values {
		sum += x
	}
	return sum / float64(max(1, len(values)))
}
