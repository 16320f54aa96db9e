//go:build libtorch

package torch

// #cgo CFLAGS: -O2 -Wno-psabi -g0
// #cgo LDFLAGS: -lm
// #include "direct.h"
// #include "kernels.h"
// #include "pool.h"
import "C"

import (
	"fmt"
	"math"
	"slices"
	"unsafe"

	"github.com/sugarme/gotch/libtch"
)

// Parts of a decoder that libtorch would compose of many passes over memory, each as one pass, with explicit
// gradients. The kernels require float32 CPU tensors with contiguous rows. On a GPU and in bfloat16 the same is
// composed of libtorch's operations: here, where that is short, otherwise in composed.go.

// rows is a matrix in the form of the kernels: n rows of d floats, ld apart.
type rows struct {
	p        *C.float
	n, d, ld int64
}

// sizes checks the shape of a 1- or 2-axis tensor. n or d below 0 accept any size.
func (s *Scope) sizes(name string, t *Tensor, n, d int64) rows {
	if !s.ready(name, operands{t}) {
		return rows{}
	}
	shape := t.Shape()
	var r rows
	switch len(shape) {
	case 1:
		r = rows{n: 1, d: shape[0], ld: shape[0]}
	case 2:
		r = rows{n: shape[0], d: shape[1], ld: shape[1]}
	}
	if len(shape) != 1 && len(shape) != 2 || n >= 0 && r.n != n || d >= 0 && r.d != d {
		s.Fail(fmt.Errorf("torch %s: operand has shape %v, want [%s, %s]", name, shape, sizeOrAny(n), sizeOrAny(d)))
		return rows{}
	}
	return r
}

// matrix returns the memory of a 1- or 2-axis tensor with contiguous rows. n or d below 0 accept any size.
func (s *Scope) matrix(name string, t *Tensor, n, d int64) rows {
	r := s.sizes(name, t, n, d)
	if s.Err() != nil || !s.supported(name, t) {
		return rows{}
	}
	strides := t.strides()
	if len(strides) == 2 {
		r.ld = strides[0]
	}
	if r.d > 1 && strides[len(strides)-1] != 1 {
		s.Fail(fmt.Errorf("torch %s: the rows of the operand %v are not contiguous", name, t.Shape()))
		return rows{}
	}
	r.p = (*C.float)(libtch.AtDataPtr(t.c))
	return r
}

// whole is matrix for an operand with contiguous memory.
func (s *Scope) whole(name string, t *Tensor, n, d int64) rows {
	r := s.sizes(name, t, n, d)
	if s.Err() == nil {
		r.p = s.floats(name, t, t.Shape()...)
	}
	return r
}

// floats returns the memory of a contiguous tensor of this shape.
func (s *Scope) floats(name string, t *Tensor, shape ...int64) *C.float {
	if !s.ready(name, operands{t}) || !s.supported(name, t) {
		return nil
	}
	if have := t.Shape(); !slices.Equal(have, shape) {
		s.Fail(fmt.Errorf("torch %s: operand has shape %v, want %v", name, have, shape))
		return nil
	}
	if !libtch.AtIsContiguous(t.c) {
		s.Fail(fmt.Errorf("torch %s: the operand %v has gaps", name, shape))
		return nil
	}
	return (*C.float)(libtch.AtDataPtr(t.c))
}

func (s *Scope) supported(name string, t *Tensor) bool {
	if t.device() == CPU.index() && t.DType() == Float32 {
		return true
	}
	s.Fail(fmt.Errorf("torch %s: operand holds %s on device %d; the fused kernels take float32 on the CPU", name,
		t.DType(), t.device()))
	return false
}

func sizeOrAny(n int64) string {
	if n < 0 {
		return "any"
	}
	return fmt.Sprint(n)
}

