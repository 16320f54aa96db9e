//go:build libtorch

package torch

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"rcgrpo/internal/must"
)

// oneByOne computes Decode with separate operations.
func oneByOne(s *Scope, d *Decoder, rows *DecoderRows) *Tensor {
	x := s.IndexSelect(d.Embed, 0, s.FromInt64(rows.IDs, int64(len(rows.IDs))))
	for l, w := range d.Layers {
		h, _ := s.RMSNorm(Float32, x, w.Norm1, d.NormEps)
		qkv := s.Linear(h, w.QKV, w.QKVBias)
		if w.QNorm != nil {
			q, k := s.Narrow(qkv, 1, 0, d.Heads*d.D), s.Narrow(qkv, 1, d.Heads*d.D, d.KVHeads*d.D)
			s.Copy_(q, normedHeads(s, q, w.QNorm, d))
			s.Copy_(k, normedHeads(s, k, w.KNorm, d))
		}
		if !w.Unrotated {
			s.Rope_(qkv, d.Heads+d.KVHeads, d.D, rows.Positions, d.Cos, d.Sin, false)
		}
		a := s.CachedAttention(qkv, rows.Slots, rows.Positions, w.Keys, w.Values, d.Heads, d.KVHeads)
		if l == len(d.Layers)-1 {
			if len(rows.Ends) == 0 {
				return nil
			}
			ends := s.FromInt64(rows.Ends, int64(len(rows.Ends)))
			a, x = s.IndexSelect(a, 0, ends), s.IndexSelect(x, 0, ends)
		}
		mid := s.Linear(a, w.O, x)
		h, _ = s.RMSNorm(Float32, mid, w.Norm2, d.NormEps)
		x = s.Linear(s.SwiGLU(s.Linear(h, w.GateUp, nil)), w.Down, mid)
	}
	h, _ := s.RMSNorm(Float32, x, d.Norm, d.NormEps)
	return s.Linear(h, d.Head, nil)
}

// normedHeads normalizes each head of x [N, heads·D].
func normedHeads(s *Scope, x, w *Tensor, d *Decoder) *Tensor {
	y, _ := s.RMSNorm(Float32, s.Contiguous(s.Reshape(x, x.Size(0)*x.Size(1)/d.D, d.D)), w, d.NormEps)
	return s.View(y, x.Size(0), x.Size(1))
}

// randomDecoder returns a decoder with empty caches. All have the same weights. A decoder has biases, or norms of heads
// and a layer without rotary embedding.
func randomDecoder(s *Scope, heads, kvHeads, dim, slots, length int64, bias bool) *Decoder {
	const hidden, mlp, vocabulary, layers = 40, 56, 70, 3
	r := rand.New(rand.NewPCG(3, 3))
	d := &Decoder{Heads: heads, KVHeads: kvHeads, D: dim, NormEps: 1e-6, Embed: random(s, r, vocabulary, hidden),
		Head: random(s, r, vocabulary, hidden),
		Norm: random(s, r, hidden), Cos: random(s, r, length, dim/2), Sin: random(s, r, length, dim/2)}
	for i := range layers {
		width := (heads + 2*kvHeads) * dim
		l := DecoderLayer{Norm1: random(s, r, hidden), QKV: random(s, r, width, hidden),
			O: random(s, r, hidden, heads*dim), Norm2: random(s, r, hidden),
			GateUp: random(s, r, 2*mlp, hidden), Down: random(s, r, hidden, mlp)}
		if bias {
			l.QKVBias = random(s, r, width)
		} else {
			l.QNorm, l.KNorm, l.Unrotated = random(s, r, dim), random(s, r, dim), i == 1
		}
		l.Keys, l.Values = s.Cache(Float32, slots, kvHeads, dim, length)
		d.Layers = append(d.Layers, l)
	}
	return d
}

// passesOf starts all slots with prefixes of many lengths, some in two passes, and continues with single rows.
func passesOf(slots int, steps int) (passes []*DecoderRows) {
	r := rand.New(rand.NewPCG(4, 4))
	at := make([]int32, slots)
	pass := func(length func(slot int) int, ends bool) {
		p := &DecoderRows{}
		for slot := slots - 1; slot >= 0; slot-- {
			for range length(slot) {
				p.IDs = append(p.IDs, int64(r.IntN(70)))
				p.Slots, p.Positions = append(p.Slots, int32(slot)), append(p.Positions, at[slot])
				at[slot]++
			}
			if n := len(p.IDs); ends && n > 0 && p.Slots[n-1] == int32(slot) {
				p.Ends = append(p.Ends, int64(n-1))
			}
		}
		passes = append(passes, p)
	}
	pass(func(slot int) int { return slot % 3 * 7 }, false)
	pass(func(slot int) int { return 1 + (slot*5)%23 }, true)
	for step := range steps {
		pass(func(slot int) int { return min(1, (slot+step)%5) }, true)
	}
	return passes
}

func TestDecodeIsIdenticalToItsOperations(t *testing.T) {
	eachSet(t, decodeEqualsItsOperations)
}

