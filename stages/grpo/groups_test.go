package grpo

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"rcgrpo/bfcl"
	"rcgrpo/engine"
	"rcgrpo/internal/must"
	"rcgrpo/stages/internal/lm"
	"rcgrpo/stages/rl"
	"rcgrpo/stages/rl/objective"
)

func streams(seed int64) func(string) *rand.Rand {
	return func(stream string) *rand.Rand { return engine.Rand(seed, stream) }
}

// scripted returns a sampler over n tasks; reward returns the rewards of episodes.
func scripted(n int, reward func(r rl.Rollout) float64) *groupSource {
	s := &groupSource{batch: 4, group: 2, tokens: func(int, string) []string { return []string{"", ""} },
		course: &course{tasks: named("t", n), rand: streams(1)}}
	s.collect = func(_ context.Context, list []rl.Rollout) ([]*rl.Trajectory, error) {
		var out []*rl.Trajectory
		for _, r := range list {
			out = append(out, &rl.Trajectory{Task: r.Task.ID, Update: r.Update, Member: r.Member, Token: r.Token,
				Reward: rl.Reward(reward(r))})
		}
		return out, nil
	}
	return s
}

func named(prefix string, n int) (tasks []*bfcl.Task) {
	for i := range n {
		tasks = append(tasks, &bfcl.Task{ID: fmt.Sprint(prefix, i)})
	}
	return tasks
}

func idsOf(tasks []*bfcl.Task) (ids []string) {
	for _, task := range tasks {
		ids = append(ids, task.ID)
	}
	return ids
}

// The state of a copied store or a shorter run says how many tasks were taken.
func TestAnyNumberOfTakenTasksIsAnIndexOfTheCourse(t *testing.T) {
	c := &course{tasks: named("t", 5), rand: streams(1)}
	_, _, _ = c.at(-1), c.at(math.MaxInt), c.at(math.MinInt)
}

func solvedBy(members ...int) func(r rl.Rollout) float64 {
	return func(r rl.Rollout) float64 {
		if slices.Contains(members, r.Member) {
			return 1
		}
		return 0
	}
}

func tasksOf(trajectories []*rl.Trajectory, group int) []string {
	var ids []string
	for i := 0; i < len(trajectories); i += group {
		ids = append(ids, trajectories[i].Task)
	}
	return ids
}

func TestEveryPassHasEveryTaskOnce(t *testing.T) {
	s := scripted(10, solvedBy(0))
	var seen []string
	for u := 1; u <= 5; u++ { // 20 tasks: two passes
		got, sampled, err := s.rollout(t.Context(), u)
		must.OK(t, err)
		if len(got) != 8 || sampled != 4 {
			t.Fatalf("update %d: %d trajectories of %d groups, want 8 of 4", u, len(got), sampled)
		}
		seen = append(seen, tasksOf(got, 2)...)
	}
	for pass := range 2 {
		if ids := slices.Sorted(slices.Values(seen[10*pass : 10*pass+10])); len(slices.Compact(ids)) != 10 {
			t.Errorf("pass %d took %v, want every task once", pass, ids)
		}
	}
	if slices.Equal(seen[:10], seen[10:]) {
		t.Error("both passes have the same order")
	}
}

func TestForecastCountsSuccessesByTaskAndToken(t *testing.T) {
	tasks := named("t", 2)
	collect := func(_ context.Context, list []rl.Rollout) (out []*rl.Trajectory, _ error) {
		for _, r := range list {
			tr := &rl.Trajectory{}
			// t0 succeeds twice under high and once under low, t1 once under low.
			if r.Update == 0 && (r.Task.ID == "t0" && (r.Member == 0 || r.Member == 2) || r.Token == rl.TokenLow &&
				r.Member == 5) {
				tr.Reward = 1
			}
			out = append(out, tr)
		}
		return out, nil
	}
	drawn := &conditioning{p: 0.5, high: rl.TokenHigh, low: rl.TokenLow}
	got, err := drawn.successes(t.Context(), tasks, 3, collect)
	if want := []objective.TaskSample{{High: 3, HighRight: 2, Low: 3, LowRight: 1},
		{High: 3, Low: 3, LowRight: 1}}; err != nil || !slices.Equal(got, want) {
		t.Errorf("with tokens: got %+v, %v, want %+v", got, err, want)
	}
	plain := &conditioning{p: 1}
	got, err = plain.successes(t.Context(), tasks, 3, collect)
	if want := []objective.TaskSample{{High: 3, HighRight: 2}, {High: 3}}; err != nil || !slices.Equal(got, want) {
		t.Errorf("without: got %+v, %v, want %+v", got, err, want)
	}
	failed := errors.New("no policy")
	if _, err := plain.successes(t.Context(), tasks, 3, func(context.Context, []rl.Rollout) ([]*rl.Trajectory,
		error) {
		return nil, failed
	}); !errors.Is(err, failed) {
		t.Errorf("got %v, want the error of the collector", err)
	}
}

