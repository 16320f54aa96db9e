// Package experiments holds the experiments that come with the project; its test loads and plans all of them. The blocks
// that the documentation shows are checked beside the command (docs_test.go).
package experiments

import (
	"fmt"
	"os"
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

// variables gives the variables of an experiment that have no default, or none.
func variables(t *testing.T, path string) map[string]string {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	vars := map[string]string{}
	for name, family := range map[string]string{"base": "qwen2", "explorer": "qwen2"} {
		if !strings.Contains(string(text), fmt.Sprintf("variable %q", name)) {
			continue
		}
		if name == "base" && strings.Contains(path, "llama") {
			family = "llama"
		}
		vars[name] = folder(t, family)
	}
	return vars
}

// folder is what a plan reads of a model folder.
func folder(t *testing.T, family string) string {
	t.Helper()
	dir := t.TempDir()
	config := fmt.Sprintf(`{"model_type": %q, "vocab_size": 64, "hidden_size": 8, "intermediate_size": 16, "num_hidden_layers": 1,
		"num_attention_heads": 2, "max_position_embeddings": 32768}`, family)
	if err := os.WriteFile(filepath.Join(dir, "config.json"), []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	return dir
}

// plan loads an experiment and plans it against an empty store: every stage runs. Warnings count as mistakes.
func plan(t *testing.T, path string) {
	t.Helper()
	x, diags := engine.Load(engine.Source{Path: path, Vars: variables(t, path)}, registry())
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
	if x.Question == "" || x.Expect == "" {
		t.Error("an experiment says what it asks and what it expects")
	}
	if head, _, _ := strings.Cut(string(x.Files[x.Paths[0]].Bytes), "experiment {"); !strings.Contains(head, "# Cost: ") {
		t.Error("the head of an experiment says what it costs")
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
