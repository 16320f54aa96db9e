//go:build libtorch

package torch

import (
	"fmt"

	"github.com/sugarme/gotch/libtch"
)

// Leaf returns a view of t, sharing its memory, for whose gradient Backward can be called.
func (s *Scope) Leaf(t *Tensor) *Tensor {
	leaf := s.op1("detach", libtch.AtgDetach, t)
	s.do("set_requires_grad", operands{leaf}, func(out *libtch.Ctensor) { libtch.AtgSetRequiresGrad(out, leaf.c, 1) })
	return leaf
}

// Grad runs f in gradient mode: operations on leaves and on their results are recorded for Backward.
func (s *Scope) Grad(f func()) {
	before, outer := libtch.AtGradSetEnabled(1), s.worker.recording
	s.worker.recording = true
	defer func() {
		libtch.AtGradSetEnabled(before & 1)
		s.worker.recording = outer
	}()
	f()
}

// Backward returns the gradient of the scalar loss for each leaf and releases the recorded operations. Every leaf
// must be part of the loss.
func (s *Scope) Backward(loss *Tensor, leaves ...*Tensor) []*Tensor {
	grads := make([]*Tensor, len(leaves))
	for i := range grads {
		grads[i] = &Tensor{}
	}
	inputs, outputs := make([]libtch.Ctensor, len(leaves)), make([]libtch.Ctensor, len(leaves))
	for i, t := range leaves {
		if !s.ready("backward", operands{loss, t}) {
			return grads
		}
		inputs[i] = t.c
	}
	if !libtch.AtRequiresGrad(loss.c) { // libtorch would crash
		s.Fail(fmt.Errorf("torch backward of %v: nothing was recorded for it; compute it inside Grad, from leaves",
			loss.Shape()))
		return grads
	}
	roots := []libtch.Ctensor{loss.c}
	libtch.AtRunBackward(&roots[0], 1, &inputs[0], len(inputs), &outputs[0], 0, 0)
	for i, c := range outputs {
		if c == nil {
			s.fail("backward", operands{loss})
			return grads
		}
		grads[i] = s.adopt(c)
		if !libtch.AtDefined(c) {
			s.Fail(fmt.Errorf("torch backward: leaf %d %v takes no part in the loss", i, leaves[i].Shape()))
		}
	}
	return grads
}
