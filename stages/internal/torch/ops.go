//go:build libtorch

package torch

// #include "direct.h"
import "C"

import (
	"strings"
	"unsafe"

	"github.com/sugarme/gotch/libtch"
)

// The operations follow libtorch's operations of the same name; differences are noted. Names that end in an
// underscore write into their first operand and return nothing; names that end in Into write into out.

func flag(b bool) int32 {
	if b {
		return 1
	}
	return 0
}

func withScalar(v float64, call func(c libtch.Cscalar)) {
	c := libtch.AtsFloat(v)
	call(c)
	libtch.AtsFree(c)
}

// op1, op2 and op3 are op, and do1, do2 and do3 are do, for an operation of libtch whose operands are all tensors.

type libtch1 = func(out *libtch.Ctensor, a libtch.Ctensor)
type libtch2 = func(out *libtch.Ctensor, a, b libtch.Ctensor)
type libtch3 = func(out *libtch.Ctensor, a, b, c libtch.Ctensor)
type libtchScalar = func(out *libtch.Ctensor, a libtch.Ctensor, v libtch.Cscalar)

func (s *Scope) op1(name string, f libtch1, a *Tensor) *Tensor {
	return s.op(name, operands{a}, func(out *libtch.Ctensor) { f(out, a.c) })
}
func (s *Scope) op2(name string, f libtch2, a, b *Tensor) *Tensor {
	return s.op(name, operands{a, b}, func(out *libtch.Ctensor) { f(out, a.c, b.c) })
}
func (s *Scope) op3(name string, f libtch3, a, b, c *Tensor) *Tensor {
	return s.op(name, operands{a, b, c}, func(out *libtch.Ctensor) { f(out, a.c, b.c, c.c) })
}
func (s *Scope) opScalar(name string, f libtchScalar, a *Tensor, v float64) *Tensor {
	return s.op(name, operands{a}, func(out *libtch.Ctensor) { withScalar(v, func(c libtch.Cscalar) { f(out, a.c, c) }) })
}
func (s *Scope) do1(name string, f libtch1, a *Tensor) {
	s.do(name, operands{a}, func(out *libtch.Ctensor) { f(out, a.c) })
}
func (s *Scope) do2(name string, f libtch2, a, b *Tensor) {
	s.do(name, operands{a, b}, func(out *libtch.Ctensor) { f(out, a.c, b.c) })
}
func (s *Scope) do3(name string, f libtch3, a, b, c *Tensor) {
	s.do(name, operands{a, b, c}, func(out *libtch.Ctensor) { f(out, a.c, b.c, c.c) })
}

// Shapes: all but Contiguous and Cat return views of the same memory.

func (s *Scope) View(a *Tensor, shape ...int64) *Tensor {
	return s.op("view", operands{a}, func(out *libtch.Ctensor) { libtch.AtgView(out, a.c, shape, len(shape)) })
}

// Reshape is View if the memory allows it, otherwise a copy.
func (s *Scope) Reshape(a *Tensor, shape ...int64) *Tensor {
	return s.op("reshape", operands{a}, func(out *libtch.Ctensor) { libtch.AtgReshape(out, a.c, shape, len(shape)) })
}

func (s *Scope) Narrow(a *Tensor, axis, start, length int64) *Tensor {
	return s.op("narrow", operands{a}, func(out *libtch.Ctensor) { libtch.AtgNarrow(out, a.c, axis, start, length) })
}

func (s *Scope) Transpose(a *Tensor, axis1, axis2 int64) *Tensor {
	return s.op("transpose", operands{a}, func(out *libtch.Ctensor) { libtch.AtgTranspose(out, a.c, axis1, axis2) })
}

// T is the transpose of a matrix.
func (s *Scope) T(a *Tensor) *Tensor { return s.Transpose(a, 0, 1) }

func (s *Scope) Unsqueeze(a *Tensor, axis int64) *Tensor {
	return s.op("unsqueeze", operands{a}, func(out *libtch.Ctensor) { libtch.AtgUnsqueeze(out, a.c, axis) })
}

func (s *Scope) Expand(a *Tensor, shape ...int64) *Tensor {
	return s.op("expand", operands{a}, func(out *libtch.Ctensor) { libtch.AtgExpand(out, a.c, shape, len(shape), 0) })
}

// Permute reorders the axes.
func (s *Scope) Permute(a *Tensor, axes ...int64) *Tensor {
	return s.op("permute", operands{a}, func(out *libtch.Ctensor) { libtch.AtgPermute(out, a.c, axes, len(axes)) })
}

func (s *Scope) Contiguous(a *Tensor) *Tensor { return s.op1("contiguous", libtch.AtgContiguous, a) }

