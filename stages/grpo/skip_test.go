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
	"rcgrpo/stages/rl/objective"
)

// alone returns a training of a tiny model on given trajectories.
func alone(t *testing.T) *training {
	t.Helper()
	s := defaults(2)
	s.Group, s.LR = 3, 1e-2
	s.Advantage.Scale = "none"
	return trainingOf(t, tiny(t, 1), s, adamW(lm.DefaultMicroTokens))
}

// trainingOf returns a training of a model, whose reference is the model as it is now.
func trainingOf(t *testing.T, m *lm.Model, s settings, optimizer lm.OptimizerConfig) *training {
	t.Helper()
	job := must.Get(engine.NewJob(engine.JobSetup{Dir: t.TempDir(), Seed: 1}))(t)
	r := &training{settings: &s, tokens: &conditioning{p: 1},
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

// maskTokens counts the mask tokens of an episode.
func maskTokens(e *rl.Trajectory) (n int) {
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
	r.settings.Temperature = 1
	p(r, trajectories)
	before := weightsOf(t, r)
	v = map[string]float64{}
	must.OK(t, r.learn(t.Context(), u, newBatch(trajectories, r.settings.Group), v))
	return v, !slices.Equal(before, weightsOf(t, r))
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
	err := r.learn(t.Context(), 7, newBatch(trajectories, r.settings.Group), map[string]float64{})
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
			got.Text != r.run.Policy.Tokenizer.Decode(want.IDs, false) || len(got.Logp) != maskTokens(want) {
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
	r.settings.KL.Place, r.settings.KL.Estimator = "reward", "k1"
	v, _ := update(t, r, 1, rewards(1, 0, 1, 0, 1, 0))
	if v["kl"] != 0 {
		t.Errorf("against itself: got %v, want 0", v["kl"])
	}
	v, _ = update(t, r, 2, rewards(1, 0, 1, 0, 1, 0))
	n := 0.0
	for _, tr := range conversations() {
		n += float64(maskTokens(tr))
	}
	if want := v["kl_k1"] * n / 6; math.Abs(v["kl"]-want) > 1e-9 || v["kl"] == 0 {
		t.Errorf("after an update: got %v, want the sum of k1 over a trajectory on average, %v", v["kl"], want)
	}
	// A reward term is no KL, and the reward stays that of the verdicts.
	r.settings.RewardTerms = []objective.RewardTerm{{Name: "length", Weight: -0.5}}
	v, _ = update(t, r, 3, rewards(1, 0, 1, 0, 1, 0))
	if want := v["kl_k1"] * n / 6; math.Abs(v["kl"]-want) > 1e-9 || v["reward"] != 0.5 ||
		math.Abs(v["reward_term_length"]+0.5*n/6) > 1e-9 {
		t.Errorf("with a term: kl %v (want %v), reward %v, term %v", v["kl"], want, v["reward"], v["reward_term_length"])
	}
}
