//go:build libtorch

package torch

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"rcgrpo/internal/must"
)

// What a GPU computes, on the CPU.
func TestFusedOperationsComposed(t *testing.T) {
	Compose(true)
	defer Compose(false)
	fusedOperations(t)
	EmulateFlash(true)
	defer EmulateFlash(false)
	t.Run("attention of variable lengths", TestPackedAttentionEqualsLibtorchPerPath)
}

// A pass of single rows, a beginning, a continuation and rows that pad, in an order that leaves out slots.
func TestComposedCachedAttentionEqualsTheKernel(t *testing.T) {
	const heads, kvHeads, d, slots, length = 6, 2, 8, 9, 96
	passes := [][2][]int32{
		{{2, 2, 2, 2, 5, 5, 8, 8}, {0, 1, 2, 3, 0, 1, 0, 0}},
		{{5, 2, 2, 0, 7, 8, 8}, {2, 4, 5, 0, 0, 0, 0}},
		{{0, 1, 2}, {1, 0, 6}},
		{{7, 5, 2}, {1, 3, 7}},
	}
	for step := int32(8); step < 70; step++ { // over the border of a block of 64
		passes = append(passes, [2][]int32{{2, 1}, {step, step - 7}})
	}
	var results [2][][]float32
	for way, composed := range []bool{false, true} {
		Compose(composed)
		work(t, func(s *Scope) {
			r := rand.New(rand.NewPCG(7, 7))
			keys, values := s.Cache(Float32, slots, kvHeads, d, length)
			for _, pass := range passes {
				// Rows that pad are the same.
				rows := make([]float32, 0, len(pass[0])*(heads+2*kvHeads)*d)
				for i, slot := range pass[0] {
					row := normals(r, (heads+2*kvHeads)*d)
					if i > 0 && pass[0][i-1] == slot && pass[1][i-1] == pass[1][i] {
						row = slices.Clone(rows[len(rows)-len(row):])
					}
					rows = append(rows, row...)
				}
				qkv := s.FromFloat32(rows, int64(len(pass[0])), (heads+2*kvHeads)*d)
				out := s.CachedAttention(qkv, pass[0], pass[1], keys, values, heads, kvHeads)
				results[way] = append(results[way], slices.Clone(s.Float32s(out)))
			}
		})
		Compose(false)
	}
	for i, want := range results[0] {
		if len(want) == 0 || len(results[1][i]) != len(want) {
			t.Fatalf("pass %d: got %d values, want %d", i, len(results[1][i]), len(want))
		}
		for j := range want {
			if got := results[1][i][j]; math.Abs(float64(got-want[j])) > 2e-6 {
				t.Fatalf("pass %d, value %d: got %v, want %v", i, j, got, want[j])
			}
		}
	}
}

func TestRowsAreSampledAsOnTheHost(t *testing.T) {
	const rows, v = 300, 70
	r := rand.New(rand.NewPCG(8, 8))
	work(t, func(s *Scope) {
		logits := s.MulScalar(random(s, r, rows+5, v), 3)
		host, scratch := s.Float32s(logits), make([]float32, v)
		temperatures, u := make([]float64, rows), make([]float64, rows)
		for i := range u {
			temperatures[i], u[i] = []float64{0.5, 1, 0}[i%3], r.Float64()
		}
		u[0], u[1], u[3], u[4] = 0, 0, math.Nextafter(1, 0), math.Nextafter(1, 0)
		tokens, logps := s.SampleRows(logits, temperatures, u)
		if s.Err() != nil {
			return
		}
		for i := range rows {
			row := host[i*v : (i+1)*v]
			temperature, wantU := temperatures[i], u[i]
			if temperature == 0 {
				temperature, wantU = 1, 0
			}
			want, logp := Sample(row, temperature, wantU, scratch)
			if temperatures[i] == 0 {
				best := slices.Index(row, slices.Max(row))
				want, logp = int32(best), logp+row[best]-row[want]
			}
			if tokens[i] != want || math.Abs(float64(logps[i]-logp)) > 2e-5 {
				t.Errorf("row %d: got token %d at %v, want %d at %v", i, tokens[i], logps[i], want, logp)
			}
		}
	})
}

