//go:build libtorch

package eval

import (
	"context"

	"rcgrpo/engine"
	"rcgrpo/stages/internal/checkpoint"
)

// Run samples every task and writes scores and trajectories.
func (s *settings) Run(ctx context.Context, job *engine.Job) error {
	tasks, sets, err := s.episodes(job)
	if err != nil {
		return err
	}
	trajectories, err := checkpoint.Sampling{Token: s.Token, Official: s.Layout == "bfcl", Samples: s.Samples,
		Temperature: s.Temperature, TopP: s.TopP, Limits: s.Limits, Arithmetic: s.Arithmetic}.Run(ctx, job, s, tasks)
	if err != nil || job.Rank > 0 { // rank 0 has all episodes
		return err
	}
	return s.write(job, trajectories, sets)
}
