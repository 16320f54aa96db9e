//go:build libtorch

package torch

// #include <stdlib.h>
import "C"

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"unsafe"

	"github.com/sugarme/gotch/libtch"
)

// Tensor is a handle of libtorch. The scope that made it owns it until Keep from the outermost scope.
type Tensor struct {
	c      libtch.Ctensor
	owner  *Scope
	pinned bool // by HostZeros
}

// Scope makes tensors and frees them when it ends. The package comment explains its sticky error.
type Scope struct {
	worker *worker
	parent *Scope
	owned  []*Tensor
	sticky *error // one for the whole tree of scopes of a Do

	pass *passCache // of the outermost
}

// Err returns the first error of this Do so far. Long loops check it.
func (s *Scope) Err() error { return *s.sticky }

// Nest runs f with a scope inside s. Its tensors are freed when f returns, unless kept.
func (s *Scope) Nest(f func(*Scope)) {
	inner := &Scope{worker: s.worker, parent: s, sticky: s.sticky}
	defer inner.close()
	f(inner)
}

// Keep moves tensors of s to its parent. From the outermost scope they leave all scopes: the caller frees them in
// a later Do.
func (s *Scope) Keep(tensors ...*Tensor) {
	for _, t := range tensors {
		if t == nil || t.owner != s {
			continue
		}
		s.disown(t)
		if s.parent != nil {
			s.parent.own(t)
		}
	}
}

// Free frees tensors before the end of their scope. Nil and freed tensors are ignored.
func (s *Scope) Free(tensors ...*Tensor) {
	for _, t := range tensors {
		if t == nil || t.c == nil {
			continue
		}
		if t.owner != nil {
			t.owner.disown(t)
		}
		t.free()
	}
}

func (s *Scope) close() {
	for i := len(s.owned) - 1; i >= 0; i-- {
		s.owned[i].owner = nil
		s.owned[i].free()
	}
	s.owned = nil
}

func (s *Scope) own(t *Tensor) {
	t.owner = s
	s.owned = append(s.owned, t)
}

// disown puts the last tensor in the place of t. The order matters: the allocator fragments the memory more if
// tensors are freed strictly in the reverse order.
func (s *Scope) disown(t *Tensor) {
	last := len(s.owned) - 1
	s.owned[slices.Index(s.owned, t)] = s.owned[last]
	s.owned[last] = nil
	s.owned = s.owned[:last]
	t.owner = nil
}

func (t *Tensor) free() {
	t.unpin()
	libtch.AtFree(t.c)
	t.c = nil
	live.Add(-1)
}

// op calls an operation of libtch that writes one handle, and owns it. After an error it returns a tensor without
// a handle, which later operations do not use because the error is sticky.
func (s *Scope) op(name string, operands operands, call func(out *libtch.Ctensor)) *Tensor {
	if !s.ready(name, operands) {
		return &Tensor{}
	}
	if plant := planted.Load(); plant != nil {
		if err := (*plant)(name, shapesOf(operands)); err != nil {
			s.Fail(err)
			return &Tensor{}
		}
	}
	c := s.call(name, operands, call)
	if c == nil {
		return &Tensor{}
	}
	return s.adopt(c)
}

// do is op for operations whose result is an operand; the second handle from libtch is freed.
func (s *Scope) do(name string, operands operands, call func(out *libtch.Ctensor)) {
	if !s.ready(name, operands) {
		return
	}
	if c := s.call(name, operands, call); c != nil {
		libtch.AtFree(c)
	}
}

// call returns the handle that an operation writes, nil after an error.
func (s *Scope) call(name string, operands operands, call func(out *libtch.Ctensor)) libtch.Ctensor {
	out := &s.worker.out[0]
	*out = nil
	call(out)
	if *out == nil {
		s.fail(name, operands)
	}
	return *out
}

func (s *Scope) adopt(c libtch.Ctensor) *Tensor {
	live.Add(1)
	t := &Tensor{c: c}
	s.own(t)
	return t
}

