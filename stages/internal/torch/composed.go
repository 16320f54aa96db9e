//go:build libtorch

package torch

import (
	"sync/atomic"
	"unsafe"

	"github.com/sugarme/gotch/libtch"
)

// Fused operations composed of libtorch's operations, for GPUs and bfloat16, for which there are no kernels. Norms,
// statistics and sums of gradients are float32 for all operands. The contracts are those of fused.go; differences are
// noted.

// composeAll selects the composed operations on the CPU in float32 too.
var composeAll atomic.Bool

// Compose switches every device to the composed operations, also the CPU in float32, or back. Tests and
// measurements of GPU computations use it; earlier caches must not be used afterwards.
func Compose(on bool) { composeAll.Store(on) }

// Composes reports whether a fused operation on tensors of this type is composed.
func (s *Scope) Composes(kind DType) bool {
	return s.worker.device != CPU || kind == BFloat16 || composeAll.Load()
}

// composesOf is Composes for an operand. After an error the kernels' checks apply.
func (s *Scope) composesOf(t *Tensor) bool {
	return s.Err() == nil && t != nil && t.c != nil && s.Composes(t.DType())
}

// with runs f in its own scope and keeps the result.
func (s *Scope) with(f func(s *Scope) *Tensor) (result *Tensor) {
	s.Nest(func(inner *Scope) {
		result = f(inner)
		inner.Keep(result)
	})
	return result
}

// source identifies the origin of a tensor: a Go slice, and a second slice or tensor if there are two.
type source struct {
	slice unsafe.Pointer // keeps the memory from being used again
	n     int
	with  any
	what  string
}

func sourceOf[E any](slice []E, what string, with any) source {
	return source{unsafe.Pointer(unsafe.SliceData(slice)), len(slice), with, what}
}

// passCache holds what once has made in a pass.
type passCache struct {
	scope *Scope
	made  map[source]any
}

// once caches the result of make for a source until EndPass, so indices and masks are copied to the device once and
// not per layer. The slices must not change before.
func once[T any](s *Scope, from source, make func(s *Scope) T) T {
	root := s
	for root.parent != nil {
		root = root.parent
	}
	if root.pass == nil {
		root.pass = &passCache{&Scope{worker: root.worker, parent: root, sticky: root.sticky}, map[source]any{}}
	}
	if made, ok := root.pass.made[from].(T); ok {
		return made
	}
	made := make(root.pass.scope)
	root.pass.made[from] = made
	return made
}

// EndPass frees the indices and masks of a forward or backward pass, which grow with the square of its rows. Without it
// they live until the end of the Do.
func (s *Scope) EndPass() {
	root := s
	for root.parent != nil {
		root = root.parent
	}
	if root.pass != nil {
		root.pass.scope.close()
		root.pass = nil
	}
}

// index returns a slice of indices on the device.
func index[E int32 | int64](s *Scope, v []E) *Tensor {
	return once(s, sourceOf(v, "index", nil), func(s *Scope) *Tensor {
		return s.FromInt64(wide(v), int64(len(v)))
	})
}

func wide[E int32 | int64](v []E) []int64 {
	w := make([]int64, len(v))
	for i, x := range v {
		w[i] = int64(x)
	}
	return w
}

func (s *Scope) composedRope_(x *Tensor, heads, d int64, positions []int32, cos, sin *Tensor, back bool) {
	s.Nest(func(s *Scope) {
		halves := func(name string, table *Tensor, first, second float64) *Tensor { // [N, 1, d]
			return once(s, sourceOf(positions, name, table), func(s *Scope) *Tensor {
				return s.with(func(s *Scope) *Tensor {
					half := s.IndexSelect(table, 0, index(s, positions))
					return s.Unsqueeze(s.Cat(1, s.MulScalar(half, first), s.MulScalar(half, second)), 1)
				})
			})
		}
		c, n := halves("cos", cos, 1, 1), (*Tensor)(nil)
		if back {
			n = halves("sin back", sin, 1, -1)
		} else {
			n = halves("sin", sin, -1, 1)
		}
		a := s.View(s.Narrow(x, 1, 0, heads*d), int64(len(positions)), heads, d)
		turned := s.Mul(a, c) // in float32
		s.Addcmul_(turned, s.Roll(a, d/2, 2), n)
		s.Copy_(a, turned)
	})
}