func TestSubsetKeepsTheOrderOfTasks(t *testing.T) {
	tasks := named("t", 6)
	perm := func(n int) []int { return []int{4, 1, 5, 0, 2, 3}[:n] }
	if ids := idsOf(subset(tasks, 3, perm)); !slices.Equal(ids, []string{"t1", "t4", "t5"}) {
		t.Errorf("got %v", ids)
	}
	for _, n := range []int{0, 6, 9} {
		if got := subset(tasks, n, perm); len(got) != 6 {
			t.Errorf("subset = %d: got %d tasks, want all", n, len(got))
		}
	}
}

func TestRepeatedTaskHasItsOwnRandomNumbers(t *testing.T) {
	s := scripted(2, solvedBy(0)) // 4 groups of 2 tasks: each comes twice
	var keys []string
	s.tokens = func(_ int, key string) []string {
		keys = append(keys, key)
		return []string{"", ""}
	}
	for u := 1; u <= 2; u++ {
		got, _, err := s.rollout(t.Context(), u)
		must.OK(t, err)
		drawn := map[string]bool{}
		for _, tr := range got {
			drawn[fmt.Sprint(tr.Task, tr.Member)] = true
		}
		if len(drawn) != 8 {
			t.Errorf("update %d: %d different streams of 8 episodes", u, len(drawn))
		}
	}
	first := slices.Sorted(slices.Values(keys[:4]))
	if want := []string{"t0", "t0, group 2", "t1", "t1, group 2"}; !slices.Equal(first, want) {
		t.Errorf("keys of the tokens: got %v, want %v", first, want)
	}
}

func TestResampleReplacesGroupsOfEqualRewards(t *testing.T) {
	s := scripted(20, func(r rl.Rollout) float64 { // t0 to t9 are never mixed
		if len(r.Task.ID) == 2 && r.Task.ID < "t5" {
			return 1
		}
		if len(r.Task.ID) == 2 {
			return 0
		}
		return float64(r.Member)
	})
	s.resample = true
	mixed := 0
	for u := 1; u <= 4; u++ {
		got, sampled, err := s.rollout(t.Context(), u)
		must.OK(t, err)
		if len(got) != 8 {
			t.Fatalf("update %d: %d trajectories, want 8", u, len(got))
		}
		equal := 0
		for members := range slices.Chunk(got, 2) {
			if members[0].Task != members[1].Task {
				t.Fatalf("update %d: a group holds two tasks", u)
			}
			if members[0].Reward == members[1].Reward {
				equal++
			}
		}
		if sampled < 4 || equal > 0 && sampled < 4+equal*(rounds-1) {
			t.Errorf("update %d: %d groups sampled and %d still equal; it gave up early", u, sampled, equal)
		}
		mixed += 4 - equal
	}
	if mixed < 14 {
		t.Errorf("%d of 16 groups are mixed; half of all tasks are, and %d rounds look for them", mixed, rounds)
	}
}

func TestResampleStopsAfterItsRounds(t *testing.T) {
	s := scripted(20, solvedBy())
	s.resample = true
	got, sampled, err := s.rollout(t.Context(), 1)
	must.OK(t, err)
	if len(got) != 8 || sampled != 4*rounds {
		t.Errorf("%d trajectories of %d groups, want 8 of %d", len(got), sampled, 4*rounds)
	}
}

