package grpo

import (
	"context"
	"fmt"
	"slices"

	"rcgrpo/bfcl"
	"rcgrpo/stages/rl"
	"rcgrpo/stages/rl/objective"
)

// groupSource samples the groups of the updates. Its rollouts are a function of seed, update and number of tasks
// taken, so the arms of one seed see the same tasks in the same order under any tokens.
type groupSource struct {
	batch, group int
	resample     bool // replace groups of equal rewards
	course       *course
	tokens       drawTokens
	collect      func(ctx context.Context, list []rl.Rollout) ([]*rl.Trajectory, error)

	taken int // tasks of the course
}

func (s *groupSource) next(n int) []*bfcl.Task {
	out := make([]*bfcl.Task, n)
	for i := range out {
		out[i] = s.course.at(s.taken)
		s.taken++
	}
	return out
}

// rounds bounds how often zero_variance = "resample" draws tasks for one update. After that, groups of equal
// rewards fill it.
const rounds = 4

// rollout samples the groups of an update, the members of each group adjacent, and returns the number of sampled
// groups. Too many failures of the environment are an error.
func (s *groupSource) rollout(ctx context.Context, u int) (trajectories []*rl.Trajectory, sampled int, err error) {
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

// rollouts lists a group of episodes of each task. Random numbers are named by task, update and member; if a task
// occurs twice in one update, between two passes or by resampling, the second group continues the numbers of the
// members, so that the groups differ.
func (s *groupSource) rollouts(u int, tasks []*bfcl.Task, before map[string]int) []rl.Rollout {
	var list []rl.Rollout
	for _, task := range tasks {
		again, name := before[task.ID], task.ID
		if again > 0 {
			name = fmt.Sprintf("%s, group %d", task.ID, again+1)
		}
		before[task.ID]++
		for i, token := range s.tokens(u, name) {
			list = append(list, rl.Rollout{Task: task, Update: u, Member: again*s.group + i, Token: token})
		}
	}
	return list
}
