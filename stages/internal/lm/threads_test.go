//go:build libtorch

package lm

import (
	"math/rand/v2"
	"reflect"
	"slices"
	"testing"

	"rcgrpo/internal/must"
	"rcgrpo/stages/internal/torch"
	"rcgrpo/stages/rl"
)

// Two updates and a decoded group, large enough that every kernel shares its rows out.
func TestResultsAreIdenticalForAnyNumberOfThreads(t *testing.T) {
	before := must.Get(torch.SetThreads(1))(t)
	defer torch.SetThreads(before)
	all := episodes(12, drillSize().Vocab)
	compute := func(threads int) (weights []float32, stats []float64, draws []rl.Draw) {
		t.Helper()
		must.Get(torch.SetThreads(threads))(t)
		m := newModel(t, drillSize(), 1)
		tr := newTrainer(t, m, adamW(DefaultMicroTokens))
		for range 2 {
			s := must.Get(tr.Accumulate(t.Context(), all, nil, 1, descend))(t)
			stats = append(stats, s.Logp...)
			_, _, err := tr.Update(1e-3)
			must.OK(t, err)
		}
		d := newDecoder(t, m, len(all), 256)
		requests := make([]rl.Request, len(all))
		for i, q := range all {
			requests[i] = rl.Request{Slot: i, Feed: q.IDs[:40+i], Temperature: 1, U: 0.37}
		}
		for range 3 {
			next := must.Get(d.Next(t.Context(), requests))(t)
			for i, draw := range next {
				requests[i].Feed = []int32{draw.Token}
			}
			draws = append(draws, next...)
		}
		weights = must.Get(m.Weights())(t)
		return weights, stats, draws
	}
	weights, stats, draws := compute(1)
	for _, threads := range []int{2, 3} {
		w, s, d := compute(threads)
		if !slices.Equal(s, stats) || !slices.Equal(w, weights) || !reflect.DeepEqual(d, draws) {
			t.Errorf("%d threads: log-probabilities equal %v, weights equal %v, draws equal %v", threads,
				slices.Equal(s, stats), slices.Equal(w, weights), reflect.DeepEqual(d, draws))
		}
	}
}

// episodes resemble the drills': about 130 tokens, three in ten learned, in runs of a call's length.
func episodes(n, vocab int) (all []Sequence) {
	r := rand.New(rand.NewPCG(8, 8))
	for range n {
		length := 60 + r.IntN(160)
		q := Sequence{IDs: randomIDs(r, length, vocab), Mask: make([]bool, length)}
		for t := range q.IDs {
			q.Mask[t] = t%40 >= 28
		}
		all = append(all, q)
	}
	return all
}
