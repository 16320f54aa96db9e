//go:build libtorch

package eval

import (
	"context"
	"slices"

	"rcgrpo/bfcl"
	"rcgrpo/engine"
	"rcgrpo/engine/artifact"
	"rcgrpo/stages/internal/checkpoint"
	"rcgrpo/stages/rl"
)

// Run samples every task and writes scores and trajectories.
func (s *settings) Run(ctx context.Context, job *engine.Job) error {
	var tasks []*bfcl.Task
	var sets []string // of each episode
	for _, ref := range s.Tasks {
		set, err := checkpoint.ReadTasks(job, ref)
		if err != nil {
			return err
		}
		tasks = append(tasks, set...)
		for _, task := range set {
			sets = append(sets, slices.Repeat([]string{setName(ref.Port, task)}, s.Samples)...)
		}
	}
	trajectories, err := checkpoint.Sampling{Token: s.Token, Official: s.Layout == "bfcl", Samples: s.Samples,
		Temperature: s.Temperature, TopP: s.TopP, Limits: s.Limits, Arithmetic: s.Arithmetic}.Run(ctx, job, s, tasks)
	if err != nil || job.Rank > 0 { // rank 0 has all episodes
		return err
	}
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
