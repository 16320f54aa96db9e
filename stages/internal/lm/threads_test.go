//go:build libtorch

package lm

import (
	"context"
	"slices"
	"testing"

	"rcgrpo/stages/internal/torch"
	"rcgrpo/stages/rl"
)

// Two updates and a decoded group, large enough that every kernel shares its rows out.
func TestThreadsChangeNoBits(t *testing.T) {
	before, err := torch.Threads()
	if err != nil {
		t.Fatal(err)
	}
	defer torch.SetThreads(before)
	all, _ := episodes(12, drillSize().Vocab)
	compute := func(threads int) (weights []float32, stats []float64, draws []rl.Draw) {
		t.Helper()
		if err := torch.SetThreads(threads); err != nil {
			t.Fatal(err)
		}
		m := newModel(t, drillSize(), 1)
		tr := newTrainer(t, m, OptimizerConfig{})
		for range 2 {
			s, err := tr.Accumulate(context.Background(), all, nil, 1, descend)
			if err != nil {
				t.Fatal(err)
			}
			stats = append(stats, s.Logp...)
			if _, _, err := tr.Update(1e-3); err != nil {
				t.Fatal(err)
			}
		}
		d := newDecoder(t, m, len(all), 256)
		requests := make([]rl.Request, len(all))
		for i, q := range all {
			requests[i] = rl.Request{Slot: i, Feed: q.IDs[:40+i], Temperature: 1, U: 0.37}
		}
		for range 3 {
			next, err := d.Next(context.Background(), requests)
			if err != nil {
				t.Fatal(err)
			}
			for i, draw := range next {
				requests[i].Feed = []int32{draw.Token}
			}
			draws = append(draws, next...)
		}
		if weights, err = m.Weights(); err != nil {
			t.Fatal(err)
		}
		return weights, stats, draws
	}
	weights, stats, draws := compute(1)
	for _, threads := range []int{2, 3} {
		w, s, d := compute(threads)
		if !slices.Equal(s, stats) || !slices.Equal(w, weights) || !slices.Equal(d, draws) {
			t.Errorf("%d threads: log-probabilities equal %v, weights equal %v, draws equal %v", threads,
				slices.Equal(s, stats), slices.Equal(w, weights), slices.Equal(d, draws))
		}
	}
}
