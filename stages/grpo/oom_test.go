//go:build libtorch

package grpo

import (
	"math"
	"testing"

	"rcgrpo/internal/must"
	"rcgrpo/stages/internal/torch"
	"rcgrpo/stages/rl/blocks"
)

// starve makes every matrix product of more than so many rows run out of memory.
func starve(rows int64) (remove func()) {
	return torch.PlantFailure(func(operation string, shapes [][]int64) error {
		if operation == "mm" && shapes[0][0] > rows {
			return torch.ErrOutOfMemory
		}
		return nil
	})
}

// An update that is repeated with half the micro-batch has the metrics and gradient of an update with enough
// memory: nothing of the passes before the failure remains.
func TestAnUpdateWithHalfTheMicroBatchIsTheSameUpdate(t *testing.T) {
	one := func(rows int64) (v map[string]float64, gradient []float32) {
		r := alone(t)
		r.Split = blocks.Split{Mode: blocks.ModeFast, MicroBatch: 4096, OnOOM: blocks.HalveMicroBatch}
		if rows > 0 {
			defer starve(rows)()
		}
		r.Temperature = 1
		v = map[string]float64{}
		b := newBatch(conversations(), r.Group)
		must.OK(t, r.run.WithinMemory(b.sequences, func() error {
			if err := r.prepare(t.Context(), r.run.Trainer, r.reference, b); err != nil {
				return err
			}
			outcome, stats, err := r.accumulate(t.Context(), r.run.Trainer, r.reference, b)
			if err == nil {
				b.describe(&r.Objective, stats, v)
				b.describeOutcome(&r.Objective, outcome, 1, v)
				v["loss"] = outcome.Loss
			}
			return err
		}))
		v["micro_batch"] = float64(r.run.Trainer.MicroTokens())
		gradient = must.Get(r.run.Trainer.Gradient())(t)
		return v, gradient
	}
	want, whole := one(0)
	got, halved := one(24)
	if want["micro_batch"] != 4096 || got["micro_batch"] >= 60 {
		t.Errorf("micro_batch: got %v without and %v with too little memory", want["micro_batch"], got["micro_batch"])
	}
	for name, v := range want {
		if name != "micro_batch" && math.Abs(got[name]-v) > 1e-6*max(1, math.Abs(v)) {
			t.Errorf("%s: got %v, want %v", name, got[name], v)
		}
	}
	var far, size float64
	for i, g := range whole {
		far += math.Pow(float64(halved[i]-g), 2)
		size += math.Pow(float64(g), 2)
	}
	if relative := math.Sqrt(far / size); !(relative < 1e-6) {
		t.Errorf("the gradients differ by %.2g of their norm, want less than 1e-6", relative)
	}
}

func TestOutOfMemoryErrorNamesTheMicroBatch(t *testing.T) {
	for name, tc := range map[string]struct {
		split blocks.Split
		rows  int64
		want  string
	}{
		"stop": {blocks.Split{Mode: blocks.ModeFast, MicroBatch: 4096, OnOOM: "stop"}, 24,
			`or on_oom = "halve_micro_batch" with mode = "fast"`},
		"nothing left to half": {blocks.Split{Mode: blocks.ModeFast, MicroBatch: 4096, OnOOM: blocks.HalveMicroBatch}, 1,
			"every trajectory already had its own pass"},
	} {
		t.Run(name, func(t *testing.T) {
			r := alone(t)
			r.Split, r.Temperature = tc.split, 1
			defer starve(tc.rows)()
			err := r.learn(t.Context(), 1, newBatch(conversations(), r.Group), map[string]float64{})
			must.Match(t, err, tc.want)
			must.Match(t, err, "out of memory")
		})
	}
}
