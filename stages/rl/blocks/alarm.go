package blocks

import (
	"fmt"
	"math"
	"slices"

	"github.com/hashicorp/hcl/v2"
)

// Alarm watches one sort of trouble while a policy trains and says what happens then. It looks at an update after its
// gradient is known and before it is applied, so that the update that raises the alarm can still be left out.
type Alarm struct {
	Name    string   `hcl:"name,label" doc:"gap: the mean gap between high and low over the last updates is below limit. zero_variance: the mean share of groups without variance is above it. entropy: the mean entropy is below it. spike: the gradient norm is above limit times the median of the updates before. nan: loss or gradient is no finite number, as many times in a row as updates says. Where an update makes several optimizer steps, spike and nan count steps, the others look before the first"`
	Action  string   `hcl:"action" choices:"stop|skip|lower_rate" doc:"stop ends the stage with the policy as it stands, which is its result; skip leaves the update out, or what is left of its steps; lower_rate multiplies the learning rate by factor from this update on"`
	Limit   *float64 `hcl:"limit,optional" doc:"gap 0.02 in reward, zero_variance 0.95, entropy 0.01 nats per token, spike 10 times the median, unless set"`
	Updates *int     `hcl:"updates,optional" unit:"updates" doc:"how many are looked at together: gap 10, zero_variance 5, entropy 5, spike 20, nan 1, unless set"`
	Factor  *float64 `hcl:"factor,optional" doc:"what lower_rate multiplies the rate by; 0.5 unless set"`

	NameRange    hcl.Range `hcl:"name,attr_range"`
	LimitRange   hcl.Range `hcl:"limit,attr_range"`
	UpdatesRange hcl.Range `hcl:"updates,attr_range"`
	FactorRange  hcl.Range `hcl:"factor,attr_range"`
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

// alarmKind is what an alarm of a name looks at, with its defaults.
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

// CheckAlarms reports names that are none, names given twice and values out of range. Without tokens no arm has a gap.
func CheckAlarms(alarms []Alarm, tokens bool) hcl.Diagnostics {
	var diags hcl.Diagnostics
	bad := func(summary, detail string, at hcl.Range) {
		diags = append(diags, &hcl.Diagnostic{Severity: hcl.DiagError, Summary: summary, Detail: detail, Subject: at.Ptr()})
	}
	var seen []string
	for _, a := range alarms {
		_, known := alarmNamed(a.Name)
		switch {
		case !known:
			bad("Unknown alarm", fmt.Sprintf("There are the alarms gap, zero_variance, entropy, spike and nan; got %q.", a.Name), a.NameRange)
			continue
		case slices.Contains(seen, a.Name):
			bad("Alarm given twice", fmt.Sprintf("One block says what happens when %s is raised; this is another.", a.Name), a.NameRange)
		case a.Name == AlarmGap && !tokens:
			bad("Alarm without effect", "The gap between high and low exists only where rollouts draw both tokens: in rc-grpo, with tokens.high between 0 and 1.", a.NameRange)
		}
		seen = append(seen, a.Name)
		if a.Limit != nil && (*a.Limit <= 0 || a.Name == AlarmNaN) {
			detail := fmt.Sprintf("The limit of alarm %s is above 0; got %v.", a.Name, *a.Limit)
			if a.Name == AlarmNaN {
				detail = "A number is finite or not: alarm nan takes no limit."
			}
			bad("Limit out of range", detail, a.LimitRange)
		}
		if a.Updates != nil && *a.Updates < 1 {
			bad("Number of updates out of range", fmt.Sprintf("An alarm looks at one update or more; got %d.", *a.Updates), a.UpdatesRange)
		}
		if f := a.Factor; f != nil && (a.Action != ActionLowerRate || *f <= 0 || *f >= 1) {
			bad("Factor out of range", fmt.Sprintf("factor lies between 0 and 1, both excluded, and belongs to action = \"lower_rate\"; got %v.", *f), a.FactorRange)
		}
	}
	return diags
}

// Watch holds the alarms of a run. Its state is a function of the values it has observed, in order.
type Watch struct {
	watched []watched
	WatchState
}

// WatchState is what a resumed run has to know of the updates before.
type WatchState struct {
	Rate    float64              `json:"rate"`              // product of the factors of all alarms that lowered the learning rate so far
	Stopped bool                 `json:"stopped,omitempty"` // an alarm has ended the run
	Windows map[string][]float64 `json:"windows,omitempty"` // by alarm: the values looked at together, the newest last
}

type watched struct {
	alarmKind
	action string
	factor float64
}

// NewWatch begins to watch.
func NewWatch(alarms []Alarm) *Watch {
	w := &Watch{WatchState: WatchState{Rate: 1}}
	for _, a := range alarms {
		kind, _ := alarmNamed(a.Name)
		one := watched{alarmKind: kind, action: a.Action, factor: 0.5}
		if a.Limit != nil {
			one.limit = *a.Limit
		}
		if a.Updates != nil {
			one.updates = *a.Updates
		}
		if a.Factor != nil {
			one.factor = *a.Factor
		}
		w.watched = append(w.watched, one)
	}
	return w
}

// Observe looks at the values of the next update and says which alarms it raises, each with its action. A value that is
// missing counts as not finite for nan, and is passed over by the others.
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

// observe says whether the alarm goes off, and what its window is then. One that went off begins anew.
func (a *watched) observe(window []float64, values map[string]float64) (after []float64, off bool) {
	x, ok := values[a.metric]
	finite := ok && isFinite(x)
	if a.name == AlarmNaN {
		if loss, ok := values["loss"]; finite && ok && isFinite(loss) {
			return nil, false
		}
		x = 0
	} else if !finite {
		return window, false
	}
	after = append(slices.Clone(window), x)
	after = after[max(0, len(after)-a.updates):]
	if a.name == AlarmSpike {
		return after, len(window) == a.updates && x > a.limit*median(window)
	}
	off = len(after) == a.updates
	switch a.name {
	case AlarmGap, AlarmEntropy:
		off = off && mean(after) < a.limit
	case AlarmZeroVariance:
		off = off && mean(after) > a.limit
	}
	if off {
		after = nil
	}
	return after, off
}

func isFinite(x float64) bool { return !math.IsNaN(x) && !math.IsInf(x, 0) }

// median of at least one value; of an even number, the mean of the middle two.
func median(values []float64) float64 {
	sorted := slices.Clone(values)
	slices.Sort(sorted)
	h := 0.5 * float64(len(sorted)-1)
	i := int(h)
	if i+1 >= len(sorted) {
		return sorted[i]
	}
	return sorted[i] + (h-float64(i))*(sorted[i+1]-sorted[i])
}

// mean of at least one value.
func mean(values []float64) float64 {
	sum := 0.0
	for _, x := range values {
		sum += x
	}
	return sum / float64(len(values))
}
