package grpo

import (
	"fmt"
	"slices"

	"rcgrpo/stages/internal/lm"
	"rcgrpo/stages/rl"
)

// batch is the material of one update: trajectories of whole groups, one after the other. Its flat lists hold N action
// tokens, those of one trajectory after those of another.
type batch struct {
	trajectories []*rl.Trajectory
	size         int       // of a group
	length       []int     // [B] action tokens of each trajectory
	first        []int     // [B] place of the first of them in the flat lists
	turn         []int     // [N] turn of each action token
	logpSampled  []float64 // [N] the sampler's log-probability, for comparison only
	sequences    []lm.Sequence
	skip         []bool    // [B] left out of the objective; nil leaves out none
	penalty      []float64 // [B] taken off the rewards; nil for none
	advantages   []float64
	totals       rl.Totals
}

// newBatch lays the trajectories of an update out for the model. advantage completes it.
func newBatch(trajectories []*rl.Trajectory, size int) *batch {
	b := &batch{trajectories: trajectories, size: size}
	for i, t := range trajectories {
		b.sequences = append(b.sequences, lm.Sequence{IDs: t.IDs, Learn: t.Mask})
		b.first = append(b.first, len(b.turn))
		for _, m := range t.Messages {
			for k := m.From; k < m.To; k++ {
				if t.Mask[k] {
					b.turn = append(b.turn, m.Turn)
					b.logpSampled = append(b.logpSampled, float64(t.Logp[k]))
				}
			}
		}
		b.length = append(b.length, len(b.turn)-b.first[i])
	}
	return b
}

// advantage computes the advantages from the rewards less a penalty each [B], nil for none. Groups count as equal by
// their rewards alone, with or without a penalty.
func (b *batch) advantage(o *rl.Objective, penalty []float64) {
	b.penalty = penalty
	b.advantages, b.skip = o.Advantage.OfEpisodes(b.trajectories, b.size, penalty, b.length)
	if o.ZeroVariance == "mask" {
		equal := b.equalGroups()
		for i, without := range b.skip {
			equal[i] = equal[i] || without
		}
		b.skip = equal
	}
	b.totals = o.Totals(&rl.Batch{Length: b.length, Skip: b.skip, Turn: b.turn})
}

// equalGroups marks the trajectories of groups whose rewards are all equal.
func (b *batch) equalGroups() []bool {
	equal := make([]bool, 0, len(b.trajectories))
	for members := range slices.Chunk(b.trajectories, b.size) {
		equal = append(equal, slices.Repeat([]bool{rl.EqualRewards(members)}, len(members))...)
	}
	return equal
}

// evaluate computes the objective over the trajectories [first, first+n), given what the model says of their tokens. The
// old policy is the policy itself before its update: its log-probabilities are the training forward's own.
func (b *batch) evaluate(o *rl.Objective, first, n int, s lm.TokenStats) (*rl.Outcome, error) {
	from := b.first[first]
	to := from + len(s.Logp)
	if last := first + n - 1; to != b.first[last]+b.length[last] {
		return nil, fmt.Errorf("trajectories %d to %d: the model knows %d action tokens, their messages %d", first, last, len(s.Logp), b.first[last]+b.length[last]-from)
	}
	part := &rl.Batch{Length: b.length[first : first+n], Advantage: b.advantages[first : first+n], Turn: b.turn[from:to],
		Logp: s.Logp, LogpOld: s.Logp, LogpRef: s.LogpRef, KL: s.KL, Entropy: s.Entropy}
	if b.skip != nil {
		part.Skip = b.skip[first : first+n]
	}
	return o.Evaluate(part, b.totals)
}