func TestErrorOfTheCollectorStopsTheUpdate(t *testing.T) {
	s := scripted(4, solvedBy())
	s.collect = func(context.Context, []rl.Rollout) ([]*rl.Trajectory, error) { return nil, errors.New("no memory") }
	_, _, err := s.rollout(t.Context(), 1)
	must.Match(t, err, "no memory")
}

func TestTooManyFailuresOfTheEnvironmentStopAnUpdate(t *testing.T) {
	for name, tc := range map[string]struct {
		broken int
		want   string
	}{"1 of 40 episodes": {1, ""}, "2 of 40": {2, ""}, "3 of 40": {3, "the environment failed in 3 of 40 episodes"},
		"all": {40, "the environment failed in 40 of 40 episodes"}} {
		n := 0
		s := scripted(20, func(rl.Rollout) float64 {
			if n++; n <= tc.broken {
				return math.NaN()
			}
			return float64(n % 2)
		})
		s.batch = 20
		_, _, err := s.rollout(t.Context(), 1)
		must.Match(t, err, tc.want, name)
	}
}

// A member without a reward is excluded from the batch: its tokens have no gradient.
func TestMissingRewardsDoNotEnterTheLoss(t *testing.T) {
	list := []*rl.Trajectory{episode(1, 2), episode(0, 3), episode(rl.MissingReward(), 1), episode(1, 4), episode(0, 2),
		episode(0, 1)}
	stats := lm.TokenStats{Logp: slices.Repeat([]float64{-1}, 13), LogpRef: slices.Repeat([]float64{-1.5}, 13)}
	b := newBatch(list, 3)
	o := objective.PaperObjective()
	b.advantage(&o, nil)
	if !slices.Equal(b.Skip, []bool{2: true, 5: false}) || b.totals.Tokens != 12 {
		t.Errorf("skips %v and counts %d tokens, want the third of six and 12", b.Skip, b.totals.Tokens)
	}
	out := must.Get(b.evaluate(&o, 0, len(list), stats))(t)
	if math.IsNaN(out.Loss) || out.DLogp[5] != 0 || out.DLogp[0] == 0 || out.DLogp[6] == 0 {
		t.Errorf("loss %v, derivatives %v", out.Loss, out.DLogp)
	}
}

// episode is a trajectory of n tokens of the mask in one reply, after two given ones.
func episode(reward rl.Reward, n int) *rl.Trajectory {
	t := &rl.Trajectory{Reward: reward, IDs: []int32{1, 2}, Mask: []bool{false, false}, Logp: []float32{0, 0},
		Messages: []rl.Message{{Role: rl.RoleUser, To: 1}, {Role: rl.RoleAssistant, From: 1, To: 2 + n}}}
	for k := range n {
		t.IDs, t.Mask, t.Logp = append(t.IDs, int32(3+k)), append(t.Mask, true), append(t.Logp, -1)
	}
	return t
}

func TestGroupsOfEqualRewardsAreSkipped(t *testing.T) {
	b := newBatch([]*rl.Trajectory{episode(1, 2), episode(1, 3), episode(0, 1), episode(1, 4)}, 2)
	o := objective.PaperObjective()
	o.ZeroVariance = "skip"
	b.advantage(&o, nil)
	if want := []bool{true, true, false, false}; !slices.Equal(b.Skip, want) {
		t.Errorf("skip: got %v, want %v", b.Skip, want)
	}
	if b.totals.Rows != 2 || b.totals.Tokens != 5 {
		t.Errorf("totals: got %+v, want 2 rows and 5 tokens", b.totals)
	}
	stats := lm.TokenStats{Logp: slices.Repeat([]float64{-1}, 10), LogpRef: slices.Repeat([]float64{-1.5}, 10)}
	for k, d := range must.Get(b.evaluate(&o, 0, 4, stats))(t).DLogp {
		if masked := k < 5; masked != (d == 0) {
			t.Errorf("token %d: slope %v", k, d)
		}
	}
	o.ZeroVariance = "keep"
	b.Skip = nil
	b.advantage(&o, nil)
	out := must.Get(b.evaluate(&o, 0, 4, stats))(t)
	if out.DLogp[0] == 0 {
		t.Error("keep: the divergence of an equal group has no gradient")
	}
}

