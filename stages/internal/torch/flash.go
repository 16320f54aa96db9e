//go:build libtorch

package torch

// #include "direct.h"
import "C"

import (
	"slices"
	"sync/atomic"
	"unsafe"

	"github.com/sugarme/gotch/libtch"
)

// Attention of sequences with different lengths in one call: libtorch's FlashAttention-2 (Dao 2023), for bfloat16 on
// GPUs. Only flashForward and flashBackward reach it. Everything else is tested on the CPU, with the same tables and
// composed attention instead of the two calls.

// emulatesFlash selects attention of variable lengths on the CPU.
var emulatesFlash atomic.Bool

// EmulateFlash makes composed operations on the CPU compute attention as a GPU does in bfloat16, except for the kernel,
// or stops that. It is for tests; earlier caches must not be used afterwards.
func EmulateFlash(on bool) { emulatesFlash.Store(on) }

// Flashes reports whether attention on tensors of this type, with heads of width d, has variable lengths. Decoders then
// use PooledAttention.
func Flashes(device Device, kind DType, d int64) bool {
	return FlashesHeads(d) && (device != CPU && kind == BFloat16 || device == CPU && emulatesFlash.Load())
}

// sequences are the tables of attention of variable lengths. Sequence i has the queries queries[i] to queries[i+1]-1
// and the keys from keys[i] on, used[i] of them, or all up to keys[i+1]-1. Of Q queries and K keys, query j sees the
// first K-Q+j+1 keys: the causal mask is aligned at the ends.
type sequences struct {
	queries, keys, used []int32
}

// length returns the number of keys of a sequence.
func (t *sequences) length(i int) int32 {
	if t.used != nil {
		return t.used[i]
	}
	return t.keys[i+1] - t.keys[i]
}

// longest returns the largest numbers of queries and of keys of a sequence.
func (t *sequences) longest() (queries, keys int32) {
	for i := range len(t.queries) - 1 {
		queries, keys = max(queries, t.queries[i+1]-t.queries[i]), max(keys, t.length(i))
	}
	return queries, keys
}

// packedSequences are the sequences of a packing.
type packedSequences struct {
	sequences
	path []int32 // row of each key
	rows []int32 // row of each query; nil: the rows of q
	asks []int32 // the query of each row of q; nil: all in order
}

// sequences returns the tables of a packing. A segment without queries has no sequence. The queries of a sequence are
// consecutive in the path and end with its last key: between those of the packing, a query repeats the row before, and
// its result is unused.
func (p *Packing) sequences() *packedSequences {
	t := &packedSequences{sequences: sequences{queries: []int32{0}, keys: []int32{0}}}
	for i := range len(p.Bounds) - 1 {
		first, end := p.QueryBounds[i], p.QueryBounds[i+1]
		if first == end {
			continue
		}
		for row := first; row < end; row++ {
			t.asks = append(t.asks, int32(len(t.rows)))
			next := p.Places[row] + 1
			if row+1 < end {
				next = p.Places[row+1]
			}
			for place := p.Places[row]; place < next; place++ {
				t.rows = append(t.rows, row)
			}
		}
		t.path = append(t.path, p.Path[p.Bounds[i]:p.Bounds[i]+p.Places[end-1]+1]...)
		t.queries, t.keys = append(t.queries, int32(len(t.rows))), append(t.keys, int32(len(t.path)))
	}
	if len(t.rows) == len(t.asks) {
		t.rows, t.asks = nil, nil
	}
	return t
}

// sequencesOf returns the tables of a packing, once in a pass.
func (s *Scope) sequencesOf(p *Packing) *packedSequences {
	return once(s, source{with: p, what: "sequences"}, func(*Scope) *packedSequences { return p.sequences() })
}

// rowsAt returns the rows of a tensor at some indices; nil are all.
func (s *Scope) rowsAt(t *Tensor, at []int32) *Tensor {
	if at == nil {
		return t
	}
	return s.IndexSelect(t, 0, index(s, at))
}

// flashAttention is PackedAttention of variable lengths. lse belongs to flashAttentionBackward.
func (s *Scope) flashAttention(q, k, v *Tensor, p *Packing, heads, kvHeads int64) (out, lse *Tensor) {
	t := s.sequencesOf(p)
	s.Nest(func(s *Scope) {
		all, l := s.flashForward(s.rowsAt(q, t.rows), s.rowsAt(k, t.path), s.rowsAt(v, t.path), &t.sequences, heads,
			kvHeads)
		out, lse = s.rowsAt(all, t.asks), l
		s.Keep(out, lse)
	})
	return out, lse
}

