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
// and the optimizer's state of its shard. The ranks call EndRound, Norm, Update, SaveState and Save in the same order,
// and their updates are, bit for bit, those of one rank.
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
		if t.startRound(s); s.Err() != nil {
			return
		}
		switch {
		case t.peers.Group != nil:
			t.exchange(s, n)
		case t.sum != nil:
			s.Add_(t.sum, t.grad)
		}
		if t.ended = t.sum == nil; !t.ended {
			s.Zero_(t.grad)
		}
	})
	if err != nil {
		return fmt.Errorf("sum of partial gradients: %w", err)
	}
	return nil
}

// startRound allocates a gradient unless there is one, and makes it zeros after the first round: then the sum of the
// rounds is in memory of its own.
func (t *Trainer) startRound(s *torch.Scope) {
	if t.startGradient(s); !t.ended {
		return
	}
	from, to := t.shard()
	sum := s.Empty(torch.Float32, to-from)
	s.Copy_(sum, t.own(s, t.grad))
	s.Zero_(t.grad)
	if s.Err() == nil {
		s.Keep(sum)
		t.sum, t.ended = sum, false
	}
}

// exchange sends each rank its shard of this rank's gradient, and adds the shards of the first n ranks to the sum, in
// the order of ranks. In the first round, the sum takes the place of this rank's shard of the gradient.
func (t *Trainer) exchange(s *torch.Scope, n int) {
	count, total := t.peers.Rank.Count(), t.total(s)
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
			sum := s.Narrow(total, 0, min(at, total.Size(0)), own)
			if t.sum == nil {
				s.Zero_(sum) // its numbers have been sent
			}
			for r := range n {
				s.Add_(sum, s.Narrow(all, 0, int64(r)*own, own))
			}
		})
	}
}

// total returns the gradient of an update, with several ranks its shard.
func (t *Trainer) total(s *torch.Scope) *torch.Tensor {
	if t.sum != nil {
		return t.sum
	}
	return t.own(s, t.grad)
}

// Norm returns the global norm of the accumulated gradient in float64; NaN or infinite if the gradient is. The norm of
// a sum of partial gradients is added up by block.
func (t *Trainer) Norm() (float64, error) {
	var squares []byte
	err := t.m.do(func(s *torch.Scope) {
		if t.startGradient(s); t.sum == nil && !t.ended {
			squares = binary.LittleEndian.AppendUint64(nil, math.Float64bits(s.SquareSum(t.grad)))
			return
		}
		start, _ := t.shard()
		total := t.total(s)
		first, last := ranks.BlocksOf(t.peers.Rank.Index(), t.peers.Rank.Count())
		for b := first; b < last; b++ {
			from, to := ranks.Block(t.n, b)
			square := 0.0
			if to > from {
				square = s.SquareSum(s.Narrow(total, 0, from-start, to-from))
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

// ownPart returns the numbers of the shard of x, a buffer of all trained weights or a shard, that are among n numbers
// from offset at on, and the offset of the first; nil for none.
func (t *Trainer) ownPart(s *torch.Scope, x *torch.Tensor, at, n int64) (first int64, part *torch.Tensor) {
	start, end := t.shard()
	from, to := max(start, at), min(end, at+n)
	if to <= from {
		return 0, nil
	}
	return from, s.Narrow(t.own(s, x), 0, from-start, to-from)
}

// setShard copies float32 weights x [n] from offset at on into the shard, as far as they belong to it.
func (t *Trainer) setShard(s *torch.Scope, at int64, x *torch.Tensor) {
	start, end := t.shard()
	if from, to := max(start, at), min(end, at+x.Size(0)); to > from {
		s.Copy_(s.Narrow(t.p, 0, from-start, to-from), s.Narrow(x, 0, from-at, to-from))
	}
}