// RMSNorm computes y = x·rstd·w per row, with rstd = 1/√(mean x² + eps) (Zhang and Sennrich 2019).
//
// y has the type kind.
//
//	x, y [N, D]; w [D]; rstd [N]
func (s *Scope) RMSNorm(kind DType, x, w *Tensor, eps float64) (y, rstd *Tensor) {
	const name = "rms norm"
	if s.composesOf(x) || kind != Float32 {
		s.Nest(func(s *Scope) {
			wide := s.As(x, Float32)
			r := s.Rsqrt(s.AddScalar(s.MeanAxis(s.Square(wide), 1, true), eps)) // [N, 1]
			y, rstd = s.Empty(kind, x.Size(0), x.Size(1)), s.View(r, -1)
			s.MulInto(y, s.Mul(wide, r), w)
			s.Keep(y, rstd)
		})
		return y, rstd
	}
	xs := s.whole(name, x, -1, -1)
	ws := s.whole(name, w, 1, xs.d)
	if s.Err() != nil {
		return &Tensor{}, &Tensor{}
	}
	y, rstd = s.Empty(Float32, xs.n, xs.d), s.Empty(Float32, xs.n)
	ys, rs := s.whole(name, y, xs.n, xs.d), s.whole(name, rstd, 1, xs.n)
	if s.Err() == nil {
		C.k_rms_norm(C.int64_t(xs.n), C.int64_t(xs.d), xs.p, ws.p, C.float(eps), ys.p, rs.p)
	}
	return y, rstd
}

// RMSNormBackward adds the gradients through RMSNorm to dx [N, D] and dw [D].
func (s *Scope) RMSNormBackward(x, w, rstd, dy, dx, dw *Tensor) {
	const name = "rms norm backward"
	if s.composesOf(dy) || s.composesOf(x) {
		s.Nest(func(s *Scope) {
			r, wide := s.View(rstd, -1, 1), s.As(dy, Float32)
			normed := s.Mul(x, r)
			dn := s.Mul(wide, w)
			along := s.MeanAxis(s.Mul(dn, normed), 1, true)
			s.Add_(dx, s.Mul(r, s.Sub(dn, s.Mul(normed, along))))
			s.Add_(dw, s.SumAxis(s.Mul(wide, normed), 0, false))
		})
		return
	}
	xs := s.whole(name, x, -1, -1)
	ws, rs := s.whole(name, w, 1, xs.d), s.whole(name, rstd, 1, xs.n)
	dys, dxs, dws := s.whole(name, dy, xs.n, xs.d), s.whole(name, dx, xs.n, xs.d), s.whole(name, dw, 1, xs.d)
	if s.Err() == nil {
		C.k_rms_norm_backward(C.int64_t(xs.n), C.int64_t(xs.d), xs.p, ws.p, rs.p, dys.p, dxs.p, dws.p)
	}
}

// Rope_ rotates the heads in the first heads·d columns of each row of x by the angles of its position (Su et al.
// 2021, in the layout of Hugging Face: the halves of a head are the real and imaginary parts). back rotates in
// the other direction, which is the gradient.
//
//	x [N, ≥ heads·d]; positions [N]; cos, sin [positions, d/2]
func (s *Scope) Rope_(x *Tensor, heads, d int64, positions []int32, cos, sin *Tensor, back bool) {
	const name = "rope"
	xs := s.sizes(name, x, int64(len(positions)), -1)
	cs := s.sizes(name, cos, -1, d/2)
	s.sizes(name, sin, cs.n, d/2)
	if s.Err() != nil || xs.n == 0 {
		return
	}
	if heads*d > xs.d {
		s.Fail(fmt.Errorf("torch rope: %d heads of %d do not fit into rows of %d", heads, d, xs.d))
		return
	}
	if !within(s, name, positions, cs.n) {
		return
	}
	if s.composesOf(x) {
		s.composedRope_(x, heads, d, positions, cos, sin, back)
		return
	}
	xs, cs = s.matrix(name, x, xs.n, xs.d), s.whole(name, cos, cs.n, d/2)
	ss := s.whole(name, sin, cs.n, d/2)
	if s.Err() != nil {
		return
	}
	sign := C.float(1)
	if back {
		sign = -1
	}
	C.k_rope(C.int64_t(xs.n), C.int64_t(heads), C.int64_t(d), C.int64_t(xs.ld), xs.p, ints(positions), cs.p, ss.p, sign)
}

