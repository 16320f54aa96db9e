// Package experiments holds the experiments that come with the project; its tests load and plan all of them, and those
// that the documentation shows.
package experiments

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"rcgrpo/bfcl/fixtures"
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

func TestExperimentsInTheDocumentationPlan(t *testing.T) {
	root := fixtures.Root(t)
	pages, err := filepath.Glob(filepath.Join(root, "docs", "*.md"))
	if err != nil {
		t.Fatal(err)
	}
	for _, page := range append(pages, filepath.Join(root, "README.md")) {
		text, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		for line, block := range blocks(string(text)) {
			if !hasExperiment(block) {
				continue
			}
			t.Run(fmt.Sprintf("%s:%d", filepath.Base(page), line), func(t *testing.T) {
				path := filepath.Join(t.TempDir(), "shown.hcl")
				if err := os.WriteFile(path, []byte(block), 0o600); err != nil {
					t.Fatal(err)
				}
				plan(t, path)
			})
		}
	}
}

// blocks returns the fenced hcl blocks of a page by the line they begin on.
func blocks(text string) map[int]string {
	found := map[int]string{}
	begin, inside := 0, false
	for i, line := range strings.SplitAfter(text, "\n") {
		fence := strings.TrimSpace(line)
		switch {
		case !inside && fence == "```hcl":
			begin, inside = i+2, true
		case inside && fence == "```":
			inside = false
		case inside:
			found[begin] += line
		}
	}
	return found
}

func hasExperiment(block string) bool {
	for line := range strings.Lines(block) {
		if word, _, _ := strings.Cut(strings.TrimSpace(line), " "); word == "experiment" {
			return true
		}
	}
	return false
}

func TestBlocksOfAPage(t *testing.T) {
	page := "# A page\n```hcl\nexperiment {\n}\n```\ntext\n```sh\nmake demo\n```\n```hcl\nstage \"tasks\" \"t\" {}\n```\n"
	got := blocks(page)
	if len(got) != 2 || !hasExperiment(got[3]) || hasExperiment(got[11]) || got[11] != "stage \"tasks\" \"t\" {}\n" {
		t.Errorf("got %v", got)
	}
}
