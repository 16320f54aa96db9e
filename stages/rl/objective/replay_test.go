package objective

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"rcgrpo/internal/must"
	"rcgrpo/stages/rl"
)

// stored are trajectories of updates of groups, with these rewards and as many tokens of the mask as their place in
// the group plus one.
func stored(updates ...[][]float64) (out []*rl.Trajectory) {
	for u, groups := range updates {
		for g, rewards := range groups {
			for i, reward := range rewards {
				t := &rl.Trajectory{Task: fmt.Sprint("t", g), Update: u + 1, Member: i, Reward: rl.Reward(reward),
					IDs: []int32{0}, Mask: []bool{false}, Logp: []float32{0}}
				for range i + 1 {
					t.IDs, t.Mask, t.Logp = append(t.IDs, 1), append(t.Mask, true), append(t.Logp, -1)
				}
				t.Messages = []rl.Message{{Role: rl.RoleAssistant, From: 1, To: len(t.IDs)}}
				out = append(out, t)
			}
		}
	}
	return out
}

func TestReplayByHand(t *testing.T) {
	r, err := RolloutsOf(stored([][]float64{{1, 0}, {1, 1}}, [][]float64{{0, 1}, {0, 0}}))
	if err != nil || r.Size != 2 || len(r.Updates) != 2 {
		t.Fatalf("got %+v, %v", r, err)
	}
	paper := PaperObjective()
	paper.Advantage.Eps = 1e-300 // A is 1 and -1 in mixed groups
	paper.ZeroVariance = "skip"
	token := paper
	token.Ratio, token.Loss = &Ratio{Level: "token"}, &Loss{Aggregate: "token_mean"}
	for name, tc := range map[string]struct {
		o    Objective
		want map[string]float64
	}{
		// update 1: advantages 1, -1, lengths 1, 2: loss (-1 + 1)/2, weights 1/2 on 1 + 2 tokens; update 2
		// mirrored
		"trajectory sum": {paper, map[string]float64{"reward": 0.5, "zero_variance": 0.5, "sigma2": 0.125,
			"spread_within": 1, "spread_within_mixed": 2,
			"spread_batch": 2, "mean_abs_advantage": 0.5, "effective_sample_size": 2, "loss": 0, "gradient_weight": 1.5,
			"effective_tokens": 3, "weight_of_long": 2.0 / 3, "groups": 2}},
		// of three tokens: (-1 + 2)/3 and (1 - 2)/3, weights 1/3
		"token mean": {token, map[string]float64{"loss": 0, "gradient_weight": 1, "effective_tokens": 3}},
	} {
		got := must.Get(r.Replay(tc.o))(t)
		wantValues(t, name, got, tc.want)
		for _, m := range Replayed {
			if _, ok := got[m.Name]; !ok {
				t.Errorf("%s: %s is missing", name, m.Name)
			}
		}
		if len(got) != len(Replayed) {
			t.Errorf("%d values, %d rows in the table", len(got), len(Replayed))
		}
	}
}

// A further sequence of an agent is a row of its own, as in training: of the rows 1, 3 and 2 tokens long, the first two
// have the advantage 1, the last -1. Each row counts a third.
func TestReplayCountsTheFurtherSequencesOfAgents(t *testing.T) {
	group := stored([][]float64{{1, 0}})
	one := stored([][]float64{{1, 1, 1}})[2]
	group[0].Segments = []rl.Segment{{Messages: one.Messages, IDs: one.IDs, Mask: one.Mask, Logp: one.Logp}}
	paper := PaperObjective()
	paper.Advantage.Eps = 1e-300
	got := must.Get(must.Get(RolloutsOf(group))(t).Replay(paper))(t)
	wantValues(t, "three rows", got, map[string]float64{"loss": -1.0 / 3, "gradient_weight": 2, "effective_tokens": 6,
		"weight_of_long": 4.0 / 6, "mean_abs_advantage": 1, "spread_batch": 2, "reward": 0.5})
}

func TestRolloutsAreRegroupedFromWholeGroups(t *testing.T) {
	r := must.Get(RolloutsOf(stored([][]float64{{1, 1, 0, 0, 1}, {0, 0, 1, 1, 1}})))(t)
	two := must.Get(r.Regroup(2))(t)
	if v, err := two.Replay(PaperObjective()); err != nil || v["groups"] != 4 || v["zero_variance"] != 1 {
		t.Errorf("groups of 2: got %v, %v; want four without variance", v, err)
	}
	_, err := r.Regroup(6)
	must.Match(t, err, "2 to 5")
	if _, err := RolloutsOf(stored([][]float64{{1, 0, 1}, {1, 0}})); err == nil {
		t.Error("groups of two sizes were taken")
	}
	if _, err := RolloutsOf([]*rl.Trajectory{{Reward: rl.MissingReward()}}); err == nil { // BatchSizes divided by zero
		t.Error("trajectories without a reward are accepted")
	}
	if _, err := RolloutsOf(nil); err == nil {
		t.Error("no trajectories were taken")
	}
	// The same task twice in a row is two groups.
	twice := stored([][]float64{{1, 0}, {0, 1}, {1, 1}})
	twice[2].Task, twice[3].Task = "t0", "t0"
	if r, err := RolloutsOf(twice); err != nil || r.Size != 2 {
		t.Errorf("a task twice in a row: got %v, %v", r, err)
	}
}

