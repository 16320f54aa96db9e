//go:build libtorch

package lm

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"

	"rcgrpo/stages/internal/ranks"
	"rcgrpo/stages/internal/torch"
)

// BlockStates is the number of trained weights from which Save writes blocks; a variable for tests.
var BlockStates int64 = 64 << 20

// Files of a state: one of the optimizer beside those of the model, or ranks.Blocks files, each with the weights and
// moments of a block.
const optimizerFile = "optimizer.safetensors"

func blockFile(dir string, block int) string {
	return filepath.Join(dir, fmt.Sprintf("block.%02d.safetensors", block))
}

// Names of tensors in the files of a state.
const (
	weightsName = "weights"
	adapterName = "adapter"
	moment1Name = "exp_avg"
	moment2Name = "exp_avg_sq"
)

// Save writes everything that Restore needs into dir: weights, moments and counters. It contains no gradient: save
// after Update. All ranks call it. From BlockStates trained weights on, each rank writes the blocks of its shard;
// otherwise it writes its part of common files.
func (t *Trainer) Save(dir string) error {
	if t.n >= BlockStates {
		return t.saveBlocks(dir)
	}
	if t.adapter == nil {
		if err := t.m.Save(dir); err != nil {
			return err
		}
	}
	return t.SaveState(dir)
}

// Restore restores the state that Save wrote, with any number of ranks and any value of BlockStates.
func (t *Trainer) Restore(dir string) error {
	if _, err := os.Stat(blockFile(dir, 0)); err == nil {
		return t.loadBlocks(dir)
	}
	if t.adapter == nil {
		if err := t.m.Restore(dir); err != nil {
			return err
		}
	}
	return t.LoadState(dir)
}

// moments returns the moments by name, each the shard of this rank.
func (t *Trainer) moments() map[string]*torch.Tensor {
	return map[string]*torch.Tensor{moment1Name: t.m1, moment2Name: t.m2}
}

func (t *Trainer) counters() map[string]string {
	return map[string]string{"step": strconv.Itoa(t.step), "skipped_in_a_row": strconv.Itoa(t.skippedRow)}
}

// setCounters reads the counters in the header of a file.
func (t *Trainer) setCounters(r *weightsReader) error {
	step, err := strconv.Atoi(r.metadata["step"])
	skipped, err2 := strconv.Atoi(r.metadata["skipped_in_a_row"])
	if err := errors.Join(err, err2); err != nil {
		return fmt.Errorf("%s gives no number of steps or of skipped updates: %w", r.path, err)
	}
	t.step, t.skippedRow = step, skipped
	return nil
}

// saveBlocks writes the blocks of this rank's shard.
func (t *Trainer) saveBlocks(dir string) error {
	first, last := ranks.BlocksOf(t.peers.Rank.Index(), t.peers.Rank.Count())
	start, _ := t.shard()
	tensors := t.moments()
	tensors[weightsName] = t.p
	err := t.m.do(func(s *torch.Scope) {
		for block := first; block < last && s.Err() == nil; block++ {
			from, to := ranks.Block(t.n, block)
			written := map[string]writtenTensor{}
			for name, x := range tensors {
				written[name] = inPieces(s, weight{shape: []int{int(to - from)}}, func(s *torch.Scope, at,
					n int) (int, *torch.Tensor) {
					return at, s.Narrow(t.own(s, x), 0, from-start+int64(at), int64(n))
				})
			}
			metadata := t.counters()
			metadata["trained"] = strconv.FormatInt(t.n, 10)
			if err := writeSafetensors(nil, blockFile(dir, block), written, metadata); err != nil {
				s.Fail(err)
			}
		}
	})
	if err != nil {
		return fmt.Errorf("save state: %w", err)
	}
	return nil
}

// loadBlocks reads the weights of all blocks, and the moments of this rank's.
func (t *Trainer) loadBlocks(dir string) error {
	first, last := ranks.BlocksOf(t.peers.Rank.Index(), t.peers.Rank.Count())
	err := t.m.do(func(s *torch.Scope) {
		for block := range ranks.Blocks {
			if err := t.loadBlock(s, dir, block, first <= block && block < last); err != nil {
				s.Fail(err)
				return
			}
		}
		t.restored(s)
	})
	if err != nil {
		return fmt.Errorf("load state: %w", err)
	}
	return nil
}

