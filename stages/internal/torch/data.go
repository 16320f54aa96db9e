//go:build libtorch

package torch

import (
	"cmp"
	"fmt"
	"unsafe"

	"github.com/sugarme/gotch/libtch"
)

// DType is the type of a tensor's elements, numbered as in libtorch.
type DType int32

const (
	Int32    DType = 3
	Int64    DType = 4
	Float32  DType = 6
	Float64  DType = 7
	BFloat16 DType = 15

	// sameType keeps the operand's type.
	sameType = -1
)

func (d DType) String() string {
	names := map[DType]string{Int32: "int32", Int64: "int64", Float32: "float32", Float64: "float64",
		BFloat16: "bfloat16"}
	return cmp.Or(names[d], fmt.Sprintf("dtype %d", int32(d)))
}

// DType returns the type of the tensor's elements.
func (t *Tensor) DType() DType { return DType(libtch.AtScalarType(t.c)) }

// device returns gotch's number of the tensor's device. Package libtch reads a C int as a Go int, whose upper
// half is undefined.
func (t *Tensor) device() int32 { return int32(libtch.AtDevice(t.c)) }

// Empty returns a tensor with undefined elements.
func (s *Scope) Empty(kind DType, shape ...int64) *Tensor {
	return s.make("empty", shape, func(out *libtch.Ctensor) {
		libtch.AtgEmpty(out, shape, len(shape), int32(kind), s.worker.device.index())
	})
}

// Zeros returns a tensor of zeros.
func (s *Scope) Zeros(kind DType, shape ...int64) *Tensor {
	return s.make("zeros", shape, func(out *libtch.Ctensor) {
		libtch.AtgZeros(out, shape, len(shape), int32(kind), s.worker.device.index())
	})
}

// Full returns a tensor whose elements all equal v.
func (s *Scope) Full(kind DType, v float64, shape ...int64) *Tensor {
	return s.make("full", shape, func(out *libtch.Ctensor) {
		c := libtch.AtsFloat(v)
		libtch.AtgFull(out, shape, len(shape), c, int32(kind), s.worker.device.index())
		libtch.AtsFree(c)
	})
}

func (s *Scope) make(name string, shape []int64, call func(out *libtch.Ctensor)) *Tensor {
	if len(shape) == 0 {
		s.Fail(fmt.Errorf("torch %s: a new tensor needs at least one axis", name))
	}
	return s.op(name, operands{}, call)
}

// FromFloat32 returns a tensor with a copy of data, row by row.
func (s *Scope) FromFloat32(data []float32, shape ...int64) *Tensor {
	return from(s, Float32, data, shape)
}

// FromInt64 returns a tensor with a copy of data, row by row.
func (s *Scope) FromInt64(data []int64, shape ...int64) *Tensor { return from(s, Int64, data, shape) }

func from[E float32 | int32 | int64](s *Scope, kind DType, data []E, shape []int64) *Tensor {
	n := int64(1)
	for _, d := range shape {
		n *= d
	}
	if n != int64(len(data)) {
		s.Fail(fmt.Errorf("torch from %s: %d values do not fill the shape %v", kind, len(data), shape))
		return &Tensor{}
	}
	host := &Scope{worker: s.worker, parent: s, sticky: s.sticky}
	if s.worker.device != CPU {
		host.worker = &worker{device: CPU, out: s.worker.out}
	}
	defer host.close()
	t := host.Empty(kind, shape...)
	if s.Err() != nil {
		return &Tensor{}
	}
	copy(view[E](t), data)
	if s.worker.device != CPU {
		return s.To(t, s.worker.device)
	}
	host.Keep(t)
	return t
}

// view returns the memory of a contiguous CPU tensor as a slice.
func view[E any](t *Tensor) []E {
	n := t.Len()
	if n == 0 {
		return nil
	}
	return unsafe.Slice((*E)(libtch.AtDataPtr(t.c)), n)
}

// Float32s returns the elements of a float32 tensor, row by row. For a contiguous CPU tensor they share its
// memory until it is freed. Otherwise they are a copy with the lifetime of s.
func (s *Scope) Float32s(t *Tensor) []float32 { return read[float32](s, Float32, t) }

func read[E any](s *Scope, kind DType, t *Tensor) []E {
	if !s.ready("read", operands{t}) {
		return nil
	}
	if got := t.DType(); got != kind {
		s.Fail(fmt.Errorf("torch read: the tensor %v holds %s, want %s", t.Shape(), got, kind))
		return nil
	}
	if t.device() != CPU.index() {
		t = s.To(t, CPU)
	}
	if s.Err() != nil {
		return nil
	}
	if !libtch.AtIsContiguous(t.c) {
		t = s.Contiguous(t)
	}
	if s.Err() != nil {
		return nil
	}
	return view[E](t)
}

// Fill overwrites the elements of a float32 tensor: f sets them, row by row. On the CPU f gets the tensor's
// memory, otherwise a copy that is transferred afterwards. An error of f becomes that of the scope and leaves the
// elements undefined.
func (s *Scope) Fill(t *Tensor, f func([]float32) error) {
	if !s.ready("fill", operands{t}) {
		return
	}
	if t.device() == CPU.index() && t.DType() == Float32 && libtch.AtIsContiguous(t.c) {
		if err := f(view[float32](t)); err != nil {
			s.Fail(err)
		}
		return
	}
	host := &Scope{worker: &worker{device: CPU, out: s.worker.out}, parent: s, sticky: s.sticky}
	defer host.close()
	from := host.Empty(Float32, t.Shape()...)
	if s.Err() != nil {
		return
	}
	if err := f(view[float32](from)); err != nil {
		s.Fail(err)
		return
	}
	s.Copy_(t, from)
}

// Float64s is Float32s for float64.
func (s *Scope) Float64s(t *Tensor) []float64 { return read[float64](s, Float64, t) }

// To copies a tensor to a device.
func (s *Scope) To(t *Tensor, d Device) *Tensor {
	return s.op("to", operands{t}, func(out *libtch.Ctensor) { libtch.AtgTo(out, t.c, d.index()) })
}

// As returns a tensor converted to a type: itself if it already has the type.
func (s *Scope) As(t *Tensor, kind DType) *Tensor {
	if !s.ready("as", operands{t}) || t.DType() == kind {
		return t
	}
	return s.op("as", operands{t}, func(out *libtch.Ctensor) { libtch.AtgToDtype(out, t.c, int32(kind), 0, 0) })
}
