//go:build libtorch

package torch

// #include "kernels.h"
import "C"

import (
	"fmt"

	"github.com/sugarme/gotch/libtch"
)

// Products of float32 matrices on the CPU use a kernel of this package unless Compose is on. On few rows, as in
// decoding, it is up to twice as fast as libtorch's, which packs the weights each time. The bits of an element
// depend only on its row and column, not on the number of rows or threads.

// strided is a matrix whose elements are rs apart along rows and cs along columns.
type strided struct {
	p            *C.float
	n, d, rs, cs int64
}

// strided returns the memory of a matrix, or of a vector as one row for all, that the kernel supports.
func (t *Tensor) strided() (m strided, ok bool) {
	shape, strides := t.Shape(), t.strides()
	if len(shape) == 1 {
		shape, strides = []int64{0, shape[0]}, []int64{0, strides[0]}
	}
	if len(shape) != 2 || t.device() != CPU.index() || t.DType() != Float32 {
		return m, false
	}
	return strided{(*C.float)(libtch.AtDataPtr(t.c)), shape[0], shape[1], strides[0], strides[1]}, true
}

// product returns from + a·b, or a·bᵀ, where from is nil, a row or a matrix. It returns nil if libtorch has to
// compute or refuse the product.
func (s *Scope) product(name string, from, a, b *Tensor, transposed bool) *Tensor {
	fs, as, bs, ok := s.factors(name, from, a, b, transposed)
	if !ok {
		return nil
	}
	out := s.op(name, operands{from, a, b}, func(out *libtch.Ctensor) {
		shape := []int64{as.n, bs.d}
		libtch.AtgEmpty(out, shape, len(shape), int32(Float32), s.worker.device.index())
	})
	if s.Err() == nil {
		os, _ := out.strided()
		s.multiply(os, fs, as, bs)
	}
	return out
}

// factors returns the matrices of from + a·b, or a·bᵀ; ok is false if libtorch has to compute or refuse the
// product.
func (s *Scope) factors(name string, from, a, b *Tensor, transposed bool) (fs, as, bs strided, ok bool) {
	if !s.ready(name, operands{from, a, b}) || s.worker.recording || s.Composes(Float32) {
		return fs, as, bs, false
	}
	as, ok = a.strided()
	bs, ok2 := b.strided()
	if !ok || !ok2 {
		return fs, as, bs, false
	}
	if transposed {
		bs.n, bs.d, bs.rs, bs.cs = bs.d, bs.n, bs.cs, bs.rs
	}
	if from != nil {
		fs, ok = from.strided()
	}
	return fs, as, bs, ok && fits(as, bs, fs)
}

// fits reports whether the shapes are those of a nonempty product, with from nil, a row or a matrix like the
// result.
func fits(a, b, from strided) bool {
	return a.n > 0 && b.n > 0 && b.d > 0 && a.d == b.n && (from.p == nil || from.d == b.d && from.cs == 1 &&
		(from.n == a.n || from.n == 0))
}

// productInto writes from + a·b into out, or reports that libtorch has to.
func (s *Scope) productInto(name string, out, from, a, b *Tensor) bool {
	if !s.ready(name, operands{out}) {
		return false
	}
	fs, as, bs, ok := s.factors(name, from, a, b, false)
	os, ok2 := out.strided()
	if !ok || !ok2 || os.n != as.n || os.d != bs.d || os.cs != 1 {
		return false
	}
	s.multiply(os, fs, as, bs)
	return true
}

func (s *Scope) multiply(out, from, a, b strided) {
	if C.k_matmul(C.int64_t(a.n), C.int64_t(b.d), C.int64_t(a.d), a.p, C.int64_t(a.rs), C.int64_t(a.cs), b.p,
		C.int64_t(b.rs), C.int64_t(b.cs), from.p, C.int64_t(from.rs), out.p, C.int64_t(out.rs)) == 0 {
		s.Fail(fmt.Errorf("torch product of [%d, %d] and [%d, %d]: %w", a.n, a.d, b.n, b.d, ErrOutOfMemory))
	}
}
