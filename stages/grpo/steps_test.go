//go:build libtorch

package grpo

import (
	"context"
	"errors"
	"math"
	"slices"
	"testing"

	"rcgrpo/internal/must"
	"rcgrpo/stages/internal/lm"
	"rcgrpo/stages/rl"
	"rcgrpo/stages/rl/objective"
)

// several returns a training of a tiny model with one optimizer step per task and two passes.
func several(t *testing.T) *training {
	t.Helper()
	r := alone(t)
	r.settings.Minibatches, r.settings.Passes = 1, 2
	return r
}

// The old policy's logprobs are those of the training forward before the first step, for all steps.
func TestOldPolicyPrecedesTheFirstOptimizerStep(t *testing.T) {
	for _, precision := range []lm.Precision{lm.Float32, lm.BF16} {
		r := several(t)
		must.OK(t, r.run.Trainer.Close())
		// Several micro-batches in a step.
		r.run.Trainer = must.Get(lm.NewTrainer(r.run.Policy.Model, adamW(12), lm.Peers{}))(t)
		must.OK(t, r.run.Policy.Model.Use(precision))
		b := newBatch(conversations(), r.settings.Group)
		must.OK(t, r.settings.completeBatch(t.Context(), r.run.Trainer, r.reference, b))
		parts := b.minibatches(&r.settings.Objective)
		if len(parts) != 2 {
			t.Fatalf("got %d minibatches, want one for each of 2 tasks", len(parts))
		}
		for step := range 4 {
			outcome, _, err := r.settings.accumulate(t.Context(), r.run.Trainer, r.reference, parts[step%2])
			must.OK(t, err)
			moved := slices.ContainsFunc(outcome.LogRatio, func(l float64) bool { return l != 0 })
			if moved != (step > 0) {
				t.Errorf("%s, step %d: log ratios %v, want exactly 0 in the first step and others later", precision, step+1,
					outcome.LogRatio)
			}
			_, _, err = r.run.Trainer.Update(1e-2)
			must.OK(t, err)
		}
	}
}

// The weights after an update of several steps equal, bit for bit, those after steps by hand: the objective on each
// minibatch against the logprobs before the update.
func TestUpdateOfSeveralStepsEqualsTheStepsByHand(t *testing.T) {
	r := several(t)
	r.settings.Temperature, r.settings.Ratio.Level, r.settings.Clip.Low, r.settings.Clip.High = 1, "token", 0.05, 0.05
	b := newBatch(conversations(), r.settings.Group)
	v := map[string]float64{}
	must.OK(t, r.learn(t.Context(), 1, b, v))
	got := weightsOf(t, r)
	if v["clip_fraction"] <= 0 || v["log_ratio_max"] <= 0 || v["skipped"] != 0 {
		t.Errorf("clip_fraction %v, log_ratio_max %v, skipped %v: want ratios that are clipped and no step left out",
			v["clip_fraction"], v["log_ratio_max"], v["skipped"])
	}

	hand := several(t)
	groups := [][]*rl.Trajectory{conversations()[:3], conversations()[3:]}
	var old []lm.TokenStats
	for _, members := range groups {
		stats := must.Get(hand.run.Trainer.Stats(t.Context(), newBatch(members, 3).sequences, nil, 1))(t)
		old = append(old, stats)
	}
	for step := range 4 {
		part := newBatch(groups[step%2], 3)
		part.advantage(&r.settings.Objective, nil)
		must.Get(hand.run.Trainer.Accumulate(t.Context(), part.sequences, hand.reference, 1,
			func(_, _ int, now lm.TokenStats) (lm.Weights, error) {
				part.Logp, part.LogpOld, part.LogpRef = now.Logp, old[step%2].Logp, now.LogpRef
				out, err := r.settings.Objective.Evaluate(&part.Batch, part.totals)
				return lm.Weights{Logp: out.DLogp}, err
			}))(t)
		_, _, err := hand.run.Trainer.Update(r.settings.LR)
		must.OK(t, err)
	}
	if !slices.Equal(got, weightsOf(t, hand)) {
		t.Error("the weights differ from those of the steps by hand")
	}
}

