// Package sampling plays the episodes of a set of tasks with an open policy.
//
//	Collector    samples episodes with a policy; start with Open; needs libtorch
//	Episodes     runs a stage that only samples: rollout and eval; needs libtorch
//	ReadTasks    a set of tasks, with the program that plays it
//
// Neighbours: checkpoint (the policy), rl (what an episode is), environment (programs), agent (programs that play
// episodes in place of a conversation).
package sampling

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"

	"rcgrpo/bfcl"
	"rcgrpo/engine"
	"rcgrpo/engine/artifact"
	"rcgrpo/engine/runs"
	"rcgrpo/stages/internal/environment"
	"rcgrpo/stages/rl"
)

// ReadTasks reads a set of tasks. Tasks of a program get the program, whose description is compared with the settings
// of the stage that made the set.
func ReadTasks(job *engine.Job, ref artifact.Ref) ([]*bfcl.Task, error) {
	set, err := job.Open(ref)
	if err != nil {
		return nil, err
	}
	var program *bfcl.ProgramRef
	tasks, err := artifact.AllRows[*bfcl.Task](set, bfcl.TasksFile)
	if err != nil {
		return nil, err
	}
	for _, task := range tasks {
		if task.Spec != nil && program == nil {
			if program, err = programOf(set.Dir, job.Maker(ref)); err != nil {
				return nil, fmt.Errorf("stage.%s.%s: %w", ref.Kind, ref.Name, err)
			}
		}
		if task.Spec != nil {
			task.Program = *program
		}
	}
	return tasks, nil
}

// programOf returns the program of a set of tasks. The set may come from a shared store, whose writers do not choose
// what starts here and what that is given: the program must be the one in the settings of the stage that makes the set.
// The number of processes is not part of the set, because it changes no result. maker is nil outside a run.
func programOf(dir string, maker any) (*bfcl.ProgramRef, error) {
	if maker == nil {
		return &bfcl.ProgramRef{Dir: dir, Processes: 1}, nil
	}
	own, ok := maker.(programTasks)
	if !ok {
		return nil, errNotItsProgram
	}
	stored, err := environment.ReadDescription(dir)
	if err != nil {
		return nil, err
	}
	described, folder := own.OwnProgram()
	copied := filepath.Join(dir, environment.ProgramFolder)
	if described == nil || !stored.StartsAs(described) || !sameFolder(copied, folder) {
		return nil, errNotItsProgram
	}
	return &bfcl.ProgramRef{Dir: dir, Processes: own.ProgramProcesses()}, nil
}

// programTasks is a stage of tasks that a program plays: what starts, its folder, and how many processes.
type programTasks interface {
	OwnProgram() (*environment.Description, *artifact.File)
	ProgramProcesses() int
}

var errNotItsProgram = errors.New("the program in its result is not that of its settings, and was not started: " +
	"another writer has made the result; run the stage again with --replace")

// sameFolder reports whether a folder has the content of another one, which may be nil.
func sameFolder(dir string, as *artifact.File) bool {
	digest, err := artifact.Digest(dir)
	if as == nil {
		return errors.Is(err, fs.ErrNotExist)
	}
	return err == nil && digest == as.Digest
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
