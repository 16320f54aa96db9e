//go:build libtorch

package lm

import (
	"math/rand/v2"
	"reflect"
	"slices"
	"testing"

	"rcgrpo/internal/must"
	"rcgrpo/stages/internal/torch"
	"rcgrpo/stages/rl"
)

// wide gives a decoder's cache all its room at once.
func wide(t *testing.T, d *Decoder) *Decoder {
	t.Helper()
	must.OK(t, torch.Do(t.Context(), d.m.device, func(s *torch.Scope) error {
		if err := d.cache.reserve(s, nil, slices.Repeat([]int{d.maxLen}, d.slots)); err != nil {
			s.Fail(err)
		}
		return s.Err()
	}))
	return d
}

// Sequences that start one after another and grow by up to 40 tokens get identical draws from a cache that grows with
// them, from one with all its room from the start, and from one whose memory was released.
func TestGrowingCacheGivesIdenticalLogprobs(t *testing.T) {
	for name, p := range map[string]Precision{"float32": Float32, "bf16": BF16} {
		t.Run(name, func(t *testing.T) {
			m := use(t, shake(t, newModel(t, drillSize(), 1), 2, 0.02), p)
			const slots, length = 9, 300
			play := func(d *Decoder) (all []rl.Draw) {
				r := rand.New(rand.NewPCG(7, 7))
				for round := range 60 {
					var requests []rl.Request
					for slot := range min(slots, 1+round/4) {
						feed := randomIDs(r, 1+r.IntN(40)*r.IntN(2), m.cfg.Vocab)
						if slot < 2 && round == 6 {
							feed = []int32{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, int32(12 + slot)} // new sequences that begin alike
							d.Cut(slot, 0)
						}
						if len(d.held[slot])+len(feed) <= length {
							requests = append(requests, rl.Request{Slot: slot, Feed: feed, Temperature: 1, U: r.Float64()})
						}
					}
					draws := must.Get(d.Next(t.Context(), requests))(t)
					all = append(all, draws...)
				}
				return all
			}
			want := play(wide(t, newDecoder(t, m, slots, length)))
			d := newDecoder(t, m, slots, length)
			for _, when := range []string{"at first", "after it was released"} {
				if got := play(d); !reflect.DeepEqual(got, want) {
					t.Errorf("%s it draws otherwise", when)
				}
				must.OK(t, d.Release())
			}
		})
	}
}

// A cache has room for the slots in use and at most twice their tokens, in the type of products. Release frees all of
// it.
func TestCacheAllocatesForTheRequestsInUse(t *testing.T) {
	bytes := func(d *Decoder) (n int64) {
		number := map[torch.DType]int64{torch.Float32: 4, torch.BFloat16: 2}
		cache := d.cache.(*cache)
		for l := range cache.keys {
			for _, x := range []*torch.Tensor{cache.keys[l], cache.values[l]} {
				n += int64(x.Len()) * number[x.DType()]
			}
		}
		return n
	}
	for _, p := range []Precision{Float32, BF16} {
		m := use(t, newModel(t, drillSize(), 1), p)
		u := Use{Precision: p}
		d := newDecoder(t, m, 64, 384)
		before := torch.Live()
		feed := func(slots, tokens int) {
			t.Helper()
			var requests []rl.Request
			for slot := range slots {
				requests = append(requests, rl.Request{Slot: slot, Feed: make([]int32, tokens)})
			}
			must.Get(d.Next(t.Context(), requests))(t)
		}
		for _, step := range []struct{ slots, tokens, roomSlots, roomTokens int }{
			{3, 20, 3, 20}, {2, 4, 3, 40}, {4, 30, 6, 80}, {4, 9, 6, 80}, {4, 150, 6, 213}, {7, 100, 12, 384}, {13, 1, 24,
				384}, {64, 2, 64, 384},
		} {
			feed(step.slots, step.tokens)
			want := int64(step.roomSlots) * int64(cacheLength(step.roomTokens)) * m.cfg.kvToken(u.bytes())
			if got := bytes(d); got != want {
				t.Errorf("%s, %d slots fed %d more: got %d bytes, want the %d of %d slots and %d tokens", p, step.slots,
					step.tokens, got, want, step.roomSlots, step.roomTokens)
			}
		}
		must.OK(t, d.Release())
		if got := torch.Live(); got != before || bytes(d) != 0 || len(d.held[0]) != 0 {
			t.Errorf("%s: after Release %d handles are alive, want %d", p, got, before)
		}
	}
}
