//go:build libtorch

package checkpoint

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"rcgrpo/bfcl"
	"rcgrpo/bfcl/drill"
	"rcgrpo/engine"
	"rcgrpo/stages/internal/chat"
	"rcgrpo/stages/internal/lm"
	"rcgrpo/stages/internal/must"
	"rcgrpo/stages/internal/token"
	"rcgrpo/stages/rl"
	"rcgrpo/stages/rl/blocks"
)

// expert is a policy that computes what the model computes and says what the ground truth says, so that its calls
// and their results are those of a policy that has learned the drills.
type expert struct {
	rl.Policy
	episodes [][]int32 // each begins like no other
	seen     [][]int32 // by slot
}

func (e *expert) Reset(slot int) {
	e.seen[slot] = nil
	e.Policy.Reset(slot)
}

func (e *expert) Next(ctx context.Context, requests []rl.Request) ([]rl.Draw, error) {
	draws, err := e.Policy.Next(ctx, requests)
	if err != nil {
		return nil, err
	}
	for i, r := range requests {
		e.seen[r.Slot] = append(e.seen[r.Slot], r.Feed...)
		seen := e.seen[r.Slot]
		at := slices.IndexFunc(e.episodes, func(ids []int32) bool {
			return len(ids) > len(seen) && slices.Equal(ids[:len(seen)], seen)
		})
		if at < 0 {
			return nil, fmt.Errorf("slot %d is in no episode", r.Slot)
		}
		draws[i].Token = e.episodes[at][len(seen)]
	}
	return draws, nil
}

// BenchmarkEnvironmentsAreHardlyWaitedFor plays 60 drills with the drills' model (574,592 parameters) and the
// environments of the benchmark, and reports what share of the time the model waited for them.
func BenchmarkEnvironmentsAreHardlyWaitedFor(b *testing.B) {
	tasks := must.Get(drill.Generate(rand.New(rand.NewPCG(1, 2)), drill.Multi, drill.Train, "t", 600))(b)
	var texts []string
	var experts []*rl.Trajectory
	for _, task := range tasks {
		t := must.Get(rl.Expert(task, bfcl.Settings{Today: bfcl.ReleaseDate}))(b)
		experts, texts = append(experts, t), append(texts, chat.DrillText(t))
	}
	tokens := must.Get(token.Train(texts, 1408, slices.Concat(chat.DrillTokens, chat.RewardTokens)))(b)
	m := must.Get(lm.New(lm.Config{Family: "qwen2", Vocab: tokens.Size(), Hidden: 128, Layers: 2, Heads: 4, KVHeads: 2,
		HeadDim: 32, MLP: 384, RopeBase: 1000,
		NormEps: 1e-6, TiedEmbeddings: true, MaxPosition: 512}, rand.New(rand.NewPCG(1, 1))))(b)
	policy := &Policy{Meta: Meta{Family: Drill}, Model: m, Tokenizer: tokens}
	defer policy.Close()
	job := must.Get(engine.NewJob(engine.JobSetup{Dir: b.TempDir()}))(b)
	played := tasks[:60]
	sampler := must.Get(policy.Collector(job, played, blocks.Limits{Steps: 4, Reply: 60, Context: 384}, 1, 1))(b)
	defer sampler.Close()
	e := &expert{Policy: sampler.Policy, seen: make([][]int32, sampler.Policy.Slots())}
	var rollouts []rl.Rollout
	for i, task := range played {
		ids, _ := chat.Encode(sampler.Codec, experts[i], rl.TokenNone)
		e.episodes = append(e.episodes, ids)
		rollouts = append(rollouts, rl.Rollout{Task: task})
	}
	sampler.Collector.Policy = e
	var took rl.CollectStats
	for b.Loop() {
		got, stats, err := sampler.Collect(b.Context(), rollouts, nil)
		must.OK(b, err)
		for _, t := range got {
			if t.Reward != 1 && t.Stop != rl.StopLength {
				b.Fatalf("%s: reward %v, stop %s", t.Task, t.Reward, t.Stop)
			}
		}
		took.Add(stats)
	}
	b.ReportMetric(100*took.InWaiting.Seconds()/took.Wall.Seconds(), "%waiting")
	b.ReportMetric(100*took.InPolicy.Seconds()/took.Wall.Seconds(), "%model")
	b.ReportMetric(float64(took.Sampled)/took.Wall.Seconds(), "tokens/s")
}