func ints(v []int32) *C.int32_t { return (*C.int32_t)(unsafe.Pointer(unsafe.SliceData(v))) }

// SwiGLU computes silu(g)·u of rows that contain g and u (Shazeer 2020).
//
//	gu [N, 2M]; result [N, M]
func (s *Scope) SwiGLU(gu *Tensor) *Tensor {
	const name = "swiglu"
	if s.composesOf(gu) {
		return s.with(func(s *Scope) *Tensor {
			m := gu.Size(1) / 2
			return s.Mul(s.Silu(s.Narrow(gu, 1, 0, m)), s.Narrow(gu, 1, m, m))
		})
	}
	in := s.whole(name, gu, -1, -1)
	y := s.Empty(Float32, in.n, in.d/2)
	out := s.whole(name, y, in.n, in.d/2)
	if s.Err() == nil {
		C.k_swiglu(C.int64_t(in.n), C.int64_t(in.d/2), in.p, out.p)
	}
	return y
}

// SwiGLUBackward returns the gradient of gu, given that of SwiGLU's result.
func (s *Scope) SwiGLUBackward(gu, dy *Tensor) *Tensor {
	const name = "swiglu backward"
	if s.composesOf(gu) {
		return s.with(func(s *Scope) *Tensor {
			m := gu.Size(1) / 2
			g, u := s.Narrow(gu, 1, 0, m), s.Narrow(gu, 1, m, m)
			dgu := s.Empty(gu.DType(), gu.Size(0), 2*m)
			s.Copy_(s.Narrow(dgu, 1, 0, m), s.siluBackward(s.Mul(dy, u), g))
			s.MulInto(s.Narrow(dgu, 1, m, m), dy, s.Silu(g))
			return dgu
		})
	}
	in := s.whole(name, gu, -1, -1)
	grad := s.whole(name, dy, in.n, in.d/2)
	dgu := s.Empty(Float32, in.n, in.d)
	out := s.whole(name, dgu, in.n, in.d)
	if s.Err() == nil {
		C.k_swiglu_backward(C.int64_t(in.n), C.int64_t(in.d/2), in.p, grad.p, out.p)
	}
	return dgu
}

// ColumnSum_ adds the column sums of y [N, D] to sum [D].
func (s *Scope) ColumnSum_(sum, y *Tensor) {
	const name = "column sum"
	if s.composesOf(y) {
		s.Nest(func(s *Scope) { s.Add_(sum, s.SumAxis(s.As(y, Float32), 0, false)) })
		return
	}
	ys := s.whole(name, y, -1, -1)
	out := s.whole(name, sum, 1, ys.d)
	if s.Err() == nil {
		C.k_column_sum(C.int64_t(ys.n), C.int64_t(ys.d), ys.p, out.p)
	}
}

// RowsAdd_ adds row i of x [N, D] to row ids[i] of table [V, D], in order of i.
func (s *Scope) RowsAdd_(table *Tensor, ids []int64, x *Tensor) {
	const name = "rows add"
	to := s.sizes(name, table, -1, -1)
	from := s.sizes(name, x, int64(len(ids)), to.d)
	if s.Err() != nil || !within(s, name, ids, to.n) {
		return
	}
	if s.composesOf(table) {
		s.Nest(func(s *Scope) { s.indexAdd_(table, index(s, ids), s.As(x, table.DType())) })
		return
	}
	to, from = s.whole(name, table, to.n, to.d), s.whole(name, x, from.n, to.d)
	if s.Err() == nil {
		C.k_rows_add(C.int64_t(from.n), C.int64_t(from.d), longs(ids), from.p, to.p)
	}
}

func longs(v []int64) *C.int64_t { return (*C.int64_t)(unsafe.Pointer(unsafe.SliceData(v))) }