func (t *Trainer) loadBlock(s *torch.Scope, dir string, block int, own bool) error {
	r, err := openWeights(blockFile(dir, block))
	if err != nil {
		return err
	}
	defer r.close()
	start, _ := t.shard()
	from, to := ranks.Block(t.n, block)
	shape := []int{int(to - from)}
	if got, want := r.metadata["trained"], strconv.FormatInt(t.n, 10); got != want {
		return fmt.Errorf("%s is no state of this model: it is of %s trained weights, want %s", r.path, got, want)
	}
	err = eachPiece(shape[0], 1, func(at, n int) error {
		part := func(name string) func(into []float32) error {
			return func(into []float32) error { return r.read(name, shape, at, into) }
		}
		s.Nest(func(s *torch.Scope) {
			if t.adapter != nil {
				s.Fill(s.Narrow(t.p, 0, from+int64(at), int64(n)), part(weightsName))
			} else {
				t.m.set(s, int(from)+at, n, part(weightsName))
			}
			for name, x := range t.moments() {
				if own {
					s.Fill(s.Narrow(x, 0, from-start+int64(at), int64(n)), part(name))
				}
			}
		})
		return s.Err()
	})
	if err != nil {
		return err
	}
	return t.setCounters(r)
}

// restored drops the gradient of the weights before, and updates what passes read.
func (t *Trainer) restored(s *torch.Scope) {
	t.endGradient(s)
	if t.adapter != nil {
		t.adapter.merge(s)
	}
}

// SaveState writes the state beside the model's weights into dir: moments, counters, and an adapter. It contains no
// gradient: save after Update. All ranks call it, and each writes its shard; only dir of rank 0 counts.
func (t *Trainer) SaveState(dir string) error {
	if t.peers.Rank.Index() == 0 {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return fmt.Errorf("save optimizer: %w", err)
		}
	}
	tensors := t.moments()
	if t.adapter != nil {
		tensors[adapterName] = t.adapter.flat
	}
	err := t.m.do(func(s *torch.Scope) {
		state := map[string]writtenTensor{}
		for name, x := range tensors {
			state[name] = inPieces(s, weight{shape: []int{int(t.n)}}, func(s *torch.Scope, from, n int) (int,
				*torch.Tensor) {
				first, part := t.ownPart(s, x, int64(from), int64(n))
				return int(first), part
			})
		}
		if err := writeSafetensors(t.peers.Rank, filepath.Join(dir, optimizerFile), state, t.counters()); err != nil {
			s.Fail(err)
		}
	})
	if err != nil {
		return fmt.Errorf("save optimizer: %w", err)
	}
	return nil
}

// LoadState restores the state that SaveState wrote for a model of the same size.
func (t *Trainer) LoadState(dir string) error {
	state, err := openWeights(filepath.Join(dir, optimizerFile))
	if err != nil {
		return fmt.Errorf("load optimizer: %w", err)
	}
	defer state.close()
	tensors, shape := t.moments(), []int{int(t.n)}
	if t.adapter != nil {
		tensors[adapterName] = t.adapter.flat
	}
	for name := range tensors {
		if err := state.has(name, shape); err != nil {
			return fmt.Errorf("load optimizer: %s is no state of this model: %w", state.path, err)
		}
	}
	err = t.m.do(func(s *torch.Scope) {
		for name, x := range tensors {
			start, _ := t.shard()
			if name == adapterName { // whole in every rank
				start = 0
			}
			err := eachPiece(x.Len(), 1, func(from, n int) error {
				s.Fill(s.Narrow(x, 0, int64(from), int64(n)), func(into []float32) error {
					return state.read(name, shape, int(start)+from, into)
				})
				return s.Err()
			})
			if err != nil {
				return
			}
		}
		t.restored(s)
	})
	if err == nil {
		err = t.setCounters(state)
	}
	if err != nil {
		return fmt.Errorf("load optimizer: %w", err)
	}
	return nil
}
