package eval

import (
	"context"
	"slices"

	"rcgrpo/bfcl"
	"rcgrpo/engine"
	"rcgrpo/engine/artifact"
	"rcgrpo/stages/internal/checkpoint"
	"rcgrpo/stages/internal/provider"
	"rcgrpo/stages/rl"
)

// calls reports whether the policy is an endpoint.
func (s *settings) calls() bool { return s.Policy.Type == provider.ArtifactType }

// EpisodesPerTask returns the number of episodes per task.
func (s *settings) EpisodesPerTask() int { return s.Samples }

// greedy reports whether pages compare the scores with those of greedy decoding. An API model is evaluated so with one
// episode per task, at the temperature of its endpoint.
func (s *settings) greedy() bool {
	if s.calls() {
		return s.Samples == 1
	}
	return s.Temperature == 0
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

// Run plays every task and writes scores, trajectories and calls.
func (s calling) Run(ctx context.Context, job *engine.Job) error {
	tasks, sets, err := s.episodes(job)
	if err != nil {
		return err
	}
	trajectories, err := provider.Sampling{Policy: s.Policy, Samples: s.Samples, Limits: s.Limits, Calls: s.Calls}.
		Run(ctx, job, tasks)
	if err != nil {
		return err
	}
	return s.write(job, trajectories, sets)
}

// episodes returns the tasks and the set of each episode.
func (s *settings) episodes(job *engine.Job) (tasks []*bfcl.Task, sets []string, err error) {
	for _, ref := range s.Tasks {
		set, err := checkpoint.ReadTasks(job, ref)
		if err != nil {
			return nil, nil, err
		}
		tasks = append(tasks, set...)
		for _, task := range set {
			sets = append(sets, slices.Repeat([]string{setName(ref.Port, task)}, s.Samples)...)
		}
	}
	return tasks, sets, nil
}

// write writes the port scores.
func (s *settings) write(job *engine.Job, trajectories []*rl.Trajectory, sets []string) error {
	scores := s.scores(trajectories, sets)
	dir, err := job.Create("scores")
	if err != nil {
		return err
	}
	if len(s.K) > 0 {
		if err := artifact.WriteRows(dir, rl.PassesFile, rl.Passes(scores, s.K)); err != nil {
			return err
		}
	}
	return artifact.WriteRows(dir, rl.ScoresFile, scores)
}

// setName distinguishes the prompt modes of a set, so that one evaluation may contain both.
func setName(port string, task *bfcl.Task) string {
	if task.Prompt == bfcl.PromptMerged {
		return port + " " + bfcl.PromptMerged
	}
	return port
}
