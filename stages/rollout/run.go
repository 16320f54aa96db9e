//go:build libtorch

package rollout

import (
	"context"

	"rcgrpo/engine"
	"rcgrpo/stages/internal/sampling"
)

// Run samples the episodes.
func (s *settings) Run(ctx context.Context, job *engine.Job) error {
	tasks, err := sampling.ReadTasks(job, s.Tasks)
	if err != nil {
		return err
	}
	_, err = sampling.Episodes{Token: s.Token, Samples: s.Samples, Temperature: s.Temperature, TopP: s.TopP,
		Limits: s.Limits, Arithmetic: s.Arithmetic, Agent: s.Agent}.Run(ctx, job, s, tasks)
	return err
}
