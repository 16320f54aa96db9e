//go:build libtorch

package train

import (
	"context"
	"fmt"

	"rcgrpo/stages/internal/checkpoint"
	"rcgrpo/stages/internal/lm"
	"rcgrpo/stages/internal/ranks"
)

// Parts are the partial gradients of a batch, whose items are groups or single trajectories.
type Parts struct {
	items [][]lm.Sequence
	parts [][]int // indices of the items of each part
}

// NewParts divides a batch into n parts, at least one, of about equal numbers of packed rows.
func NewParts(items [][]lm.Sequence, n int) *Parts {
	rows := make([]int, len(items))
	for i, sequences := range items {
		rows[i] = lm.PackedRows(sequences)
	}
	return &Parts{items, ranks.Parts(rows, max(1, n))}
}

// Each calls f for each part, with the indices of the part's items, and returns the results of all parts in their
// order. In each round every rank calls f for at most one part. With gradients, f accumulates the gradient of its part,
// and the ranks add up their gradients after each round; a single part needs no sum.
func Each[T any](
	ctx context.Context, p *Parts, t *lm.Trainer, gradients bool, f func(part []int) (T, error),
) ([]T, error) {
	n, r := len(p.parts), t.Peers().Rank
	results := make([]T, 0, n)
	for round := range r.Rounds(n) {
		var own T
		var err error
		if part, ok := r.Part(round, n); ok {
			own, err = f(p.parts[part])
		}
		phase := fmt.Sprintf("round %d of %d parts", round+1, n)
		if err := checkpoint.Sync(ctx, r, phase, err); err != nil {
			return nil, err
		}
		all, err := ranks.ShareValues(r, own)
		if err != nil {
			return nil, err
		}
		present := min(r.Count(), n-round*r.Count())
		results = append(results, all[:present]...)
		if gradients && n > 1 {
			if err := t.EndRound(present); err != nil {
				return nil, err
			}
		}
	}
	return results, nil
}

// Stats returns the statistics of all tokens of the mask in the order of the batch, given those of each part.
func (p *Parts) Stats(parts []lm.TokenStats) lm.TokenStats {
	first, tokens := make([]int, len(p.items)), 0
	for i, sequences := range p.items {
		first[i] = tokens
		for _, q := range sequences {
			tokens += q.MaskTokens()
		}
	}
	var all lm.TokenStats // in the order of the parts
	order, next := make([]int, tokens), 0
	for k, part := range p.parts {
		all.Append(parts[k])
		for _, i := range part {
			for _, q := range p.items[i] {
				for range q.MaskTokens() {
					order[first[i]] = next
					first[i]++
					next++
				}
			}
		}
	}
	return all.Reorder(order)
}
