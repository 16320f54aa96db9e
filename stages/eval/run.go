//go:build libtorch

package eval

import (
	"context"

	"rcgrpo/bfcl"
	"rcgrpo/engine"
	"rcgrpo/engine/artifact"
	"rcgrpo/stages/internal/checkpoint"
	"rcgrpo/stages/rl"
)

// Run samples every task and writes scores and trajectories.
func (s *settings) Run(ctx context.Context, job *engine.Job) error {
	if err := checkpoint.PlanMemory(job, s); err != nil {
		return err
	}
	policy, err := checkpoint.Open(job, s.Policy, s.Arithmetic)
	if err != nil {
		return err
	}
	defer policy.Close()
	if err := policy.Model.Freeze(); err != nil {
		return err
	}
	token, err := policy.Resolve(s.Token)
	if err != nil {
		return err
	}
	rollouts, sets, err := s.rollouts(job, token)
	if err != nil {
		return err
	}
	tasks := make([]*bfcl.Task, len(rollouts))
	for i, r := range rollouts {
		tasks[i] = r.Task
	}
	sampler, err := policy.Collector(job, tasks, *s.Limits, s.Temperature, s.TopP)
	if err != nil {
		return err
	}
	trajectories, err := sampler.Sample(ctx, job, rollouts)
	if err != nil {
		return err
	}
	scores := s.scores(trajectories, sets)
	dir, err := job.Create("scores")
	if err != nil {
		return err
	}
	if err := artifact.WriteRows(dir, rl.ScoresFile, scores); err != nil {
		return err
	}
	if len(s.K) > 0 {
		if err := artifact.WriteRows(dir, rl.PassesFile, rl.Passes(scores, s.K)); err != nil {
			return err
		}
	}
	if dir, err = job.Create("trajectories"); err != nil {
		return err
	}
	return artifact.WriteRows(dir, rl.TrajectoriesFile, trajectories)
}

// rollouts lists the episodes and the set of each: the port of its task.
func (s *settings) rollouts(job *engine.Job, token string) (list []rl.Rollout, sets []string, err error) {
	for _, ref := range s.Tasks {
		tasks, err := checkpoint.ReadTasks(job, ref)
		if err != nil {
			return nil, nil, err
		}
		for _, task := range tasks {
			for i := range s.Samples {
				list = append(list, rl.Rollout{Task: task, Member: i, Token: token})
				sets = append(sets, setName(ref.Port, task))
			}
		}
	}
	return list, sets, nil
}

// setName distinguishes the prompt modes of a set, so that one evaluation may contain both.
func setName(port string, task *bfcl.Task) string {
	if task.Prompt == bfcl.PromptMerged {
		return port + " " + bfcl.PromptMerged
	}
	return port
}