func within[E int32 | int64](s *Scope, name string, ids []E, n int64) bool {
	for _, id := range ids {
		if id < 0 || int64(id) >= n {
			s.Fail(fmt.Errorf("torch %s: index %d lies outside 0..%d", name, id, n-1))
			return false
		}
	}
	return true
}

// Packing defines which rows attend to which. Segment i is the path of rows
// Path[Bounds[i]:Bounds[i+1]] of one sequence from its first token; segments with a common prefix
// share rows. Its queries are QueryBounds[i]..QueryBounds[i+1]-1; query j has index Places[j] in
// the path, ascending within a segment, and sees the path up to it.
type Packing struct {
	Bounds, Path        []int32
	QueryBounds, Places []int32
}

// check checks that the kernels stay within their operands and returns the length of the longest path.
func (p *Packing) check(queries, n int64) (longest int64, err error) {
	segments := len(p.Bounds) - 1
	if segments < 0 || len(p.QueryBounds) != segments+1 || int64(len(p.Places)) != queries || p.Bounds[0] != 0 ||
		int(p.Bounds[segments]) != len(p.Path) || p.QueryBounds[0] != 0 || int64(p.QueryBounds[segments]) != queries {
		return 0, fmt.Errorf("torch attention: the packing does not cover %d queries", queries)
	}
	for i := range segments {
		length := p.Bounds[i+1] - p.Bounds[i]
		if length < 0 || p.QueryBounds[i+1] < p.QueryBounds[i] {
			return 0, fmt.Errorf("torch attention: segment %d of the packing runs backwards", i)
		}
		longest = max(longest, int64(length))
		before := int32(-1)
		for j := p.QueryBounds[i]; j < p.QueryBounds[i+1]; j++ {
			if p.Places[j] <= before || p.Places[j] >= length {
				return 0, fmt.Errorf("torch attention: query %d of segment %d has index %d, which is out of order or "+
					"outside 0..%d", j, i, p.Places[j], length-1)
			}
			before = p.Places[j]
		}
	}
	for i, row := range p.Path {
		if row < 0 || int64(row) >= n {
			return 0, fmt.Errorf("torch attention: entry %d of the paths is row %d of %d", i, row, n)
		}
	}
	return longest, nil
}

func padded(n int64) int64 { return (n + 15) / 16 * 16 }

// attention are the checked operands of a packed attention. Their memory is set for the kernels only.
type attention struct {
	q, k, v rows
	d       int64 // width of a head
	longest int64 // path of the packing
}

func (s *Scope) attention(name string, q, k, v *Tensor, p *Packing, heads, kvHeads int64) (a attention) {
	a.q, a.k = s.sizes(name, q, -1, -1), s.sizes(name, k, -1, -1)
	s.sizes(name, v, a.k.n, a.k.d)
	if s.Err() != nil {
		return a
	}
	if heads <= 0 || kvHeads <= 0 || heads%kvHeads != 0 || a.q.d%heads != 0 || a.k.d != a.q.d/heads*kvHeads {
		s.Fail(fmt.Errorf("torch %s: %d query heads over rows of %d do not match %d key heads over rows of %d", name,
			heads, a.q.d, kvHeads, a.k.d))
		return a
	}
	a.d = a.q.d / heads
	var err error
	if a.longest, err = p.check(a.q.n, a.k.n); err != nil {
		s.Fail(err)
	}
	if s.Err() != nil || s.composesOf(q) {
		return a
	}
	a.q, a.k, a.v = s.matrix(name, q, -1, -1), s.matrix(name, k, -1, -1), s.matrix(name, v, -1, -1)
	if s.Err() == nil && a.v.ld != a.k.ld {
		s.Fail(fmt.Errorf("torch %s: keys and values have different strides", name))
	}
	return a
}

// scratch returns floats for each thread of the pool.
func (s *Scope) scratch(floats int64) (*Tensor, *C.float) {
	n := floats * int64(C.pool_room())
	t := s.Empty(Float32, n)
	return t, s.floats("scratch", t, n)
}

