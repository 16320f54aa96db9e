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

// settings of a node by name, as they stand in its key.
func settings(t *testing.T, file, address string) map[string]string {
	t.Helper()
	x, diags := engine.Load(engine.Source{Path: file, Vars: variables(t, file)}, registry())
	if diags.HasErrors() {
		t.Fatal(diags)
	}
	for _, n := range x.Nodes {
		if n.Address == address {
			found := map[string]string{}
			for _, s := range n.Settings {
				found[s.Name] = s.Value
			}
			return found
		}
	}
	t.Fatalf("%s has no node %s", file, address)
	return nil
}

func TestDrillsHaveABasePerSeedAndOneTestSet(t *testing.T) {
	for _, file := range []string{"drills.hcl", "tokens.hcl", "temperature.hcl", "forecast.hcl"} {
		for _, address := range []string{"stage.model.random@2", "stage.sft.copy@2", "stage.sft.base@2"} {
			settings(t, file, address)
		}
	}
	for _, file := range []string{"drills.hcl", "drills_long.hcl", "tokens.hcl", "temperature.hcl", "forecast.hcl"} {
		// The test sets are a draw from the pool, so a draw of all of it is the same for every seed.
		if s := settings(t, file, "stage.tasks.drills@1"); s["test"] != s["pool"] {
			t.Errorf("%s: each seed draws %s test tasks from a pool of %s, want all of it", file, s["test"], s["pool"])
		}
	}
}

// The claims of an experiment's expectation, and the largest effect of its page, each have a comparison.
func TestReportsCompareWhatTheirExperimentsExpect(t *testing.T) {
	type claim struct{ without, with, outcome, expect, unpaired string }
	method := []claim{
		{"SFT + GRPO", "RCTP-FT + RC-GRPO", "", "higher", "false"},
		{"SFT + RC-GRPO", "RCTP-FT + RC-GRPO", "", "higher", "false"},
		{"RCTP-FT + GRPO", "RCTP-FT + RC-GRPO", "", "higher", "false"},
		{"SFT + GRPO", "RCTP-FT + RC-GRPO", "zero_variance", "lower", "false"},
		{"RCTP-FT", "RCTP-FT + RC-GRPO", "sampled", "", "false"},
	}
	for file, claims := range map[string][]claim{
		"drills.hcl": method, "drills_long.hcl": method,
		"splits.hcl": {{"RCTP-FT + RC-GRPO (family)", "RCTP-FT + RC-GRPO (paper)", "", "higher", "true"}, {"Base (family)", "Base (paper)", "", "", "true"}},
		"tokens.hcl": {{"iid, p = 0.5", "stratified, p = 0.5", "sigma2", "higher", "false"}},
	} {
		s := settings(t, file, "stage.report.page")
		for _, c := range claims {
			found := false
			for i := 0; s[fmt.Sprintf("compare[%d].pairs", i)] != ""; i++ {
				of := func(name string) string { return s[fmt.Sprintf("compare[%d].%s", i, name)] }
				found = found || strings.Contains(of("pairs"), fmt.Sprintf("[%q,%q]", c.without, c.with)) && of("outcome") == fmt.Sprintf("%q", c.outcome) &&
					of("expect") == fmt.Sprintf("%q", c.expect) && of("unpaired") == c.unpaired
			}
			if !found {
				t.Errorf("%s: no comparison makes the claim %+v", file, c)
			}
		}
	}
}
