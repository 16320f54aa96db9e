//go:build libtorch

package checkpoint

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"rcgrpo/bfcl"
	"rcgrpo/bfcl/drill"
	"rcgrpo/engine"
	"rcgrpo/stages/internal/chat"
	"rcgrpo/stages/internal/lm"
	"rcgrpo/stages/internal/token"
	"rcgrpo/stages/rl"
)

// drilled is a policy with random weights over a vocabulary of the drills, whose ends of reply are likely enough that
// replies have all lengths up to a limit, and drills for it.
func drilled(t *testing.T) (*Policy, []*bfcl.Task) {
	t.Helper()
	tasks, err := drill.Generate(rand.New(rand.NewPCG(1, 2)), drill.Multi, drill.Train, "t", 6)
	if err != nil {
		t.Fatal(err)
	}
	var texts []string
	for _, task := range tasks {
		e, err := rl.Expert(task, bfcl.Settings{Today: bfcl.ReleaseDate})
		if err != nil {
			t.Fatal(err)
		}
		texts = append(texts, chat.DrillText(e))
	}
	tokens, err := token.Train(texts, 275, slices.Concat(chat.DrillTokens, chat.RewardTokens))
	if err != nil {
		t.Fatal(err)
	}
	m, err := lm.New(lm.Config{Family: "qwen2", Vocab: tokens.Size(), Hidden: 32, Layers: 2, Heads: 2, KVHeads: 1, HeadDim: 16, MLP: 48, RopeBase: 1000,
		NormEps: 1e-6, TiedEmbeddings: true, MaxPosition: 512}, rand.New(rand.NewPCG(1, 1)))
	if err != nil {
		t.Fatal(err)
	}
	p := &Policy{Meta: Meta{Family: Drill}, Model: m, Tokenizer: tokens}
	t.Cleanup(func() { p.Close() })
	return p, tasks
}

// Episodes of several turns in the real decoder: with a slot for each, with three slots that go from one to the next, and
// one after another, every episode is the same; and what went through the model is every token once, the prompt of a group
// once for all its members, and the last draw of an episode, which nobody reads, never.
func TestEpisodesOfABatchAreThoseSampledOneByOne(t *testing.T) {
	p, tasks := drilled(t)
	job, err := engine.NewJob(engine.JobSetup{Dir: t.TempDir(), Seed: 3})
	if err != nil {
		t.Fatal(err)
	}
	const members = 3
	var asks []rl.Rollout
	for _, task := range tasks {
		for member := range members {
			asks = append(asks, rl.Rollout{Task: task, Update: 2, Member: member, Token: rl.TokenNone})
		}
	}
	sampler, err := p.Sampler(job, tasks, rl.Limits{Steps: 3, Reply: 120, Context: 500}, 1.5, 0.98)
	if err != nil {
		t.Fatal(err)
	}
	defer sampler.Close()
	want, err := sampler.Sample(t.Context(), job, asks)
	if err != nil {
		t.Fatal(err)
	}
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
		t.Fatalf("first replies of %d lengths, stops %v, %d episodes of several turns: too much alike to tell anything", len(lengths), stops, turns)
	}
	if got := sampler.decoder.Computed(); got != read {
		t.Errorf("%d tokens went through the model, want %d", got, read)
	}
	for _, slots := range []int{3, 1} {
		decoder, err := lm.NewDecoder(p.Model, slots, 500)
		if err != nil {
			t.Fatal(err)
		}
		defer decoder.Close()
		c := *sampler.Collector
		c.Policy = decoder
		got, _, err := c.Collect(t.Context(), asks, nil)
		if err != nil {
			t.Fatal(err)
		}
		for i := range got {
			far := 0.0
			for k, logp := range got[i].Logp {
				if k < len(want[i].Logp) {
					far = max(far, math.Abs(float64(logp-want[i].Logp[k])))
				}
			}
			if !slices.Equal(got[i].IDs, want[i].IDs) || got[i].Stop != want[i].Stop || far > 1e-5 { // some processors round products by their size
				t.Errorf("%d slots, rollout %d: %d tokens ended by %s, log-probabilities %.1g off; want %d ended by %s", slots, i, len(got[i].IDs), got[i].Stop, far, len(want[i].IDs), want[i].Stop)
			}
		}
	}
}