func TestPenaltyComesOffTheRewardBeforeAdvantages(t *testing.T) {
	b := newBatch([]*rl.Trajectory{episode(1, 1), episode(0, 1), episode(1, 1), episode(1, 1)}, 2)
	o := objective.PaperObjective()
	o.Advantage = &objective.Advantage{Scale: "none"}
	b.advantage(&o, []float64{0.2, 0, 0.1, 0.3})
	// group 1: 0.8 and 0, mean 0.4; group 2: 0.9 and 0.7, mean 0.8
	for i, want := range []float64{0.4, -0.4, 0.1, -0.1} {
		if math.Abs(b.Advantage[i]-want) > 1e-12 {
			t.Errorf("advantage %d: got %v, want %v", i, b.Advantage[i], want)
		}
	}
	o.ZeroVariance = "skip"
	b.advantage(&o, []float64{0.2, 0, 0.1, 0.3})
	if want := []bool{false, false, true, true}; !slices.Equal(b.Skip, want) {
		t.Errorf("skipped by rewards without penalty: got %v, want %v", b.Skip, want)
	}
}

func TestModelAndMessagesMustAgreeOnMaskTokens(t *testing.T) {
	b := newBatch([]*rl.Trajectory{episode(1, 2), episode(0, 2)}, 2)
	o := objective.PaperObjective()
	b.advantage(&o, nil)
	_, err := b.evaluate(&o, 0, 1, lm.TokenStats{Logp: []float64{-1}})
	must.Match(t, err, "the model has 1 tokens of the mask, want 2")
}

func TestRolloutsUnderLowCountInTheirGroupWithoutAPolicyGradient(t *testing.T) {
	group := []*rl.Trajectory{{Token: rl.TokenHigh, Reward: 1}, {Token: rl.TokenLow, Reward: 1},
		{Token: rl.TokenLow, Reward: 0}, {Token: rl.TokenHigh, Reward: 0}}
	o := objective.PaperObjective()
	advantages := func(c *conditioning) []float64 {
		b := newBatch(group, len(group))
		b.advantage(&o, nil)
		c.restrict(b)
		return b.Advantage
	}
	all := advantages(&conditioning{p: 0.5, high: rl.TokenHigh, low: rl.TokenLow})
	if slices.Contains(all, 0) {
		t.Fatalf("got %v, want an advantage for each rollout", all)
	}
	high := advantages(&conditioning{p: 0.5, high: rl.TokenHigh, low: rl.TokenLow, onlyHigh: true})
	if want := []float64{all[0], 0, 0, all[3]}; !slices.Equal(high, want) {
		t.Errorf("got %v, want %v", high, want)
	}
}

// The segments of an agent are rows of their own, with the advantage of their trajectory.
func TestSegmentsHaveTheAdvantageOfTheirTrajectory(t *testing.T) {
	sequence := func(n int) ([]rl.Message, []int32, []bool, []float32) {
		return []rl.Message{{Role: rl.RoleAssistant, To: n}}, make([]int32, n), slices.Repeat([]bool{true}, n),
			make([]float32, n)
	}
	group := []*rl.Trajectory{{Reward: 1}, {Reward: 0}, {Reward: 0}, {Reward: 1}}
	for i, e := range group {
		e.Messages, e.IDs, e.Mask, e.Logp = sequence(i + 2)
	}
	var s rl.Segment
	s.Messages, s.IDs, s.Mask, s.Logp = sequence(7)
	group[1].Segments = []rl.Segment{s}
	o := objective.PaperObjective()
	b := newBatch(group, 2)
	b.advantage(&o, nil)
	for _, part := range []*updateBatch{b, b.partOf([]int{0})} {
		if got := part.Length[:3]; !slices.Equal(got, []int{2, 3, 7}) || !slices.Equal(part.owner[:3], []int{0, 1, 1}) ||
			!(part.Advantage[0] > 0) || part.Advantage[1] != part.Advantage[2] || !(part.Advantage[1] < 0) {
			t.Errorf("lengths %v, owners %v, advantages %v", got, part.owner, part.Advantage)
		}
	}
	if n := len(b.partOf([]int{1}).rows); b.totals.Tokens != 2+3+7+4+5 || n != 2 {
		t.Errorf("%d tokens, and %d rows in the second group", b.totals.Tokens, n)
	}
}
