//go:build libtorch

package grpo

import (
	"context"
	"fmt"
	"slices"

	"rcgrpo/stages/internal/lm"
	"rcgrpo/stages/rl"
)

// batch is the material of one update: trajectories of whole groups, one after the other.
type batch struct {
	trajectories []*rl.Trajectory
	group        []int // [B] number of each trajectory's group
	rewards      []float64
	advantages   []float64
	sequences    []lm.Sequence
	tokens       []tokenRange // [B] action tokens of each trajectory, as positions in the flat lists
	turn         []int        // [N] turn of each action token
	logpSampled  []float64    // [N] the sampler's log-probability, for comparison only
}

type tokenRange struct{ from, to int }

// newBatch lays the trajectories of an update out for the model and computes their advantages. A trajectory with KL in
// its reward has that already taken off.
func newBatch(o *rl.Objective, trajectories []*rl.Trajectory, group int) *batch {
	b := &batch{trajectories: trajectories}
	for i, t := range trajectories {
		b.group = append(b.group, i/group)
		b.rewards = append(b.rewards, t.Reward)
		b.sequences = append(b.sequences, lm.Sequence{IDs: t.IDs, Learn: t.Mask})
		from := len(b.turn)
		for _, m := range t.Messages {
			for k := m.From; k < m.To; k++ {
				if t.Mask[k] {
					b.turn = append(b.turn, m.Turn)
					b.logpSampled = append(b.logpSampled, float64(t.Logp[k]))
				}
			}
		}
		b.tokens = append(b.tokens, tokenRange{from, len(b.turn)})
	}
	b.advantages = o.Advantage.Of(b.group, b.rewards, b.lengths())
	return b
}

func (b *batch) lengths() []int {
	n := make([]int, len(b.tokens))
	for i, r := range b.tokens {
		n[i] = r.to - r.from
	}
	return n
}

// equalGroups marks the trajectories of groups whose rewards are all equal.
func (b *batch) equalGroups(group int) []bool {
	equal := make([]bool, 0, len(b.trajectories))
	for members := range slices.Chunk(b.trajectories, group) {
		equal = append(equal, slices.Repeat([]bool{equalRewards(members)}, len(members))...)
	}
	return equal
}

func equalRewards(members []*rl.Trajectory) bool {
	for _, m := range members {
		if m.Reward != members[0].Reward {
			return false
		}
	}
	return true
}

// part cuts the batch's plain numbers for the trajectories [first, first+n) and joins them with what the model says.
// The old policy is the policy itself before its update: its log-probabilities are the training forward's own.
func (b *batch) part(o *rl.Objective, skip []bool, first, n int, s lm.TokenStats) *rl.Batch {
	from, to := b.tokens[first].from, b.tokens[first+n-1].to
	p := &rl.Batch{Length: b.lengths()[first : first+n], Advantage: b.advantages[first : first+n], Turn: b.turn[from:to],
		Logp: s.Logp, LogpOld: s.Logp, LogpRef: s.LogpRef, KL: s.KL, Entropy: s.Entropy}
	if skip != nil {
		p.Skip = skip[first : first+n]
	}
	return p
}

// learn makes the optimizer step of one update and returns the objective's outcome over the whole batch, what the model
// said of each action token, and the gradient norm before clipping.
func (s *settings) learn(ctx context.Context, trainer *lm.Trainer, reference *lm.Model, b *batch, rate float64) (*rl.Outcome, lm.TokenStats, float64, error) {
	var skip []bool
	if s.ZeroVariance == "mask" {
		skip = b.equalGroups(s.Group)
	}
	totals := s.Objective.Totals(&rl.Batch{Length: b.lengths(), Skip: skip, Turn: b.turn})
	outcome := &rl.Outcome{}
	stats, err := trainer.Accumulate(ctx, b.sequences, reference, s.Temperature, func(first, n int, st lm.TokenStats) (lm.Weights, error) {
		part, err := s.Objective.Evaluate(b.part(&s.Objective, skip, first, n, st), totals)
		if err != nil {
			return lm.Weights{}, err
		}
		w := lm.Weights{Logp: part.DLogp, KL: part.DKL, Entropy: part.DEntropy}
		outcome.Add(part)
		return w, nil
	})
	if err != nil {
		return nil, stats, 0, err
	}
	norm, _, err := trainer.Update(rate)
	if err != nil {
		return nil, stats, 0, fmt.Errorf("optimizer step: %w", err)
	}
	return outcome, stats, norm, nil
}
