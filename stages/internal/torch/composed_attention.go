//go:build libtorch

package torch

import (
	"math"
	"unsafe"
)

// Attention composed of libtorch's: one call per segment or run of rows. The query heads of a key head have their
// own axis, so keys and values are not copied per query head.

// segment is a part of a packing on the device.
type segment struct {
	first, queries int64   // rows of q
	start, length  int64   // rows of k and v, where they follow each other
	path           *Tensor // their indices, where not
	mask           *Tensor // added to the scores [queries, length]; nil where the segment is square and causal
}

func (s *Scope) segments(p *Packing, kind DType) []segment {
	return once(s, source{with: p, what: "segments " + kind.String()}, func(s *Scope) (parts []segment) {
		for i := range len(p.Bounds) - 1 {
			places, path := p.Places[p.QueryBounds[i]:p.QueryBounds[i+1]], p.Path[p.Bounds[i]:p.Bounds[i+1]]
			if len(places) == 0 {
				continue
			}
			path = path[:places[len(places)-1]+1] // no query sees further
			g := segment{first: int64(p.QueryBounds[i]), queries: int64(len(places)), start: int64(path[0]),
				length: int64(len(path))}
			if !consecutive(path) {
				g.path = index(s, path)
			}
			if len(places) != len(path) || !consecutive(places) {
				g.mask = s.causalMask(kind, index(s, places), g.length)
			}
			parts = append(parts, g)
		}
		return parts
	})
}

func consecutive(v []int32) bool {
	for i, x := range v {
		if x != v[0]+int32(i) {
			return false
		}
	}
	return true
}

// causalMask returns [places, length]: 0 up to each place, minus infinity after it.
func (s *Scope) causalMask(kind DType, places *Tensor, length int64) *Tensor {
	return s.with(func(s *Scope) *Tensor {
		mask := s.Zeros(kind, places.Size(0), length)
		s.maskedFill_(mask, s.greaterTensor(s.arange(length), s.View(places, -1, 1)), math.Inf(-1))
		return mask
	})
}

func (g *segment) rowsOf(s *Scope, t *Tensor) *Tensor {
	if g.path != nil {
		return s.IndexSelect(t, 0, g.path)
	}
	return s.Narrow(t, 0, g.start, g.length)
}

// grouped converts rows [n, kvHeads·r·d] to [kvHeads, r, n, d].
func (s *Scope) grouped(t *Tensor, kvHeads, r, d int64) *Tensor {
	return s.Permute(s.View(t, t.Size(0), kvHeads, r, d), 1, 2, 0, 3)
}

// ungrouped converts [kvHeads, r, n, d] back to rows.
func (s *Scope) ungrouped(t *Tensor) *Tensor {
	rows := t.Size(2)
	return s.Reshape(s.Permute(t, 2, 0, 1, 3), rows, -1)
}

// attend computes the attention of [kvHeads, r, queries, d] to keys and values [kvHeads, 1, length, d].
func (g *segment) attend(s *Scope, q, k, v *Tensor) *Tensor {
	spread := func(t *Tensor) *Tensor { return s.Expand(t, t.Size(0), q.Size(1), t.Size(2), t.Size(3)) }
	if g.mask == nil {
		return s.CausalAttention(q, spread(k), spread(v))
	}
	return s.Attention(q, spread(k), spread(v), g.mask)
}

func (s *Scope) attendSegments(q, k, v *Tensor, parts []segment, heads, kvHeads int64) *Tensor {
	r, d := heads/kvHeads, q.Size(1)/heads
	out := s.Empty(q.DType(), q.Size(0), heads*d)
	for _, g := range parts {
		s.Nest(func(s *Scope) {
			a := g.attend(s, s.grouped(s.Narrow(q, 0, g.first, g.queries), kvHeads, r, d),
				s.grouped(g.rowsOf(s, k), kvHeads, 1, d), s.grouped(g.rowsOf(s, v), kvHeads, 1, d))
			s.Copy_(s.Narrow(out, 0, g.first, g.queries), s.ungrouped(a))
		})
	}
	return out
}

