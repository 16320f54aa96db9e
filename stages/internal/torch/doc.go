// Package torch is a thin layer over libtorch for the language model, based on the handles of gotch's package
// libtch.
//
// Start with Do: it runs tensor work on the operating-system thread of a device, because gradient mode and the
// error slot of libtorch are thread-local. The work gets a Scope, which owns every Tensor made through it and
// frees them when it ends; Keep moves a tensor to the parent scope or, from the outermost scope, out of all
// scopes until Free.
//
// Operations are methods of the scope with a sticky error, as in bufio.Writer: after the first failure the others
// do nothing, and Do returns the error with the operation and the shapes of its operands. So formulas are
// readable:
//
//	err := torch.Do(ctx, torch.CPU, func(s *torch.Scope) error {
//		h := s.Silu(s.Addmm(bias, x, s.Transpose(w, 0, 1))) // [T, D]
//		copy(out, s.Float32s(h))
//		return nil
//	})
//
// A Tensor belongs to its device's thread: it may be stored anywhere but used only inside Do.
//
// For float32 on the CPU there are C kernels: fused.go with the parts of a decoder that libtorch would compose of
// many passes over memory, and their gradients; matmul.go with the matrix product; decode.go with a decoder's
// whole pass over new tokens. They share their work between threads (pool.h), with identical results for any
// number of threads. composed.go computes the same with libtorch's operations, on GPUs and in bfloat16; Compose
// selects it on the CPU too. flash.go has the attention of GPUs in bfloat16, with tables of sequences; EmulateFlash
// selects it on the CPU without its kernel. libtorch's CUDA half is loaded at the first use of a GPU.
//
// The package needs the build tag libtorch; without it only FlashesHeads remains.
package torch
