package chat

import (
	"context"
	"math/rand/v2"
	"slices"
	"testing"

	"rcgrpo/bfcl"
	"rcgrpo/bfcl/drill"
	"rcgrpo/internal/must"
	"rcgrpo/stages/internal/token"
	"rcgrpo/stages/rl"
	"rcgrpo/stages/rl/blocks"
)

// parrot is a sampler that continues the episode of which a slot's ids are a prefix.
type parrot struct {
	seq map[int][]int32
	all [][]int32
}

func (p *parrot) Slots() int   { return 4 }
func (p *parrot) MaxLen() int  { return 2000 }
func (p *parrot) Cut(i, n int) { p.seq[i] = p.seq[i][:n] }
func (p *parrot) Release() error {
	clear(p.seq)
	return nil
}
func (p *parrot) Next(_ context.Context, requests []rl.Request) ([]rl.Draw, error) {
	draws := make([]rl.Draw, len(requests))
	for i, r := range requests {
		p.seq[r.Slot] = append(p.seq[r.Slot], r.Feed...)
		n := len(p.seq[r.Slot])
		for _, e := range p.all {
			if len(e) > n && slices.Equal(e[:n], p.seq[r.Slot]) {
				draws[i] = rl.Draw{Token: e[n], Logp: -1}
				break
			}
		}
	}
	return draws, nil
}

func TestReplayedExpertsEarnTheirRewardTokenByToken(t *testing.T) {
	tasks := must.Get(drill.Generate(rand.New(rand.NewPCG(1, 2)), drill.Multi, drill.Train, "t", 40))(t)
	var texts []string
	experts := make([]*rl.Trajectory, len(tasks))
	for i, task := range tasks {
		experts[i] = must.Get(rl.Expert(task, bfcl.Settings{}))(t)
		texts = append(texts, DrillText(experts[i]))
	}
	vocabulary := must.Get(token.Train(texts, 600, append(slices.Clone(DrillTokens), RewardTokens...)))(t)
	for _, where := range []string{rl.FirstUser, rl.BeforeEachAction} {
		codec := must.Get(NewDrill(vocabulary, where))(t)
		p := &parrot{seq: map[int][]int32{}}
		var rollouts []rl.Rollout
		for i, task := range tasks {
			ids, _ := encode(t, codec, experts[i], rl.TokenHigh)
			p.all = append(p.all, ids)
			rollouts = append(rollouts, rl.Rollout{Task: task, Token: rl.TokenHigh})
		}
		limits := blocks.Limits{Steps: 4, Reply: 60, Context: 2000}
		c := &rl.Collector{Policy: &rl.Local{Batcher: rl.NewBatcher(p), Codec: codec, Limits: limits},
			Environment: rl.Benchmark(bfcl.Settings{}, limits)}
		got, _, err := c.Collect(t.Context(), rollouts, nil)
		must.OK(t, err)
		for i, e := range got {
			if e.Reward != 1 || !e.Official || e.Stop != rl.StopDone {
				t.Errorf("%s %s: reward %v, stop %s, failure %s:\n%s", where, e.Task, e.Reward, e.Stop, e.Failure,
					codec.Text(e.IDs))
			}
			if !slices.Equal(e.IDs, p.all[i]) {
				t.Errorf("%s %s: other ids than the expert's", where, e.Task)
			}
			ids, mask := encode(t, codec, e, rl.TokenHigh)
			if !slices.Equal(ids, e.IDs) || !slices.Equal(mask, e.Mask) {
				t.Errorf("%s %s: what was sampled is laid out differently", where, e.Task)
			}
		}
	}
}
