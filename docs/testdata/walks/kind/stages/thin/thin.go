// Package thin is the stage kind `thin`: every n-th task of a set.
package thin

import (
	"context"
	"fmt"

	"github.com/hashicorp/hcl/v2"

	"rcgrpo/bfcl"
	"rcgrpo/engine"
	"rcgrpo/engine/artifact"
	"rcgrpo/engine/lang"
)

// Kind returns the stage kind.
func Kind() *lang.Kind {
	return &lang.Kind{
		Name: "thin", Summary: "Every n-th task of a set.", Version: 1, Light: true,
		New:     func() lang.Stage { return &settings{Every: 2} },
		Outputs: func(lang.Stage) map[string]string { return map[string]string{"kept": "tasks"} },
	}
}

type settings struct {
	// tasks to choose from
	Tasks artifact.Ref `hcl:"tasks" port:"tasks"`
	// distance of the tasks that are kept
	Every int `hcl:"every,optional" unit:"tasks"`

	At map[string]hcl.Range `hcl:",ranges"`
}

func (s *settings) Check() hcl.Diagnostics {
	if s.Every >= 1 {
		return nil
	}
	return hcl.Diagnostics{{Severity: hcl.DiagError, Summary: "No distance",
		Detail: fmt.Sprintf("every is at least 1, which keeps all tasks; got %d.", s.Every), Subject: s.At["every"].Ptr()}}
}

func (s *settings) Run(_ context.Context, job *engine.Job) error {
	from, err := job.Open(s.Tasks)
	if err != nil {
		return err
	}
	var kept []*bfcl.Task
	n := 0
	for task, err := range artifact.Rows[*bfcl.Task](from, bfcl.TasksFile) {
		if err != nil {
			return err
		}
		if n%s.Every == 0 {
			kept = append(kept, task)
		}
		n++
	}
	dir, err := job.Create("kept")
	if err != nil {
		return err
	}
	return artifact.WriteRows(dir, bfcl.TasksFile, kept)
}
