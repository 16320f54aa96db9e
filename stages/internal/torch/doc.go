// Package torch is the thin layer over libtorch with which the language model computes: bare
// handles over gotch's package libtch, nothing of gotch above it.
//
// Start with Do: it runs tensor work on the one operating-system thread that belongs to a device,
// because gradient mode and the error slot of libtorch are thread-local. The work gets a Scope,
// which owns every Tensor made through it and frees them when it ends; Keep moves one to the parent
// scope, or, from the outermost, out of all scopes until Free.
//
// Operations are methods of the scope with a sticky error, as in bufio.Writer: after the first
// failure the rest do nothing, and Do returns the error with the operation and the shapes of its
// operands. So the mathematics above reads as mathematics:
//
//	err := torch.Do(ctx, torch.CPU, func(s *torch.Scope) error {
//		h := s.Silu(s.Addmm(bias, x, s.Transpose(w, 0, 1))) // [T, D]
//		copy(out, s.Float32s(h))
//		return nil
//	})
//
// A Tensor belongs to its device's thread: it may be stored anywhere but used only inside Do.
//
// fused.go holds the parts of a decoder that libtorch would compose of many passes over memory, as
// C kernels with their gradients, for float32 on the CPU; matmul.go the product of matrices for the
// same, decode.go a decoder's whole pass over new tokens. They share their work out over threads
// (pool.h) and give the same bits with any number. composed.go computes the same of libtorch's own
// operations, on a GPU, which this has not run on yet, and in bfloat16; Compose has the CPU take
// them too. libtorch's CUDA half is loaded when a GPU is first used.
//
// The package needs the build tag libtorch; without it only this comment remains.
package torch
