//go:build libtorch

package sampling

import (
	"context"
	"errors"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"rcgrpo/bfcl"
	"rcgrpo/bfcl/drill"
	"rcgrpo/engine"
	"rcgrpo/internal/must"
	"rcgrpo/stages/internal/chat"
	"rcgrpo/stages/internal/checkpoint"
	"rcgrpo/stages/internal/lm"
	"rcgrpo/stages/internal/token"
	"rcgrpo/stages/rl"
	"rcgrpo/stages/rl/blocks"
)

// drilled is a policy with random weights over a vocabulary of the drills, whose ends of reply are likely enough
// that replies have all lengths up to a limit, and drills for it.
func drilled(t *testing.T) (*checkpoint.Policy, []*bfcl.Task) {
	t.Helper()
	tasks := must.Get(drill.Generate(rand.New(rand.NewPCG(1, 2)), drill.Multi, drill.Train, "t", 6))(t)
	var texts []string
	for _, task := range tasks {
		e := must.Get(rl.Expert(task, bfcl.Settings{Today: bfcl.ReleaseDate}))(t)
		texts = append(texts, chat.DrillText(e))
	}
	tokens := must.Get(token.Train(texts, 275, slices.Concat(chat.DrillTokens, chat.RewardTokens)))(t)
	m := must.Get(lm.New(lm.Config{Decoder: "qwen2", Vocab: tokens.Size(), Hidden: 32, Layers: 2, Heads: 2, KVHeads: 1,
		HeadDim: 16, MLP: 48, RopeBase: 1000,
		NormEps: 1e-6, TiedEmbeddings: true, MaxPosition: 512}, rand.New(rand.NewPCG(1, 1))))(t)
	p := &checkpoint.Policy{Meta: checkpoint.Meta{Layout: checkpoint.Drill}, Model: m, Tokenizer: tokens}
	t.Cleanup(func() { p.Close() })
	return p, tasks
}

// slow is an environment whose steps take up to a millisecond, differently each time.
type slow struct{ rl.Env }

func (s slow) Step(ctx context.Context, r rl.Reply) ([]string, int, error) {
	time.Sleep(time.Duration(rand.IntN(1000)) * time.Microsecond)
	return s.Env.Step(ctx, r)
}

// Episodes of several turns depend neither on the number of slots nor on the delays of environments. The model
// processes each token at most once, the prompt of a group once for all its members, and the last draw of an
// episode never.
func TestEpisodesOfABatchAreThoseSampledOneByOne(t *testing.T) {
	p, tasks := drilled(t)
	job := must.Get(engine.NewJob(engine.JobSetup{Dir: t.TempDir(), Seed: 3}))(t)
	const members = 6
	var asks []rl.Rollout
	for _, task := range tasks {
		for member := range members {
			asks = append(asks, rl.Rollout{Task: task, Update: 2, Member: member, Token: rl.TokenNone})
		}
	}
	limits := blocks.Limits{Steps: 3, Reply: 120, Context: 500}
	sampler := must.Get(Open(t.Context(), job, p, tasks, limits, 1.5, 0.98))(t)
	want := must.Get(sampler.Sample(t.Context(), job, asks))(t)
	lengths, stops, read, turns := map[int]bool{}, map[string]int{}, 0, 0
	for i, e := range want {
		read += len(e.IDs) - 1
		if i%members > 0 {
			read -= e.Messages[1].From // the prompt but its last token, the header of the reply, which each draws from
		}
		reply := e.Messages[1]
		lengths[reply.To-reply.From] = true
		stops[e.Stop]++
		if e.Messages[len(e.Messages)-1].Turn > 0 {
			turns++
		}
	}
	if len(lengths) < 6 || stops[rl.StopStep] == 0 || turns < 4 {
		t.Fatalf("first replies of %d lengths, stops %v, %d episodes of several turns: too much alike to tell anything",
			len(lengths), stops, turns)
	}
	if got := sampler.decoder.Computed(); got > read { // a slot may also hold the prefix of another task
		t.Errorf("%d tokens went through the model, want at most %d", got, read)
	}
	for _, slots := range []int{64, 3, 1} {
		decoder := must.Get(lm.NewDecoder(p.Model, slots, 500))(t)
		defer decoder.Release()
		c, local := *sampler.Collector, *sampler.Local
		local.Batcher = rl.NewBatcher(decoder)
		c.Policy = &local
		c.Environment = rl.StartFunc(func(ctx context.Context, task *bfcl.Task, o rl.StartOptions) (rl.Env, error) {
			env, err := sampler.Environment.Start(ctx, task, o)
			return slow{env}, err
		})
		got, _, err := c.Collect(t.Context(), asks, nil)
		must.OK(t, err)
		for i := range got {
			far := 0.0
			for k, logp := range got[i].Logp {
				if k < len(want[i].Logp) {
					far = max(far, math.Abs(float64(logp-want[i].Logp[k])))
				}
			}
			// some processors round products by their size
			if !slices.Equal(got[i].IDs, want[i].IDs) || got[i].Stop != want[i].Stop || far > 1e-5 {
				t.Errorf("%d slots, rollout %d: %d tokens ended by %s, log-probabilities %.1g off; want %d ended by %s",
					slots, i, len(got[i].IDs), got[i].Stop, far, len(want[i].IDs), want[i].Stop)
			}
		}
	}
}

// A broken environment shows nothing about the policy: a few failures are logged, many end the stage.
func TestFailuresOfTheEnvironmentAreLoggedOrEndTheStage(t *testing.T) {
	p, tasks := drilled(t)
	for broken, want := range map[int]string{0: "", 1: "the environment failed in 1 episode, which",
		2: "the environment failed in 2 of 24 episodes"} {
		var log strings.Builder
		job := must.Get(engine.NewJob(engine.JobSetup{Dir: t.TempDir(), Seed: 3, Log: &log}))(t)
		sampler := must.Get(Open(t.Context(), job, p, tasks, blocks.Limits{Steps: 2, Reply: 8, Context: 500}, 1, 1))(t)
		start := sampler.Environment
		var mu sync.Mutex
		left := broken
		sampler.Environment = rl.StartFunc(func(ctx context.Context, task *bfcl.Task, o rl.StartOptions) (rl.Env, error) {
			mu.Lock()
			defer mu.Unlock()
			if left--; left >= 0 {
				return nil, errors.New("no connection")
			}
			return start.Start(ctx, task, o)
		})
		var asks []rl.Rollout
		for member := range 4 {
			for _, task := range tasks {
				asks = append(asks, rl.Rollout{Task: task, Member: member})
			}
		}
		got, err := sampler.Sample(t.Context(), job, asks)
		said := log.String()
		if err != nil {
			said = err.Error()
		}
		if (err != nil) != (broken == 2) || !strings.Contains(said, want) || broken == 0 &&
			strings.Contains(said, "the environment failed") {
			t.Errorf("%d of 24: got %q, want it to say %q", broken, said, want)
		}
		if err == nil && len(got) != len(asks) {
			t.Errorf("%d of 24: %d trajectories, want all", broken, len(got))
		}
	}
}
