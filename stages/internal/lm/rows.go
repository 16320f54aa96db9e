//go:build libtorch

package lm

import (
	"errors"
	"fmt"

	"rcgrpo/stages/internal/torch"
)

// AddRows appends n rows to the embedding and an untied head, each a copy of the first. Earlier trainers and
// decoders of the model must not be used any more.
func (m *Model) AddRows(n int) error {
	cfg := m.cfg
	cfg.Vocab += n
	before, _ := layout(m.cfg)
	after, _ := layout(cfg)
	grown, err := place(cfg, m.device, func(s *torch.Scope, flat *torch.Tensor) {
		old := s.Float32s(m.flat)
		s.Fill(flat, func(flat []float32) error {
			for i, w := range before {
				to := flat[after[i].offset : after[i].offset+after[i].len()]
				from := old[w.offset : w.offset+w.len()]
				copy(to, from)
				for at := len(from); at < len(to); at += cfg.Hidden { // only matrices with a row per token grow
					copy(to[at:], from[:cfg.Hidden])
				}
			}
			return nil
		})
	})
	if err != nil {
		return err
	}
	grown.file = m.file
	if err := errors.Join(grown.Use(m.Precision()), m.Close()); err != nil {
		return err
	}
	*m = *grown
	return nil
}

// CopyRow overwrites vocabulary rows of the embedding and an untied head with a copy of another row. Earlier
// trainers and decoders of the model must not be used any more.
func (m *Model) CopyRow(from int32, to ...int32) error {
	if from < 0 || int(from) >= m.cfg.Vocab {
		return fmt.Errorf("copy vocabulary row %d: the model has rows 0..%d", from, m.cfg.Vocab-1)
	}
	return m.replaceRows(to, func(table, row []float32) { copy(row, table[int(from)*m.cfg.Hidden:]) })
}

// MeanRow overwrites vocabulary rows with the mean of those of the first n rows that are not overwritten.
// Embedding and head have separate means; sums are in float64 in the order of the rows.
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

// replaceRows fills the named rows of each table [Vocab, Hidden].
func (m *Model) replaceRows(ids []int32, fill func(table, row []float32)) error {
	for _, id := range ids {
		if id < 0 || int(id) >= m.cfg.Vocab {
			return fmt.Errorf("replace vocabulary row %d: the model has rows 0..%d", id, m.cfg.Vocab-1)
		}
	}
	weights, _ := layout(m.cfg)
	return m.do(func(s *torch.Scope) {
		for _, w := range weights {
			if w.name != embedName && w.name != headName {
				continue
			}
			part := s.Narrow(m.flat, 0, int64(w.offset), int64(w.len()))
			table, row := s.Float32s(part), make([]float32, m.cfg.Hidden)
			if s.Err() != nil {
				return
			}
			fill(table, row)
			one := s.FromFloat32(row, int64(len(row)))
			for _, id := range ids {
				s.Copy_(s.Narrow(part, 0, int64(id)*int64(len(row)), int64(len(row))), one)
			}
		}
	})
}
