package engine

import (
	"path/filepath"
	"slices"
	"testing"

	"rcgrpo/engine/artifact"
)

func TestMapOfFilesAndPortsBecomesEdgesAndDigests(t *testing.T) {
	x := mustLoad(t, `
experiment {
}
stage "tasks" "t" {
  source = "bfcl"
}
stage "exec" "x" {
  command = ["true"]
  inputs  = { src = file("raw.csv"), train = stage.tasks.t.train }
}
`)
	n := x.Node("stage.exec.x")
	s := n.Stage.(*toyExec)
	if got := filepath.Base(s.Inputs["src"].File.Path); got != "raw.csv" || s.Inputs["src"].Ref != (artifact.Ref{}) {
		t.Errorf("inputs.src: got %+v, want the file raw.csv", s.Inputs["src"])
	}
	if got := s.Inputs["train"].Ref; got.Name != "t" || got.Port != "train" {
		t.Errorf("inputs.train: got %+v, want port train of t", got)
	}
	if len(n.Inputs) != 1 || n.Inputs[0].Setting != "inputs.train" || n.Inputs[0].From.Address != "stage.tasks.t" {
		t.Errorf("edges: got %+v, want inputs.train from stage.tasks.t", n.Inputs)
	}
	i := slices.IndexFunc(n.Settings, func(s Setting) bool { return s.Name == "inputs.src" })
	if i < 0 || n.Settings[i].Value != jsonText(s.Inputs["src"].File.Digest) {
		t.Errorf("settings: got %+v, want inputs.src with the file's digest", n.Settings)
	}
	if _, _, ok := n.Key(func(*Node, string) (string, bool) { return "d", true }); !ok {
		t.Error("the node has no key")
	}
}
