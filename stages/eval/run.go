//go:build libtorch

package eval

import (
	"context"

	"rcgrpo/bfcl"
	"rcgrpo/engine"
	"rcgrpo/stages/internal/sampling"
	"rcgrpo/stages/rl"
)

// Run samples every task and writes scores and trajectories.
func (s *settings) Run(ctx context.Context, job *engine.Job) error {
	return s.evaluate(job, func(tasks []*bfcl.Task) ([]*rl.Trajectory, error) {
		return sampling.Episodes{Token: s.Token, Official: s.Layout == "bfcl", Samples: s.Samples,
			Temperature: s.Temperature, TopP: s.TopP, Limits: s.Limits, Arithmetic: s.Arithmetic}.Run(ctx, job, s, tasks)
	})
}
