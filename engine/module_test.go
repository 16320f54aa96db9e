package engine_test

import (
	"os"
	"path/filepath"
	"testing"

	"rcgrpo/engine"
	"rcgrpo/engine/runs"
	"rcgrpo/internal/must"
)

const toyModule = `
variable "text" {
  default = "default"
}
stage "toy" "a" {
  text = var.text
}
`

// The process of a stage loads the module from the run folder, so a change during the run has no effect.
func TestStagesOfModulesRunFromTheRunFolder(t *testing.T) {
	l := newLab(t, `
module "m" {
  source   = "sub/toys.hcl"
  for_each = ["x", "y"]
  text     = each.key
}
`+toyStage("last", `text = "last"
  from = [module.m["x"].stage.toy.a.out, module.m["y"].stage.toy.a.out]`))
	must.OK(t, os.Mkdir(filepath.Join(l.Dir, "sub"), 0o700))
	l.Put("sub/toys.hcl", toyModule)
	r := l.RunPlan(t.Context(), l.Plan(), engine.Options{}, func(e runs.Event) {
		if e.Kind == runs.EventPlanned {
			l.Put("sub/toys.hcl", "changed {")
		}
	})
	wantSuccess(t, r)
	l.Put("sub/toys.hcl", toyModule)
	l.Want(r, runs.EventDone, `module.m[x].toy.a`, `module.m[y].toy.a`, "toy.last")
	wantEqual(t, "output of last", l.Text("toy.last"), "last\nx\ny\n")
	if again := l.MustRun(); len(again.Events) != 1 {
		t.Errorf("second run: got %s, want only the end", again)
	}
}
