package stat

import (
	"runtime"
	"sync"
	"sync/atomic"
)

// How many files it takes to be worth a goroutine.
const (
	ManyStats = 128
	ManyReads = 16
)

// Every says whether ok holds for all of 0 … n-1, on several processors where there are least of them for each.
// Each takes a few at a time, for one may start late or be slow; the caller works too.
func Every(n, least int, ok func(i int) bool) bool {
	few := max(1, least/4)
	var taken atomic.Int64
	var failed atomic.Bool
	work := func() {
		for !failed.Load() {
			end := int(taken.Add(int64(few)))
			for i := end - few; i < min(end, n); i++ {
				if !ok(i) {
					failed.Store(true)
					return
				}
			}
			if end >= n {
				return
			}
		}
	}
	var others sync.WaitGroup
	for range min(runtime.GOMAXPROCS(0), 8, n/least) - 1 {
		others.Go(work)
	}
	work()
	others.Wait()
	return !failed.Load()
}
