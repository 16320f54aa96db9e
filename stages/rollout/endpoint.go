package rollout

import (
	"context"

	"rcgrpo/engine"
	"rcgrpo/stages/internal/checkpoint"
	"rcgrpo/stages/internal/provider"
)

// calls reports whether the policy is an endpoint.
func (s *settings) calls() bool { return s.Policy.Type == provider.ArtifactType }

// WithoutEffect returns the settings that only the other sort of policy reads.
func (s *settings) WithoutEffect() map[string]string {
	return provider.Unread(s.calls())
}

// Runner returns the stage with an endpoint, which needs no tensors, or the one with a checkpoint, if this binary has
// tensors.
func (s *settings) Runner() engine.Runner {
	if s.calls() {
		return calling{s}
	}
	r, _ := any(s).(engine.Runner)
	return r
}

// calling is a stage whose policy is an endpoint.
type calling struct{ *settings }

// Run plays the episodes.
func (s calling) Run(ctx context.Context, job *engine.Job) error {
	tasks, err := checkpoint.ReadTasks(job, s.Tasks)
	if err != nil {
		return err
	}
	_, err = provider.Sampling{Policy: s.Policy, Samples: s.Samples, Limits: s.Limits, Calls: s.Calls}.Run(ctx, job, tasks)
	return err
}
