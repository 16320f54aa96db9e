package grpo

import (
	"context"
	"fmt"
	"slices"

	"rcgrpo/bfcl"
	"rcgrpo/stages/rl"
	"rcgrpo/stages/rl/objective"
)

// groupSource collects the groups of one update after another. What it asks for is a function of seed, update and number of
// tasks taken, so the arms of one seed see the same tasks in the same order, whatever their tokens are.
type groupSource struct {
	batch, group int
	resample     bool // groups of equal rewards make room for groups of further tasks
	course       *course
	tokens       allocate
	collect      func(ctx context.Context, list []rl.Rollout) ([]*rl.Trajectory, error)

	taken int // tasks of the course
}

// allocate gives the reward tokens of a group [G]. key is the task's id, made different where a task comes again in
// the same update.
type allocate func(update int, key string) []string

// next takes the n tasks that follow.
func (s *groupSource) next(n int) []*bfcl.Task {
	out := make([]*bfcl.Task, n)
	for i := range out {
		out[i] = s.course.at(s.taken)
		s.taken++
	}
	return out
}

// rounds bounds how often zero_variance = "resample" draws tasks anew for one update; after that what there is counts.
const rounds = 4

// update collects the groups of an update, the members of each side by side, and says how many it sampled. Too many
// failures of the environment among them are an error.
func (s *groupSource) update(ctx context.Context, u int) (trajectories []*rl.Trajectory, sampled int, err error) {
	var kept, equal, all []*rl.Trajectory
	before := map[string]int{} // groups of each task in this update
	full := s.batch * s.group
	for round := 0; round < rounds && len(kept) < full; round++ {
		tasks := s.next(s.batch - len(kept)/s.group)
		got, err := s.collect(ctx, s.rollouts(u, tasks, before))
		if err != nil {
			return nil, 0, err
		}
		sampled += len(tasks)
		all = append(all, got...)
		for members := range slices.Chunk(got, s.group) {
			if s.resample && objective.EqualRewards(members) {
				equal = append(equal, members...)
			} else {
				kept = append(kept, members...)
			}
		}
	}
	if _, err := rl.Rewarded(all); err != nil {
		return nil, 0, err
	}
	return append(kept, equal[:full-len(kept)]...), sampled, nil
}

// rollouts asks for a group of episodes of each task. The random numbers of an episode are named by task, update and
// member; so where a task comes again in one update, at the border of two passes or by resampling, its members count on,
// and the second group is no copy of the first.
func (s *groupSource) rollouts(u int, tasks []*bfcl.Task, before map[string]int) []rl.Rollout {
	var list []rl.Rollout
	for _, task := range tasks {
		again, key := before[task.ID], task.ID
		if again > 0 {
			key = fmt.Sprintf("%s, group %d", task.ID, again+1)
		}
		before[task.ID]++
		for i, token := range s.tokens(u, key) {
			list = append(list, rl.Rollout{Task: task, Update: u, Member: again*s.group + i, Token: token})
		}
	}
	return list
}