// PackedAttention computes causal softmax(q·kᵀ/√D)·v with grouped queries over packed segments.
//
//	q [Q, heads·D], k and v [N, kvHeads·D], each possibly columns of a wider matrix;
//	out [Q, heads·D]; lse [Q, heads], the logsumexp of the scores, for the gradient; empty for attention by segments
func (s *Scope) PackedAttention(q, k, v *Tensor, p *Packing, heads, kvHeads int64) (out, lse *Tensor) {
	const name = "attention"
	a := s.attention(name, q, k, v, p, heads, kvHeads)
	if s.composesOf(q) {
		if Flashes(s.worker.device, q.DType(), a.d) {
			return s.flashAttention(q, k, v, p, heads, kvHeads)
		}
		return s.attendSegments(q, k, v, s.segments(p, q.DType()), heads, kvHeads), s.Empty(Float32, 1)
	}
	if s.Err() != nil {
		return &Tensor{}, &Tensor{}
	}
	out, lse = s.Empty(Float32, a.q.n, heads*a.d), s.Empty(Float32, a.q.n, heads)
	os, ls := s.whole(name, out, a.q.n, a.q.d), s.whole(name, lse, a.q.n, heads)
	room := padded(a.longest)*(2*a.d+4) + 16
	scratch, buffer := s.scratch(room)
	if s.Err() == nil {
		C.k_attention(C.int64_t(len(p.Bounds)-1), ints(p.Bounds), ints(p.Path), ints(p.QueryBounds), ints(p.Places),
			C.int64_t(heads), C.int64_t(kvHeads), C.int64_t(a.d), a.q.p, C.int64_t(a.q.ld), a.k.p, a.v.p,
			C.int64_t(a.k.ld), os.p, ls.p, buffer, C.int64_t(room))
	}
	s.Free(scratch)
	return out, lse
}

// PackedAttentionBackward writes the gradient of PackedAttention's q into dq and adds those of k and v to dk and
// dv; all may be columns of a wider matrix.
func (s *Scope) PackedAttentionBackward(q, k, v, out, lse, dout *Tensor, p *Packing, heads, kvHeads int64, dq, dk,
	dv *Tensor) {
	const name = "attention backward"
	a := s.attention(name, q, k, v, p, heads, kvHeads)
	if s.composesOf(q) {
		if Flashes(s.worker.device, q.DType(), a.d) {
			s.flashAttentionBackward(q, k, v, out, lse, dout, p, heads, kvHeads, dq, dk, dv)
		} else {
			s.attendSegmentsBackward(q, k, v, dout, s.segments(p, q.DType()), heads, kvHeads, dq, dk, dv)
		}
		return
	}
	os, dos := s.whole(name, out, a.q.n, a.q.d), s.whole(name, dout, a.q.n, a.q.d)
	ls := s.whole(name, lse, a.q.n, heads)
	dqs, dks := s.matrix(name, dq, a.q.n, a.q.d), s.matrix(name, dk, a.k.n, a.k.d)
	dvs := s.matrix(name, dv, a.k.n, a.k.d)
	if s.Err() == nil && dvs.ld != dks.ld {
		s.Fail(fmt.Errorf("torch %s: gradients of keys and values have different strides", name))
	}
	room := padded(a.longest)*(5*a.d+8) + 16
	scratch, buffer := s.scratch(room)
	if s.Err() == nil {
		C.k_attention_backward(C.int64_t(len(p.Bounds)-1), ints(p.Bounds), ints(p.Path), ints(p.QueryBounds),
			ints(p.Places), C.int64_t(heads), C.int64_t(kvHeads), C.int64_t(a.d), a.q.p, C.int64_t(a.q.ld), a.k.p, a.v.p,
			C.int64_t(a.k.ld), os.p, ls.p, dos.p, dqs.p, C.int64_t(dqs.ld), dks.p, dvs.p, C.int64_t(dks.ld), buffer,
			C.int64_t(room))
	}
	s.Free(scratch)
}

