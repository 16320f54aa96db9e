//go:build libtorch

package torch

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"rcgrpo/internal/must"
)

// An element of a product is a sum of up to 700 terms below 1, so that float32 differs from float64 by about
// 1e-5.
func TestMatrixProductsEqualFloat64Sums(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 1))
	random := func(n int64) []float32 {
		data := make([]float32, n)
		for i := range data {
			data[i] = r.Float32() - 0.5
		}
		return data
	}
	eachSet(t, func(t *testing.T) {
		for range 60 {
			m, n, k := 1+r.Int64N(200), 1+r.Int64N(90), 1+r.Int64N(300)
			if r.IntN(3) == 0 {
				m, k = 1+r.Int64N(9), 1+r.Int64N(700)
			}
			turnedA, turnedB, from := r.IntN(2) == 1, r.IntN(2) == 1, r.IntN(3)
			x, y, z := random(m*k), random(k*n), random(m*n)
			name := fmt.Sprintf("[%d, %d] · [%d, %d], turned %v %v, from %d", m, k, k, n, turnedA, turnedB, from)
			work(t, func(s *Scope) {
				a, b := s.FromFloat32(x, m, k), s.FromFloat32(y, k, n)
				at, bt := func(i, p int64) float32 { return x[i*k+p] }, func(p, j int64) float32 { return y[p*n+j] }
				if turnedA {
					a, at = s.T(s.FromFloat32(x, k, m)), func(i, p int64) float32 { return x[p*m+i] }
				}
				if turnedB {
					b, bt = s.T(s.FromFloat32(y, n, k)), func(p, j int64) float32 { return y[j*k+p] }
				}
				var got []float32
				var start func(i, j int64) float32
				switch from {
				case 0:
					got, start = s.Float32s(s.Mm(a, b)), func(i, j int64) float32 { return 0 }
				case 1:
					got, start = s.Float32s(s.Addmm(s.FromFloat32(z[:n], n), a, b)), func(i, j int64) float32 { return z[j] }
				case 2:
					sum := s.FromFloat32(z, m, n)
					s.Addmm_(sum, a, b)
					got, start = s.Float32s(sum), func(i, j int64) float32 { return z[i*n+j] }
				}
				if s.Err() != nil {
					return
				}
				for i := range m {
					for j := range n {
						want := float64(start(i, j))
						for p := range k {
							want += float64(at(i, p)) * float64(bt(p, j))
						}
						if math.Abs(float64(got[i*n+j])-want) > 3e-5 {
							t.Fatalf("%s: got %v at %d, %d, want %v", name, got[i*n+j], i, j, want)
						}
					}
				}
			})
		}
	})
}

func TestMatrixProductsAreIdenticalForAnyRowsAndThreads(t *testing.T) {
	defer SetThreads(1)
	const rows, n, k = 300, 150, 700
	r := rand.New(rand.NewPCG(2, 2))
	x, w, bias := normals(r, rows*k), normals(r, n*k), normals(r, n)
	var whole []float32
	eachSet(t, func(t *testing.T) {
		for _, threads := range []int{1, 2, 5} {
			must.Get(SetThreads(threads))(t)
			for _, m := range []int{rows, 1, 5, 8, 9, 16, 17, 31, 40, 100, 128, 129} {
				work(t, func(s *Scope) {
					got := s.Float32s(s.Addmm(s.FromFloat32(bias, n), s.FromFloat32(x[:m*k], int64(m), k),
						s.T(s.FromFloat32(w, n, k))))
					if whole == nil {
						whole = slices.Clone(got)
					}
					if !slices.Equal(got, whole[:m*n]) {
						t.Errorf("%d rows with %d threads: other bits than of %d rows with one", m, threads, rows)
					}
				})
			}
		}
	})
}
