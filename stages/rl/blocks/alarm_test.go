package blocks

import (
	"math"
	"slices"
	"testing"
)

// raisedAt lists the updates, counted from 1, at which an alarm is raised for the values of its metric.
func raisedAt(a Alarm, metric string, values ...float64) (at []int) {
	a.Action = ActionSkip
	w := NewWatch([]Alarm{a})
	for i, v := range values {
		if _, ok := w.Observe(map[string]float64{metric: v, "loss": 0})[a.Name]; ok {
			at = append(at, i+1)
		}
	}
	return at
}

func TestAlarmsAreRaisedAtTheirLimit(t *testing.T) {
	two, three := 2, 3
	limit := 0.5
	nan := math.NaN()
	for name, tc := range map[string]struct {
		alarm  Alarm
		metric string
		values []float64
		want   []int
	}{
		"a gap that is dead on average": {Alarm{Name: AlarmGap, Updates: &two}, "token_gap",
			[]float64{0.2, 0.01, -0.01, 0.03, 0}, []int{3, 5}},
		"a gap that lives": {Alarm{Name: AlarmGap, Updates: &two}, "token_gap",
			[]float64{0.2, -0.1, 0.2}, nil},
		"too few updates for the gap": {Alarm{Name: AlarmGap}, "token_gap", []float64{0, 0, 0}, nil},
		"nearly all groups without variance": {Alarm{Name: AlarmZeroVariance, Updates: &two},
			"zero_variance", []float64{0.9, 0.95, 1, 0.9}, []int{3}},
		"half of the groups, with that limit": {Alarm{Name: AlarmZeroVariance, Updates: &two, Limit: &limit},
			"zero_variance", []float64{0.5, 0.5, 0.6}, []int{3}},
		"entropy that collapsed": {Alarm{Name: AlarmEntropy, Updates: &two}, "entropy",
			[]float64{0.1, 0.01, 0.005}, []int{3}},
		"a spike above ten medians, once there are three": {Alarm{Name: AlarmSpike, Updates: &three}, "grad_norm",
			[]float64{9, 1, 1, 10, 11, 200}, []int{5, 6}},
		"a norm that is no number": {Alarm{Name: AlarmNaN}, "grad_norm",
			[]float64{1, nan, math.Inf(1), 1}, []int{2, 3}},
		"two in a row": {Alarm{Name: AlarmNaN, Updates: &two}, "grad_norm",
			[]float64{nan, 1, nan, nan, nan}, []int{4}},
		"what is no number has no entropy": {Alarm{Name: AlarmEntropy, Updates: &two}, "entropy",
			[]float64{0, nan, 0}, []int{3}},
	} {
		if got := raisedAt(tc.alarm, tc.metric, tc.values...); !slices.Equal(got, tc.want) {
			t.Errorf("%s: raised at %v, want %v", name, got, tc.want)
		}
	}
	if got := NewWatch([]Alarm{{Name: AlarmNaN, Action: ActionStop}}).Observe(map[string]float64{"grad_norm": 1,
		"loss": nan}); got[AlarmNaN] != ActionStop {
		t.Errorf("a loss that is no number: got %v", got)
	}
}

func TestEachAlarmMultipliesTheRateByItsFactor(t *testing.T) {
	one, factor := 1, 0.1
	w := NewWatch([]Alarm{{Name: AlarmEntropy, Action: ActionLowerRate, Updates: &one},
		{Name: AlarmNaN, Action: ActionLowerRate, Factor: &factor}})
	for i, tc := range []struct{ entropy, norm, want float64 }{{1, 1, 1}, {0, 1, 0.5}, {0, 1, 0.25},
		{1, math.NaN(), 0.025}} {
		w.Observe(map[string]float64{"entropy": tc.entropy, "grad_norm": tc.norm, "loss": 0})
		if math.Abs(w.Rate-tc.want) > 1e-15 {
			t.Errorf("after update %d: got rate %v, want %v", i+1, w.Rate, tc.want)
		}
	}
}
