package checkpoint

import (
	"rcgrpo/bfcl"
	"rcgrpo/engine"
	"rcgrpo/engine/artifact"
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
			if s, ok := in.From.Stage.(interface{ ProgramProcesses() int }); ok {
				return s.ProgramProcesses()
			}
		}
	}
	return 1
}
