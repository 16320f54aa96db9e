// Package sampling plays the episodes of a set of tasks with an open policy.
//
//	Collector    samples episodes with a policy; start with Open; needs libtorch
//	Episodes     runs a stage that only samples: rollout and eval; needs libtorch
//	ReadTasks    a set of tasks, with the program that plays it
//
// Neighbours: checkpoint (the policy), rl (what an episode is), environment (programs), agent (who else may play).
package sampling

import (
	"rcgrpo/bfcl"
	"rcgrpo/engine"
	"rcgrpo/engine/artifact"
	"rcgrpo/engine/lang"
	"rcgrpo/engine/runs"
	"rcgrpo/stages/rl"
)

// ReadTasks reads a set of tasks.
func ReadTasks(job *engine.Job, ref artifact.Ref) ([]*bfcl.Task, error) {
	set, err := job.Open(ref)
	if err != nil {
		return nil, err
	}
	program := bfcl.Program{Dir: set.Dir, Processes: processes(job, ref)}
	var tasks []*bfcl.Task
	for task, err := range artifact.Rows[*bfcl.Task](set, bfcl.TasksFile) {
		if err != nil {
			return nil, err
		}
		if task.Spec != nil {
			task.Program = program
		}
		tasks = append(tasks, task)
	}
	return tasks, nil
}

// processes returns the setting processes of the stage that made a set of tasks. It is not part of the set, because it
// changes no result.
func processes(job *engine.Job, ref artifact.Ref) int {
	for _, n := range job.Experiment.Nodes {
		if n.Address != job.Address {
			continue
		}
		if in, ok := n.Input(ref); ok {
			if s, ok := in.From.Stage.(lang.ProgramTasks); ok {
				return s.ProgramProcesses()
			}
		}
	}
	return 1
}

// Progress returns a function that reports the progress of a stage after each of total episodes, with the mean of the
// rewards so far.
func Progress(job *engine.Job, total int) func(*rl.Trajectory) {
	done, rewarded, earned := 0, 0, 0.0
	return func(t *rl.Trajectory) {
		done++
		if !t.Reward.Missing() {
			rewarded++
			earned += float64(t.Reward)
		}
		job.Progress(done, total, "episodes", runs.Value{Name: "reward", Value: earned / float64(max(1, rewarded))})
	}
}

// WriteTrajectories writes the port trajectories.
func WriteTrajectories(job *engine.Job, all []*rl.Trajectory) error {
	dir, err := job.Create("trajectories")
	if err != nil {
		return err
	}
	return artifact.WriteRows(dir, rl.TrajectoriesFile, all)
}
