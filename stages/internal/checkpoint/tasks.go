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
	var tasks []*bfcl.Task
	for task, err := range artifact.Rows[*bfcl.Task](set, bfcl.TasksFile) {
		if err != nil {
			return nil, err
		}
		tasks = append(tasks, task)
	}
	return tasks, nil
}
