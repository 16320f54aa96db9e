//go:build libtorch

package lm

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"rcgrpo/stages/internal/must"
	"rcgrpo/stages/rl"
)

// episodes resemble the drills': about 130 tokens, three in ten learned, in runs of a call's length.
func episodes(n, vocab int) (all []Sequence, tokens int) {
	r := rand.New(rand.NewPCG(8, 8))
	for range n {
		length := 60 + r.IntN(160)
		q := Sequence{IDs: make([]int32, length), Learn: make([]bool, length)}
		for t := range q.IDs {
			q.IDs[t] = int32(r.IntN(vocab))
			q.Learn[t] = t%40 >= 28
		}
		all, tokens = append(all, q), tokens+length
	}
	return all, tokens
}

func BenchmarkTrain(b *testing.B) {
	for _, micro := range []int{512, 1024, 2048, 4096} {
		b.Run(fmt.Sprintf("micro=%d", micro), func(b *testing.B) {
			m := newModel(b, drillSize(), 1)
			tr := newTrainer(b, m, OptimizerConfig{MicroTokens: micro})
			all, tokens := episodes(60, m.cfg.Vocab)
			for b.Loop() {
				must.Get(tr.Accumulate(b.Context(), all, nil, 1, descend))(b)
				if _, _, err := tr.Update(1e-3); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(tokens*b.N)/b.Elapsed().Seconds(), "tokens/s")
		})
	}
}

// BenchmarkTrainAdapter is BenchmarkTrain of the decoder of 4 M parameters and of a low-rank adapter of it.
func BenchmarkTrainAdapter(b *testing.B) {
	cfg := Config{Family: "qwen2", Vocab: 2048, Hidden: 256, Layers: 4, Heads: 4, KVHeads: 2, HeadDim: 64, MLP: 704,
		RopeBase: 10000, NormEps: 1e-6, MaxPosition: 4096}
	m := newModel(b, cfg, 1)
	a := must.Get(NewAdapter(m, LoRA{Rank: 16, Alpha: 32, Targets: Projections}, rand.New(rand.NewPCG(1, 2))))(b)
	defer a.Close()
	low := must.Get(a.Trainer(OptimizerConfig{}))(b)
	defer low.Close()
	all, tokens := episodes(30, cfg.Vocab)
	for _, what := range []struct {
		name string
		tr   *Trainer
	}{{"all weights", newTrainer(b, m, OptimizerConfig{})}, {"rank 16", low}} {
		b.Run(what.name, func(b *testing.B) {
			for b.Loop() {
				must.Get(what.tr.Accumulate(b.Context(), all, nil, 1, descend))(b)
				if _, _, err := what.tr.Update(1e-5); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(tokens*b.N)/b.Elapsed().Seconds(), "tokens/s")
		})
	}
}

func BenchmarkTrainAgainstReference(b *testing.B) {
	m := newModel(b, drillSize(), 1)
	ref := newModel(b, drillSize(), 2)
	tr := newTrainer(b, m, OptimizerConfig{})
	all, tokens := episodes(60, m.cfg.Vocab)
	for b.Loop() {
		must.Get(tr.Accumulate(b.Context(), all, ref, 1, func(_, _ int, s TokenStats) (Weights, error) {
			return Weights{Logp: s.Logp, KL: s.KL}, nil
		}))(b)
		if _, _, err := tr.Update(1e-3); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(tokens*b.N)/b.Elapsed().Seconds(), "tokens/s")
}

// Twelve groups of five members that leave the first one's path at a random place after the prompt, as a policy
// of low entropy does.
func BenchmarkTrainGroups(b *testing.B) {
	m, ref := newModel(b, drillSize(), 1), newModel(b, drillSize(), 2)
	tr := newTrainer(b, m, OptimizerConfig{})
	first, _ := episodes(12, m.cfg.Vocab)
	r := rand.New(rand.NewPCG(8, 8))
	var all []Sequence
	tokens := 0
	for _, q := range first {
		for range 5 {
			member := Sequence{IDs: slices.Clone(q.IDs), Learn: q.Learn}
			for at := 25 + r.IntN(len(q.IDs)-25); at < len(q.IDs); at++ {
				member.IDs[at] = int32(r.IntN(m.cfg.Vocab))
			}
			all, tokens = append(all, member), tokens+len(q.IDs)
		}
	}
	for b.Loop() {
		must.Get(tr.Accumulate(b.Context(), all, ref, 1, func(_, _ int, s TokenStats) (Weights, error) {
			return Weights{Logp: s.Logp, KL: s.KL}, nil
		}))(b)
		if _, _, err := tr.Update(1e-3); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(tokens*b.N)/b.Elapsed().Seconds(), "tokens/s")
}

func BenchmarkStats(b *testing.B) {
	m := newModel(b, drillSize(), 1)
	all, tokens := episodes(60, m.cfg.Vocab)
	for b.Loop() {
		must.Get(m.Stats(b.Context(), all, nil, 1))(b)
	}
	b.ReportMetric(float64(tokens*b.N)/b.Elapsed().Seconds(), "tokens/s")
}

// One step of 60 slots that hold 70 to 130 tokens.
func BenchmarkDecodeStep(b *testing.B) {
	for _, slots := range []int{5, 60, 80} {
		b.Run(fmt.Sprintf("slots=%d", slots), func(b *testing.B) {
			m := newModel(b, drillSize(), 1)
			d := newDecoder(b, m, slots, 384)
			r := rand.New(rand.NewPCG(8, 8))
			requests := make([]rl.Request, slots)
			for i := range requests {
				feed := make([]int32, 70+r.IntN(60))
				for t := range feed {
					feed[t] = int32(r.IntN(m.cfg.Vocab))
				}
				requests[i] = rl.Request{Slot: i, Feed: feed, Temperature: 1}
			}
			must.Get(d.Next(b.Context(), requests))(b)
			for b.Loop() {
				for i := range requests {
					requests[i].Feed, requests[i].U = requests[i].Feed[:1], r.Float64()
					d.held[i] = d.held[i][:len(d.held[i])-1]
				}
				must.Get(d.Next(b.Context(), requests))(b)
			}
			b.ReportMetric(float64(slots*b.N)/b.Elapsed().Seconds(), "tokens/s")
		})
	}
}
