//go:build libtorch

package lm

import (
	"slices"

	"rcgrpo/stages/internal/torch"
	"rcgrpo/stages/rl"
)

// sharedCache contains the keys and values of a decoder's slots, in a buffer of tokens per layer. It is the cache for
// attention of variable lengths: short sequences leave their room to long ones.
type sharedCache struct {
	m *Model
	ranges
	keys, values []*torch.Tensor // per layer [tokens, kvHeads·D]; none before the first request
	err          error           // of a move, after which the content is undefined
}

// reserve makes room for want[slot] tokens in each slot, which holds live[slot]. It fails with rl.ErrNoRoom and without
// an effect if there are too few.
func (p *sharedCache) reserve(s *torch.Scope, live, want []int) error {
	if p.err != nil {
		return p.err
	}
	start, ok := p.place(live, want)
	if !ok {
		return rl.ErrNoRoom
	}
	if p.keys == nil {
		if p.allocate(s); s.Err() != nil {
			return s.Err()
		}
	}
	var from, to []int64
	for slot, n := range live {
		for at := range n {
			if start[slot] == p.start[slot] {
				break
			}
			from, to = append(from, int64(p.start[slot]+at)), append(to, int64(start[slot]+at))
		}
	}
	for l := range p.keys {
		if len(from) > 0 {
			s.MoveRows_(p.keys[l], to, from)
			s.MoveRows_(p.values[l], to, from)
		}
	}
	p.start, p.err = start, s.Err()
	return p.err
}

func (p *sharedCache) allocate(s *torch.Scope) {
	c := p.m.cfg
	make := func() *torch.Tensor {
		return s.Zeros(p.m.kind, int64(p.size), int64(c.KVHeads)*int64(c.HeadDim))
	}
	var keys, values []*torch.Tensor
	for range c.Layers {
		keys, values = append(keys, make()), append(values, make())
	}
	if s.Err() == nil {
		s.Keep(keys...)
		s.Keep(values...)
		p.keys, p.values = keys, values
	}
}

func (p *sharedCache) prefix(s *torch.Scope, l, slot, n int) (keys, values *torch.Tensor) {
	start := int64(p.start[slot])
	return s.Narrow(p.keys[l], 0, start, int64(n)), s.Narrow(p.values[l], 0, start, int64(n))
}

func (p *sharedCache) attend(s *torch.Scope, l int, qkv *torch.Tensor, rows *stepRows) *torch.Tensor {
	return s.PooledAttention(qkv, rows.slots, rows.positions, p.start, p.keys[l], p.values[l], int64(p.m.cfg.Heads),
		int64(p.m.cfg.KVHeads))
}

func (p *sharedCache) buffers() []*torch.Tensor { return slices.Concat(p.keys, p.values) }
