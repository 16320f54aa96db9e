//go:build libtorch

package lm

import (
	"math/rand/v2"
	"testing"

	"rcgrpo/internal/must"
)

func TestPackedRowsAreTheRowsOfAPass(t *testing.T) {
	m := newModel(t, tiny(true), 1)
	rng := rand.New(rand.NewPCG(4, 4))
	for range 200 {
		var sequences []Sequence
		for range 1 + rng.IntN(5) {
			var q Sequence
			if len(sequences) > 0 { // often with a common prefix
				q.IDs = append(q.IDs, sequences[0].IDs[:rng.IntN(len(sequences[0].IDs)+1)]...)
			}
			for range 1 + rng.IntN(6) {
				q.IDs = append(q.IDs, int32(rng.IntN(3)))
			}
			q.Mask = make([]bool, len(q.IDs))
			for i := 1; i < len(q.IDs); i++ {
				q.Mask[i] = rng.IntN(3) == 0
			}
			sequences = append(sequences, q)
		}
		want := len(must.Get(m.pack(sequences, 0))(t).ids)
		if got := PackedRows(sequences); got != want {
			t.Fatalf("%v: got %d rows, want %d", sequences, got, want)
		}
	}
}

func TestReorderedStatisticsKeepMissingLists(t *testing.T) {
	got := TokenStats{Logp: []float64{1, 2, 3}, Entropy: []float64{4, 5, 6}}.Reorder([]int{2, 0, 1})
	if got.Logp[0] != 3 || got.Logp[1] != 1 || got.Entropy[2] != 5 || got.KL != nil || got.LogpRef != nil {
		t.Errorf("got %+v", got)
	}
}
