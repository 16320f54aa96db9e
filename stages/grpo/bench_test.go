//go:build libtorch

package grpo

import (
	"context"
	"fmt"
	"math/rand/v2"
	"syscall"
	"testing"
	"time"

	"rcgrpo/bfcl"
	"rcgrpo/internal/must"
	"rcgrpo/stages/internal/lm"
	"rcgrpo/stages/rl"
	"rcgrpo/stages/rl/blocks"
	"rcgrpo/stages/rl/objective"
)

// Single turns of random tokens, the shape in which TRL was timed (experiments/LOG.md).
const (
	benchPrompts, benchGroup = 16, 5
	benchPrompt, benchNew    = 64, 64
)

// phases is the CPU time of updates by part. With one thread it equals the wall time on an idle machine; on a busy
// one it is the better measure.
type phases struct{ prefill, decode, learn, optimizer time.Duration }

// cpu returns the CPU time of this process.
func cpu() time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// stopwatch is a sampler whose calls are timed: one that reads anything longer than a token prefills.
type stopwatch struct {
	*lm.Decoder
	p *phases
}

func (w stopwatch) Next(ctx context.Context, requests []rl.Request) ([]rl.Draw, error) {
	start, into := cpu(), &w.p.decode
	for _, r := range requests {
		if len(r.Feed) > 1 {
			into = &w.p.prefill
		}
	}
	draws, err := w.Decoder.Next(ctx, requests)
	*into += cpu() - start
	return draws, err
}

// plain is a codec whose messages are ids already: a request is the prompt of its number.
type plain struct {
	rl.Codec // for what no episode here calls
	prompts  map[string][]int32
}

func (c plain) Begin(_ string, _ []rl.Tool, request, _ string) ([]int32, error) {
	return c.prompts[request], nil
}
func (c plain) Header(string) []int32   { return nil }
func (c plain) Stop(int32) bool         { return false }
func (c plain) Parse([]int32) rl.Parsed { return rl.Parsed{} }

// asking is the environment of one request.
type asking struct{ text string }

func (a asking) System() string                                        { return "" }
func (a asking) Close()                                                {}
func (a asking) Turn() int                                             { return 0 }
func (a asking) User() string                                          { return a.text }
func (a asking) Tools() []rl.Tool                                      { return nil }
func (a asking) Step(context.Context, rl.Reply) ([]string, int, error) { return nil, 0, nil }
func (a asking) Done() bool                                            { return true }
func (a asking) Stop() string                                          { return rl.StopDone }
func (a asking) Verdict(context.Context) (bfcl.Verdict, error)         { return bfcl.Verdict{}, nil }

// BenchmarkUpdate times one update of GRPO like the script for TRL: sampling, logprobs of policy and reference,
// loss with KL, gradient, AdamW. It uses one thread, the script two. Metrics show the time by part.
func BenchmarkUpdate(b *testing.B) {
	drills := lm.Config{Decoder: "qwen2", Vocab: 1408, Hidden: 128, Layers: 2, Heads: 4, KVHeads: 2,
		HeadDim: 32, MLP: 384, RopeBase: 1000, NormEps: 1e-6, TiedEmbeddings: true, MaxPosition: 512}
	four := lm.Config{Decoder: "qwen2", Vocab: 2048, Hidden: 256, Layers: 4, Heads: 4, KVHeads: 2, HeadDim: 64,
		MLP: 704, RopeBase: 10000, NormEps: 1e-6, MaxPosition: 512}
	for _, size := range []struct {
		name string
		cfg  lm.Config
	}{{"drills", drills}, {"4M", four}} {
		b.Run(size.name, func(b *testing.B) { benchmarkUpdate(b, size.cfg) })
	}
}

func benchmarkUpdate(b *testing.B, cfg lm.Config) {
	r := rand.New(rand.NewPCG(1, 2))
	policy := must.Get(lm.New(cfg, r))(b)
	defer policy.Close()
	reference := must.Get(policy.Clone())(b)
	defer reference.Close()
	trainer := must.Get(lm.NewTrainer(policy, adamW(lm.DefaultMicroTokens), lm.Peers{}))(b)
	defer trainer.Close()
	decoder := must.Get(lm.NewDecoder(policy, benchPrompts*benchGroup, benchPrompt+benchNew+1))(b)
	defer decoder.Release()

	var p phases
	codec := plain{prompts: map[string][]int32{}}
	for i := range benchPrompts {
		ids := make([]int32, benchPrompt)
		for t := range ids {
			ids[t] = int32(r.IntN(cfg.Vocab))
		}
		codec.prompts[fmt.Sprint(i)] = ids
	}
	collector := &rl.Collector{Policy: &rl.Local{Batcher: rl.NewBatcher(stopwatch{decoder, &p}), Codec: codec,
		Limits: blocks.Limits{Steps: 1, Reply: benchNew, Context: benchPrompt + benchNew + 1}, Seed: 1, Temperature: 1},
		Environment: rl.StartFunc(func(_ context.Context, t *bfcl.Task, _ rl.StartOptions) (rl.Env, error) {
			return asking{t.ID}, nil
		})}
	s := &settings{Objective: objective.PaperObjective(), Temperature: 1}
	s.KL.Estimator, s.KL.Beta = "exact", 0.1

	var last *updateBatch
	update := func(u int) {
		var list []rl.Rollout
		for i := range benchPrompts {
			for member := range benchGroup {
				list = append(list, rl.Rollout{Task: &bfcl.Task{ID: fmt.Sprint(i)}, Update: u, Member: member})
			}
		}
		trajectories, _, err := collector.Collect(b.Context(), list, nil)
		must.OK(b, err)
		for i, t := range trajectories {
			if len(t.IDs) != benchPrompt+benchNew {
				b.Fatalf("an episode has %d tokens, want %d", len(t.IDs), benchPrompt+benchNew)
			}
			t.Reward = rl.Reward(i % 2)
		}
		batch := newBatch(trajectories, benchGroup)
		mark := cpu()
		must.OK(b, s.completeBatch(b.Context(), trainer, reference, batch))
		_, _, err = s.accumulate(b.Context(), trainer, reference, batch)
		must.OK(b, err)
		p.learn += cpu() - mark
		mark = cpu()
		_, _, err = trainer.Update(1e-5)
		must.OK(b, err)
		p.optimizer += cpu() - mark
		last = batch
	}
	update(0)
	p = phases{}
	u, begin := 0, cpu()
	for b.Loop() {
		u++
		update(u)
	}
	all := cpu() - begin
	mark := cpu()
	_, err := policy.Stats(b.Context(), last.sequences, reference, 1)
	must.OK(b, err)
	forward := cpu() - mark
	per := func(name string, d time.Duration, n int) { b.ReportMetric(d.Seconds()*1000/float64(n), name+"-cpu-ms") }
	per("prefill", p.prefill, u)
	per("decode", p.decode, u)
	per("forward", forward, 1)
	per("backward", p.learn-forward*time.Duration(u), u)
	per("optimizer", p.optimizer, u)
	per("all", all, u)
}