// attendSegmentsBackward recomputes a segment's attention with libtorch's automatic gradient.
func (s *Scope) attendSegmentsBackward(q, k, v, dout *Tensor, parts []segment, heads, kvHeads int64, dq, dk,
	dv *Tensor) {
	r, d := heads/kvHeads, q.Size(1)/heads
	for _, g := range parts {
		s.Nest(func(s *Scope) {
			lq := s.Leaf(s.grouped(s.Narrow(q, 0, g.first, g.queries), kvHeads, r, d))
			lk, lv := s.Leaf(s.grouped(g.rowsOf(s, k), kvHeads, 1, d)), s.Leaf(s.grouped(g.rowsOf(s, v), kvHeads, 1, d))
			up := s.grouped(s.Narrow(dout, 0, g.first, g.queries), kvHeads, r, d)
			var loss *Tensor
			s.Grad(func() { loss = s.Sum(s.Mul(g.attend(s, lq, lk, lv), up)) })
			grads := s.Backward(loss, lq, lk, lv)
			s.Copy_(s.Narrow(dq, 0, g.first, g.queries), s.ungrouped(grads[0]))
			for i, sum := range []*Tensor{dk, dv} {
				part := s.As(s.ungrouped(grads[i+1]), sum.DType())
				if g.path != nil {
					s.indexAdd_(sum, g.path, part)
				} else {
					s.Add_(s.Narrow(sum, 0, g.start, g.length), part)
				}
			}
		})
	}
}

// Cache allocates the key and value caches of a layer for CachedAttention: keys [slots, kvHeads, D, T], values
// [slots, kvHeads, T, D]. The memory layout depends on the device.
func (s *Scope) Cache(kind DType, slots, kvHeads, d, length int64) (keys, values *Tensor) {
	if s.Composes(kind) { // a row's heads together: [slots, T, kvHeads, D]
		make := func(axes ...int64) *Tensor {
			return s.with(func(s *Scope) *Tensor { return s.Permute(s.Zeros(kind, slots, length, kvHeads, d), axes...) })
		}
		return make(0, 2, 3, 1), make(0, 2, 1, 3)
	}
	return s.Zeros(kind, slots, kvHeads, d, length), s.Zeros(kind, slots, kvHeads, length, d)
}

// cachePlan divides the rows of a pass into single rows, which run at once, and runs of consecutive positions.
type cachePlan struct {
	at     *Tensor // index of each row in a cache of rows [slots·T]
	single struct {
		rows        *Tensor // of the pass; nil for all in order
		count       int64
		first, span int64   // slots first..first+span-1 are computed together
		asks        *Tensor // row of the query of each of them [span]; nil for all in order
		answer      *Tensor // index of each row's slot among them [count]; nil for in order
		mask        *Tensor // [span, 1, 1, length]
		length      int64
	}
	runs []cacheRun
}

type cacheRun struct {
	first, rows, slot, length int64
	mask                      *Tensor // [rows, length]; nil where the run begins at 0
}

func (s *Scope) planCache(slots, positions []int32, kind DType, length int64) *cachePlan {
	at := make([]int64, len(slots))
	for i := range slots {
		at[i] = int64(slots[i])*length + int64(positions[i])
	}
	p := &cachePlan{at: s.FromInt64(at, int64(len(at)))}
	var rows []int64
	asks := map[int32]int32{} // slot -> row
	for i, end := 0, 0; i < len(slots); i = end {
		for end = i + 1; end < len(slots) && slots[end] == slots[i] && positions[end] == positions[end-1]+1; end++ {
		}
		before, known := asks[slots[i]]
		if end-i == 1 && (!known || positions[before] == positions[i]) { // rows that pad a pass are alike
			rows = append(rows, int64(i))
			if !known {
				asks[slots[i]] = int32(i)
			}
			continue
		}
		run := cacheRun{first: int64(i), rows: int64(end - i), slot: int64(slots[i]), length: int64(positions[end-1]) + 1}
		if positions[i] > 0 {
			run.mask = s.causalMask(kind, s.FromInt64(wide(positions[i:end]), int64(end-i)), run.length)
		}
		p.runs = append(p.runs, run)
	}
	if len(rows) > 0 {
		s.planSingles(p, rows, asks, slots, positions, kind, length)
	}
	return p
}

