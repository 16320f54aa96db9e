package train

import (
	"rcgrpo/stages/internal/lm"
	"rcgrpo/stages/internal/ranks"
)

// EachPart divides a batch into n parts with about equal numbers of packed rows. The items of a batch are groups or
// single trajectories, and a part consists of whole items. EachPart calls f with the indices of the items of each
// part, and returns the statistics of all learned tokens in the order of the batch.
func EachPart(items [][]lm.Sequence, n int, f func(part []int) (lm.TokenStats, error)) (lm.TokenStats, error) {
	rows, first, tokens := make([]int, len(items)), make([]int, len(items)), 0
	for i, sequences := range items {
		rows[i], first[i] = lm.PackedRows(sequences), tokens
		for _, q := range sequences {
			tokens += q.Learned()
		}
	}
	var stats lm.TokenStats // in the order of the parts
	order, next := make([]int, tokens), 0
	for _, part := range ranks.Parts(rows, max(1, n)) {
		got, err := f(part)
		if err != nil {
			return stats, err
		}
		stats.Append(got)
		for _, i := range part {
			for _, q := range items[i] {
				for range q.Learned() {
					order[first[i]] = next
					first[i]++
					next++
				}
			}
		}
	}
	return stats.Reorder(order), nil
}
