//go:build libtorch

package sft

import (
	"fmt"
	"math"
	"math/rand/v2"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"rcgrpo/bfcl"
	"rcgrpo/bfcl/drill"
	"rcgrpo/engine"
	"rcgrpo/engine/artifact"
	"rcgrpo/internal/must"
	"rcgrpo/stages/internal/chat"
	"rcgrpo/stages/internal/checkpoint"
	"rcgrpo/stages/internal/lm"
	"rcgrpo/stages/internal/token"
	"rcgrpo/stages/internal/train"
	"rcgrpo/stages/rl"
	"rcgrpo/stages/rl/blocks"
)

// corpus is a data set of expert episodes, alternately marked high and low.
func corpus(t *testing.T) []*rl.Trajectory {
	t.Helper()
	tasks := must.Get(drill.Generate(rand.New(rand.NewPCG(1, 2)), drill.Multi, drill.Train, "t", 6))(t)
	var out []*rl.Trajectory
	for i, task := range tasks {
		e := must.Get(rl.Expert(task, bfcl.Settings{}))(t)
		e.Token = []string{rl.TokenHigh, rl.TokenLow}[i%2]
		out = append(out, e)
	}
	return out
}

func policyFor(t *testing.T, data []*rl.Trajectory, context int) *checkpoint.Policy {
	t.Helper()
	var texts []string
	for _, e := range data {
		texts = append(texts, chat.DrillText(e))
	}
	tokens := must.Get(token.Train(texts, 320, slices.Concat(chat.DrillTokens, chat.RewardTokens)))(t)
	m := must.Get(lm.New(lm.Config{Decoder: "qwen2", Vocab: tokens.Size(), Hidden: 8, Layers: 1, Heads: 1, KVHeads: 1,
		HeadDim: 8, MLP: 8, RopeBase: 1000,
		NormEps: 1e-6, TiedEmbeddings: true, MaxPosition: context}, rand.New(rand.NewPCG(1, 1))))(t)
	p := &checkpoint.Policy{Meta: checkpoint.Meta{Layout: checkpoint.Drill}, Model: m, Tokenizer: tokens}
	t.Cleanup(func() { p.Close() })
	return p
}

func encode(t *testing.T, p *checkpoint.Policy, data []*rl.Trajectory, conditioned bool) ([]lm.Sequence, error) {
	t.Helper()
	examples, _, err := encodeUpTo(t, p, data, conditioned, 0)
	return examples, err
}

// encodeUpTo leaves longer trajectories than context out, and also returns the log.
func encodeUpTo(t *testing.T, p *checkpoint.Policy, data []*rl.Trajectory, conditioned bool,
	context int) ([]lm.Sequence, string, error) {
	t.Helper()
	dir, ref := t.TempDir(), artifact.Ref{Kind: "curate", Name: "d", Port: "mixed"}
	must.OK(t, artifact.WriteRows(dir, rl.DatasetFile, data))
	var log strings.Builder
	job := must.Get(engine.NewJob(engine.JobSetup{Dir: filepath.Join(dir, "job"),
		Inputs: map[artifact.Ref]string{ref: dir},
		Log:    &log}))(t)
	s := &settings{Data: []artifact.Ref{ref}, Context: context}
	examples, err := s.examples(t.Context(), job, p, conditioned)
	return examples, log.String(), err
}

// learned is the text of the tokens with loss, reply by reply.
func learned(p *checkpoint.Policy, e lm.Sequence) (replies []string) {
	for i := 0; i < len(e.IDs); i++ {
		from := i
		for i < len(e.IDs) && e.Mask[i] {
			i++
		}
		if i > from {
			replies = append(replies, p.Tokenizer.Decode(e.IDs[from:i], false))
		}
	}
	return replies
}

func TestOnlyTokensOfRepliesAreLearned(t *testing.T) {
	data := corpus(t)
	for name, tc := range map[string]struct {
		position    string
		conditioned bool
	}{"sft": {"", false}, "sft after rctp-ft": {rl.FirstUser, false}, "rctp-ft, first user": {rl.FirstUser,
		true}, "rctp-ft, each action": {rl.BeforeEachAction, true}} {
		t.Run(name, func(t *testing.T) {
			p := policyFor(t, data, 2048)
			p.Position = tc.position
			got := must.Get(encode(t, p, data, tc.conditioned))(t)
			for i, e := range got {
				var want []string
				for _, m := range data[i].Messages {
					if m.Role == rl.RoleAssistant && len(m.Calls) > 0 {
						want = append(want, m.Calls[0]+"<|call|>")
					} else if m.Role == rl.RoleAssistant {
						want = append(want, "<|end|>")
					}
				}
				if replies := learned(p, e); !reflect.DeepEqual(replies, want) {
					t.Fatalf("learned %q, want %q", replies, want)
				}
				text, own := p.Tokenizer.Decode(e.IDs, false), chat.HighReward
				if data[i].Token == rl.TokenLow {
					own = chat.LowReward
				}
				tokens := strings.Count(text, chat.HighReward) + strings.Count(text, chat.LowReward)
				expect := map[string]int{"": 0, rl.FirstUser: 1, rl.BeforeEachAction: len(want)}[tc.position]
				if !tc.conditioned {
					expect = 0
				}
				if tokens != expect || strings.Count(text, own) != expect {
					t.Errorf("%d reward tokens, want %d of %s: %s", tokens, expect, own, text)
				}
			}
		})
	}
}

