//go:build libtorch

package lm

import (
	"encoding/binary"
	"fmt"
	"math"

	"rcgrpo/stages/internal/ranks"
	"rcgrpo/stages/internal/torch"
)

// Peers connects the trainer of one rank to those of the others; the zero value has none. Every rank has all weights
// and the optimizer's state of its shard. The ranks call EndRound, Norm, Update, Gradient, SaveState and Save in the
// same order, and their updates are, bit for bit, those of one rank.
type Peers struct {
	Rank  *ranks.Rank
	Group *torch.Group // nil for one rank
}

// Peers returns the other ranks of the trainer.
func (t *Trainer) Peers() Peers { return t.peers }

// shard returns the range of the trained weights that the optimizer of this rank updates.
func (t *Trainer) shard() (from, to int64) {
	return ranks.Shard(t.n, t.peers.Rank.Index(), t.peers.Rank.Count())
}

// own returns the shard of a buffer of all trained weights, and a shard as it is.
func (t *Trainer) own(s *torch.Scope, x *torch.Tensor) *torch.Tensor {
	from, to := t.shard()
	if x.Size(0) == to-from {
		return x
	}
	return s.Narrow(x, 0, from, to-from)
}

// EndRound ends the partial gradients of a round, of which the first n ranks have one; the passes after it belong to
// the next round. The gradient of an update is ((part 0 + part 1) + part 2) + … in float32, for any number of ranks. A
// trainer whose updates have parts calls EndRound after each round; the gradient of Norm, Update and Gradient is then
// the sum of the ended parts.
func (t *Trainer) EndRound(n int) error {
	err := t.m.do(func(s *torch.Scope) {
		t.startGradient(s)
		if t.sum == nil {
			t.startSum(s)
		}
		if s.Err() != nil {
			return
		}
		if t.peers.Group == nil {
			s.Add_(t.sum, t.grad)
		} else {
			t.exchange(s, n)
		}
		s.Zero_(t.grad)
	})
	if err != nil {
		return fmt.Errorf("sum of partial gradients: %w", err)
	}
	return nil
}

func (t *Trainer) startSum(s *torch.Scope) {
	from, to := t.shard()
	sum := s.Zeros(torch.Float32, to-from)
	if s.Err() == nil {
		s.Keep(sum)
		t.sum = sum
	}
}

// exchange sends each rank its shard of this rank's gradient, and adds the shards of the first n ranks to the sum, in
// the order of ranks.
func (t *Trainer) exchange(s *torch.Scope, n int) {
	count := t.peers.Rank.Count()
	for at, more := int64(0), true; more && s.Err() == nil; at += exchangeChunk {
		more = false
		s.Nest(func(s *torch.Scope) {
			var pieces []*torch.Tensor
			lengths := make([]int64, count)
			for r := range count {
				from, to := ranks.Shard(t.grad.Size(0), r, count)
				from = min(to, from+at)
				lengths[r] = min(to-from, exchangeChunk)
				pieces = append(pieces, s.Narrow(t.grad, 0, from, lengths[r]))
				more = more || from+lengths[r] < to
			}
			own, received := lengths[t.peers.Rank.Index()], make([]int64, count)
			for r := range received {
				received[r] = own
			}
			all := s.Empty(torch.Float32, own*int64(count))
			s.Exchange(t.peers.Group, all, s.Cat(0, pieces...), received, lengths)
			for r := range n {
				s.Add_(s.Narrow(t.sum, 0, min(at, t.sum.Size(0)), own), s.Narrow(all, 0, int64(r)*own, own))
			}
		})
	}
}

// total returns the gradient of an update, with several ranks its shard.
func (t *Trainer) total() *torch.Tensor {
	if t.sum != nil {
		return t.sum
	}
	return t.grad
}

// Norm returns the global norm of the accumulated gradient in float64; NaN or infinite if the gradient is. The norm of
// a sum of partial gradients is added up by block.
func (t *Trainer) Norm() (float64, error) {
	var squares []byte
	err := t.m.do(func(s *torch.Scope) {
		if t.startGradient(s); t.sum == nil {
			squares = binary.LittleEndian.AppendUint64(nil, math.Float64bits(s.SquareSum(t.grad)))
			return
		}
		start, _ := t.shard()
		first, last := ranks.BlocksOf(t.peers.Rank.Index(), t.peers.Rank.Count())
		for b := first; b < last; b++ {
			from, to := ranks.Block(t.n, b)
			square := 0.0
			if to > from {
				square = s.SquareSum(s.Narrow(t.sum, 0, from-start, to-from))
			}
			squares = binary.LittleEndian.AppendUint64(squares, math.Float64bits(square))
		}
	})
	if err != nil {
		return 0, err
	}
	lists, err := t.peers.Rank.Share(squares)
	if err != nil {
		return 0, fmt.Errorf("gradient norm: %w", err)
	}
	total := 0.0
	for _, list := range lists {
		for ; len(list) > 0; list = list[8:] {
			total += math.Float64frombits(binary.LittleEndian.Uint64(list))
		}
	}
	return math.Sqrt(total), nil
}

// spread gives all ranks the shards of a buffer x, which starts at offset first of the trained weights and goes to
// their end, each from the rank that owns it.
func (t *Trainer) spread(s *torch.Scope, x *torch.Tensor, first int64) {
	if t.peers.Group == nil {
		return
	}
	for r := range t.peers.Rank.Count() {
		from, to := ranks.Shard(t.n, r, t.peers.Rank.Count())
		if from = max(from, first); to > from {
			s.Broadcast(t.peers.Group, s.Narrow(x, 0, from-first, to-from), r)
		}
	}
}

// spreadWeights gives all ranks the updated weights that passes read.
func (t *Trainer) spreadWeights(s *torch.Scope) {
	if t.m.sharded != t {
		t.spread(s, t.p, 0)
		return
	}
	t.spread(s, t.m.flat, 0)
	t.spread(s, t.m.vectors, int64(vectorsAt(t.m.cfg)))
}

// gather returns n numbers from offset at on of a buffer whose shards are the x of all ranks, which call it together. A
// buffer of all trained weights is whole in every rank.
func (t *Trainer) gather(s *torch.Scope, x *torch.Tensor, at, n int64) *torch.Tensor {
	if t.peers.Group == nil || t.adapter != nil && x == t.p {
		return s.Narrow(x, 0, at, n)
	}
	all := s.Empty(torch.Float32, n)
	for r := range t.peers.Rank.Count() {
		from, to := ranks.Shard(t.n, r, t.peers.Rank.Count())
		start := from
		if from, to = max(from, at), min(to, at+n); to <= from {
			continue
		}
		part := s.Narrow(all, 0, from-at, to-from)
		if r == t.peers.Rank.Index() {
			s.Copy_(part, s.Narrow(x, 0, from-start, to-from))
		}
		s.Broadcast(t.peers.Group, part, r)
	}
	return all
}

// setShard copies float32 weights x [n] from offset at on into the shard, as far as they belong to it.
func (t *Trainer) setShard(s *torch.Scope, at int64, x *torch.Tensor) {
	start, end := t.shard()
	if from, to := max(start, at), min(end, at+x.Size(0)); to > from {
		s.Copy_(s.Narrow(t.p, 0, from-start, to-from), s.Narrow(x, 0, from-at, to-from))
	}
}
