//go:build libtorch

package torch

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"

	"rcgrpo/internal/must"
)

func TestMain(m *testing.M) {
	if _, err := SetThreads(1); err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
	code := m.Run()
	if n := Live(); code == 0 && n != 0 {
		fmt.Printf("%d tensor handles are alive after all tests\n", n)
		code = 1
	}
	os.Exit(code)
}

// work runs f on the CPU, or on the device that RCGRPO_DEVICE names, and fails the test on an error.
func work(t testing.TB, f func(s *Scope)) {
	t.Helper()
	device := must.Get(ParseDevice(cmp.Or(os.Getenv("RCGRPO_DEVICE"), "cpu")))(t)
	must.OK(t, Do(t.Context(), device, func(s *Scope) error { f(s); return nil }))
}

func TestErrorsAreStickyAndNameOperationAndShapes(t *testing.T) {
	err := Do(t.Context(), CPU, func(s *Scope) error {
		a, b := s.Zeros(Float32, 2, 3), s.Zeros(Float32, 4, 5)
		c := s.Mm(a, b)         // cannot be
		d := s.Add(c, s.Exp(c)) // must not touch the missing handle
		if s.Float32s(d) != nil || s.Err() == nil {
			t.Error("work went on after an error")
		}
		return nil
	})
	if err == nil || !strings.Contains(err.Error(), "torch mm of [2 3], [4 5]") || strings.Contains(err.Error(), "\n") {
		t.Errorf("got %v, want one line that names mm, [2 3] and [4 5]", err)
	}
	work(t, func(s *Scope) { // the next Do starts clean
		if got := s.Float32s(s.Full(Float32, 2, 3)); !slices.Equal(got, []float32{2, 2, 2}) {
			t.Errorf("got %v", got)
		}
	})
}

// An exabyte is more than any machine has; the message is the allocator's own.
func TestOutOfMemoryErrorsAreRecognized(t *testing.T) {
	err := Do(t.Context(), CPU, func(s *Scope) error {
		s.Empty(Float32, 1<<58)
		return nil
	})
	if !errors.Is(err, ErrOutOfMemory) {
		t.Errorf("an exabyte: got %v, want ErrOutOfMemory", err)
	}
	for text, want := range map[string]bool{
		"[enforce fail at alloc_cpu.cpp:127] data. DefaultCPUAllocator: not enough memory: you tried to " +
			"allocate 8 bytes.": true,
		"[enforce fail at alloc_cpu.cpp:127] err == 0. DefaultCPUAllocator: can't allocate memory: you tried to " +
			"allocate 8 bytes": true,
		"CUDA out of memory. Tried to allocate 20.00 MiB. GPU 0 has a total capacity of 139.8 GiB": true,
		"CUDA error: out of memory": true,
		"std::bad_alloc":            true,
		"mat1 and mat2 shapes cannot be multiplied (2x3 and 4x5)": false,
	} {
		if got := errors.Is(failure("mm", nil, text), ErrOutOfMemory); got != want {
			t.Errorf("%q: out of memory is %v, want %v", text, got, want)
		}
	}
}

func TestPlantedFailuresAreThoseOfTheirOperation(t *testing.T) {
	remove := PlantFailure(func(operation string, shapes [][]int64) error {
		if operation == "mm" && shapes[0][0] > 2 {
			return ErrOutOfMemory
		}
		return nil
	})
	defer remove()
	try := func(rows int64) error {
		return Do(t.Context(), CPU, func(s *Scope) error {
			s.Mm(s.Zeros(Float32, rows, 3), s.Zeros(Float32, 3, 1))
			return nil
		})
	}
	must.OK(t, try(2))
	if err := try(3); !errors.Is(err, ErrOutOfMemory) {
		t.Errorf("three rows: got %v, want ErrOutOfMemory", err)
	}
	remove()
	must.OK(t, try(3))
}

func TestFreedTensorsAreRefused(t *testing.T) {
	err := Do(t.Context(), CPU, func(s *Scope) error {
		a := s.Zeros(Float32, 2)
		s.Free(a)
		s.Free(a) // harmless
		s.Exp(a)
		return nil
	})
	must.Match(t, err, "freed")
}

