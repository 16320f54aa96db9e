//go:build libtorch

package lm

import (
	"context"
	"fmt"
	"os"
	"path/filepath"

	"rcgrpo/stages/internal/torch"
)

// Load reads a folder with config.json and weights in safetensors, in float32, bfloat16 or float16, in one file
// or in shards with an index. It converts the weights piece by piece, so its peak memory is that of the model.
func Load(dir string, device torch.Device, b Buffers) (*Model, error) {
	cfg, file, err := readConfig(dir)
	if err != nil {
		return nil, err
	}
	m, err := place(cfg, device, b, func(s *torch.Scope, m *Model) error { return m.load(s, dir, refuseNonFinite) })
	if err != nil {
		return nil, err
	}
	m.file = file
	return m, nil
}

// load sets all weights from the files of dir. check, which may be nil, gets each piece and the index of its first
// element.
func (m *Model) load(s *torch.Scope, dir string, check func(w weight, from int, values []float32) error) error {
	err := eachWeight(dir, m.cfg, func(r *weightsReader, w weight) error {
		return eachPiece(w.len(), w.row(), func(from, n int) error {
			m.set(s, w.offset+from, n, func(into []float32) error {
				err := r.read(w.name, w.shape, from, into)
				if err != nil || check == nil {
					return err
				}
				return check(w, from, into)
			})
			return s.Err()
		})
	})
	if err != nil {
		return fmt.Errorf("load weights: %w", err)
	}
	return nil
}

// Restore replaces the weights by those that Save wrote into dir for a model of this shape. Trainers of the model
// remain valid.
func (m *Model) Restore(dir string) error {
	saved, err := CheckFolder(dir)
	if err != nil {
		return err
	}
	if got, want := saved.Parameters(), m.cfg.Parameters(); got != want {
		return fmt.Errorf("restore a model from %s: it has %d weights, want %d", dir, got, want)
	}
	return torch.Do(context.Background(), m.device, func(s *torch.Scope) error { return m.load(s, dir, nil) })
}

// Save writes config.json and model.safetensors into dir, which it creates. Equal weights give identical files. All
// ranks of a model that they train call it, and each writes a part of the weights; only dir of rank 0 counts.
func (m *Model) Save(dir string) error {
	writes := m.rank.Index() == 0
	if writes {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return fmt.Errorf("save model: %w", err)
		}
	}
	weights, _ := layout(m.cfg)
	err := m.do(func(s *torch.Scope) {
		tensors := map[string]writtenTensor{}
		for _, w := range weights {
			tensors[w.name] = inPieces(s, w, func(s *torch.Scope, from, n int) (int, *torch.Tensor) {
				return m.ownPart(s, w, from, n)
			})
		}
		if err := writeSafetensors(m.rank, filepath.Join(dir, weightsFile), tensors,
			map[string]string{"format": "pt"}); err != nil {
			s.Fail(err)
		}
	})
	if err == nil && writes {
		err = m.file.write(dir, m.cfg)
	}
	if err != nil {
		return fmt.Errorf("save model: %w", err)
	}
	return nil
}

// ownPart returns the elements that this rank writes of n elements of a weight, from an index on, and the index of the
// first; nil for none. If all ranks have all weights, Rank.Has deals the pieces.
func (m *Model) ownPart(s *torch.Scope, w weight, from, n int) (first int, part *torch.Tensor) {
	at := w.offset + from
	if m.sharded != nil {
		start, part := m.sharded.ownPart(s, m.sharded.p, int64(at), int64(n))
		return int(start) - w.offset, part
	}
	if !m.rank.Has(at / pieceLen) {
		return 0, nil
	}
	return from, m.exact(s, w, from, n)
}

// inPieces is a tensor to write; part returns what this process writes of n elements from an index on in float32, and
// the index of its first element, or nil.
func inPieces(s *torch.Scope, w weight, part func(s *torch.Scope, from, n int) (int, *torch.Tensor)) writtenTensor {
	return writtenTensor{w.shape, func(write func(int, []float32) error) error {
		return eachPiece(w.len(), w.row(), func(from, n int) (err error) {
			s.Nest(func(s *torch.Scope) {
				first, x := part(s, from, n)
				if x == nil {
					err = s.Err()
					return
				}
				values := s.Float32s(x)
				if err = s.Err(); err == nil {
					err = write(first, values)
				}
			})
			return err
		})
	}}
}
