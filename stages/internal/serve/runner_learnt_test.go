//go:build libtorch

package serve

import (
	"math/rand/v2"
	"os"
	"slices"
	"testing"
	"time"

	"rcgrpo/bench/fixtures"
	"rcgrpo/bfcl"
	"rcgrpo/internal/must"
	"rcgrpo/stages/internal/lm"
	"rcgrpo/stages/rl"
)

// A model that has learnt 40 tasks, in the prompts of its template and of the official handler, has the same verdicts
// with the official runner as with eval. bench/bfcl_runner.sh runs it.
func TestTheOfficialRunnerHasTheVerdictsOfEvalWithALearntModel(t *testing.T) {
	python := os.Getenv("BFCL_RUNNER")
	if python == "" {
		t.Skip("BFCL_RUNNER names no Python with bfcl-eval; run bench/bfcl_runner.sh")
	}
	data := must.Get(bfcl.LoadData(fixtures.Benchmark(t)))(t)
	f := families[0]
	f.context = 8192
	a := newArena(t, f, data, tradingTasks(data))
	a.script.flawless = true
	m := must.Get(lm.New(lm.Config{Decoder: "qwen2", Vocab: a.tok.Size(), Hidden: 64, Layers: 2, Heads: 4, KVHeads: 2,
		HeadDim: 16, MLP: 192, RopeBase: 10000, NormEps: 1e-6, TiedEmbeddings: true, MaxPosition: f.context},
		rand.New(rand.NewPCG(1, 1))))(t)
	defer m.Close()
	learn(t, m, a.lessons(t))
	var decoders []*lm.Decoder
	defer func() {
		for _, d := range decoders {
			must.OK(t, d.Release())
		}
	}()
	a.policy = func() rl.Sampler {
		decoders = append(decoders, must.Get(lm.NewDecoder(m, 16, f.context))(t))
		return decoders[len(decoders)-1]
	}
	solved := 0
	for _, failure := range a.eval(t, false) {
		if failure == "" {
			solved++
		}
	}
	if solved < len(a.tasks) {
		t.Errorf("the model solves %d of %d tasks, want all", solved, len(a.tasks))
	}
	a.compareRunner(t, python, 1)
}

// tradingTasks returns the 40 tasks of a trading account alone with all tools from the start and short results.
func tradingTasks(data *bfcl.Data) (tasks []*bfcl.Task) {
	for _, task := range data.Tasks() {
		if slices.Equal(task.Classes, []string{"TradingBot"}) &&
			(task.Category == "base" || task.Category == "miss_param") {
			tasks = append(tasks, task)
		}
	}
	return tasks
}

// lessons returns the episodes of the script in both layouts.
func (a *arena) lessons(t *testing.T) (all []lm.Sequence) {
	t.Helper()
	sampler := a.scripted()
	sampler.replied = func(prompt, reply []int32) {
		next := lm.Sequence{IDs: slices.Concat(prompt, reply), Mask: make([]bool, len(prompt)+len(reply))}
		for i := range reply {
			next.Mask[len(prompt)+i] = true
		}
		at := slices.IndexFunc(all, func(q lm.Sequence) bool {
			return len(q.IDs) <= len(next.IDs) && slices.Equal(q.IDs, next.IDs[:len(q.IDs)])
		})
		if at < 0 {
			all = append(all, next)
			return
		}
		for i, learned := range all[at].Mask {
			next.Mask[i] = next.Mask[i] || learned
		}
		all[at] = next
	}
	a.policy = func() rl.Sampler { return sampler }
	for _, official := range []bool{true, false} {
		for id, failure := range a.eval(t, official) {
			if failure != "" {
				t.Errorf("the script fails %s: %s", id, failure)
			}
		}
	}
	slices.SortFunc(all, func(a, b lm.Sequence) int { return slices.Compare(a.IDs, b.IDs) }) // equal documents together
	return all
}

// learn trains a model on the lessons: first without the documents of tools, which costs little, then with more of
// them, then on the whole.
func learn(t *testing.T, m *lm.Model, lessons []lm.Sequence) {
	t.Helper()
	trainer := must.Get(lm.NewTrainer(m, lm.OptimizerConfig{Beta1: 0.9, Beta2: 0.98, Eps: 1e-8, Clip: 1,
		MicroTokens: 1 << 14}, lm.Peers{}))(t)
	defer trainer.Close()
	rng := rand.New(rand.NewPCG(2, 2))
	for _, phase := range []struct {
		before, batch, epochs int     // tokens before the first reply; 0: all
		rate                  float64 // of the first update; it falls to 0
	}{{200, 4, 16, 4e-3}, {1200, 4, 6, 3e-3}, {0, 5, 8, 3e-3}} {
		cut := slices.Clone(lessons)
		for i, q := range cut {
			if from := slices.Index(q.Mask, true) - phase.before; phase.before > 0 && from > 0 {
				cut[i] = lm.Sequence{IDs: q.IDs[from:], Mask: q.Mask[from:]}
			}
		}
		batches := slices.Collect(slices.Chunk(cut, phase.batch))
		for epoch := range phase.epochs {
			begin, loss := time.Now(), 0.0
			for n, i := range rng.Perm(len(batches)) {
				left := 1 - float64(epoch*len(batches)+n)/float64(phase.epochs*len(batches))
				loss += step(t, trainer, batches[i], phase.rate*left) / float64(len(batches))
			}
			t.Logf("epoch %d, batches of %d: loss %.3f, %.1f s", epoch, phase.batch, loss, time.Since(begin).Seconds())
		}
	}
}

// step makes an update and returns the loss before it.
func step(t *testing.T, trainer *lm.Trainer, batch []lm.Sequence, rate float64) (loss float64) {
	t.Helper()
	learned := 0
	for _, q := range batch {
		learned += q.MaskTokens()
	}
	stats := must.Get(trainer.Accumulate(t.Context(), batch, nil, 1, func(_, _ int, s lm.TokenStats) (lm.Weights, error) {
		return lm.Weights{Logp: slices.Repeat([]float64{-1 / float64(learned)}, len(s.Logp))}, nil
	}))(t)
	_, _, err := trainer.Update(rate)
	must.OK(t, err)
	for _, logp := range stats.Logp {
		loss -= logp / float64(learned)
	}
	return loss
}