// flashAttentionBackward is PackedAttentionBackward of variable lengths. Rows that several paths contain add their
// gradients in float32.
func (s *Scope) flashAttentionBackward(q, k, v, out, lse, dout *Tensor, p *Packing, heads, kvHeads int64, dq, dk,
	dv *Tensor) {
	t := s.sequencesOf(p)
	s.Nest(func(s *Scope) {
		all := func(x *Tensor) *Tensor { // of all queries, zeros for unused ones
			if t.asks == nil {
				return x
			}
			y := s.Zeros(x.DType(), int64(len(t.rows)), x.Size(1))
			s.indexCopy_(y, index(s, t.asks), x)
			return y
		}
		gq, gk, gv := s.flashBackward(all(dout), s.rowsAt(q, t.rows), s.rowsAt(k, t.path), s.rowsAt(v, t.path), all(out),
			lse, &t.sequences, heads, kvHeads)
		s.Copy_(dq, s.rowsAt(gq, t.asks))
		path := index(s, t.path)
		s.indexAdd_(dk, path, s.As(gk, dk.DType()))
		s.indexAdd_(dv, path, s.As(gv, dv.DType()))
	})
}

// PooledAttention computes one layer's attention of new tokens over pools of keys and values, in which slot i has a
// range of tokens from starts[i] on. Row i of qkv contains the query, key and value of position positions[i] of slot
// slots[i]; the rows of a slot are consecutive. Keys and values are stored in the pools; then each row attends to its
// slot up to its own position.
//
//	qkv [N, (heads+2·kvHeads)·D]; keys and values [tokens, kvHeads·D]; result [N, heads·D]
func (s *Scope) PooledAttention(qkv *Tensor, slots, positions []int32, starts []int, keys, values *Tensor, heads,
	kvHeads int64) *Tensor {
	t := once(s, sourceOf(slots, "pool", unsafe.SliceData(positions)), func(*Scope) *pooledSequences {
		return pooledSequencesOf(slots, positions, starts)
	})
	d := keys.Size(1) / kvHeads
	return s.with(func(s *Scope) *Tensor {
		at := index(s, t.at)
		for i, pool := range []*Tensor{keys, values} {
			fresh := s.Narrow(qkv, 1, (heads+int64(i)*kvHeads)*d, kvHeads*d)
			s.indexCopy_(pool, at, s.As(fresh, pool.DType()))
		}
		q := s.rowsAt(s.Narrow(qkv, 1, 0, heads*d), t.rows)
		out, _ := s.flashForward(q, keys, values, &t.sequences, heads, kvHeads)
		return s.rowsAt(out, t.asks)
	})
}

// pooledSequences are the sequences of a pass over pools, in the order of their ranges.
type pooledSequences struct {
	packedSequences
	at []int64 // token of each row in the pools
}

func pooledSequencesOf(slots, positions []int32, starts []int) *pooledSequences {
	t := &pooledSequences{}
	type run struct{ first, end int } // rows of a slot
	var runs []run
	for i, slot := range slots {
		t.at = append(t.at, int64(starts[slot])+int64(positions[i]))
		if i == 0 || slots[i-1] != slot {
			runs = append(runs, run{first: i})
		}
		runs[len(runs)-1].end = i + 1
	}
	slices.SortFunc(runs, func(a, b run) int { return starts[slots[a.first]] - starts[slots[b.first]] })
	t.queries, t.asks = []int32{0}, make([]int32, len(slots))
	for _, r := range runs {
		for row := r.first; row < r.end; row++ {
			t.asks[row] = int32(len(t.rows))
			t.rows = append(t.rows, int32(row))
		}
		t.queries = append(t.queries, int32(len(t.rows)))
		t.keys = append(t.keys, int32(starts[slots[r.first]]))
		t.used = append(t.used, positions[r.end-1]+1)
	}
	last := len(t.keys) - 1
	t.keys = append(t.keys, t.keys[last]+t.used[last])
	if slices.IsSorted(t.rows) {
		t.rows, t.asks = nil, nil
	}
	return t
}

// MoveRows_ copies rows from[i] of a matrix to rows to[i], all at once.
func (s *Scope) MoveRows_(t *Tensor, to, from []int64) {
	s.Nest(func(s *Scope) { s.indexCopy_(t, index(s, to), s.IndexSelect(t, 0, index(s, from))) })
}

