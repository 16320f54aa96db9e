package stat

import (
	"sync/atomic"
	"testing"
)

func TestInPiecesAsksForEachOnce(t *testing.T) {
	for _, n := range []int{0, 1, 3, 31, 32, 33, 127, 128, 1000} {
		for _, least := range []int{1, 3, ManyReads, ManyStats} {
			asked := make([]atomic.Int32, n)
			if !Every(n, least, func(i int) bool { asked[i].Add(1); return true }) {
				t.Errorf("%d in pieces of %d: false, but all hold", n, least)
			}
			for i := range asked {
				if times := asked[i].Load(); times != 1 {
					t.Errorf("%d in pieces of %d: asked for %d %d times", n, least, i, times)
				}
			}
			if n > 0 && Every(n, least, func(i int) bool { return i != n-1 }) {
				t.Errorf("%d in pieces of %d: true, but the last does not hold", n, least)
			}
		}
	}
}
