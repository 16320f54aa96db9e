package main

import (
	"testing"

	"rcgrpo/engine/plan"
)

func TestPlanNamesTheSourcesOfGPUHours(t *testing.T) {
	const stated = "at most, by gpu_tokens_per_second of the site file, with episodes of the maximal length"
	for name, tc := range map[string]struct {
		forecast plan.Forecast
		want     string
	}{
		"measured": {plan.Forecast{GPUHours: 3}, "measured in earlier runs"},
		"stated":   {plan.Forecast{GPUHours: 3, Stated: 3}, stated},
		"both":     {plan.Forecast{GPUHours: 3.5, Stated: 3}, "0.5 measured in earlier runs and 3 " + stated},
	} {
		if got := hoursFrom(tc.forecast); got != tc.want {
			t.Errorf("%s: got %q, want %q", name, got, tc.want)
		}
	}
}
