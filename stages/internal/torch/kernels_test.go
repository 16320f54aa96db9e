//go:build libtorch

package torch

import (
	"math/rand/v2"
	"slices"
	"testing"

	"rcgrpo/internal/cpu"
	"rcgrpo/internal/must"
)

// eachSet runs f with the kernels of each instruction set that this machine has.
func eachSet(t *testing.T, f func(t *testing.T)) {
	for _, set := range []cpu.Set{cpu.AVX2, cpu.AVX512} {
		t.Run(string(set), func(t *testing.T) {
			t.Setenv(cpu.Variable, string(set))
			if err := useKernels(); err != nil {
				t.Skip(err)
			}
			f(t)
		})
	}
	must.OK(t, useKernels())
}

func TestWithoutKernelsNothingStarts(t *testing.T) {
	before := workers
	workers = map[Device]*worker{}
	defer func() { workers = before }()
	t.Setenv(cpu.Variable, "sse")
	err := Do(t.Context(), CPU, func(*Scope) error { return nil })
	must.Match(t, err, `RCGRPO_CPU is "sse"; the values are avx2 and avx512`)
}

// The sizes are multiples of no vector, of one and of another, and below and above the limits of the paths.
func TestKernelsAreIdenticalOnEachInstructionSet(t *testing.T) {
	var want [][]float32
	eachSet(t, func(t *testing.T) {
		r := rand.New(rand.NewPCG(5, 5))
		var got [][]float32
		for _, n := range []int64{1, 3, 17} {
			for _, d := range []int64{2, 8, 14, 16, 24, 40, 48, 130} {
				work(t, func(s *Scope) { got = append(got, rowKernels(s, r, n, d)...) })
			}
		}
		for _, m := range []int64{1, 7, 8, 9, 17, 33, 129, 150} {
			for _, k := range []int64{1, 70, 300} {
				work(t, func(s *Scope) {
					a, b := random(s, r, m, k), random(s, r, 37, k)
					got = append(got, copies(s, s.Linear(a, b, nil), s.Mm(s.T(a), random(s, r, m, 37)))...)
				})
			}
		}
		for _, heads := range [][3]int64{{4, 2, 16}, {3, 1, 8}, {2, 2, 40}, {5, 1, 64}, {2, 1, 6}} {
			work(t, func(s *Scope) { got = append(got, attentionKernels(s, r, heads[0], heads[1], heads[2])...) })
		}
		if want == nil {
			want = got
		}
		for i := range want {
			if !slices.Equal(got[i], want[i]) {
				t.Errorf("result %d of %d values differs from that of the other instruction set", i, len(want[i]))
			}
		}
	})
}

func copies(s *Scope, tensors ...*Tensor) (values [][]float32) {
	for _, t := range tensors {
		values = append(values, slices.Clone(s.Float32s(t)))
	}
	return values
}

// rowKernels returns the results of the kernels that compute rows.
func rowKernels(s *Scope, r *rand.Rand, n, d int64) (results [][]float32) {
	x, w, dy, dw := random(s, r, n, d), random(s, r, d), random(s, r, n, d), random(s, r, d)
	y, rstd := s.RMSNorm(Float32, x, w, 1e-6)
	dx := random(s, r, n, d)
	s.RMSNormBackward(x, w, rstd, dy, dx, dw)
	gu := random(s, r, n, 2*d)
	swiglu, dgu := s.SwiGLU(gu), s.SwiGLUBackward(gu, dy)
	s.ColumnSum_(dw, x)
	ids, positions, targets := make([]int64, n), make([]int32, n), make([]int64, n)
	temperatures, u, weights := make([]float64, n), make([]float64, n), make([]HeadWeight, n)
	for i := range ids {
		ids[i], positions[i], targets[i] = int64(i)/2, int32(i), int64(i)%d
		temperatures[i], u[i] = float64(i%3)/2, r.Float64()
		weights[i] = HeadWeight{r.Float64(), r.Float64(), r.Float64()}
	}
	s.RowsAdd_(dx, ids, x)
	s.Rope_(gu, 2, d, positions, random(s, r, n, d/2), random(s, r, n, d/2), true)
	tokens, logps := s.SampleRows(dy, temperatures, u)
	p, m, v := random(s, r, n*d), random(s, r, n*d), s.Square(random(s, r, n*d))
	results = append(results, []float32{float32(s.SquareSum(p))})
	s.AdamW_(p, random(s, r, n*d), m, v, AdamW{LR: 0.1, Beta1: 0.9, Beta2: 0.98, Eps: 1e-8, Decay: 0.1, Scale: 0.7,
		Step: 3})
	for _, ref := range []*Tensor{nil, x} {
		z := random(s, r, n, d)
		stats := s.HeadStats(z, ref, 0.8, targets)
		for _, h := range stats {
			results = append(results, []float32{float32(h.Logp), float32(h.Entropy), float32(h.LogpRef), float32(h.KL)})
		}
		s.HeadBackward(z, ref, 0.8, targets, stats, weights)
		results = append(results, copies(s, z)...)
	}
	results = append(results, copies(s, y, rstd, dx, dw, gu, swiglu, dgu, p, m, v)...)
	for _, token := range tokens {
		results = append(results, []float32{float32(token)})
	}
	return append(results, logps)
}

// attentionKernels returns the results of attention over segments that share rows, and over caches.
func attentionKernels(s *Scope, r *rand.Rand, heads, kvHeads, d int64) (results [][]float32) {
	p := &Packing{Bounds: []int32{0}, QueryBounds: []int32{0}}
	rows := int32(0)
	for segment, length := range []int32{37, 1, 18, 33} {
		for i := range int32(5 * segment) {
			p.Path = append(p.Path, i)
		}
		for i := range length {
			p.Path = append(p.Path, rows+i)
			if i%5 != 4 {
				p.Places = append(p.Places, int32(5*segment)+i)
			}
		}
		rows += length
		p.Bounds, p.QueryBounds = append(p.Bounds, int32(len(p.Path))), append(p.QueryBounds, int32(len(p.Places)))
	}
	queries, keys := []int64{int64(len(p.Places)), heads * d}, []int64{int64(rows), kvHeads * d}
	q, k, v := random(s, r, queries...), random(s, r, keys...), random(s, r, keys...)
	out, lse := s.PackedAttention(q, k, v, p, heads, kvHeads)
	dq, dk, dv := s.Empty(Float32, queries...), s.Zeros(Float32, keys...), s.Zeros(Float32, keys...)
	s.PackedAttentionBackward(q, k, v, out, lse, random(s, r, queries...), p, heads, kvHeads, dq, dk, dv)
	results = copies(s, out, lse, dq, dk, dv)
	for _, bias := range []bool{true, false} {
		decoder := randomDecoder(s, heads, kvHeads, d, 9, 48, bias)
		for _, pass := range passesOf(9, 3) {
			if logits, _ := s.Decode(decoder, pass); logits != nil {
				results = append(results, copies(s, logits)...)
			}
		}
	}
	return results
}
