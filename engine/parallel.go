package engine

import (
	"runtime"
	"sync"
	"sync/atomic"
)

// How many files, or blocks of stages to decode, it takes to be worth a goroutine.
const (
	manyStats  = 128
	manyReads  = 16
	manyStages = 16
)

// inPieces says whether ok holds for all of 0 … n-1, on several processors where there are least of them for each.
func inPieces(n, least int, ok func(i int) bool) bool {
	pieces := max(1, min(runtime.GOMAXPROCS(0), 8, n/least))
	var failed atomic.Bool
	var done sync.WaitGroup
	for p := range pieces {
		done.Go(func() {
			for i := p * n / pieces; i < (p+1)*n/pieces && !failed.Load(); i++ {
				if !ok(i) {
					failed.Store(true)
				}
			}
		})
	}
	done.Wait()
	return !failed.Load()
}