func (s *Scope) Cat(axis int64, tensors ...*Tensor) *Tensor {
	handles := make([]libtch.Ctensor, len(tensors))
	for i, t := range tensors {
		if !s.ready("cat", operands{t}) {
			return &Tensor{}
		}
		handles[i] = t.c
	}
	if len(handles) == 0 {
		handles = make([]libtch.Ctensor, 1)
	}
	return s.op("cat", operands{}, func(out *libtch.Ctensor) { libtch.AtgCat(out, handles, len(tensors), axis) })
}

// Elementwise, with broadcasting.

func (s *Scope) Add(a, b *Tensor) *Tensor { return s.op2("add", libtch.AtgAdd, a, b) }
func (s *Scope) Sub(a, b *Tensor) *Tensor { return s.op2("sub", libtch.AtgSub, a, b) }
func (s *Scope) Mul(a, b *Tensor) *Tensor { return s.op2("mul", libtch.AtgMul, a, b) }

// MulInto writes a·b into out, in out's type.
func (s *Scope) MulInto(out, a, b *Tensor) { s.do3("mul into", libtch.AtgMulOut, out, a, b) }

// Roll moves elements n places along an axis, cyclically.
func (s *Scope) Roll(a *Tensor, n, axis int64) *Tensor {
	return s.op("roll", operands{a}, func(out *libtch.Ctensor) {
		libtch.AtgRoll(out, a.c, []int64{n}, 1, []int64{axis}, 1)
	})
}

func (s *Scope) AddScalar(a *Tensor, v float64) *Tensor {
	return s.opScalar("add scalar", libtch.AtgAddScalar, a, v)
}

func (s *Scope) MulScalar(a *Tensor, v float64) *Tensor {
	return s.opScalar("mul scalar", libtch.AtgMulScalar, a, v)
}

func (s *Scope) Neg(a *Tensor) *Tensor    { return s.op1("neg", libtch.AtgNeg, a) }
func (s *Scope) Exp(a *Tensor) *Tensor    { return s.op1("exp", libtch.AtgExp, a) }
func (s *Scope) Log(a *Tensor) *Tensor    { return s.op1("log", libtch.AtgLog, a) }
func (s *Scope) Square(a *Tensor) *Tensor { return s.op1("square", libtch.AtgSquare, a) }
func (s *Scope) Rsqrt(a *Tensor) *Tensor  { return s.op1("rsqrt", libtch.AtgRsqrt, a) }
func (s *Scope) Silu(a *Tensor) *Tensor   { return s.op1("silu", libtch.AtgSilu, a) }

// Reductions.

// Sum adds all elements.
func (s *Scope) Sum(a *Tensor) *Tensor {
	return s.op("sum", operands{a}, func(out *libtch.Ctensor) { libtch.AtgSum(out, a.c, sameType) })
}

func (s *Scope) SumAxis(a *Tensor, axis int64, keep bool) *Tensor {
	return s.op("sum axis", operands{a}, func(out *libtch.Ctensor) {
		libtch.AtgSumDimIntlist(out, a.c, []int64{axis}, 1, flag(keep), sameType)
	})
}

func (s *Scope) MeanAxis(a *Tensor, axis int64, keep bool) *Tensor {
	return s.op("mean axis", operands{a}, func(out *libtch.Ctensor) {
		libtch.AtgMeanDim(out, a.c, []int64{axis}, 1, flag(keep), sameType)
	})
}

func (s *Scope) LogSoftmax(a *Tensor, axis int64) *Tensor {
	return s.op("log_softmax", operands{a}, func(out *libtch.Ctensor) { libtch.AtgLogSoftmax(out, a.c, axis, sameType) })
}

// Products. Those of float32 matrices on the CPU are in matmul.go, all others are libtorch's.

func (s *Scope) Mm(a, b *Tensor) *Tensor {
	if out := s.product("mm", nil, a, b, false); out != nil {
		return out
	}
	return s.op("mm", operands{a, b}, func(out *libtch.Ctensor) { libtch.AtgMm(out, a.c, b.c) })
}

// Linear returns x·wᵀ + bias; bias is a row, a matrix like the result, or nil.
func (s *Scope) Linear(x, w, bias *Tensor) *Tensor {
	if out := s.product("linear", bias, x, w, true); out != nil {
		return out
	}
	if bias == nil {
		return s.Mm(x, s.T(w))
	}
	return s.Addmm(bias, x, s.T(w))
}

