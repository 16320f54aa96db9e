//go:build libtorch

package stages

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"rcgrpo/engine"
	"rcgrpo/engine/artifact"
	"rcgrpo/engine/lang"
	"rcgrpo/internal/must"
)

// expand replaces each "LIMITS steps reply context" by a block limits.
func expand(text string) string {
	return regexp.MustCompile(`LIMITS (\d+) (\d+) (\d+)`).ReplaceAllString(text,
		"limits {\n    steps   = $1\n    reply   = $2\n    context = $3\n  }")
}

// tinyModel is a model of random weights whose tokenizer is trained on stage.curate.data.
const tinyModel = `
stage "model" "random" {
  seed   = 0
  corpus = [stage.curate.data.expert]
  vocab  = 340
  architecture = { family = "qwen2", hidden = 32, layers = 2, heads = 2, kv_heads = 1, mlp = 48, rope_base = 1000,
  context = 1024 }
}
`

// tinyStart is an experiment of one seed with a few drills, data of both rewards, and tinyModel.
const tinyStart = `
experiment {
  seeds = [1]
}

stage "tasks" "drills" {
  source = "drills"
  train  = 6
  test   = 2
  pool   = 5
}

stage "curate" "data" {
  tasks  = stage.tasks.drills.train
  spoilt = 1
}
` + tinyModel

// drillStart returns tinyStart with the given numbers of drills for training and test.
func drillStart(train, test int) string {
	return strings.NewReplacer("train  = 6", fmt.Sprint("train  = ", train), "test   = 2",
		fmt.Sprint("test   = ", test)).Replace(tinyStart)
}

// loaded writes an experiment into dir and loads it.
func loaded(t *testing.T, dir, text string) *lang.Experiment {
	t.Helper()
	path := filepath.Join(dir, "experiment.hcl")
	must.OK(t, os.WriteFile(path, []byte(text), 0o600))
	x, diags := lang.Load(lang.Source{Path: path}, lang.Registry(Kinds()))
	if len(diags) > 0 {
		t.Fatal(diags)
	}
	return x
}

// inputsOf returns the folders of a node's inputs, given the folder of each node.
func inputsOf(n *lang.Node, folder func(*lang.Node) string) map[artifact.Ref]string {
	inputs := map[artifact.Ref]string{}
	for _, in := range n.Inputs {
		ref := in.Ref
		ref.Seed = nil // as the settings name it
		inputs[ref] = filepath.Join(folder(in.From), ref.Port)
	}
	return inputs
}

// tryNode runs a node as the engine would, in a folder below dir with its address, with its inputs from beside it.
func tryNode(t *testing.T, n *lang.Node, dir string, site *lang.Site) error {
	t.Helper()
	folder := func(n *lang.Node) string { return filepath.Join(dir, n.Address) }
	setup := engine.JobSetup{Dir: folder(n), Site: site, Inputs: inputsOf(n, folder)}
	if n.Seed != nil {
		setup.Seed = *n.Seed
	}
	runner, _ := n.Stage.(engine.Runner)
	if c, ok := n.Stage.(engine.Chooser); ok {
		runner = c.Runner()
	}
	return runner.Run(t.Context(), must.Get(engine.NewJob(setup))(t))
}

// runNode runs a node that fills its ports.
func runNode(t *testing.T, n *lang.Node, dir string, site *lang.Site) {
	t.Helper()
	if err := tryNode(t, n, dir, site); err != nil {
		t.Fatalf("%s: %v", n.Address, err)
	}
	for port := range n.Outputs {
		if files, err := os.ReadDir(filepath.Join(dir, n.Address, port)); err != nil || len(files) == 0 {
			t.Errorf("%s: port %s holds nothing (%v)", n.Address, port, err)
		}
	}
}
