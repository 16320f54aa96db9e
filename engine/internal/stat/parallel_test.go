package stat

import (
	"sync/atomic"
	"testing"
)

func TestEveryCallsTheFunctionOnceForEachIndex(t *testing.T) {
	for _, n := range []int{0, 1, 3, 31, 32, 33, 127, 128, 1000} {
		for _, least := range []int{1, 3, ManyReads, ManyStats} {
			calls := make([]atomic.Int32, n)
			if !Every(n, least, func(i int) bool { calls[i].Add(1); return true }) {
				t.Errorf("n = %d, least = %d: got false, want true", n, least)
			}
			for i := range calls {
				if times := calls[i].Load(); times != 1 {
					t.Errorf("n = %d, least = %d: got %d calls for index %d, want one", n, least, times, i)
				}
			}
			if n > 0 && Every(n, least, func(i int) bool { return i != n-1 }) {
				t.Errorf("n = %d, least = %d: got true, want false, since the last does not hold", n, least)
			}
		}
	}
}
