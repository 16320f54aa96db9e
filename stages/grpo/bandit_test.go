//go:build libtorch

package grpo

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"rcgrpo/internal/must"
	"rcgrpo/stages/internal/lm"
	"rcgrpo/stages/rl"
	"rcgrpo/stages/rl/objective"
)

// The bandit has ten arms, the ten tokens of a model's vocabulary. An episode is one prompt and one token; it
// earns 1 if that is the winning token.
const (
	banditArms  = 10
	banditWin   = 7
	banditGroup = 8
)

// bandit is a training on the bandit. Its prompts are the tokens 0 (none), 1 (high) and 2 (low).
func bandit(t *testing.T, change func(s *settings)) *training {
	t.Helper()
	s := defaults(4)
	s.Group, s.LR, s.Updates = banditGroup, 1e-2, 40
	change(&s)
	m := must.Get(lm.New(lm.Config{Decoder: "qwen2", Vocab: banditArms, Hidden: 16, Layers: 1, Heads: 2, KVHeads: 1,
		HeadDim: 8, MLP: 16, RopeBase: 1000,
		NormEps: 1e-6, MaxPosition: 8}, rand.New(rand.NewPCG(1, 5))))(t)
	t.Cleanup(func() { m.Close() })
	o := s.Optimizer
	return trainingOf(t, m, s, lm.OptimizerConfig{Beta1: 0.9, Beta2: o.Beta2, Eps: o.Eps, Decay: o.WeightDecay,
		Clip: o.ClipNorm, MicroTokens: s.MicroBatch})
}

var banditPrompts = map[string]int32{rl.TokenNone: 0, rl.TokenHigh: 1, rl.TokenLow: 2}

// chances are the policy's probabilities of the arms after a prompt.
func chances(t *testing.T, m *lm.Model, token string) (p [banditArms]float64) {
	t.Helper()
	var all []lm.Sequence
	for arm := range int32(banditArms) {
		all = append(all, lm.Sequence{IDs: []int32{banditPrompts[token], arm}, Mask: []bool{false, true}})
	}
	stats := must.Get(m.Stats(t.Context(), all, nil, 1))(t)
	for arm, logp := range stats.Logp {
		p[arm] = math.Exp(logp)
	}
	return p
}

// success trains on the bandit with the given reward of the winning token, and returns the probability of winning
// before and after under a token. allocation returns the tokens of a group.
func success(t *testing.T, token string, allocation func(update int, key string) []string, reward rl.Reward,
	change func(s *settings)) (before, after float64) {
	t.Helper()
	r := bandit(t, change)
	before = chances(t, r.run.Policy.Model, token)[banditWin]
	for u := 1; u <= r.settings.Updates; u++ {
		var trajectories []*rl.Trajectory
		p := map[string][banditArms]float64{}
		for group := range r.settings.Batch {
			for member, given := range allocation(u, string(rune('a'+group))) {
				if _, known := p[given]; !known {
					p[given] = chances(t, r.run.Policy.Model, given)
				}
				draw, arm := rl.Sampling(1, u, string(rune('a'+group)), member).At(0), 0
				for arm < banditArms-1 && draw >= p[given][arm] {
					draw -= p[given][arm]
					arm++
				}
				e := &rl.Trajectory{Task: "bandit", Update: u, Member: member, Token: given, Stop: rl.StopDone,
					IDs: []int32{banditPrompts[given], int32(arm)}, Mask: []bool{false, true}, Logp: []float32{0,
						float32(math.Log(p[given][arm]))},
					Messages: []rl.Message{{Role: rl.RoleUser, From: 0, To: 1}, {Role: rl.RoleAssistant, From: 1, To: 2}}}
				if arm == banditWin {
					e.Reward = reward
				}
				trajectories = append(trajectories, e)
			}
		}
		must.OK(t, r.learn(t.Context(), u, newBatch(trajectories, r.settings.Group), map[string]float64{}))
	}
	return before, chances(t, r.run.Policy.Model, token)[banditWin]
}

func untold(int, string) []string { return slices.Repeat([]string{rl.TokenNone}, banditGroup) }

func conditionedHalf(update int, key string) []string {
	return rl.DrawTokens(rl.AllocationIID, 0.5, banditGroup, 1, update, key)
}

// A wrong sign of the advantage, of a gradient or of the KL term fails this test.
func TestLearningRaisesTheRewardOfABandit(t *testing.T) {
	start := time.Now()
	verl := must.Get(objective.ProfileNamed("verl"))(t)
	for name, tc := range map[string]struct {
		token      string
		allocation func(int, string) []string
		reward     rl.Reward
		change     func(s *settings)
		from, to   float64 // where the probability of winning has to end
	}{
		"GRPO":                {rl.TokenNone, untold, 1, func(*settings) {}, 0.9, 1},
		"RC-GRPO, under high": {rl.TokenHigh, conditionedHalf, 1, func(*settings) {}, 0.9, 1},
		"RC-GRPO, under low":  {rl.TokenLow, conditionedHalf, 1, func(*settings) {}, 0.9, 1},
		"verl's conventions":  {rl.TokenNone, untold, 1, func(s *settings) { s.Objective = verl }, 0.9, 1},
		"minibatches and passes": {rl.TokenNone, untold, 1, func(s *settings) { s.Minibatches, s.Passes = 2, 2 },
			0.9, 1},
		"exact KL":                  {rl.TokenNone, untold, 1, func(s *settings) { s.KL.Estimator = "exact" }, 0.9, 1},
		"GRPO held by a large beta": {rl.TokenNone, untold, 1, func(s *settings) { s.KL.Beta = 30 }, 0.05, 0.25},
		"held by a large exact beta": {rl.TokenNone, untold, 1,
			func(s *settings) { s.KL.Beta, s.KL.Estimator = 30, "exact" }, 0.05, 0.25},
		"RC-GRPO held by a large one": {rl.TokenHigh, conditionedHalf, 1, func(s *settings) { s.KL.Beta = 30 }, 0.05, 0.25},
		"a punished token":            {rl.TokenNone, untold, -1, func(*settings) {}, 0, 0.02},
	} {
		before, after := success(t, tc.token, tc.allocation, tc.reward, tc.change)
		t.Logf("%s: %.3f before, %.3f after", name, before, after)
		if before < 0.01 || before > 0.2 {
			t.Errorf("%s: the model begins with %v, want about a tenth, 0.01 to 0.2", name, before)
		}
		if after < tc.from || after > tc.to {
			t.Errorf("%s: the probability of winning went from %v to %v, want between %v and %v", name, before, after,
				tc.from, tc.to)
		}
	}
	t.Logf("%v in all", time.Since(start).Round(time.Millisecond))
}