// operands are the tensors of an operation; nil is an omitted one.
type operands [4]*Tensor

// steps counts the operations of all devices.
var steps atomic.Int64

// Steps returns the number of operations that this process has started. A process that computes makes steps.
func Steps() int64 { return steps.Load() }

// ready reports whether an operation may run: no error so far and all operands alive.
func (s *Scope) ready(name string, operands operands) bool {
	steps.Add(1)
	if *s.sticky != nil {
		return false
	}
	for i, t := range operands {
		if t != nil && t.c == nil {
			s.Fail(fmt.Errorf("torch %s: operand %d was freed", name, i+1))
			return false
		}
	}
	return true
}

// ErrOutOfMemory is wrapped by the error of an operation for whose result the device had no memory.
var ErrOutOfMemory = errors.New("out of memory")

// outOfMemory lists the messages of libtorch's allocators for the CPU and CUDA, the driver and C++.
var outOfMemory = []string{"can't allocate memory", "not enough memory", "CUDA out of memory",
	"CUDA error: out of memory", "bad_alloc"}

func (s *Scope) fail(name string, operands operands) {
	s.Fail(failure(name, shapesOf(operands), cmp.Or(thrown(), "libtorch returned nothing and left no message")))
}

func failure(name string, shapes [][]int64, text string) error {
	what := name
	for i, shape := range shapes {
		what += []string{" of ", ", "}[min(i, 1)] + fmt.Sprint(shape)
	}
	if slices.ContainsFunc(outOfMemory, func(part string) bool { return strings.Contains(text, part) }) {
		return fmt.Errorf("torch %s: %w: %s", what, ErrOutOfMemory, text)
	}
	return fmt.Errorf("torch %s: %s", what, text)
}

func shapesOf(operands operands) (shapes [][]int64) {
	for _, t := range operands {
		if t != nil {
			shapes = append(shapes, t.Shape())
		}
	}
	return shapes
}

// planted is the function of PlantFailure; nil by default.
var planted atomic.Pointer[func(operation string, shapes [][]int64) error]

// PlantFailure is for tests: until remove is called, each operation that makes a tensor first calls f with the
// shapes of its operands and fails with its error.
func PlantFailure(f func(operation string, shapes [][]int64) error) (remove func()) {
	planted.Store(&f)
	return func() { planted.Store(nil) }
}

// thrown removes libtorch's message from the thread's error slot; "" without one. The first line is the message,
// the rest a C++ stack.
func thrown() string {
	c := (*C.char)(unsafe.Pointer(libtch.GetAndResetLastErr()))
	defer C.free(unsafe.Pointer(c))
	text, _, _ := strings.Cut(C.GoString(c), "\n")
	return text
}

// Fail sets the scope's error unless there is one.
func (s *Scope) Fail(err error) {
	*s.sticky = cmp.Or(*s.sticky, err)
}

// Shape returns the sizes of all axes; a scalar has none. It is nil for a freed tensor.
func (t *Tensor) Shape() []int64 {
	if t == nil || t.c == nil {
		return nil
	}
	n := libtch.AtDim(t.c)
	shape := make([]int64, n)
	if n > 0 {
		libtch.AtShape(t.c, unsafe.Pointer(&shape[0]))
	}
	return shape
}

// strides returns the distance between the elements of each axis.
func (t *Tensor) strides() []int64 {
	strides := make([]int64, len(t.Shape()))
	if len(strides) > 0 {
		libtch.AtStride(t.c, unsafe.Pointer(&strides[0]))
	}
	return strides
}

// Size returns the length of one axis, 0 if there is no such axis.
func (t *Tensor) Size(axis int) int64 {
	shape := t.Shape()
	if axis < 0 {
		axis += len(shape)
	}
	if axis < 0 || axis >= len(shape) {
		return 0
	}
	return shape[axis]
}

// Len returns the number of elements.
func (t *Tensor) Len() int {
	n := 1
	for _, d := range t.Shape() {
		n *= int(d)
	}
	return n
}