// decodeEqualsItsOperations tests any number of threads.
func decodeEqualsItsOperations(t *testing.T) {
	before := must.Get(SetThreads(1))(t)
	defer SetThreads(before)
	for _, shape := range []struct{ heads, kvHeads, d, slots int }{{4, 2, 16, 150}, {4, 4, 8, 40}, {7, 1, 8, 33},
		{3, 1, 16, 2}} {
		for _, threads := range []int{1, 2, 3} {
			t.Run(fmt.Sprintf("%v on %d threads", shape, threads), func(t *testing.T) {
				must.Get(SetThreads(threads))(t)
				work(t, func(s *Scope) {
					bias := threads != 2
					make := func() *Decoder {
						return randomDecoder(s, int64(shape.heads), int64(shape.kvHeads), int64(shape.d), int64(shape.slots), 48,
							bias)
					}
					d, other := make(), make()
					for i, pass := range passesOf(shape.slots, 3) {
						logits, ok := s.Decode(d, pass)
						want := oneByOne(s, other, pass)
						if !ok || (logits == nil) != (want == nil) || logits != nil &&
							!slices.Equal(s.Float32s(logits), s.Float32s(want)) {
							t.Errorf("pass %d: other logits than from its operations (%v)", i, s.Err())
							return // Fatalf would end the goroutine of the device, for which the test waits
						}
						for l := range d.Layers {
							if !slices.Equal(s.Float32s(d.Layers[l].Keys), s.Float32s(other.Layers[l].Keys)) ||
								!slices.Equal(s.Float32s(d.Layers[l].Values), s.Float32s(other.Layers[l].Values)) {
								t.Errorf("pass %d: other caches in layer %d", i, l)
								return
							}
						}
					}
				})
			})
		}
	}
}

// A part consists of whole slots. If the parts would be too uneven, all threads share one.
func TestPartsOfAPass(t *testing.T) {
	rows := func(lengths ...int) *DecoderRows {
		r := &DecoderRows{}
		for slot, n := range lengths {
			for i := range n {
				r.IDs, r.Slots, r.Positions = append(r.IDs, 0), append(r.Slots, int32(slot)), append(r.Positions, int32(i))
			}
		}
		return r
	}
	for _, c := range []struct {
		rows    *DecoderRows
		threads int
		want    []int64
	}{
		{rows(16, 16), 2, []int64{0, 16, 32}},
		{rows(16, 16), 1, []int64{0, 32}},
		{rows(slices.Repeat([]int{1}, 32)...), 2, []int64{0, 16, 32}},
		{rows(slices.Repeat([]int{1}, 50)...), 3, []int64{0, 17, 33, 50}},
		{rows(10, 10), 2, []int64{0, 20}},                                       // too few
		{rows(40), 2, []int64{0, 40}},                                           // one slot
		{rows(50, 10), 2, []int64{0, 60}},                                       // too uneven
		{rows(17, 18, 17), 3, []int64{0, 17, 35, 52}},                           //
		{rows(100, 100, 100, 100, 100, 100), 2, []int64{0, 200, 300, 500, 600}}, // more parts than threads
	} {
		if got := c.rows.parts(c.threads); !slices.Equal(got, c.want) {
			t.Errorf("%d rows on %d threads: got parts %v, want %v", len(c.rows.IDs), c.threads, got, c.want)
		}
	}
}

func TestDecodeRefusesOperandsOutOfRange(t *testing.T) {
	for want, change := range map[string]func(s *Scope, d *Decoder, r *DecoderRows){
		"index 70 lies outside":            func(_ *Scope, _ *Decoder, r *DecoderRows) { r.IDs[1] = 70 },
		"index 3 lies outside":             func(_ *Scope, _ *Decoder, r *DecoderRows) { r.Ends[0] = 3 },
		"slots: index 2 lies outside":      func(_ *Scope, _ *Decoder, r *DecoderRows) { r.Slots[2] = 2 },
		"positions: index 48 lies outside": func(_ *Scope, _ *Decoder, r *DecoderRows) { r.Positions[1] = 48 },
		"the ends [2 0] are not in order": func(_ *Scope, _ *Decoder, r *DecoderRows) {
			r.Ends = []int64{2, 0}
		},
		"3 tokens for 2 slots": func(_ *Scope, _ *Decoder, r *DecoderRows) {
			r.Slots = r.Slots[:2]
		},
		"take float32 on the CPU": func(s *Scope, d *Decoder, _ *DecoderRows) {
			d.Layers[1].Down = s.Zeros(Int64, 40, 56)
		},
		"has gaps": func(s *Scope, d *Decoder, _ *DecoderRows) {
			d.Layers[1].O = s.T(s.Zeros(Float32, 32, 40))
		},
		"do not hold 2 key heads": func(s *Scope, d *Decoder, _ *DecoderRows) {
			d.Layers[2].Values = d.Layers[2].Keys
		},
		"was freed": func(s *Scope, d *Decoder, _ *DecoderRows) {
			s.Free(d.Layers[0].QKV)
		},
		"3 query heads and 2 key heads": func(_ *Scope, d *Decoder, _ *DecoderRows) { d.Heads = 3 },
	} {
		err := Do(t.Context(), CPU, func(s *Scope) error {
			d, r := randomDecoder(s, 4, 2, 8, 2, 48, true), &DecoderRows{IDs: []int64{0, 1, 2}, Slots: []int32{0, 0, 1},
				Positions: []int32{0, 1, 0}, Ends: []int64{2}}
			change(s, d, r)
			s.Decode(d, r)
			return s.Err()
		})
		must.Match(t, err, want)
	}
}
