//go:build libtorch

package lm

import "rcgrpo/stages/internal/torch"

// cache contains the keys and values of a decoder's slots. It has room for the slots in use and for the longest
// sequence, and doubles up to the decoder's limits, so few or short episodes allocate little.
type cache struct {
	m            *Model
	slots        int             // allocated
	tokens       int             // allocated per slot
	keys, values []*torch.Tensor // per layer; none before the first request
}

// grow makes room for so many slots and tokens, at most mostSlots and mostTokens. It copies one layer at a time,
// so at most one layer exists twice. After an error of s the old content is intact.
func (c *cache) grow(s *torch.Scope, slots, mostSlots, tokens, mostTokens int) {
	if slots <= c.slots && tokens <= c.tokens {
		return
	}
	slots, tokens = enough(c.slots, slots, mostSlots), enough(c.tokens, tokens, mostTokens)
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
			return
		}
		s.Free(c.keys[l], c.values[l])
		s.Keep(keys, values)
		c.keys[l], c.values[l] = keys, values
	}
	c.slots, c.tokens = slots, tokens
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

func (c *cache) free() error {
	err := c.m.do(func(s *torch.Scope) {
		s.Free(c.keys...)
		s.Free(c.values...)
		s.Trim()
	})
	*c = cache{m: c.m}
	return err
}
