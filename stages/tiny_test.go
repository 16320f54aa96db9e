//go:build libtorch

package stages

import (
	"os"
	"path/filepath"
	"testing"

	"rcgrpo/engine"
)

// tinyModel is a model of random weights whose vocabulary comes from stage.curate.data.
const tinyModel = `
stage "model" "random" {
  seed   = 0
  corpus = [stage.curate.data.expert]
  vocab  = 340
  architecture {
    family    = "qwen2"
    hidden    = 32
    layers    = 2
    heads     = 2
    kv_heads  = 1
    mlp       = 48
    rope_base = 1000
    context   = 1024
  }
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

// loaded writes an experiment into dir and loads it.
func loaded(t *testing.T, dir, text string) *engine.Experiment {
	t.Helper()
	path := filepath.Join(dir, "experiment.hcl")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	x, diags := engine.Load(engine.Source{Path: path}, engine.Registry(Kinds()))
	if len(diags) > 0 {
		t.Fatal(diags)
	}
	return x
}
