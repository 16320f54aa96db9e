//go:build libtorch

package lm

import (
	"context"

	"rcgrpo/stages/internal/torch"
)

// cache holds the keys and values of a decoder's slots. It has room for the slots that were asked
// and for the longest sequence among them, and doubles when that is too little, up to what the
// decoder was made for: where episodes are few or short, the rest is never allocated.
type cache struct {
	m            *Model
	slots        int             // with room
	tokens       int             // of each
	keys, values []*torch.Tensor // per layer; none before the first request
}

// grow makes room for so many slots of so many tokens, at most mostSlots and mostTokens, and keeps
// what is there. It copies one layer after the other, so that no more than one is there twice.
// After an error of s what was there is still there.
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

// The axes of positions in keys [slots, heads, width, tokens] and values [slots, heads, tokens, width].
const keyTime, valueTime int64 = 3, 2

// enough is room for want where there is room for have: as it is, or at least twice as much, so
// that copying adds up to no more than what is there, but never more than most.
func enough(have, want, most int) int {
	if want <= have {
		return have
	}
	return min(most, max(want, 2*have))
}

// free gives the memory back. What the slots held is lost.
func (c *cache) free() error {
	err := torch.Do(context.Background(), c.m.device, func(s *torch.Scope) error {
		s.Free(c.keys...)
		s.Free(c.values...)
		return nil
	})
	*c = cache{m: c.m}
	return err
}