// CachedAttention computes one layer's attention of new tokens over a cache. Row i of qkv contains the query, key
// and value of position positions[i] of slot slots[i]. Keys and values are stored in the cache; then each row
// attends to its slot up to its own position.
//
//	qkv [N, (heads+2·kvHeads)·D]; keys [slots, kvHeads, D, T]; values [slots, kvHeads, T, D];
//	T a multiple of 16; result [N, heads·D]
func (s *Scope) CachedAttention(qkv *Tensor, slots, positions []int32, keys, values *Tensor, heads,
	kvHeads int64) *Tensor {
	const name = "cached attention"
	if !s.ready(name, operands{qkv, keys, values}) {
		return &Tensor{}
	}
	d := keys.Size(2)
	room, length := s.caches(name, keys, values, kvHeads, d)
	if s.Err() == nil && heads%kvHeads != 0 {
		s.Fail(fmt.Errorf("torch %s: %d heads do not share %d key heads evenly", name, heads, kvHeads))
	}
	if !s.placed(name, slots, positions, room, length) {
		return &Tensor{}
	}
	if len(slots) > 0 && s.composesOf(keys) {
		s.sizes(name, qkv, int64(len(slots)), (heads+2*kvHeads)*d)
		return s.composedCachedAttention(qkv, slots, positions, keys, values, heads, kvHeads)
	}
	in := s.whole(name, qkv, int64(len(slots)), (heads+2*kvHeads)*d)
	ks, vs := s.floats(name, keys, room, kvHeads, d, length), s.floats(name, values, room, kvHeads, length, d)
	out := s.Empty(Float32, in.n, heads*d)
	os := s.whole(name, out, in.n, heads*d)
	scratch, buffer := s.scratch(4 * length)
	if s.Err() == nil {
		C.k_cache_rows(C.int64_t(in.n), ints(slots), ints(positions), C.int64_t(heads), C.int64_t(kvHeads), C.int64_t(d),
			in.p, ks, vs, C.int64_t(length))
		C.k_cached_attention(C.int64_t(in.n), ints(slots), ints(positions), C.int64_t(heads),
			C.int64_t(kvHeads), C.int64_t(d), in.p, ks, vs, C.int64_t(length), os.p, buffer)
	}
	s.Free(scratch)
	return out
}

// caches checks the shapes of a layer's caches and returns their numbers of slots and positions.
func (s *Scope) caches(name string, keys, values *Tensor, kvHeads, d int64) (slots, length int64) {
	if !s.ready(name, operands{keys, values}) {
		return 0, 0
	}
	k, v := keys.Shape(), values.Shape()
	if len(k) != 4 || len(v) != 4 || k[1] != kvHeads || v[1] != kvHeads || k[0] != v[0] || k[2] != d || v[3] != d ||
		k[3] != v[2] || k[3]%16 != 0 {
		s.Fail(fmt.Errorf("torch %s: caches of shapes %v and %v do not hold %d key heads of %d for positions in blocks "+
			"of 16", name, k, v, kvHeads, d))
		return 0, 0
	}
	return k[0], k[3]
}

func (s *Scope) placed(name string, slots, positions []int32, room, length int64) bool {
	if s.Err() == nil && len(slots) != len(positions) {
		s.Fail(fmt.Errorf("torch %s: %d slots for %d positions", name, len(slots), len(positions)))
	}
	return s.Err() == nil && within(s, name+" slots", slots, room) && within(s, name+" positions", positions, length)
}

// HeadStat contains the statistics of a row of logits and its target, in float64 from float32 sums.
type HeadStat struct {
	Logp, Entropy float64 // log-probability of the target; entropy of the distribution, in nats
	LogpRef, KL   float64 // of the target under the reference; KL(policy || reference) over the vocabulary
	lse, lseRef   float64
}

