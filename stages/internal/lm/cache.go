//go:build libtorch

package lm

import (
	"slices"

	"rcgrpo/stages/internal/torch"
)

// cache contains the keys and values of a decoder's slots. It has room for the slots in use and for the longest
// sequence, and doubles up to the decoder's limits, so few or short episodes allocate little.
type cache struct {
	m                     *Model
	mostSlots, mostTokens int

	slots        int             // allocated
	tokens       int             // allocated per slot
	keys, values []*torch.Tensor // per layer; none before the first request
}

// reserve makes room for want[slot] tokens in each slot. It copies one layer at a time, so at most one layer exists
// twice. After an error of s the old content is intact.
func (c *cache) reserve(s *torch.Scope, _, want []int) error {
	slots, tokens := 0, slices.Max(want)
	for slot, n := range want {
		if n > 0 {
			slots = slot + 1
		}
	}
	if slots <= c.slots && tokens <= c.tokens {
		return nil
	}
	slots, tokens = enough(c.slots, slots, c.mostSlots), enough(c.tokens, tokens, c.mostTokens)
	cfg := c.m.cfg
	if c.keys == nil {
		c.keys, c.values = make([]*torch.Tensor, cfg.Layers), make([]*torch.Tensor, cfg.Layers)
	}
	for l := range cfg.Layers {
		keys, values := s.Cache(c.m.kind, int64(slots), int64(cfg.KVHeads), int64(cfg.HeadDim), int64(cacheLength(tokens)))
		if c.slots > 0 {
			part := func(t *torch.Tensor, time int64) *torch.Tensor {
				return s.Narrow(s.Narrow(t, 0, 0, int64(c.slots)), time, 0, int64(c.tokens))
			}
			s.Nest(func(s *torch.Scope) {
				s.Copy_(part(keys, keyTime), part(c.keys[l], keyTime))
				s.Copy_(part(values, valueTime), part(c.values[l], valueTime))
			})
		}
		if s.Err() != nil {
			return s.Err()
		}
		s.Free(c.keys[l], c.values[l])
		s.Keep(keys, values)
		c.keys[l], c.values[l] = keys, values
	}
	c.slots, c.tokens = slots, tokens
	return nil
}

func (c *cache) prefix(s *torch.Scope, l, slot, n int) (keys, values *torch.Tensor) {
	part := func(t *torch.Tensor, time int64) *torch.Tensor {
		return s.Narrow(s.Narrow(t, 0, int64(slot), 1), time, 0, int64(n))
	}
	return part(c.keys[l], keyTime), part(c.values[l], valueTime)
}

func (c *cache) attend(s *torch.Scope, l int, qkv *torch.Tensor, rows *stepRows) *torch.Tensor {
	return s.CachedAttention(qkv, rows.slots, rows.positions, c.keys[l], c.values[l], int64(c.m.cfg.Heads),
		int64(c.m.cfg.KVHeads))
}

// Axes of positions in keys [slots, heads, width, tokens] and values [slots, heads, tokens, width].
const keyTime, valueTime int64 = 3, 2

// enough returns the new size for want: unchanged if it suffices, otherwise at least doubled, so that copying
// takes amortized constant time, but at most most.
func enough(have, want, most int) int {
	if want <= have {
		return have
	}
	return min(most, max(want, 2*have))
}

func (c *cache) buffers() []*torch.Tensor { return slices.Concat(c.keys, c.values) }
