//go:build libtorch

package rollout

import (
	"context"

	"rcgrpo/engine"
	"rcgrpo/engine/artifact"
	"rcgrpo/stages/internal/checkpoint"
	"rcgrpo/stages/rl"
)

// Run samples the episodes.
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
	tasks, err := checkpoint.ReadTasks(job, s.Tasks)
	if err != nil {
		return err
	}
	sampler, err := policy.Collector(job, tasks, *s.Limits, s.Temperature, s.TopP)
	if err != nil {
		return err
	}
	var rollouts []rl.Rollout
	for _, task := range tasks {
		for i := range s.Samples {
			rollouts = append(rollouts, rl.Rollout{Task: task, Member: i, Token: token})
		}
	}
	trajectories, err := sampler.Sample(ctx, job, rollouts)
	if err != nil {
		return err
	}
	dir, err := job.Create("trajectories")
	if err != nil {
		return err
	}
	return artifact.WriteRows(dir, rl.TrajectoriesFile, trajectories)
}
