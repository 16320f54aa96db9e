//go:build libtorch

package lm

import (
	"math/rand/v2"
	"syscall"
	"testing"

	"rcgrpo/internal/must"
	"rcgrpo/stages/rl"
)

// BenchmarkShape has the sizes, batches and lengths at which bench/lm.sh times transformers. The script runs both
// in turns.
func BenchmarkShape(b *testing.B) {
	for _, size := range []struct {
		name                  string
		cfg                   Config
		batch, length, prompt int
	}{
		{"4M", Config{Decoder: "qwen2", Vocab: 2048, Hidden: 256, Layers: 4, Heads: 4, KVHeads: 2, HeadDim: 64, MLP: 704,
			RopeBase: 10000, NormEps: 1e-6,
			MaxPosition: 4096}, 32, 256, 64},
		{"100M", Config{Decoder: "qwen2", Vocab: 16384, Hidden: 768, Layers: 12, Heads: 12, KVHeads: 4, HeadDim: 64,
			MLP: 2048, RopeBase: 10000,
			NormEps: 1e-6, MaxPosition: 4096}, 8, 256, 64},
		{"SmolLM2", Config{Decoder: "llama", Vocab: 49152, Hidden: 576, Layers: 30, Heads: 9, KVHeads: 3, HeadDim: 64,
			MLP: 1536, RopeBase: 100000, NormEps: 1e-5, MaxPosition: 4096, TiedEmbeddings: true}, 8, 256, 64},
	} {
		r := rand.New(rand.NewPCG(1, 1))
		batch := make([]Sequence, size.batch)
		for i := range batch {
			batch[i] = Sequence{IDs: randomIDs(r, size.length, size.cfg.Vocab), Mask: make([]bool, size.length)}
			for t := 1; t < size.length; t++ {
				batch[i].Mask[t] = r.IntN(2) == 0
			}
		}
		tokens := float64(size.batch * size.length)
		b.Run(size.name+"/train", func(b *testing.B) {
			tr := newTrainer(b, newModel(b, size.cfg, 1), adamW(DefaultMicroTokens))
			measure(b, tokens, func() { train(b, tr, batch, nil, 1e-4) })
		})
		b.Run(size.name+"/logprobs", func(b *testing.B) {
			m := newModel(b, size.cfg, 1)
			var all []Sequence
			for _, q := range batch {
				all = append(all, learnAll(q.IDs))
			}
			measure(b, tokens, func() { allStats(b, m, all, nil, 1) })
		})
		b.Run(size.name+"/generate", func(b *testing.B) {
			const news = 64
			m := newModel(b, size.cfg, 1)
			d := newDecoder(b, m, size.batch, size.prompt+news)
			measure(b, float64(size.batch*news), func() {
				requests := make([]rl.Request, size.batch)
				for i := range requests {
					d.Cut(i, 0)
					requests[i] = rl.Request{Slot: i, Feed: batch[i].IDs[:size.prompt]}
				}
				for range news {
					draws := must.Get(d.Next(b.Context(), requests))(b)
					for i, draw := range draws {
						requests[i].Feed = []int32{draw.Token}
					}
				}
			})
		})
	}
}

// measure runs f once to warm up, as lm_torch.py does, and then as often as asked. It reports f's tokens per
// second, and per second of processor time: on a machine that others use, the second says more.
func measure(b *testing.B, tokens float64, f func()) {
	f()
	before := processorTime(b)
	for b.Loop() {
		f()
	}
	b.ReportMetric(tokens*float64(b.N)/b.Elapsed().Seconds(), "tokens/s")
	b.ReportMetric(tokens*float64(b.N)/(processorTime(b)-before), "tokens/cpu-s")
}

// processorTime is what all threads of the process have used, in seconds.
func processorTime(b *testing.B) float64 {
	var u syscall.Rusage
	must.OK(b, syscall.Getrusage(syscall.RUSAGE_SELF, &u))
	return float64(u.Utime.Nano()+u.Stime.Nano()) / 1e9
}