// HeadWeight is the derivative of a loss with respect to a row's Logp, Entropy and KL.
type HeadWeight struct{ Logp, Entropy, KL float64 }

// HeadStats computes the statistics of softmax(logits/temperature), row by row. ref, the logits of a reference
// policy at the same temperature, may be nil.
//
//	logits, ref [N, V]; targets [N]
func (s *Scope) HeadStats(logits, ref *Tensor, temperature float64, targets []int64) []HeadStat {
	z, r := s.head("head statistics", logits, ref, targets)
	stats := make([]HeadStat, len(targets))
	if s.Err() != nil || len(targets) == 0 {
		return stats
	}
	if s.composesOf(logits) {
		return s.composedHeadStats(logits, ref, temperature, targets)
	}
	C.k_head_stats(C.int64_t(z.n), C.int64_t(z.d), z.p, r.p, C.float(1/temperature), longs(targets),
		(*C.double)(unsafe.Pointer(&stats[0])))
	return stats
}

// head checks the operands of the operations on logits. The memory of the results is set for the kernels only.
func (s *Scope) head(name string, logits, ref *Tensor, targets []int64) (z, r rows) {
	z = s.sizes(name, logits, int64(len(targets)), -1)
	if s.Err() != nil || !within(s, name, targets, z.d) || s.composesOf(logits) {
		return z, r
	}
	if ref != nil {
		r = s.whole(name, ref, z.n, z.d)
	}
	return s.whole(name, logits, z.n, z.d), r
}

// HeadBackward overwrites logits with the gradient of Σ weights·statistics, given their HeadStats.
func (s *Scope) HeadBackward(logits, ref *Tensor, temperature float64, targets []int64, stats []HeadStat,
	weights []HeadWeight) {
	const name = "head backward"
	z, r := s.head(name, logits, ref, targets)
	if len(stats) != len(targets) || len(weights) != len(targets) {
		s.Fail(fmt.Errorf("torch %s: %d statistics and %d weights for %d rows", name, len(stats), len(weights),
			len(targets)))
	}
	if s.Err() != nil || len(targets) == 0 {
		return
	}
	if s.composesOf(logits) {
		s.composedHeadBackward(logits, ref, temperature, targets, stats, weights)
		return
	}
	C.k_head_backward(C.int64_t(z.n), C.int64_t(z.d), z.p, r.p, C.float(1/temperature), longs(targets),
		(*C.double)(unsafe.Pointer(&stats[0])), (*C.double)(unsafe.Pointer(&weights[0])))
}

// SampleRows samples from softmax(row/temperature) of each row by inverse CDF in the order of ids: the first id
// whose cumulative probability exceeds u. Temperature 0 selects the most probable token, the first of equals,
// with its logprob at temperature 1.
//
//	logits [≥ N, V]; temperatures, u [N]
func (s *Scope) SampleRows(logits *Tensor, temperatures, u []float64) (tokens []int32, logps []float32) {
	n := len(temperatures)
	if len(u) != n || s.Err() != nil || n == 0 || logits.Size(0) < int64(n) {
		if s.Err() == nil && n > 0 {
			s.Fail(fmt.Errorf("torch sample: %d temperatures and %d uniform numbers for logits %v", n, len(u),
				logits.Shape()))
		}
		return nil, nil
	}
	if s.composesOf(logits) {
		return s.composedSampleRows(logits, temperatures, u)
	}
	z := s.whole("sample", logits, -1, -1)
	scratch, buffer := s.scratch(z.d)
	if s.Err() == nil {
		tokens, logps = sample(n, z.d, z.p, temperatures, u, buffer)
	}
	s.Free(scratch)
	return tokens, logps
}

// Sample is SampleRows for one row of logits from Float32s; scratch has the same length.
func Sample(row []float32, temperature, u float64, scratch []float32) (token int32, logp float32) {
	tokens, logps := sample(1, int64(len(row)), (*C.float)(unsafe.Pointer(&row[0])), []float64{temperature},
		[]float64{u}, (*C.float)(unsafe.Pointer(&scratch[0])))
	return tokens[0], logps[0]
}