func (s *Scope) logProbs(logits *Tensor, temperature float64) *Tensor {
	z := s.As(logits, Float32)
	if temperature != 1 {
		z = s.MulScalar(z, 1/temperature)
	}
	return s.LogSoftmax(z, 1)
}

func (s *Scope) composedHeadStats(logits, ref *Tensor, temperature float64, targets []int64) []HeadStat {
	stats := make([]HeadStat, len(targets))
	s.Nest(func(s *Scope) {
		at := s.View(index(s, targets), -1, 1)
		l := s.logProbs(logits, temperature)
		p := s.Exp(l)
		columns := []*Tensor{s.Gather(l, 1, at), s.Neg(s.SumAxis(s.Mul(p, l), 1, true))}
		if ref != nil {
			lr := s.logProbs(ref, temperature)
			columns = append(columns, s.Gather(lr, 1, at), s.SumAxis(s.Mul(p, s.Sub(l, lr)), 1, true))
		}
		flat := s.Float32s(s.Cat(1, columns...))
		for i := 0; s.Err() == nil && i < len(stats); i++ {
			row := flat[i*len(columns):]
			stats[i].Logp, stats[i].Entropy = float64(row[0]), float64(row[1])
			if ref != nil {
				stats[i].LogpRef, stats[i].KL = float64(row[2]), float64(row[3])
			}
		}
	})
	return stats
}

func (s *Scope) composedHeadBackward(logits, ref *Tensor, temperature float64, targets []int64, stats []HeadStat,
	weights []HeadWeight) {
	s.Nest(func(s *Scope) {
		n, k := int64(len(targets)), 1/temperature
		const columns = 5
		host := make([]float32, 0, n*columns)
		entropy, kl := false, false
		for i, w := range weights {
			host = append(host, float32(k*w.Logp), float32(k*w.Entropy), float32(k*w.KL), float32(stats[i].Entropy),
				float32(stats[i].KL))
			entropy, kl = entropy || w.Entropy != 0, kl || w.KL != 0 && ref != nil
		}
		all := s.FromFloat32(host, n, columns)
		column := func(i int64) *Tensor { return s.Narrow(all, 1, i, 1) }
		// d logp = 1[y] - p; d entropy = -p (log p + H); d KL = p (log p - log q - KL); all times k.
		l := s.logProbs(logits, temperature)
		g := s.Neg(column(0)) // [N, 1]
		if entropy {
			g = s.Sub(g, s.Mul(s.Add(l, column(3)), column(1)))
		}
		if kl {
			lr := s.logProbs(ref, temperature)
			g = s.Add(g, s.Mul(s.Sub(s.Sub(l, lr), column(4)), column(2)))
		}
		d := s.Mul(s.Exp(l), g)
		at := s.View(index(s, targets), -1, 1)
		s.scatterAdd_(d, at, column(0))
		s.Copy_(logits, d)
	})
}

// composedSampleRows samples on the device; only tokens and logprobs are copied to the host.
func (s *Scope) composedSampleRows(logits *Tensor, temperatures, u []float64) (tokens []int32, logps []float32) {
	n := len(temperatures)
	s.Nest(func(s *Scope) {
		inverse, greedy, any := make([]float32, n), make([]float32, n), false
		uniform := make([]float32, 0, 2*n)
		for i, t := range temperatures {
			inverse[i] = 1
			if t > 0 {
				inverse[i] = float32(1 / t)
			} else {
				greedy[i], any = 1, true
			}
			high := float32(u[i]) // the two halves of a float64
			uniform = append(uniform, high, float32(u[i]-float64(high)))
		}
		rows := int64(n)
		z := s.Mul(s.As(s.Narrow(logits, 0, 0, rows), Float32), s.FromFloat32(inverse, rows, 1))
		top := s.maxAxis(z)                        // [N, 1]
		sums := s.cumsum(s.Exp(s.Sub(z, top)))     // [N, V], float64
		total := s.Narrow(sums, 1, z.Size(1)-1, 1) // [N, 1]
		want := s.Mul(s.SumAxis(s.As(s.FromFloat32(uniform, rows, 2), Float64), 1, true), total)
		token := s.clampMax(s.SumAxis(s.As(s.lessEqual(sums, want), Int64), 1, true), z.Size(1)-1) // [N, 1]
		if any {
			best := s.argmax(z)
			token = s.where(s.greater(s.FromFloat32(greedy, rows, 1), 0.5), best, token)
		}
		logp := s.Sub(s.As(s.Sub(s.Gather(z, 1, token), top), Float64), s.Log(total))
		result := s.Float64s(s.Cat(1, s.As(token, Float64), logp))
		for i := 0; i+1 < len(result); i += 2 {
			tokens, logps = append(tokens, int32(result[i])), append(logps, float32(result[i+1]))
		}
	})
	return tokens, logps
}

