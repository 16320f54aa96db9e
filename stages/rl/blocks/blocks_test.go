package blocks

import (
	"math"
	"testing"

	"github.com/hashicorp/hcl/v2"

	"rcgrpo/bench/fixtures"
)

func TestSchedulesEqualTransformers(t *testing.T) {
	type record struct {
		ID     string
		Kind   string
		Config struct {
			Name          string
			LR            float64
			Warmup, Total int
			MinLRRate     float64 `json:"min_lr_rate"`
		}
		Out struct{ LR []float64 }
	}
	shapes := map[string]string{"constant": "constant", "constant_with_warmup": "constant", "linear": "linear",
		"cosine": "cosine", "cosine_with_min_lr": "cosine"}
	n := 0
	// Only the fields of a schedule are decoded: other kinds contain non-finite numbers as strings.
	fixtures.Records(t, "rl/optimizer.jsonl", func(raw map[string]any) {
		if raw["kind"] != "schedule" {
			return
		}
		r := fixtures.Decode[record](t, raw)
		s := Schedule{Shape: shapes[r.Config.Name], Warmup: float64(r.Config.Warmup), Final: r.Config.MinLRRate}
		if r.Config.Name == "constant" {
			s.Warmup = 0 // transformers' constant ignores its warm-up
		}
		for i, want := range r.Out.LR {
			if got := s.Rate(i, r.Config.Total, r.Config.LR); math.Abs(got-want) > 1e-12*r.Config.LR {
				t.Errorf("%s %s: update %d: got %v, want %v", r.ID, r.Config.Name, i, got, want)
			}
		}
		n++
	})
	t.Logf("%d schedules", n)
}

func TestWarmupBelowOneIsAShareOfAllUpdates(t *testing.T) {
	half := Schedule{Shape: "constant", Warmup: 0.5}
	for i, want := range []float64{0, 4, 8, 8} {
		if got := half.Rate(i, 4, 8); math.Abs(got-want) > 1e-12 {
			t.Errorf("update %d: got %v, want %v", i, got, want)
		}
	}
}

// Below a thousandth, log-probabilities are not numbers, or 1e23.
func TestTemperaturesBelowAThousandthAreRefused(t *testing.T) {
	for temperature, accepted := range map[float64]bool{0.001: true, 1: true, 0.00099: false, 1e-9: false, 1e-30: false,
		-1: false, math.Inf(1): false, math.NaN(): false} {
		for _, greedy := range []bool{false, true} {
			if got := CheckTemperature(temperature, greedy, hcl.Range{}); got.HasErrors() == accepted {
				t.Errorf("%v: got %v", temperature, got)
			}
		}
	}
	if !CheckTemperature(0, false, hcl.Range{}).HasErrors() || CheckTemperature(0, true, hcl.Range{}).HasErrors() {
		t.Error("0 is for greedy decoding only")
	}
}
