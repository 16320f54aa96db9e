//go:build libtorch

package grpo

import (
	"math"
	"path/filepath"
	"slices"
	"testing"

	"rcgrpo/engine"
	"rcgrpo/engine/artifact"
	"rcgrpo/internal/must"
	"rcgrpo/stages/internal/checkpoint"
	"rcgrpo/stages/internal/lm"
	"rcgrpo/stages/internal/resume"
	"rcgrpo/stages/internal/token"
	"rcgrpo/stages/internal/train"
	"rcgrpo/stages/rl"
	"rcgrpo/stages/rl/blocks"
)

// alone returns a training of a tiny model on given trajectories.
func alone(t *testing.T, alarms ...blocks.Alarm) *training {
	t.Helper()
	s := defaults(2)
	s.Group, s.LR, s.Alarms = 3, 1e-2, alarms
	s.Advantage.Scale = "none"
	return trainingOf(t, tiny(t, 1), s, adamW(lm.DefaultMicroTokens))
}

// trainingOf returns a training of a model, whose reference is the model as it is now.
func trainingOf(t *testing.T, m *lm.Model, s settings, optimizer lm.OptimizerConfig) *training {
	t.Helper()
	job := must.Get(engine.NewJob(engine.JobSetup{Dir: t.TempDir(), Seed: 1}))(t)
	r := &training{settings: &s, conditioning: &conditioning{p: 1}, watch: blocks.NewWatch(s.Alarms),
		run: &train.Training{Settings: &s.Settings, Job: job, Policy: &checkpoint.Policy{Model: m, Tokenizer: letters(t)}}}
	r.run.Scratch = must.Get(resume.Open(job.Dir, 0, 0, 0))(t)
	must.Get(r.run.Scratch.Restore(&struct{}{}, nil))(t)
	r.run.Log = must.Get(train.OpenLog(r.run.Scratch))(t)
	r.reference = must.Get(m.Clone())(t)
	r.run.Trainer = must.Get(lm.NewTrainer(m, optimizer, lm.Peers{}))(t)
	t.Cleanup(r.close)
	return r
}

// letters is a tokenizer that can read all tokens of a tiny model.
func letters(t *testing.T) *token.Tokenizer {
	t.Helper()
	return must.Get(token.Train([]string{"a"}, 256, nil))(t)
}

// plant changes the trajectories of an update, or the settings.
type plant func(r *training, trajectories []*rl.Trajectory)

func rewards(list ...rl.Reward) plant {
	return func(_ *training, trajectories []*rl.Trajectory) {
		for i, tr := range trajectories {
			tr.Reward = list[i]
		}
	}
}

func weightsOf(t *testing.T, r *training) []float32 {
	t.Helper()
	return must.Get(r.run.Policy.Model.Weights())(t)
}

// actionTokens counts the action tokens of an episode.
func actionTokens(e *rl.Trajectory) (n int) {
	for _, own := range e.Mask {
		if own {
			n++
		}
	}
	return n
}

// update trains on planted trajectories and returns the logged values and whether the weights changed.
func update(t *testing.T, r *training, u int, p plant) (v map[string]float64, moved bool) {
	t.Helper()
	trajectories := conversations()
	for i, tr := range trajectories {
		tr.Token = []string{rl.TokenHigh, rl.TokenLow}[i%2]
	}
	r.Temperature = 1
	p(r, trajectories)
	before := weightsOf(t, r)
	v = map[string]float64{}
	must.OK(t, r.learn(t.Context(), u, newBatch(trajectories, r.Group), v))
	return v, !slices.Equal(before, weightsOf(t, r))
}