func sample(n int, v int64, logits *C.float, temperatures, u []float64, scratch *C.float) (tokens []int32,
	logps []float32) {
	inverse := make([]float32, n)
	for i, t := range temperatures {
		if t > 0 {
			inverse[i] = float32(1 / t)
		}
	}
	tokens, logps = make([]int32, n), make([]float32, n)
	C.k_sample(C.int64_t(n), C.int64_t(v), logits, (*C.float)(unsafe.Pointer(&inverse[0])),
		(*C.double)(unsafe.Pointer(&u[0])), ints(tokens), (*C.float)(unsafe.Pointer(&logps[0])), scratch)
	return tokens, logps
}

// squareChunk is the number of elements whose squares a composed sum computes at once, to limit its intermediates.
const squareChunk = 32 << 20

// SquareSum returns Σ t² in float64 and a fixed order.
func (s *Scope) SquareSum(t *Tensor) (sum float64) {
	if s.composesOf(t) {
		s.Nest(func(s *Scope) {
			total, n := s.Zeros(Float64, 1), t.Size(0)
			for at := int64(0); at < n; at += squareChunk {
				s.Nest(func(s *Scope) {
					s.Add_(total, s.Sum(s.Square(s.As(s.Narrow(t, 0, at, min(squareChunk, n-at)), Float64))))
				})
			}
			if read := s.Float64s(total); len(read) == 1 {
				sum = read[0]
			}
		})
		return sum
	}
	x := s.whole("square sum", t, 1, -1)
	if s.Err() != nil {
		return 0
	}
	return float64(C.k_square_sum(C.int64_t(x.d), x.p))
}

// AdamW configures one AdamW step (Loshchilov and Hutter 2019).
type AdamW struct {
	LR, Beta1, Beta2, Eps, Decay float64
	Scale                        float64 // multiplies the gradient first: clipping
	Step                         int     // t, the number of this step from 1; the bias corrections are 1-βᵗ
}

// AdamW_ updates parameters p by gradient g with the moments m and v, all [N], and zeroes g. On a GPU libtorch's fused
// kernel computes it, which rounds otherwise than the CPU's.
func (s *Scope) AdamW_(p, g, m, v *Tensor, o AdamW) {
	const name = "adamw"
	if s.composesOf(p) {
		s.fusedAdamW_(p, g, m, v, o)
		return
	}
	ps := s.whole(name, p, 1, -1)
	gs, ms, vs := s.whole(name, g, 1, ps.d), s.whole(name, m, 1, ps.d), s.whole(name, v, 1, ps.d)
	bias := func(beta float64) C.float { return C.float(1 - math.Pow(beta, float64(o.Step))) }
	if s.Err() == nil {
		C.k_adamw(C.int64_t(ps.d), ps.p, gs.p, ms.p, vs.p, C.float(o.Scale), C.float(o.LR), C.float(o.Beta1),
			C.float(o.Beta2), C.float(o.Eps), C.float(o.Decay), bias(o.Beta1), bias(o.Beta2))
	}
}

// fusedAdamW_ is AdamW_ of libtorch, which divides the gradient by its scale.
func (s *Scope) fusedAdamW_(p, g, m, v *Tensor, o AdamW) {
	const name = "adamw"
	s.Nest(func(s *Scope) {
		step, scale := s.Full(Float32, float64(o.Step), 1), (*Tensor)(nil)
		if o.Scale != 1 {
			scale = s.Full(Float32, 1/o.Scale, 1)
		}
		if s.ready(name, operands{p, g, m, v}) && C.fused_adamw(handle(p), handle(g), handle(m), handle(v), handle(step),
			C.double(o.LR), C.double(o.Beta1), C.double(o.Beta2), C.double(o.Decay), C.double(o.Eps), handle(scale)) == 0 {
			s.failDirect(name, operands{p, g, m, v})
		}
		s.Zero_(g)
	})
}
