package grpo

import (
	"fmt"
	"slices"

	"rcgrpo/stages/internal/lm"
	"rcgrpo/stages/rl"
	"rcgrpo/stages/rl/objective"
)

// updateBatch is the input of one update or of one optimizer step: trajectories of whole groups. A trajectory is one
// row, and each segment of an agent a further one with the same advantage. The flat lists contain N action tokens,
// ordered by row.
type updateBatch struct {
	trajectories []*rl.Trajectory // [B]
	size         int              // of a group
	rows         []*rl.Trajectory // [R] sequences of tokens
	owner        []int            // [R] index of the row's trajectory
	length       []int            // [R] action tokens of each row
	first        []int            // [R] index of its first action token in the flat lists
	turn         []int            // [N] turn of each action token
	logpSampled  []float64        // [N] logprobs of the sampler, for diagnostics and sampler_correction
	logpOld      []float64        // [N] of the old policy; nil in the only step of an update
	sequences    []lm.Sequence    // [R]
	skip         []bool           // [R] excluded from the objective; nil for none
	penalty      []float64        // [B] subtracted from the rewards; nil for none
	advantages   []float64        // [R]
	totals       objective.Totals
	before       lm.TokenStats // before the first step, if the update needs them
}

// newBatch prepares the trajectories of an update for the model. advantage completes the batch.
func newBatch(trajectories []*rl.Trajectory, size int) *updateBatch {
	b := &updateBatch{trajectories: trajectories, size: size}
	b.rows, b.owner = objective.Rows(trajectories)
	sampled := objective.NewBatch(b.rows)
	b.length, b.turn, b.logpSampled = sampled.Length, sampled.Turn, sampled.Logp
	first := 0
	for i, t := range b.rows {
		b.sequences = append(b.sequences, lm.Sequence{IDs: t.IDs, Learn: t.Mask})
		b.first = append(b.first, first)
		first += b.length[i]
	}
	return b
}

// minibatches divides a batch by optimizer step, in order: o.Minibatches groups each, fewer in the last. With 0
// it returns the whole batch. Call advantage first, because advantages are computed over the whole batch.
func (b *updateBatch) minibatches(o *objective.Objective) (steps []*updateBatch) {
	if o.Minibatches == 0 || o.Minibatches >= b.groups() {
		return []*updateBatch{b}
	}
	groups := make([]int, b.groups())
	for g := range groups {
		groups[g] = g
	}
	for part := range slices.Chunk(groups, o.Minibatches) {
		step := b.of(part)
		step.totals = o.Totals(&objective.Batch{Length: step.length, Skip: step.skip, Turn: step.turn})
		steps = append(steps, step)
	}
	return steps
}

func (b *updateBatch) groups() int { return len(b.trajectories) / b.size }

// of returns the batch of some groups, with the advantages and totals of the whole batch if these are known.
func (b *updateBatch) of(groups []int) *updateBatch {
	var rows []int
	var trajectories []*rl.Trajectory
	for _, g := range groups {
		trajectories = append(trajectories, b.trajectories[g*b.size:(g+1)*b.size]...)
		rows = append(rows, b.rowsOf(g)...)
	}
	part := newBatch(trajectories, b.size)
	part.totals = b.totals
	for _, i := range rows {
		if b.advantages != nil {
			part.advantages = append(part.advantages, b.advantages[i])
		}
		if b.skip != nil {
			part.skip = append(part.skip, b.skip[i])
		}
		if b.logpOld != nil {
			part.logpOld = append(part.logpOld, b.logpOld[b.first[i]:][:b.length[i]]...)
		}
	}
	return part
}

// rowsOf returns the rows of a group.
func (b *updateBatch) rowsOf(group int) (rows []int) {
	for i, owner := range b.owner {
		if owner/b.size == group {
			rows = append(rows, i)
		}
	}
	return rows
}

// advantage computes the advantages from the rewards minus a penalty of each row [R], nil for none.
func (b *updateBatch) advantage(o *objective.Objective, penalty []float64) {
	length := make([]int, len(b.trajectories))
	if b.penalty = nil; penalty != nil {
		b.penalty = make([]float64, len(b.trajectories))
	}
	for i, owner := range b.owner {
		length[owner] += b.length[i]
		if penalty != nil {
			b.penalty[owner] += penalty[i]
		}
	}
	advantages, skip := o.Advantages(b.trajectories, b.size, b.penalty, length)
	b.advantages, b.skip = objective.OfRows(advantages, b.owner), objective.OfRows(skip, b.owner)
	b.totals = o.Totals(&objective.Batch{Length: b.length, Skip: b.skip, Turn: b.turn})
}

// evaluate computes the objective over the rows [first, first+n), given the model's statistics of their
// tokens.
func (b *updateBatch) evaluate(o *objective.Objective, first, n int, s lm.TokenStats) (*objective.Outcome, error) {
	from := b.first[first]
	to := from + len(s.Logp)
	if last := first + n - 1; to != b.first[last]+b.length[last] {
		return nil, fmt.Errorf("rows %d to %d: the model has %d action tokens, want %d",
			first, last, len(s.Logp), b.first[last]+b.length[last]-from)
	}
	part := &objective.Batch{Length: b.length[first : first+n], Advantage: b.advantages[first : first+n],
		Turn: b.turn[from:to],
		Logp: s.Logp, LogpOld: s.Logp, LogpSampled: b.logpSampled[from:to], LogpRef: s.LogpRef, KL: s.KL, Entropy: s.Entropy}
	if b.logpOld != nil {
		part.LogpOld = b.logpOld[from:to]
	}
	if b.skip != nil {
		part.Skip = b.skip[first : first+n]
	}
	return o.Evaluate(part, b.totals)
}
