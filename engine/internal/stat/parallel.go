package stat

import (
	"runtime"
	"sync"
	"sync/atomic"
)

// ManyStats and ManyReads are the least numbers of files that justify a goroutine.
const (
	ManyStats = 128
	ManyReads = 16
)

// Every reports whether ok holds for all of 0 … n-1. It uses one goroutine for each least of them, at most one per CPU.
func Every(n, least int, ok func(i int) bool) bool {
	var next atomic.Int64
	var failed atomic.Bool
	work := func() {
		for i := next.Add(1) - 1; i < int64(n) && !failed.Load(); i = next.Add(1) - 1 {
			if !ok(int(i)) {
				failed.Store(true)
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