// Operations used only by the compositions.

func (s *Scope) siluBackward(dy, x *Tensor) *Tensor {
	return s.op2("silu backward", libtch.AtgSiluBackward, dy, x)
}

func (s *Scope) maxAxis(a *Tensor) *Tensor {
	return s.op("amax", operands{a}, func(out *libtch.Ctensor) { libtch.AtgAmax(out, a.c, []int64{1}, 1, 1) })
}

func (s *Scope) argmax(a *Tensor) *Tensor {
	return s.op("argmax", operands{a}, func(out *libtch.Ctensor) { libtch.AtgArgmax(out, a.c, 1, 0, 1) })
}

// cumsum sums rows in float64.
func (s *Scope) cumsum(a *Tensor) *Tensor {
	return s.op("cumsum", operands{a}, func(out *libtch.Ctensor) { libtch.AtgCumsum(out, a.c, 1, int32(Float64)) })
}

func (s *Scope) lessEqual(a, b *Tensor) *Tensor     { return s.op2("le", libtch.AtgLeTensor, a, b) }
func (s *Scope) greaterTensor(a, b *Tensor) *Tensor { return s.op2("gt", libtch.AtgGtTensor, a, b) }

func (s *Scope) greater(a *Tensor, v float64) *Tensor {
	return s.opScalar("gt scalar", libtch.AtgGt, a, v)
}

func (s *Scope) clampMax(a *Tensor, most int64) *Tensor {
	return s.op("clamp", operands{a}, func(out *libtch.Ctensor) {
		c := libtch.AtsInt(most)
		libtch.AtgClampMax(out, a.c, c)
		libtch.AtsFree(c)
	})
}

func (s *Scope) where(mask, a, b *Tensor) *Tensor {
	return s.op3("where", libtch.AtgWhereSelf, mask, a, b)
}

type libtchIndexed = func(out *libtch.Ctensor, a libtch.Ctensor, axis int64, index, x libtch.Ctensor)

func (s *Scope) doIndexed(name string, f libtchIndexed, a *Tensor, axis int64, index, x *Tensor) {
	s.do(name, operands{a, index, x}, func(out *libtch.Ctensor) { f(out, a.c, axis, index.c, x.c) })
}
func (s *Scope) indexAdd_(a, index, x *Tensor) {
	s.doIndexed("index_add_", libtch.AtgIndexAdd_, a, 0, index, x)
}
func (s *Scope) indexCopy_(a, index, x *Tensor) {
	s.doIndexed("index_copy_", libtch.AtgIndexCopy_, a, 0, index, x)
}
func (s *Scope) scatterAdd_(a, index, x *Tensor) {
	s.doIndexed("scatter_add_", libtch.AtgScatterAdd_, a, 1, index, x)
}

func (s *Scope) maskedFill_(a, mask *Tensor, v float64) {
	s.do("masked_fill_", operands{a, mask}, func(out *libtch.Ctensor) {
		withScalar(v, func(c libtch.Cscalar) { libtch.AtgMaskedFill_(out, a.c, mask.c, c) })
	})
}

func (s *Scope) arange(n int64) *Tensor {
	return s.op("arange", operands{}, func(out *libtch.Ctensor) {
		c := libtch.AtsInt(n)
		libtch.AtgArange(out, c, int32(Int64), s.worker.device.index())
		libtch.AtsFree(c)
	})
}
