package grpo

import (
	"fmt"
	"slices"

	"rcgrpo/stages/internal/lm"
	"rcgrpo/stages/rl"
	"rcgrpo/stages/rl/objective"
)

// updateBatch is the input of one update or of one optimizer step: trajectories of whole groups. A trajectory is one
// row, and each segment of an agent a further one with the same advantage. The flat lists contain N tokens of the mask,
// ordered by row.
type updateBatch struct {
	objective.Batch // input of the loss for the rows [R], without Logp; LogpOld is nil in the only step of an update

	trajectories []*rl.Trajectory // [B]
	size         int              // trajectories of a group
	rows         []*rl.Trajectory // [R] sequences of tokens
	owner        []int            // [R] index of the row's trajectory
	first        []int            // [R] index of its first token of the mask in the flat lists
	sequences    []lm.Sequence    // [R]
	klPenalty    []float64        // [B] subtracted from the rewards (kl.place = "reward"); nil for none
	totals       objective.Totals
	before       lm.TokenStats // before the first step, if the update needs them
}

// newBatch prepares the trajectories of an update for the model. advantage completes the batch.
func newBatch(trajectories []*rl.Trajectory, size int) *updateBatch {
	b := &updateBatch{trajectories: trajectories, size: size}
	b.rows, b.owner = objective.Rows(trajectories)
	sampled := objective.NewBatch(b.rows)
	b.Batch = objective.Batch{Length: sampled.Length, Turn: sampled.Turn, LogpSampled: sampled.Logp}
	first := 0
	for i, t := range b.rows {
		b.sequences = append(b.sequences, lm.Sequence{IDs: t.IDs, Mask: t.Mask})
		b.first = append(b.first, first)
		first += b.Length[i]
	}
	return b
}

// minibatches divides a batch by optimizer step, in order: o.Minibatches groups each, fewer in the last. With 0
// it returns the whole batch. Advantages are computed over the whole batch, so the steps need advantage before this.
func (b *updateBatch) minibatches(o *objective.Objective) (steps []*updateBatch) {
	if o.Minibatches == 0 || o.Minibatches >= b.groups() {
		return []*updateBatch{b}
	}
	groups := make([]int, b.groups())
	for g := range groups {
		groups[g] = g
	}
	for part := range slices.Chunk(groups, o.Minibatches) {
		step := b.partOf(part)
		step.totals = o.Totals(&step.Batch)
		steps = append(steps, step)
	}
	return steps
}

func (b *updateBatch) groups() int { return len(b.trajectories) / b.size }

// partOf returns the batch of some groups, with the advantages and totals of the whole batch if these are known.
func (b *updateBatch) partOf(groups []int) *updateBatch {
	var trajectories []*rl.Trajectory
	for _, g := range groups {
		trajectories = append(trajectories, b.trajectories[g*b.size:(g+1)*b.size]...)
	}
	part := newBatch(trajectories, b.size)
	part.totals = b.totals
	for _, g := range groups {
		for i, owner := range b.owner {
			if owner/b.size != g {
				continue
			}
			if b.Advantage != nil {
				part.Advantage = append(part.Advantage, b.Advantage[i])
			}
			if b.Skip != nil {
				part.Skip = append(part.Skip, b.Skip[i])
			}
			if b.LogpOld != nil {
				part.LogpOld = append(part.LogpOld, b.LogpOld[b.first[i]:][:b.Length[i]]...)
			}
		}
	}
	return part
}

// advantage computes the advantages, given the KL penalty of each row [R], nil for none.
func (b *updateBatch) advantage(o *objective.Objective, klPenalty []float64) {
	b.klPenalty = nil
	if klPenalty != nil {
		b.klPenalty = make([]float64, len(b.trajectories))
	}
	for i, p := range klPenalty {
		b.klPenalty[b.owner[i]] += p
	}
	advantages, skip := o.Advantages(b.trajectories, b.size, b.klPenalty)
	b.Advantage, b.Skip = rl.Select(advantages, b.owner), rl.Select(skip, b.owner)
	b.totals = o.Totals(&b.Batch)
}

// evaluate computes the objective over the rows [first, first+n), given the model's statistics of their
// tokens.
func (b *updateBatch) evaluate(o *objective.Objective, first, n int, s lm.TokenStats) (*objective.Outcome, error) {
	from := b.first[first]
	to := from + len(s.Logp)
	if last := first + n - 1; to != b.first[last]+b.Length[last] {
		return nil, fmt.Errorf("rows %d to %d: the model has %d tokens of the mask, want %d",
			first, last, len(s.Logp), b.first[last]+b.Length[last]-from)
	}
	part := objective.Batch{Length: b.Length[first : first+n], Advantage: b.Advantage[first : first+n],
		Turn: b.Turn[from:to], LogpSampled: b.LogpSampled[from:to],
		Logp: s.Logp, LogpOld: s.Logp, LogpRef: s.LogpRef, KL: s.KL, Entropy: s.Entropy}
	if b.LogpOld != nil {
		part.LogpOld = b.LogpOld[from:to]
	}
	if b.Skip != nil {
		part.Skip = b.Skip[first : first+n]
	}
	return o.Evaluate(&part, b.totals)
}