// Results in bfloat16 are those of float32 rounded: every operand and the result has 8 binary digits.
func TestOperationsInBFloat16AreNearThoseInFloat32(t *testing.T) {
	const rows, heads, kvHeads, d = 12, 4, 2, 8
	work(t, func(s *Scope) {
		r := rand.New(rand.NewPCG(9, 9))
		narrow := func(shape ...int64) (wide, low *Tensor) { // the same values in both types
			low = s.As(random(s, r, shape...), BFloat16)
			return s.As(low, Float32), low
		}
		same := func(what string, got, want *Tensor) {
			t.Helper()
			compare(t, s, what, s.As(got, Float32), want, 3.0/256)
		}
		gu, gul := narrow(rows, 2*d)
		dy, dyl := narrow(rows, d)
		same("swiglu", s.SwiGLU(gul), s.SwiGLU(gu))
		same("swiglu backward", s.SwiGLUBackward(gul, dyl), s.SwiGLUBackward(gu, dy))
		w := s.Full(Float32, 1.5, 2*d)
		y, rstd := s.RMSNorm(Float32, gu, w, 1e-6)
		low, rstdLow := s.RMSNorm(BFloat16, gu, w, 1e-6)
		same("norm", low, y)
		if low.DType() != BFloat16 || rstdLow.DType() != Float32 {
			t.Errorf("the norm is %v, its root %v", low.DType(), rstdLow.DType())
		}
		compare(t, s, "root", rstdLow, rstd, 1e-6)

		q, ql := narrow(rows, heads*d)
		k, kl := narrow(rows, kvHeads*d)
		v, vl := narrow(rows, kvHeads*d)
		up, upl := narrow(rows, heads*d)
		positions := make([]int32, rows)
		for i := range positions {
			positions[i] = int32(i)
		}
		p := Packing{Bounds: []int32{0, rows}, Path: positions, QueryBounds: []int32{0, rows}, Places: positions}
		out, lse := s.PackedAttention(q, k, v, &p, heads, kvHeads)
		outl, lsel := s.PackedAttention(ql, kl, vl, &p, heads, kvHeads)
		same("attention", outl, out)
		gradients := func(q, k, v, out, lse, up *Tensor) [3]*Tensor {
			g := [3]*Tensor{s.Empty(Float32, rows, heads*d), s.Zeros(Float32, rows, kvHeads*d),
				s.Zeros(Float32, rows, kvHeads*d)}
			s.PackedAttentionBackward(q, k, v, out, lse, up, &p, heads, kvHeads, g[0], g[1], g[2])
			return g
		}
		want := gradients(q, k, v, out, lse, up)
		for i, g := range gradients(ql, kl, vl, outl, lsel, upl) {
			compare(t, s, "attention backward", g, want[i], 6.0/256) // sums of up to 24 rounded terms
		}
	})
}

// Products of bfloat16 written as float32 are those in float64 up to float32's rounding; as bfloat16 they keep 8
// digits.
func TestWideProductsAreNotRounded(t *testing.T) {
	const n, k, m = 3, 40, wideColumns + 5
	r := rand.New(rand.NewPCG(4, 4))
	must.OK(t, Do(t.Context(), CPU, func(s *Scope) error {
		a, b := s.As(random(s, r, n, k), BFloat16), s.As(random(s, r, m, k), BFloat16)
		out, rounded := s.Empty(Float32, n, m), s.Float32s(s.As(s.Mm(a, s.T(b)), Float32))
		s.WideMmInto(out, a, s.T(b))
		got, x, y := s.Float32s(out), s.Float32s(s.As(a, Float32)), s.Float32s(s.As(b, Float32))
		far, farRounded := 0.0, 0.0
		for i := range n {
			for j := range m {
				want := 0.0
				for c := range k {
					want += float64(x[i*k+c]) * float64(y[j*k+c])
				}
				far = max(far, math.Abs(float64(got[i*m+j])-want))
				farRounded = max(farRounded, math.Abs(float64(rounded[i*m+j])-want))
			}
		}
		if far > 2e-5 || farRounded < 1e-2 {
			t.Errorf("wide products are %.2g off, rounded ones %.2g", far, farRounded)
		}
		return s.Err()
	}))
}

func TestMasksOfAPassAreFreedAtItsEnd(t *testing.T) {
	Compose(true)
	defer Compose(false)
	// Two sequences share two rows; the second asks from its third on, which needs a mask.
	p := &Packing{Bounds: []int32{0, 3, 7}, Path: []int32{0, 1, 2, 0, 1, 3, 4}, QueryBounds: []int32{0, 3, 5},
		Places: []int32{0, 1, 2, 2, 3}}
	work(t, func(s *Scope) {
		x := s.Full(Float32, 0.5, 5, 8)
		before := Live()
		var outputs [2][]float32
		for pass := range outputs {
			s.Nest(func(s *Scope) {
				out, _ := s.PackedAttention(x, x, x, p, 2, 2)
				outputs[pass] = slices.Clone(s.Float32s(out))
			})
			held := Live() - before
			s.EndPass()
			if left := Live() - before; held <= 0 || left != 0 {
				t.Errorf("pass %d holds %d tensors, and %d after its end; want some and none", pass, held, left)
			}
		}
		if len(outputs[0]) == 0 || !slices.Equal(outputs[0], outputs[1]) {
			t.Errorf("the second pass gives %v, want %v", outputs[1], outputs[0])
		}
	})
}
