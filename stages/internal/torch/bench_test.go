//go:build libtorch

package torch

import (
	"fmt"
	"slices"
	"syscall"
	"testing"
	"unsafe"

	"github.com/sugarme/gotch/libtch"

	"rcgrpo/stages/internal/must"
)

func BenchmarkMm(b *testing.B) {
	SetThreads(1)
	for _, n := range [][3]int64{{1024, 128, 256}, {1024, 128, 768}, {1024, 384, 128}, {300, 128, 1408},
		{2048, 128, 768}, {512, 128, 768}, {128, 1024, 768}, {60, 128, 768}, {60, 128, 1408}} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			Do(b.Context(), CPU, func(s *Scope) error {
				x := s.Full(Float32, 1.5, n[0], n[1])
				w := s.Full(Float32, 1.5, n[2], n[1])
				wt := s.T(w)
				o := s.Empty(Float32, n[0], n[2])
				for b.Loop() {
					s.MmInto(o, x, wt)
				}
				b.ReportMetric(2*float64(n[0]*n[1]*n[2])*float64(b.N)/b.Elapsed().Seconds()/1e9, "GFLOPS")
				return s.Err()
			})
		})
	}
}

// BenchmarkSmallAdd is what a scope costs: a 2×2 addition with its result freed, beside the bare calls of libtch
// on the same thread, in turns. What counts is the processor time of the thread, the median over rounds; a ratio
// above 1.3 fails.
func BenchmarkSmallAdd(b *testing.B) {
	const rounds, calls = 201, 1000
	must.OK(b, Do(b.Context(), CPU, func(s *Scope) error {
		x, y := s.Full(Float32, 1, 2, 2), s.Full(Float32, 2, 2, 2)
		bare := func() {
			out := &s.worker.out[0]
			for range calls {
				*out = nil
				libtch.AtgAdd(out, x.c, y.c)
				libtch.AtFree(*out)
			}
		}
		scoped := func() {
			for range calls {
				s.Free(s.Add(x, y))
			}
		}
		spent := func(f func()) float64 {
			start := threadTime(b)
			f()
			return float64(threadTime(b)-start) / calls
		}
		var bares, scopeds []float64
		for b.Loop() {
			for range rounds {
				bares, scopeds = append(bares, spent(bare)), append(scopeds, spent(scoped))
			}
		}
		slices.Sort(bares)
		slices.Sort(scopeds)
		one, other := bares[len(bares)/2], scopeds[len(scopeds)/2]
		b.ReportMetric(0, "ns/op")
		b.ReportMetric(one, "ns/bare-add")
		b.ReportMetric(other, "ns/scope-add")
		b.ReportMetric(other/one, "x-bare")
		if other > 1.3*one {
			b.Errorf("an addition through a scope takes %.0f ns, the bare calls %.0f ns: %.2f times", other, one, other/one)
		}
		return s.Err()
	}))
}

// threadTime is the processor time of the calling thread, in nanoseconds.
func threadTime(b *testing.B) int64 {
	const threadClock = 3 // CLOCK_THREAD_CPUTIME_ID
	var t syscall.Timespec
	if _, _, errno := syscall.RawSyscall(syscall.SYS_CLOCK_GETTIME, threadClock, uintptr(unsafe.Pointer(&t)),
		0); errno != 0 {
		b.Fatal(errno)
	}
	return t.Nano()
}
