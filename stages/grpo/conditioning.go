package grpo

import (
	"context"
	"slices"

	"rcgrpo/bfcl"
	"rcgrpo/stages/rl"
	"rcgrpo/stages/rl/objective"
)

// conditioning is the distribution of reward tokens of a training. Plain GRPO has one condition: p is 1 and high
// is that condition.
type conditioning struct {
	p          float64
	high, low  string
	allocation string
	onlyHigh   bool // rollouts under low have no policy gradient
	draw       drawTokens
}

// drawTokens returns the reward tokens of a group [G]. group names the group: the id of its task, extended if the task
// occurs twice in one update.
type drawTokens func(update int, group string) []string

// restrict removes the advantages of rollouts that have no policy gradient.
func (c *conditioning) restrict(b *updateBatch) {
	for i, owner := range b.owner {
		t := b.trajectories[owner]
		if c.onlyHigh && t.Token == c.low {
			b.Advantage[i] = 0
		}
	}
}

// successes samples each task a number of times under each token and counts the successes for a forecast. The
// episodes belong to update 0.
func (c *conditioning) successes(ctx context.Context, tasks []*bfcl.Task, samples int,
	collect func(context.Context, []rl.Rollout) ([]*rl.Trajectory, error)) ([]objective.TaskSample, error) {
	tokens := []string{c.high}
	if c.p < 1 {
		tokens = append(tokens, c.low)
	}
	var list []rl.Rollout
	for _, task := range tasks {
		for i, token := range tokens {
			for k := range samples {
				list = append(list, rl.Rollout{Task: task, Member: i*samples + k, Token: token})
			}
		}
	}
	got, err := collect(ctx, list)
	if err != nil {
		return nil, err
	}
	if _, err := rl.Rewarded(got); err != nil {
		return nil, err
	}
	counts := make([]objective.TaskSample, len(tasks))
	for i, t := range got {
		s := &counts[i/(len(tokens)*samples)]
		n, right := &s.High, &s.HighRight
		if list[i].Member >= samples {
			n, right = &s.Low, &s.LowRight
		}
		if !t.Reward.Missing() {
			*n++
		}
		if t.Reward == 1 {
			*right++
		}
	}
	return counts, nil
}

// subset returns n of the tasks in their order; all if n is 0 or too large.
func subset(tasks []*bfcl.Task, n int, perm func(int) []int) []*bfcl.Task {
	if n == 0 || n >= len(tasks) {
		return tasks
	}
	chosen := slices.Sorted(slices.Values(perm(len(tasks))[:n]))
	out := make([]*bfcl.Task, n)
	for i, at := range chosen {
		out[i] = tasks[at]
	}
	return out
}
