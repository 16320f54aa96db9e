//go:build libtorch

package lm

import (
	"context"
	"fmt"

	"rcgrpo/stages/internal/torch"
)

// CopyRow overwrites vocabulary rows with a copy of another, in the embedding and in the head where it is not tied.
// Trainers and decoders of the model made before must not be used any more.
func (m *Model) CopyRow(from int32, to ...int32) error {
	if from < 0 || int(from) >= m.cfg.Vocab {
		return fmt.Errorf("copy vocabulary row %d: the model has rows 0..%d", from, m.cfg.Vocab-1)
	}
	return m.replaceRows(to, func(table, row []float32) { copy(row, table[int(from)*m.cfg.Hidden:]) })
}

// MeanRow overwrites vocabulary rows with the mean of the first n rows that are not overwritten themselves: those with a
// token, of a matrix that has more. Embedding and head have a mean each; sums are made in float64, in the order of the
// rows.
func (m *Model) MeanRow(n int, to ...int32) error {
	if n < 1 || n > m.cfg.Vocab {
		return fmt.Errorf("mean of %d vocabulary rows: the model has %d", n, m.cfg.Vocab)
	}
	replaced := map[int]bool{}
	for _, id := range to {
		replaced[int(id)] = true
	}
	return m.replaceRows(to, func(table, row []float32) {
		for d := range row {
			sum, rows := 0.0, 0
			for i := range n {
				if !replaced[i] {
					sum += float64(table[i*m.cfg.Hidden+d])
					rows++
				}
			}
			row[d] = float32(sum / float64(max(1, rows)))
		}
	})
}

// replaceRows fills the named rows of each table [Vocab, Hidden] that has one per token.
func (m *Model) replaceRows(ids []int32, fill func(table, row []float32)) error {
	for _, id := range ids {
		if id < 0 || int(id) >= m.cfg.Vocab {
			return fmt.Errorf("replace vocabulary row %d: the model has rows 0..%d", id, m.cfg.Vocab-1)
		}
	}
	flat, err := m.Weights()
	if err != nil {
		return err
	}
	weights, _ := layout(m.cfg)
	for _, w := range weights {
		if w.name != embedName && w.name != headName {
			continue
		}
		table := flat[w.offset : w.offset+w.len()]
		row := make([]float32, m.cfg.Hidden)
		fill(table, row)
		for _, id := range ids {
			copy(table[int(id)*m.cfg.Hidden:], row)
		}
	}
	return torch.Do(context.Background(), m.device, func(s *torch.Scope) error {
		s.Copy_(m.flat, s.FromFloat32(flat, int64(len(flat))))
		return s.Err()
	})
}