func TestEpisodesWithoutARewardAreNotLearned(t *testing.T) {
	data := corpus(t)
	p := policyFor(t, data, 2048)
	whole := must.Get(encode(t, p, data, false))(t)
	data[1].Reward, data[1].Stop = rl.MissingReward(), rl.StopError
	for _, conditioned := range []bool{false, true} {
		got := must.Get(encode(t, p, data, conditioned))(t)
		if len(got) != len(data)-1 || !conditioned && !reflect.DeepEqual(got, slices.Delete(slices.Clone(whole), 1, 2)) {
			t.Errorf("conditioned %v: got %d examples of %d trajectories, want all but the second", conditioned, len(got),
				len(data))
		}
	}
	_, err := encode(t, p, data[1:2], false)
	must.Match(t, err, "1 have no reward")
}

func TestTrajectoriesBeyondTheContextAreDroppedAndCounted(t *testing.T) {
	data := corpus(t)
	p := policyFor(t, data, 2048)
	whole := must.Get(encode(t, p, data, false))(t)
	var lengths []int
	for _, e := range whole {
		lengths = append(lengths, len(e.IDs))
	}
	slices.Sort(lengths)
	for context, want := range map[int]int{0: len(data), lengths[3]: 4, lengths[3] - 1: 3, lengths[5]: 6} {
		got, said, err := encodeUpTo(t, p, data, false, context)
		must.OK(t, err)
		line := fmt.Sprintf("dropped: more than %d tokens", context)
		if len(got) != want || strings.Contains(said, line) != (want < len(data)) {
			t.Errorf("context = %d: got %d examples of lengths %v and %q, want %d", context, len(got), lengths, said, want)
		}
	}
	_, _, err := encodeUpTo(t, p, data, false, 5)
	must.Match(t, err, "6 have more tokens than context")
}

func TestEpisodesBeyondTheModelsContextAreAnError(t *testing.T) {
	data := corpus(t)
	_, err := encode(t, policyFor(t, data, 32), data, false)
	must.Match(t, err, "task t_0 has")
	must.Match(t, err, "the model takes 32")
	_, err = encode(t, policyFor(t, data, 2048), nil, false)
	must.Match(t, err, "the data sets contain no trajectory to learn: 0 have no reward and 0 have more tokens than")
}

func TestDataSetsOfManyTokensAreRefused(t *testing.T) {
	defer func(n int) { fewTokens = n }(fewTokens)
	fewTokens = 0
	data := corpus(t)
	_, err := encode(t, policyFor(t, data, 1024), slices.Repeat(data, 64), false) // equal rows compress well
	must.Match(t, err, "bytes may have; divide it into several data sets")
}

func TestEveryExampleIsInOneBatch(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	var examples []lm.Sequence
	for i := range 100 {
		examples = append(examples, lm.Sequence{IDs: make([]int32, 1+r.IntN(50)), Mask: []bool{i%2 == 0}})
		examples[i].IDs[0] = int32(i)
	}
	got := batches(rand.New(rand.NewPCG(5, 5)), examples, 8)
	seen := map[int32]int{}
	spread := 0
	for _, b := range got {
		shortest, longest := len(b[0].IDs), len(b[0].IDs)
		for _, e := range b {
			seen[e.IDs[0]]++
			shortest, longest = min(shortest, len(e.IDs)), max(longest, len(e.IDs))
		}
		spread += longest - shortest
	}
	if len(got) != 13 || len(seen) != 100 {
		t.Errorf("%d batches with %d examples, want 13 with 100", len(got), len(seen))
	}
	if mean := spread / len(got); mean > 12 { // eight lengths drawn from 1..50 would lie about 39 apart
		t.Errorf("lengths within a batch lie %d apart", mean)
	}
	for i, e := range examples {
		if e.IDs[0] != int32(i) {
			t.Fatal("the caller's examples were reordered")
		}
	}
}

// One update through the stage's own code, in passes of different sizes and several parts: the same loss and gradient
// to 1e-6.
func TestEverySplitOfABatchIsTheSameUpdate(t *testing.T) {
	data := corpus(t)
	one := func(micro, parts int) map[string]float64 {
		p := policyFor(t, data, 2048)
		examples := must.Get(encode(t, p, data, false))(t)
		job := must.Get(engine.NewJob(engine.JobSetup{Dir: t.TempDir()}))(t)
		s := settings{Settings: train.Defaults(blocks.Schedule{}, 0)}
		s.MicroBatch, s.GradientParts = micro, parts
		training := &train.Training{Settings: &s.Settings, Job: job, Policy: p}
		defer training.Close()
		must.OK(t, training.Open())
		row, _, err := s.update(t.Context(), training, examples, 1e-3)
		must.OK(t, err)
		return row.Values
	}
	whole := one(1<<20, 1)
	for _, tc := range [][2]int{{1, 1}, {500, 1}, {1 << 20, 2}, {500, 6}} {
		micro := tc[0]
		split := one(micro, tc[1])
		for _, name := range []string{"loss", "grad_norm", "entropy"} {
			if relative := math.Abs(split[name]-whole[name]) / whole[name]; !(relative < 1e-6) {
				t.Errorf("%s of %d tokens per pass, %d parts: %v, want %v; they differ by %.2g", name, micro, tc[1], split[name],
					whole[name], relative)
			}
		}
	}
}