// headsOf returns rows [n, heads·d] as [n, heads, d].
func (s *Scope) headsOf(t *Tensor, heads int64) *Tensor {
	return s.View(t, t.Size(0), heads, t.Size(1)/heads)
}

// flat returns [n, heads, d] as rows.
func (s *Scope) flat(t *Tensor) *Tensor { return s.Reshape(t, t.Size(0), -1) }

// flashForward returns the attention of q [queries, heads·d] to k and v [keys, kvHeads·d], in the type of q, and the
// logsumexp of the scores [heads, queries], which the CPU leaves out.
func (s *Scope) flashForward(q, k, v *Tensor, t *sequences, heads, kvHeads int64) (out, lse *Tensor) {
	if s.worker.device == CPU {
		return s.attendSegments(q, k, v, s.alignedSegments(t, q.DType()), heads, kvHeads), nil
	}
	const name = "flash attention"
	q, k, v = s.headsOf(q, heads), s.headsOf(k, kvHeads), s.headsOf(v, kvHeads)
	bounds, starts, used := s.int32s(t.queries), s.int32s(t.keys), s.int32s(t.used)
	if !s.ready(name, operands{q, k, v}) {
		return &Tensor{}, &Tensor{}
	}
	queries, keys := t.longest()
	var made [2]unsafe.Pointer
	if C.flash_forward(handle(q), handle(k), handle(v), handle(bounds), handle(starts), handle(used),
		C.int64_t(queries), C.int64_t(keys), &made[0]) == 0 {
		s.failDirect(name, operands{q, k, v})
		return &Tensor{}, &Tensor{}
	}
	return s.flat(s.adopt(libtch.Ctensor(made[0]))), s.adopt(libtch.Ctensor(made[1]))
}

// flashBackward returns the gradients of q, k and v, given that of out.
func (s *Scope) flashBackward(dout, q, k, v, out, lse *Tensor, t *sequences, heads, kvHeads int64) (dq, dk,
	dv *Tensor) {
	if s.worker.device == CPU {
		dq = s.Empty(q.DType(), q.Size(0), q.Size(1))
		dk, dv = s.Zeros(k.DType(), k.Size(0), k.Size(1)), s.Zeros(v.DType(), v.Size(0), v.Size(1))
		s.attendSegmentsBackward(q, k, v, dout, s.alignedSegments(t, q.DType()), heads, kvHeads, dq, dk, dv)
		return dq, dk, dv
	}
	const name = "flash attention backward"
	q, k, v = s.headsOf(q, heads), s.headsOf(k, kvHeads), s.headsOf(v, kvHeads)
	dout, out = s.headsOf(dout, heads), s.headsOf(out, heads)
	bounds, starts := s.int32s(t.queries), s.int32s(t.keys)
	if !s.ready(name, operands{q, k, v, lse}) {
		return &Tensor{}, &Tensor{}, &Tensor{}
	}
	queries, keys := t.longest()
	var made [3]unsafe.Pointer
	if C.flash_backward(handle(dout), handle(q), handle(k), handle(v), handle(out), handle(lse), handle(bounds),
		handle(starts), C.int64_t(queries), C.int64_t(keys), &made[0]) == 0 {
		s.failDirect(name, operands{q, k, v, dout})
		return &Tensor{}, &Tensor{}, &Tensor{}
	}
	own := func(i int) *Tensor { return s.flat(s.adopt(libtch.Ctensor(made[i]))) }
	return own(0), own(1), own(2)
}

// alignedSegments are the sequences for composed attention.
func (s *Scope) alignedSegments(t *sequences, kind DType) (parts []segment) {
	for i := range len(t.queries) - 1 {
		g := segment{first: int64(t.queries[i]), queries: int64(t.queries[i+1] - t.queries[i]), start: int64(t.keys[i]),
			length: int64(t.length(i))}
		if g.queries != g.length {
			places := make([]int64, g.queries)
			for j := range places {
				places[j] = g.length - g.queries + int64(j)
			}
			g.mask = s.causalMask(kind, s.FromInt64(places, g.queries), g.length)
		}
		parts = append(parts, g)
	}
	return parts
}

func handle(t *Tensor) unsafe.Pointer {
	if t == nil {
		return nil
	}
	return unsafe.Pointer(t.c)
}

// int32s returns a table on the device, once in a pass; nil without one.
func (s *Scope) int32s(v []int32) *Tensor {
	if v == nil {
		return nil
	}
	return once(s, sourceOf(v, "int32", nil), func(s *Scope) *Tensor {
		return from(s, Int32, v, []int64{int64(len(v))})
	})
}
