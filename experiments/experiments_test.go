// Package experiments holds the experiments that come with the project; its test loads and plans all of them. The blocks
// that the documentation shows are checked beside the command (docs_test.go).
package experiments

import (
	"path/filepath"
	"strings"
	"testing"

	"rcgrpo/engine"
	"rcgrpo/engine/artifact"
	"rcgrpo/reports"
	"rcgrpo/stages"
)

func registry() engine.Registry {
	return append(engine.Registry(stages.Kinds()), reports.Kind())
}

// plan loads an experiment and plans it against an empty store: every stage runs. Warnings count as mistakes.
func plan(t *testing.T, path string) {
	t.Helper()
	x, diags := engine.Load(engine.Source{Path: path}, registry())
	var said strings.Builder
	engine.WriteDiagnostics(&said, diags, x.Files, false)
	if said.Len() > 0 {
		t.Fatal(said.String())
	}
	store, err := artifact.Open(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	p, err := x.Plan(store)
	if err != nil {
		t.Fatal(err)
	}
	if len(p.Nodes) == 0 || len(p.Nodes) != len(x.Nodes) {
		t.Errorf("%d of %d nodes are in the plan", len(p.Nodes), len(x.Nodes))
	}
	for _, n := range p.Nodes {
		if n.Verb != engine.Run && n.Verb != engine.RunUnlessUnchanged {
			t.Errorf("%s: %s with an empty store", n.Address, n.Verb)
		}
	}
}

func TestEveryExperimentPlans(t *testing.T) {
	files, err := filepath.Glob("*.hcl")
	if err != nil {
		t.Fatal(err)
	}
	found := 0
	for _, file := range files {
		if file == "site.hcl" {
			continue
		}
		found++
		t.Run(file, func(t *testing.T) { plan(t, file) })
	}
	if found == 0 {
		t.Error("no experiment in this folder")
	}
}