func TestScopesFreeTensorsThatAreNotKept(t *testing.T) {
	before := Live()
	wantLive := func(want int64, when string) {
		if got := Live() - before; got != want {
			t.Errorf("got %d live tensors %s, want %d", got, when, want)
		}
	}
	var kept *Tensor
	work(t, func(s *Scope) {
		s.Nest(func(inner *Scope) {
			a, b := inner.Zeros(Float32, 3), inner.Zeros(Float32, 3)
			kept = inner.AddScalar(a, 1)
			inner.Keep(kept, b)
			wantLive(3, "inside")
		})
		wantLive(2, "after the inner scope")
		s.Keep(kept)
	})
	wantLive(1, "after Do")
	work(t, func(s *Scope) {
		if got := s.Float32s(kept); !slices.Equal(got, []float32{1, 1, 1}) {
			t.Errorf("the kept tensor holds %v", got)
		}
		s.Free(kept)
	})
	wantLive(0, "at the end")
}

func TestDoReturnsTheErrorOfItsWorkAndOfItsContext(t *testing.T) {
	want := errors.New("own")
	if err := Do(t.Context(), CPU, func(*Scope) error { return want }); err != want {
		t.Errorf("got %v, want %v", err, want)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := Do(ctx, CPU, func(*Scope) error { t.Error("work started"); return nil }); !errors.Is(err,
		context.Canceled) {
		t.Errorf("got %v, want context.Canceled", err)
	}
}

func TestDevicesHaveNames(t *testing.T) {
	for _, name := range []string{"cpu", "cuda:0", "cuda:3"} {
		if d, err := ParseDevice(name); err != nil || d.String() != name {
			t.Errorf("%s: got %v, %v", name, d, err)
		}
	}
	for _, name := range []string{"", "gpu", "cuda:", "cuda:-1", "cuda:x"} {
		if d, err := ParseDevice(name); err == nil {
			t.Errorf("%q: got %v, want an error", name, d)
		}
	}
}

func TestSlicesRoundTrip(t *testing.T) {
	work(t, func(s *Scope) {
		a := s.FromFloat32([]float32{1, 2, 3, 4, 5, 6}, 2, 3)
		if got := s.Float32s(s.T(a)); !slices.Equal(got, []float32{1, 4, 2, 5, 3, 6}) {
			t.Errorf("got %v for the transpose", got)
		}
		view := s.Float32s(a)
		view[0] = 9 // the tensor's own memory
		if got := s.Float32s(s.Narrow(s.View(a, 6), 0, 0, 1)); got[0] != 9 {
			t.Errorf("got %v, want 9", got)
		}
		if got := s.Float64s(s.As(s.FromInt64([]int64{7, -7}, 2), Float64)); !slices.Equal(got, []float64{7, -7}) {
			t.Errorf("got %v", got)
		}
		if got := s.Float32s(s.FromFloat32(nil, 0, 4)); len(got) != 0 {
			t.Errorf("got %v for an empty tensor", got)
		}
	})
}

func TestBackwardReturnsTheGradientOfEachLeaf(t *testing.T) {
	work(t, func(s *Scope) {
		a, b := s.Leaf(s.FromFloat32([]float32{1, 2}, 2)), s.Leaf(s.FromFloat32([]float32{3, 4}, 2))
		var loss *Tensor
		s.Grad(func() { loss = s.Sum(s.Mul(s.Square(a), b)) })
		grads := s.Backward(loss, a, b)
		if got := s.Float32s(grads[0]); !slices.Equal(got, []float32{6, 16}) { // 2ab
			t.Errorf("got %v", got)
		}
		if got := s.Float32s(grads[1]); !slices.Equal(got, []float32{1, 4}) { // a²
			t.Errorf("got %v", got)
		}
	})
}

// 10⁵ operations leave no handle and no growing memory: gotch's own wrappers leak 32 bytes each, 3.2 MB in all.
func TestOperationsLeakNothing(t *testing.T) {
	round := func(n int) {
		work(t, func(s *Scope) {
			a, b := s.Full(Float32, 1, 32, 32), s.Full(Float32, 2, 32, 32)
			for range n / 10 {
				s.Nest(func(s *Scope) {
					leaf := s.Leaf(a)
					var loss *Tensor
					s.Grad(func() { loss = s.Sum(s.Mul(s.Mm(leaf, b), b)) })
					s.Backward(loss, leaf)
					s.Add_(b, s.Zeros(Float32, 32, 32))
					s.MmInto(s.Empty(Float32, 32, 32), a, b)
				})
			}
		})
	}
	round(200000) // until the allocators, Go's and libtorch's, have what they need
	handles, least := Live(), math.MaxInt
	for tries := 0; tries < 12 && least > 1<<20; tries++ { // the heap still spreads now and then; a leak grows every time
		runtime.GC()
		before := residentBytes(t)
		round(100000)
		runtime.GC()
		least = min(least, residentBytes(t)-before)
	}
	if Live() != handles {
		t.Errorf("got %d live handles, want %d", Live(), handles)
	}
	if least > 1<<20 {
		t.Errorf("resident memory grew by at least %d bytes each time", least)
	}
}

func residentBytes(t *testing.T) int {
	t.Helper()
	text, err := os.ReadFile("/proc/self/statm")
	if err != nil {
		t.Skip("no /proc/self/statm")
	}
	pages := must.Get(strconv.Atoi(strings.Fields(string(text))[1]))(t)
	return pages * os.Getpagesize()
}

// Each fused operation against the same mathematics composed of libtorch's operations, forward and backward
// through libtorch's own automatic gradient.

func random(s *Scope, r *rand.Rand, shape ...int64) *Tensor {
	n := int64(1)
	for _, d := range shape {
		n *= d
	}
	return s.FromFloat32(normals(r, int(n)), shape...)
}

// normals returns n normally distributed numbers.
func normals(r *rand.Rand, n int) []float32 {
	data := make([]float32, n)
	for i := range data {
		data[i] = float32(r.NormFloat64())
	}
	return data
}

func compare(t *testing.T, s *Scope, what string, got, want *Tensor, tolerance float64) {
	t.Helper()
	g, w := s.Float32s(s.Contiguous(got)), s.Float32s(s.Contiguous(want))
	if len(g) != len(w) {
		s.Fail(fmt.Errorf("%s: got %d values, want %d", what, len(g), len(w)))
	}
	if s.Err() != nil { // work ends the test; not here, on the device's thread
		return
	}
	for i := range g {
		if d := math.Abs(float64(g[i] - w[i])); !(d <= tolerance*(1+math.Abs(float64(w[i])))) {
			t.Errorf("%s: got %v at %d, want %v", what, g[i], i, w[i])
			return
		}
	}
}

// vjp is the gradient of Σ dy·f(leaves) for each leaf, by libtorch.
func vjp(s *Scope, f func() *Tensor, dy *Tensor, leaves ...*Tensor) []*Tensor {
	var loss *Tensor
	s.Grad(func() { loss = s.Sum(s.Mul(f(), dy)) })
	return s.Backward(loss, leaves...)
}

func TestRMSNormEqualsItsComposition(t *testing.T) {
	for _, d := range []int64{5, 16, 48, 50} {
		work(t, func(s *Scope) {
			r := rand.New(rand.NewPCG(1, uint64(d)))
			x, w, dy := s.Leaf(random(s, r, 7, d)), s.Leaf(random(s, r, d)), random(s, r, 7, d)
			f := func() *Tensor {
				return s.Mul(s.Mul(x, s.Rsqrt(s.AddScalar(s.MeanAxis(s.Square(x), 1, true), 1e-6))), w)
			}
			y, rstd := s.RMSNorm(Float32, x, w, 1e-6)
			compare(t, s, "y", y, f(), 1e-6)
			dx, dw := s.Full(Float32, 1, 7, d), s.Full(Float32, 1, d) // gradients add to what is there
			s.RMSNormBackward(x, w, rstd, dy, dx, dw)
			want := vjp(s, f, dy, x, w)
			compare(t, s, "dx", dx, s.AddScalar(want[0], 1), 1e-5)
			compare(t, s, "dw", dw, s.AddScalar(want[1], 1), 1e-5)
		})
	}
}

func TestSwiGLUEqualsItsComposition(t *testing.T) {
	for _, m := range []int64{3, 16, 37} {
		work(t, func(s *Scope) {
			r := rand.New(rand.NewPCG(2, uint64(m)))
			gu, dy := s.Leaf(s.MulScalar(random(s, r, 5, 2*m), 20)), random(s, r, 5, m) // the far ends of exp as well
			f := func() *Tensor { return s.Mul(s.Silu(s.Narrow(gu, 1, 0, m)), s.Narrow(gu, 1, m, m)) }
			compare(t, s, "y", s.SwiGLU(gu), f(), 2e-6)
			compare(t, s, "gradient", s.SwiGLUBackward(gu, dy), vjp(s, f, dy, gu)[0], 2e-5)
		})
	}
}

func TestRopeAndItsInverse(t *testing.T) {
	for _, d := range []int64{6, 32} {
		work(t, func(s *Scope) {
			r := rand.New(rand.NewPCG(3, 3))
			angle := s.MulScalar(random(s, r, 9, d/2), 3)
			cos, sin := make([]float32, 9*d/2), make([]float32, 9*d/2)
			for i, a := range s.Float32s(angle) {
				cos[i], sin[i] = float32(math.Cos(float64(a))), float32(math.Sin(float64(a)))
			}
			c, n := s.FromFloat32(cos, 9, d/2), s.FromFloat32(sin, 9, d/2)
			x := random(s, r, 2, 3*d) // two heads turn, the third columns stay
			before := slices.Clone(s.Float32s(x))
			s.Rope_(x, 2, d, []int32{8, 4}, c, n, false)
			got := s.Float32s(x)
			for row, p := range []int64{8, 4} {
				for h := range int64(3) {
					for i := range d / 2 {
						a, b := int64(row)*3*d+h*d+i, int64(row)*3*d+h*d+d/2+i
						z, turn := complex(before[a], before[b]), complex(cos[p*d/2+i], sin[p*d/2+i])
						if h < 2 {
							z *= turn
						}
						if math.Abs(float64(real(z)-got[a])) > 1e-6 || math.Abs(float64(imag(z)-got[b])) > 1e-6 {
							t.Fatalf("head %d of row %d: got %v, %v, want %v", h, row, got[a], got[b], z)
						}
					}
				}
			}
			s.Rope_(x, 2, d, []int32{8, 4}, c, n, true)
			compare(t, s, "turned back", x, s.FromFloat32(before, 2, 3*d), 1e-5)
		})
	}
}

func TestPackedAttentionEqualsLibtorchPerPath(t *testing.T) {
	for name, tc := range map[string]struct {
		heads, kvHeads, d int64
		lengths           []int64
	}{
		"groups of two, wide":     {4, 2, 32, []int64{1, 40, 16, 7}},
		"groups of three, narrow": {6, 2, 6, []int64{33, 2}},
		"no groups":               {2, 2, 48, []int64{19}},
	} {
		for _, every := range []int32{1, 3} { // all rows ask, or one in three
			t.Run(fmt.Sprintf("%s, every %d", name, every), func(t *testing.T) {
				work(t, func(s *Scope) { checkAttention(t, s, tc.heads, tc.kvHeads, tc.d, tc.lengths, every) })
			})
		}
	}
}

func checkAttention(t *testing.T, s *Scope, heads, kvHeads, d int64, lengths []int64, every int32) {
	r := rand.New(rand.NewPCG(4, 4))
	p := Packing{Bounds: []int32{0}, QueryBounds: []int32{0}}
	n := int32(0)
	for i, length := range lengths {
		shared := 0
		if i > 0 { // a third of the path before
			before := p.Path[p.Bounds[i-1]:]
			shared = min(len(before)/3, int(length))
			p.Path = append(p.Path, before[:shared]...)
		}
		for place := int32(0); place < int32(length); place++ {
			if int(place) >= shared {
				p.Path = append(p.Path, n)
				n++
			}
			if place%every == every-1 {
				p.Places = append(p.Places, place)
			}
		}
		p.Bounds, p.QueryBounds = append(p.Bounds, int32(len(p.Path))), append(p.QueryBounds, int32(len(p.Places)))
	}
	queries := int64(len(p.Places))
	q, kv, dout := s.Leaf(random(s, r, queries, heads*d)), s.Leaf(random(s, r, int64(n), 2*kvHeads*d)), random(s, r,
		queries, heads*d)
	composed := func() *Tensor {
		var parts []*Tensor
		for i := range lengths {
			path, places := p.Path[p.Bounds[i]:p.Bounds[i+1]], p.Places[p.QueryBounds[i]:p.QueryBounds[i+1]]
			if len(places) == 0 {
				continue
			}
			rows, mask := make([]int64, len(path)), make([]float32, 0, len(places)*len(path))
			for j, row := range path {
				rows[j] = int64(row)
			}
			for _, place := range places {
				for j := range path {
					if j <= int(place) {
						mask = append(mask, 0)
					} else {
						mask = append(mask, float32(math.Inf(-1)))
					}
				}
			}
			own := s.IndexSelect(kv, 0, s.FromInt64(rows, int64(len(rows))))
			shaped := func(x *Tensor, heads int64) *Tensor { // [1, heads, rows, d]
				return s.Unsqueeze(s.Transpose(s.Reshape(x, x.Size(0), heads, d), 0, 1), 0)
			}
			expand := func(at int64) *Tensor { // one key head for each query head
				x := s.Unsqueeze(shaped(s.Narrow(own, 1, at, kvHeads*d), kvHeads), 2)
				return s.Reshape(s.Expand(x, 1, kvHeads, heads/kvHeads, int64(len(path)), d), 1, heads, int64(len(path)), d)
			}
			part := shaped(s.Narrow(q, 0, int64(p.QueryBounds[i]), int64(len(places))), heads)
			a := s.Attention(part, expand(0), expand(kvHeads*d), s.FromFloat32(mask, int64(len(places)), int64(len(path))))
			parts = append(parts, s.Reshape(s.Transpose(a, 1, 2), int64(len(places)), heads*d))
		}
		return s.Cat(0, parts...)
	}
	k, v := s.Narrow(kv, 1, 0, kvHeads*d), s.Narrow(kv, 1, kvHeads*d, kvHeads*d)
	out, lse := s.PackedAttention(q, k, v, &p, heads, kvHeads)
	compare(t, s, "out", out, composed(), 2e-6)
	// one is overwritten, one added to
	dq, dkv := s.Full(Float32, 7, queries, heads*d), s.Full(Float32, 1, int64(n), 2*kvHeads*d)
	s.PackedAttentionBackward(q, k, v, out, lse, dout, &p, heads, kvHeads, dq, s.Narrow(dkv, 1, 0, kvHeads*d),
		s.Narrow(dkv, 1, kvHeads*d, kvHeads*d))
	want := vjp(s, composed, dout, q, kv)
	compare(t, s, "dq", dq, want[0], 1e-5)
	compare(t, s, "dkv", dkv, s.AddScalar(want[1], 1), 1e-5)
}

func TestHeadStatisticsEqualTheirComposition(t *testing.T) {
	for _, v := range []int64{5, 16, 45} {
		work(t, func(s *Scope) {
			r := rand.New(rand.NewPCG(5, uint64(v)))
			const n, temperature = 4, 0.7
			z, ref := s.Leaf(s.MulScalar(random(s, r, n, v), 4)), s.MulScalar(random(s, r, n, v), 4)
			targets := []int64{0, v - 1, 2, 2}
			index := s.FromInt64(targets, n, 1)
			part := func(which int) *Tensor { // [n]
				l, lr := s.LogSoftmax(s.MulScalar(z, 1/temperature), 1), s.LogSoftmax(s.MulScalar(ref, 1/temperature), 1)
				switch which {
				case 0:
					return s.View(s.Gather(l, 1, index), n)
				case 1:
					return s.Neg(s.SumAxis(s.Mul(s.Exp(l), l), 1, false))
				case 2:
					return s.View(s.Gather(lr, 1, index), n)
				}
				return s.SumAxis(s.Mul(s.Exp(l), s.Sub(l, lr)), 1, false)
			}
			stats := s.HeadStats(z, ref, temperature, targets)
			for which := range 4 {
				for i, want := range s.Float32s(part(which)) {
					got := []float64{stats[i].Logp, stats[i].Entropy, stats[i].LogpRef, stats[i].KL}[which]
					if math.Abs(got-float64(want)) > 1e-5 {
						t.Errorf("statistic %d of row %d: got %v, want %v", which, i, got, want)
					}
				}
			}
			weights := make([]HeadWeight, n)
			dy := make([][]float32, 3)
			for i := range weights {
				weights[i] = HeadWeight{r.NormFloat64(), r.NormFloat64(), r.NormFloat64()}
				dy[0], dy[1], dy[2] = append(dy[0], float32(weights[i].Logp)), append(dy[1],
					float32(weights[i].Entropy)), append(dy[2], float32(weights[i].KL))
			}
			want := vjp(s, func() *Tensor {
				sum := s.Mul(part(0), s.FromFloat32(dy[0], n))
				sum = s.Add(sum, s.Mul(part(1), s.FromFloat32(dy[1], n)))
				return s.Add(sum, s.Mul(part(3), s.FromFloat32(dy[2], n)))
			}, s.Full(Float32, 1, n), z)[0]
			s.HeadBackward(z, ref, temperature, targets, stats, weights)
			compare(t, s, "gradient", z, want, 1e-5)
		})
	}
}

func TestFusedOperationsOfEachInstructionSet(t *testing.T) {
	eachSet(t, fusedOperations)
}

// fusedOperations are the tests of all that have more than one way to be computed.
func fusedOperations(t *testing.T) {
	t.Run("norm", TestRMSNormEqualsItsComposition)
	t.Run("swiglu", TestSwiGLUEqualsItsComposition)
	t.Run("rope", TestRopeAndItsInverse)
	t.Run("attention", TestPackedAttentionEqualsLibtorchPerPath)
	t.Run("head", TestHeadStatisticsEqualTheirComposition)
	t.Run("rows and columns", TestRowsAndColumnsAdd)
	t.Run("adamw", TestAdamWFollowsThePaper)
	t.Run("square sum", TestSquareSumIsFloat64)
}

func TestRowsAndColumnsAdd(t *testing.T) {
	work(t, func(s *Scope) {
		table := s.Full(Float32, 1, 3, 2)
		s.RowsAdd_(table, []int64{2, 0, 2}, s.FromFloat32([]float32{1, 2, 3, 4, 5, 6}, 3, 2))
		if got := s.Float32s(table); !slices.Equal(got, []float32{4, 5, 1, 1, 7, 9}) {
			t.Errorf("got %v", got)
		}
		sum := s.Full(Float32, 1, 2)
		s.ColumnSum_(sum, table)
		if got := s.Float32s(sum); !slices.Equal(got, []float32{13, 16}) {
			t.Errorf("got %v", got)
		}
	})
}

// One parameter, three steps, worked out in float64 from the paper's algorithm 2.
func TestAdamWFollowsThePaper(t *testing.T) {
	for _, n := range []int64{1, 16, 21} {
		work(t, func(s *Scope) {
			const lr, b1, b2, eps, decay = 0.1, 0.9, 0.98, 1e-8, 0.01
			p, m, v := s.Full(Float32, 2, n), s.Zeros(Float32, n), s.Zeros(Float32, n)
			want, wm, wv := 2.0, 0.0, 0.0
			for step, g := range []float64{0.5, -1, 4} {
				grad := s.Full(Float32, g, n)
				bias1, bias2 := 1-math.Pow(b1, float64(step+1)), 1-math.Pow(b2, float64(step+1))
				s.AdamW_(p, grad, m, v, AdamW{LR: lr, Beta1: b1, Beta2: b2, Eps: eps, Decay: decay, Scale: 0.5,
					Step: step + 1})
				g *= 0.5
				wm, wv = b1*wm+(1-b1)*g, b2*wv+(1-b2)*g*g
				want -= lr * decay * want
				want -= lr * (wm / bias1) / (math.Sqrt(wv/bias2) + eps)
				for _, got := range s.Float32s(p) {
					if math.Abs(float64(got)-want) > 1e-6 {
						t.Fatalf("step %d: got %v, want %v", step+1, got, want)
					}
				}
				if got := s.SquareSum(grad); got != 0 {
					t.Fatalf("the gradient was not zeroed: %v", got)
				}
			}
		})
	}
}

func TestSquareSumIsFloat64(t *testing.T) {
	work(t, func(s *Scope) {
		if got := s.SquareSum(s.Full(Float32, 1.5, 1001)); got != 1001*2.25 {
			t.Errorf("got %v, want %v", got, 1001*2.25)
		}
	})
}

func TestUnsupportedOperandsAreRefused(t *testing.T) {
	for name, f := range map[string]func(s *Scope){
		"another type":            func(s *Scope) { s.RMSNorm(Float32, s.Zeros(Float64, 2, 3), s.Zeros(Float32, 3), 1e-6) },
		"another width":           func(s *Scope) { s.RMSNorm(Float32, s.Zeros(Float32, 2, 3), s.Zeros(Float32, 4), 1e-6) },
		"transposed":              func(s *Scope) { s.SwiGLU(s.T(s.Zeros(Float32, 4, 3))) },
		"values that do not fill": func(s *Scope) { s.FromFloat32([]float32{1, 2}, 3) },
		"values of another type":  func(s *Scope) { s.Float64s(s.Zeros(Float32, 2)) },
		"no shape":                func(s *Scope) { s.Zeros(Float32) },
		"gradient without a record": func(s *Scope) { // outside Grad
			a := s.Leaf(s.Zeros(Float32, 2))
			s.Backward(s.Sum(a), a)
		},
		"row outside":    func(s *Scope) { s.RowsAdd_(s.Zeros(Float32, 3, 2), []int64{3}, s.Zeros(Float32, 1, 2)) },
		"target outside": func(s *Scope) { s.HeadStats(s.Zeros(Float32, 1, 4), nil, 1, []int64{4}) },
		"position outside": func(s *Scope) {
			s.Rope_(s.Zeros(Float32, 1, 4), 1, 4, []int32{2}, s.Zeros(Float32, 2, 2), s.Zeros(Float32, 2, 2), false)
		},
		"heads do not match": func(s *Scope) {
			s.PackedAttention(s.Zeros(Float32, 2, 6), s.Zeros(Float32, 2, 4), s.Zeros(Float32, 2, 4), &Packing{}, 3, 2)
		},
		"packing too short": func(s *Scope) {
			s.PackedAttention(s.Zeros(Float32, 2, 4), s.Zeros(Float32, 2, 4), s.Zeros(Float32, 2, 4),
				&Packing{Bounds: []int32{0, 1}, Path: []int32{0}, QueryBounds: []int32{0, 1}, Places: []int32{0}}, 2, 2)
		},
		"path outside": func(s *Scope) {
			s.PackedAttention(s.Zeros(Float32, 1, 4), s.Zeros(Float32, 2, 4), s.Zeros(Float32, 2, 4),
				&Packing{Bounds: []int32{0, 1}, Path: []int32{2}, QueryBounds: []int32{0, 1}, Places: []int32{0}}, 2, 2)
		},
		"slot outside": func(s *Scope) {
			s.CachedAttention(s.Zeros(Float32, 1, 12), []int32{2}, []int32{0}, s.Zeros(Float32, 2, 1, 4, 16),
				s.Zeros(Float32, 2, 1, 16, 4), 1, 1)
		},
	} {
		if err := Do(t.Context(), CPU, func(s *Scope) error { f(s); return nil }); err == nil {
			t.Errorf("%s: got no error", name)
		}
	}
}