// TestAlarmsExecuteTheirActions plants the trouble of every alarm in the third update and checks weights and rate.
func TestAlarmsExecuteTheirActions(t *testing.T) {
	one, two, nat := 1, 2, 1.0           // a fresh model of 24 tokens has an entropy of about 3
	healthy := rewards(1, 0, 1, 0, 1, 0) // high is right, low is wrong
	for name, tc := range map[string]struct {
		alarm blocks.Alarm
		plant plant
		moves bool // the planted update has a gradient that could be applied
	}{
		"the gap is dead": {blocks.Alarm{Name: blocks.AlarmGap, Updates: &one}, rewards(1, 1, 0, 0, 0, 0), true},
		"no variance":     {blocks.Alarm{Name: blocks.AlarmZeroVariance, Updates: &one}, rewards(1, 1, 1, 0, 0, 0), true},
		"entropy collapses": {blocks.Alarm{Name: blocks.AlarmEntropy, Updates: &one, Limit: &nat},
			func(r *training, list []*rl.Trajectory) {
				healthy(r, list)
				r.Temperature, r.KL.Beta = 0.02, 0 // the divergence of so peaked a policy overflows
			}, true},
		"a spike":          {blocks.Alarm{Name: blocks.AlarmSpike, Updates: &two}, rewards(1000, 0, 0, 0, 1000, 0), true},
		"a NaN":            {blocks.Alarm{Name: blocks.AlarmNaN}, rewards(rl.Reward(math.Inf(-1)), 0, 1, 0, 1, 0), false},
		"an infinite loss": {blocks.Alarm{Name: blocks.AlarmNaN}, rewards(rl.Reward(math.Inf(1)), 0, 1, 0, 1, 0), false},
	} {
		for _, action := range []string{blocks.ActionSkip, blocks.ActionStop, blocks.ActionLowerRate} {
			t.Run(name+", "+action, func(t *testing.T) {
				alarm := tc.alarm
				alarm.Action = action
				r := alone(t, alarm)
				for u := 1; u <= 2; u++ {
					if v, moved := update(t, r, u, healthy); !moved || v["alarm_"+alarm.Name] != 0 || v["skipped"] != 0 ||
						v["lr"] != 1e-2 {
						t.Fatalf("healthy update %d: moved %v, logged alarm %v, skipped %v, rate %v", u, moved,
							v["alarm_"+alarm.Name], v["skipped"], v["lr"])
					}
				}
				v, moved := update(t, r, 3, tc.plant)
				if v["alarm_"+alarm.Name] != 1 {
					t.Fatalf("the alarm is not logged: %v", v)
				}
				wantMoved := action == blocks.ActionLowerRate && tc.moves
				if moved != wantMoved || (v["skipped"] == 1) == wantMoved {
					t.Errorf("planted update: moved %v, skipped %v; want moved %v", moved, v["skipped"], wantMoved)
				}
				if r.watch.Stopped != (action == blocks.ActionStop) {
					t.Errorf("stopped: got %v", r.watch.Stopped)
				}
				wantRate := 1e-2
				if action == blocks.ActionLowerRate {
					wantRate = 5e-3
				}
				if v["lr"] != wantRate && wantMoved {
					t.Errorf("rate of the planted update: got %v, want %v", v["lr"], wantRate)
				}
				if v, moved := update(t, r, 4, healthy); !moved || v["lr"] != wantRate {
					t.Errorf("update after it: moved %v at rate %v, want %v", moved, v["lr"], wantRate)
				}
			})
		}
	}
}

// A skipped batch is stored, and the third in a row ends the training.
func TestBatchesWithoutAFiniteGradientAreStored(t *testing.T) {
	r := alone(t)
	healthy, planted := rewards(1, 0, 1, 0, 1, 0), rewards(1, 0, 1, rl.Reward(math.Inf(1)), 1, 0)
	for u, p := range []plant{healthy, planted, planted, healthy, planted, planted} { // two in a row are not three
		finite := slices.Contains([]int{0, 3}, u)
		if v, moved := update(t, r, u+1, p); moved != finite || (v["skipped"] == 0) != finite || (v["lr"] > 0) != finite {
			t.Errorf("update %d: moved %v, logged %v", u+1, moved, v)
		}
	}
	trajectories := conversations()
	planted(r, trajectories)
	err := r.learn(t.Context(), 7, newBatch(trajectories, r.Group), map[string]float64{})
	path := filepath.Join(r.run.Job.Dir, "rows", "skipped.jsonl")
	must.Match(t, err, "the third time in a row")
	must.Match(t, err, "the skipped batches are in "+path)
	type row struct {
		Update    int
		Reward    any
		Advantage any
		Text      string
		IDs       []int32
		Mask      []bool
		Logp      []any
	}
	var updates []int
	for got, err := range artifact.ReadRows[row](path) {
		must.OK(t, err)
		want := trajectories[len(updates)%len(trajectories)]
		reward := any(float64(want.Reward))
		if math.IsInf(float64(want.Reward), 0) {
			reward = "+Inf"
		}
		if got.Reward != reward || !slices.Equal(got.IDs, want.IDs) || !slices.Equal(got.Mask, want.Mask) ||
			got.Text != r.run.Policy.Tokenizer.Decode(want.IDs, false) || len(got.Logp) != actionTokens(want) {
			t.Errorf("row %d: got %+v", len(updates), got)
		}
		updates = append(updates, got.Update)
	}
	if want := slices.Concat(slices.Repeat([]int{2}, 6), slices.Repeat([]int{3}, 6), slices.Repeat([]int{5}, 6),
		slices.Repeat([]int{6}, 6), slices.Repeat([]int{7}, 6)); !slices.Equal(updates, want) {
		t.Errorf("rows of the updates %v, want %v", updates, want)
	}
}

// With place = "reward" the loss has no KL term, from which the metric would be 0. The penalty of a policy that is its
// reference is exactly 0: one of rounding size would give groups of equal rewards advantages of full size.
func TestKLPenaltyInTheRewardIsLogged(t *testing.T) {
	r := alone(t)
	r.KL.Place, r.KL.Estimator = "reward", "k1"
	v, _ := update(t, r, 1, rewards(1, 0, 1, 0, 1, 0))
	if v["kl"] != 0 {
		t.Errorf("against itself: got %v, want 0", v["kl"])
	}
	v, _ = update(t, r, 2, rewards(1, 0, 1, 0, 1, 0))
	n := 0.0
	for _, tr := range conversations() {
		n += float64(actionTokens(tr))
	}
	if want := v["kl_k1"] * n / 6; math.Abs(v["kl"]-want) > 1e-9 || v["kl"] == 0 {
		t.Errorf("after an update: got %v, want the sum of k1 over a trajectory on average, %v", v["kl"], want)
	}
}