func TestRatiosAndClippingAreLoggedOnlyWhereTheyCanVary(t *testing.T) {
	for name, tc := range map[string]struct {
		change func(r *training)
		logged bool
	}{
		"one step":                  {func(*training) {}, false},
		"two passes":                {func(r *training) { r.settings.Passes = 2 }, true},
		"two minibatches":           {func(r *training) { r.settings.Minibatches = 1 }, true},
		"a minibatch of everything": {func(r *training) { r.settings.Minibatches = 2 }, false},
	} {
		r := alone(t)
		tc.change(r)
		v, _ := update(t, r, 1, rewards(1, 0, 1, 0, 1, 0))
		for _, metric := range []string{"clip_fraction", "log_ratio_p05", "log_ratio_p50", "log_ratio_p95",
			"log_ratio_max"} {
			if _, logged := v[metric]; logged != tc.logged {
				t.Errorf("%s: %s is logged: %v, want %v", name, metric, logged, tc.logged)
			}
		}
		if v["kl_weight"] != r.settings.KL.Beta {
			t.Errorf("%s: kl_weight %v, want beta, %v", name, v["kl_weight"], r.settings.KL.Beta)
		}
	}
}

// If the second step of an update has no finite gradient, that step of each pass is skipped.
func TestStepsWithoutAFiniteGradientAreSkipped(t *testing.T) {
	v, moved := update(t, several(t), 1, func(r *training, list []*rl.Trajectory) {
		rewards(1, 0, 0, 0, 0, 1)(r, list)
		list[3].Reward = rl.Reward(math.Inf(1)) // in the second group
	})
	if !moved || v["skipped"] != 0.5 || v["lr"] != 1e-2 {
		t.Errorf("moved %v, skipped %v, rate %v; want two of four steps", moved, v["skipped"], v["lr"])
	}
}

// callsLeft is a context that is cancelled after a number of calls of Err.
type callsLeft struct {
	context.Context
	n int
}

func (c *callsLeft) Err() error {
	if c.n--; c.n < 0 {
		return context.Canceled
	}
	return nil
}

// A training that is stopped inside a pass does not save its state.
func TestTrainingStoppedInsideAPassIsNotSaved(t *testing.T) {
	inside := 0
	for n := range 1000 {
		r := several(t)
		r.settings.Temperature = 1
		before := weightsOf(t, r)
		err := r.learn(&callsLeft{t.Context(), n}, 1, newBatch(conversations(), r.settings.Group), map[string]float64{})
		if err == nil {
			if inside == 0 {
				t.Error("no interruption lay between two optimizer steps")
			}
			return
		}
		if !errors.Is(err, context.Canceled) {
			t.Fatal(err)
		}
		moved := !slices.Equal(before, weightsOf(t, r))
		if moved != r.run.Ahead {
			t.Errorf("interrupted at look %d: the weights have moved: %v, saving is refused: %v", n, moved, r.run.Ahead)
		}
		if moved {
			inside++
		}
	}
	t.Error("the update never came to an end")
}

// The gradient of two parts is the float32 sum of the gradients of the groups, bit for bit, and the statistics are in
// the order of the batch although the longer second group is the first part.
func TestGradientOfPartsIsTheSumOfTheirGradients(t *testing.T) {
	accumulate := func(parts int, groups ...int) ([]float32, *objective.Outcome, lm.TokenStats) {
		r := alone(t)
		r.settings.GradientParts = parts
		list := conversations()
		b := newBatch(slices.Concat(list[3:], list[:3]), r.settings.Group)
		must.OK(t, r.settings.completeBatch(t.Context(), r.run.Trainer, r.reference, b))
		if groups != nil {
			b = b.partOf(groups)
		}
		outcome, stats, err := r.settings.accumulate(t.Context(), r.run.Trainer, r.reference, b)
		must.OK(t, err)
		return must.Get(r.run.Trainer.Gradient())(t), outcome, stats
	}
	got, outcome, stats := accumulate(2)
	first, _, _ := accumulate(1, 0)
	second, _, _ := accumulate(1, 1)
	for i := range second {
		second[i] += first[i]
	}
	if !slices.Equal(got, second) {
		t.Error("the gradient differs from the sum of both groups")
	}
	_, whole, want := accumulate(1)
	if !slices.Equal(stats.Logp, want.Logp) || !slices.Equal(stats.LogpRef, want.LogpRef) {
		t.Errorf("got logprobs %v, want %v", stats.Logp, want.Logp)
	}
	if math.Abs(outcome.Loss-whole.Loss) > 1e-12 || len(outcome.DLogp) != len(whole.DLogp) {
		t.Errorf("got loss %v, want %v", outcome.Loss, whole.Loss)
	}
}
