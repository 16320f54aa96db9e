//go:build libtorch

package lm

import (
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
	grown, err := place(cfg, m.device, Buffers{m.Precision(), m.master == nil}, func(s *torch.Scope, grown *Model) error {
		buffers := [][2]*torch.Tensor{{grown.flat, m.flat}}
		if m.master != nil && m.master != m.flat {
			buffers = append(buffers, [2]*torch.Tensor{grown.master, m.master})
		}
		for _, b := range buffers {
			for i, w := range before {
				growRows(s, b[0], after[i], b[1], w)
			}
		}
		if m.vectors != nil {
			s.Copy_(grown.vectors, m.vectors)
		}
		return nil
	})
	if err != nil {
		return err
	}
	grown.file = m.file
	if err := m.Close(); err != nil {
		return err
	}
	*m = *grown
	return nil
}

// growRows copies a weight into a buffer where it may have more rows; these are copies of its first.
func growRows(s *torch.Scope, to *torch.Tensor, after weight, from *torch.Tensor, before weight) {
	s.Nest(func(s *torch.Scope) {
		n, row := int64(before.len()), int64(before.row())
		s.Copy_(s.Narrow(to, 0, int64(after.offset), n), s.Narrow(from, 0, int64(before.offset), n))
		for at := n; at < int64(after.len()); at += row {
			s.Copy_(s.Narrow(to, 0, int64(after.offset)+at, row), s.Narrow(from, 0, int64(before.offset), row))
		}
	})
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
			table, row := s.Float32s(m.exact(s, w, 0, w.len())), make([]float32, m.cfg.Hidden)
			if s.Err() != nil {
				return
			}
			fill(table, row)
			for _, id := range ids {
				m.set(s, w.offset+int(id)*len(row), len(row), func(into []float32) error {
					copy(into, row)
					return nil
				})
			}
		}
	})
}