// TestSpreadOverABatchGrowsWithItsGroups is the effect of docs/training.md 2: one run, one policy, and a
// statistic that depends on the batch more than on the policy.
func TestSpreadOverABatchGrowsWithItsGroups(t *testing.T) {
	r := rand.New(rand.NewPCG(7, 8))
	var updates [][][]float64
	for range 16 {
		updates = append(updates, simulated(r, 16, 5, 0.5, 0.8, 0.5).Rewards)
	}
	rollouts := must.Get(RolloutsOf(stored(updates...)))(t)
	effects := rollouts.BatchSizes()
	var sizes []int
	for i, e := range effects {
		sizes = append(sizes, e.Groups)
		if i > 0 && (e.SpreadBatch[0] < effects[i-1].SpreadBatch[0] || e.Groups <= 16 &&
			e.SpreadBatch[0] < effects[i-1].SpreadBatch[0]+0.1 || math.Abs(e.ZeroVariance-effects[0].ZeroVariance) > 1e-9 ||
			math.Abs(e.SpreadWithin-effects[0].SpreadWithin) > 1e-9) {
			t.Errorf("%+v after %+v: want a larger spread over the batch, and the rest the same", e, effects[i-1])
		}
	}
	if fmt.Sprint(sizes) != "[1 4 16 64 256]" {
		t.Errorf("sizes: got %v", sizes)
	}
	if last := effects[len(effects)-1].SpreadBatch; math.Abs(last[0]-4) > 1e-3 || math.Abs(last[1]-3.5777) > 1e-3 {
		t.Errorf("all at once: got %v, want the ceilings 4 and 3.578", last)
	}
}

// TestSmallerGroupsHaveZeroVarianceMoreOften: of a group with two successes among four, C(2,2) + C(2,2) of six pairs
// are equal, and no triple; of one with all right, every subset is.
func TestSmallerGroupsHaveZeroVarianceMoreOften(t *testing.T) {
	r := must.Get(RolloutsOf(stored([][]float64{{1, 0, 0, 1}, {1, 1, 1, 1}})))(t)
	want := []GroupEffect{
		{2, (2.0/6 + 1) / 2, (1.0/6 + 1) / 2, 1.0 / 12, 1.0 / 12}, // the sample variances are 1/3 and 0
		{3, 0.5, 0.5, 0, 1.0 / 9},
		{4, 0.5, 0.5, 0, 1.0 / 8},
	}
	for i, got := range r.GroupSizes() {
		w := want[i]
		if got.Size != w.Size || math.Abs(got.ZeroVariance-w.ZeroVariance)+math.Abs(got.AllRight-w.AllRight)+
			math.Abs(got.AllWrong-w.AllWrong)+math.Abs(got.Sigma2-w.Sigma2) > 1e-12 {
			t.Errorf("got %+v, want %+v", got, w)
		}
	}
	if n := len(r.GroupSizes()); n != 3 {
		t.Errorf("%d sizes, want 2, 3 and 4", n)
	}
}

func TestObjectivesAreSetByTheNamesOfTheLanguage(t *testing.T) {
	o := PaperObjective()
	for name, value := range map[string]string{"advantage.ddof": "1", "ratio.level": `"token"`, "clip.high": "0.28",
		"ratio.only_above": "true", "zero_variance": "skip"} {
		if err := o.Set(name, value); err != nil {
			t.Errorf("%s = %s: %v", name, value, err)
		}
	}
	if o.Advantage.DDOF != 1 || o.Ratio.Level != "token" || o.Clip.High != 0.28 || !o.Ratio.OnlyAbove ||
		o.ZeroVariance != "skip" {
		t.Errorf("got %+v", o)
	}
	for name, value := range map[string]string{"advantage.ddofs": "1", "ratio.level": "tokens", "clip.high": "much",
		"clip": "1", "lr": "1", "ratio.only_above": "2", "advantage.ddof": "0.5"} {
		if err := o.Set(name, value); err == nil {
			t.Errorf("%s = %s was taken", name, value)
		}
	}
	if o.Ratio.Level != "token" {
		t.Error("a wrong value was set")
	}
}
