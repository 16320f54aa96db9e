package blocks

import (
	"math"
	"testing"

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
