//go:build libtorch

package lm

import (
	"math/rand/v2"
	"runtime"
	"testing"

	"rcgrpo/stages/internal/torch"
)

// TestTenThousandUpdatesDoNotLeak trains all weights against a reference, and an adapter, 10,000 updates
// together.
func TestTenThousandUpdatesDoNotLeak(t *testing.T) {
	m, ref := newModel(t, tiny(true), 1), newModel(t, tiny(true), 2)
	_, low := adapterOn(t, ref, LoRA{Rank: 2, Alpha: 2, Targets: []string{"q_proj", "down_proj"}, Rows: []int32{3}},
		adamW(DefaultMicroTokens))
	whole := newTrainer(t, m, adamW(20))
	r := rand.New(rand.NewPCG(5, 5))
	updates := 0
	train := func(n int) {
		for range n / 2 {
			for _, tr := range []*Trainer{whole, low} {
				against := ref
				if tr == low {
					against = nil
				}
				batch := someSequences(r, 2, 8, m.cfg.Vocab, 0.5)
				train(t, tr, batch, against, 1e-4)
				updates++
			}
		}
	}
	train(2000) // until the allocators, Go's and libtorch's, have what they need
	runtime.GC()
	handles, first := torch.Live(), residentBytes(t)
	least, before := int64(1<<40), first
	for range 4 { // other goroutines come and go; a leak grows every time
		train(2000)
		runtime.GC()
		after := residentBytes(t)
		least, before = min(least, after-before), after
		if n := torch.Live(); n != handles {
			t.Fatalf("after %d updates %d handles are alive, want %d as after 2,000", updates, n, handles)
		}
	}
	t.Logf("%d updates: %d handles alive throughout; resident memory %+d KiB in the last 8,000, at least %+d KiB in "+
		"each 2,000", updates, handles, (before-first)/1024, least/1024)
	// 32 bytes an operation, as gotch's own wrappers leak, would be 10 MB in each 2,000.
	if least > 256<<10 || before-first > 8<<20 {
		t.Errorf("resident memory grew by %d bytes, by at least %d in each 2,000 updates", before-first, least)
	}
}

func residentBytes(t *testing.T) int64 {
	t.Helper()
	n, err := resident("VmRSS")
	if err != nil {
		t.Skip(err)
	}
	return n
}
