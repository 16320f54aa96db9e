package stages

import (
	"testing"

	"rcgrpo/internal/must"
	"rcgrpo/stages/internal/lm"
)

// A model folder of 15 MB, with 7.9 MB of cache for each token, ended a server of 23 GiB by one chat of 480 tokens.
func TestAServerHasRoomForItsReplies(t *testing.T) {
	wide := lm.Config{Vocab: 100, Hidden: 8, Layers: 7, Heads: 128, KVHeads: 128, HeadDim: 1024, MLP: 8, MaxPosition: 8192}
	s := &Serving{Device: "cpu", Memory: 23 << 30}
	for context, slots := range map[int]int{64: 42, 1024: 2} {
		use, err := s.fit(wide, lm.Use{Slots: 64, Context: context})
		if must.OK(t, err); use.Slots != slots {
			t.Errorf("%d replies of %d tokens at once, want %d", use.Slots, context, slots)
		}
	}
	some := lm.Config{Vocab: 100, Hidden: 4096, Layers: 1, Heads: 32, KVHeads: 8, HeadDim: 128, MLP: 16384,
		MaxPosition: 64}
	use, err := (&Serving{Device: "cpu", Memory: 2 << 30}).fit(some, lm.Use{Slots: 64, Context: 64, Threads: 128})
	if must.OK(t, err); use.Threads < 1 || use.Threads > 64 {
		t.Errorf("%d threads in 2 GiB", use.Threads)
	}
	_, err = s.fit(wide, lm.Use{Slots: 64, Context: 4096})
	must.Match(t, err, "one reply does not fit into 90 % of this machine's 23.0 GiB: it needs 30.6 GiB")
}