// planSingles computes all slots between the first and the last requested one together, which avoids copying
// their caches, and drops the results of the other slots.
func (s *Scope) planSingles(p *cachePlan, rows []int64, asks map[int32]int32, slots, positions []int32, kind DType,
	length int64) {
	g := &p.single
	g.count = int64(len(rows))
	if int(g.count) != len(slots) {
		g.rows = s.FromInt64(rows, g.count)
	}
	low, high, furthest := slots[rows[0]], slots[rows[0]], int32(0)
	for _, i := range rows {
		low, high, furthest = min(low, slots[i]), max(high, slots[i]), max(furthest, positions[i])
	}
	g.first, g.span = int64(low), int64(high-low)+1
	g.length = min(length, (int64(furthest)+64)/64*64)
	ask, place, answer := make([]int64, g.span), make([]int64, g.span), make([]int64, g.count)
	inOrder := g.rows == nil && g.span == g.count
	for slot, row := range asks {
		ask[slot-low], place[slot-low] = int64(row), int64(positions[row])
	}
	for j, i := range rows {
		answer[j] = int64(slots[i] - low)
		inOrder = inOrder && answer[j] == int64(j)
	}
	if !inOrder {
		g.asks, g.answer = s.FromInt64(ask, g.span), s.FromInt64(answer, g.count)
	}
	g.mask = s.with(func(s *Scope) *Tensor {
		return s.View(s.causalMask(kind, s.FromInt64(place, g.span), g.length), g.span, 1, 1, g.length)
	})
}

func (s *Scope) composedCachedAttention(qkv *Tensor, slots, positions []int32, keys, values *Tensor, heads,
	kvHeads int64) *Tensor {
	d, length, r := keys.Size(2), keys.Size(3), heads/kvHeads
	kind := keys.DType()
	p := once(s, sourceOf(slots, "cache "+kind.String(), [2]any{unsafe.SliceData(positions), length}),
		func(s *Scope) *cachePlan {
			return s.planCache(slots, positions, kind, length)
		})
	return s.with(func(s *Scope) *Tensor {
		// [slots, T, kvHeads, D]
		for i, cache := range []*Tensor{s.Permute(keys, 0, 3, 1, 2), s.Permute(values, 0, 2, 1, 3)} {
			fresh := s.Narrow(qkv, 1, (heads+int64(i)*kvHeads)*d, kvHeads*d)
			s.indexCopy_(s.View(cache, -1, kvHeads*d), p.at, s.As(fresh, kind))
		}
		q := s.Narrow(qkv, 1, 0, heads*d)
		time := s.Transpose(keys, 2, 3) // [slots, kvHeads, T, D]
		var out *Tensor
		if len(p.runs) > 0 || p.single.rows != nil {
			out = s.Empty(kind, int64(len(slots)), heads*d)
		}
		if g := &p.single; g.count > 0 {
			asking := q
			if g.asks != nil {
				asking = s.IndexSelect(q, 0, g.asks)
			}
			part := func(t *Tensor) *Tensor { return s.Narrow(s.Narrow(t, 0, g.first, g.span), 2, 0, g.length) }
			a := s.Attention(s.Reshape(asking, g.span, kvHeads, r, d), part(time), part(values),
				s.Expand(g.mask, g.span, kvHeads, r, g.length))
			a = s.Reshape(a, g.span, heads*d)
			if g.answer != nil {
				a = s.IndexSelect(a, 0, g.answer)
			}
			if out == nil {
				return a
			}
			s.indexCopy_(out, g.rows, a)
		}
		for _, run := range p.runs {
			s.Nest(func(s *Scope) {
				part := func(t *Tensor) *Tensor { // [kvHeads, 1, length, D]
					return s.Permute(s.Narrow(s.Narrow(t, 0, run.slot, 1), 2, 0, run.length), 1, 0, 2, 3)
				}
				g := segment{mask: run.mask}
				a := g.attend(s, s.grouped(s.Narrow(q, 0, run.first, run.rows), kvHeads, r, d), part(time), part(values))
				s.Copy_(s.Narrow(out, 0, run.first, run.rows), s.ungrouped(a))
			})
		}
		return out
	})
}