// MmInto writes a·b into out.
func (s *Scope) MmInto(out, a, b *Tensor) {
	if !s.productInto("mm into", out, nil, a, b) {
		s.do("mm into", operands{out, a, b}, func(o *libtch.Ctensor) { libtch.AtgMmOut(o, out.c, a.c, b.c) })
	}
}

// wideColumns is the number of columns that WideMmInto computes at once on the CPU, to limit its copy of b.
const wideColumns = 1024

// WideMmInto writes a·b into out, which is float32 for all types of operands: the sums are not rounded to the
// operands' type.
func (s *Scope) WideMmInto(out, a, b *Tensor) {
	if !s.ready("wide mm", operands{out, a, b}) || a.DType() == Float32 {
		s.MmInto(out, a, b)
		return
	}
	if s.worker.device != CPU {
		if C.wide_mm(unsafe.Pointer(out.c), unsafe.Pointer(a.c), unsafe.Pointer(b.c)) == 0 {
			s.failDirect("wide mm", operands{out, a, b})
		}
		return
	}
	s.Nest(func(s *Scope) {
		a = s.As(a, Float32)
		for at := int64(0); s.Err() == nil && at < b.Size(1); at += wideColumns {
			s.Nest(func(s *Scope) {
				n := min(wideColumns, b.Size(1)-at)
				s.Copy_(s.Narrow(out, 1, at, n), s.Mm(a, s.As(s.Narrow(b, 1, at, n), Float32)))
			})
		}
	})
}

func (s *Scope) failDirect(name string, in operands) {
	text, _, _ := strings.Cut(C.GoString(C.direct_error()), "\n")
	s.Fail(failure(name, shapesOf(in), text))
}

// Addmm is bias + a·b.
func (s *Scope) Addmm(bias, a, b *Tensor) *Tensor {
	if out := s.product("addmm", bias, a, b, false); out != nil {
		return out
	}
	return s.op("addmm", operands{bias, a, b}, func(out *libtch.Ctensor) { libtch.AtgAddmm(out, bias.c, a.c, b.c) })
}

// Addmm_ adds a·b to sum.
func (s *Scope) Addmm_(sum, a, b *Tensor) {
	if !s.productInto("addmm_", sum, sum, a, b) {
		s.do("addmm_", operands{sum, a, b}, func(o *libtch.Ctensor) { libtch.AtgAddmm_(o, sum.c, a.c, b.c) })
	}
}

// Attention computes softmax(q·kᵀ/√D + mask)·v over [B, H, T, D].
func (s *Scope) Attention(q, k, v, mask *Tensor) *Tensor {
	return s.op("attention", operands{q, k, v, mask}, func(out *libtch.Ctensor) {
		libtch.AtgScaledDotProductAttention(out, q.c, k.c, v.c, mask.c, 0, 0, 0, 1)
	})
}

// CausalAttention is Attention in which position t sees keys 0..t; queries and keys have equal lengths.
func (s *Scope) CausalAttention(q, k, v *Tensor) *Tensor {
	return s.op("causal attention", operands{q, k, v}, func(out *libtch.Ctensor) {
		if *out = libtch.Ctensor(C.causal_attention(unsafe.Pointer(q.c), unsafe.Pointer(k.c),
			unsafe.Pointer(v.c))); *out == nil {
			s.failDirect("causal attention", operands{q, k, v})
		}
	})
}

// Indexing.

func (s *Scope) IndexSelect(a *Tensor, axis int64, index *Tensor) *Tensor {
	return s.op("index_select", operands{a, index}, func(out *libtch.Ctensor) {
		libtch.AtgIndexSelect(out, a.c, axis, index.c)
	})
}

func (s *Scope) Gather(a *Tensor, axis int64, index *Tensor) *Tensor {
	return s.op("gather", operands{a, index}, func(out *libtch.Ctensor) { libtch.AtgGather(out, a.c, axis, index.c, 0) })
}

// In place.

// Add_ adds b to a, in a's type.
func (s *Scope) Add_(a, b *Tensor) { s.do2("add_", libtch.AtgAdd_, a, b) }

// Addcmul_ adds the products b·c to a.
func (s *Scope) Addcmul_(a, b, c *Tensor) { s.do3("addcmul_", libtch.AtgAddcmul_, a, b, c) }

// Copy_ writes b over a, converting type and device.
func (s *Scope) Copy_(a, b *Tensor) {
	if !s.ready("copy_", operands{a, b}) {
		return
	}
	libtch.AtCopy_(a.c, b.c)
	if text := thrown(); text != "" {
		s.Fail(failure("copy_", shapesOf(operands{a, b}), text))
	}
}

func (s *Scope) Zero_(a *Tensor) { s.do1("zero_", libtch.AtgZero_, a) }
