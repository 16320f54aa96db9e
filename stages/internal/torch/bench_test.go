//go:build libtorch

package torch

import (
	"context"
	"fmt"
	"testing"
)

func BenchmarkMm(b *testing.B) {
	SetThreads(1)
	for _, n := range [][3]int64{{1024, 128, 256}, {1024, 128, 768}, {1024, 384, 128}, {300, 128, 1408}, {2048, 128, 768}, {512, 128, 768}, {128, 1024, 768}, {60, 128, 768}, {60, 128, 1408}} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			Do(context.Background(), CPU, func(s *Scope) error {
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
