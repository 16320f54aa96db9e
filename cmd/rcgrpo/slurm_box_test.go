//go:build libtorch

package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"

	"rcgrpo/bench/fixtures"
	"rcgrpo/internal/must"
)

// slurmBox starts a Slurm cluster on this machine, which ends with the test.
func slurmBox(t *testing.T) (folder string) {
	t.Helper()
	if _, err := exec.LookPath("slurmctld"); err != nil || os.Getuid() != 0 {
		t.Skip("no Slurm here: as root, run bench/slurm.sh install")
	}
	box := must.Get(os.MkdirTemp("", "box"))(t) // a short path for the sockets
	script := filepath.Join(fixtures.Root(t), "bench", "slurm.sh")
	up := exec.Command(script, "up", box, "4")
	up.Env = append(os.Environ(), fmt.Sprintf("BASE_PORT=%d", 16000+os.Getpid()%2000*8),
		fmt.Sprintf("UNTIL=%d", os.Getpid()))
	if out, err := up.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	t.Cleanup(func() { exec.Command(script, "down", box).Run() })
	return box
}

// runRanks runs a script beside the files of a training, whose resources are lines of HCL.
func runRanks(t *testing.T, script, resources string) {
	t.Helper()
	work := t.TempDir()
	text := script + fmt.Sprintf(ranksFiles, resources)
	must.OK(t, os.WriteFile(filepath.Join(work, "ranks.txtar"), []byte(text), 0o644))
	testscript.Run(t, testscript.Params{Dir: work, Setup: func(e *testscript.Env) error {
		e.Setenv("HOME", e.WorkDir)
		e.Setenv("RCGRPO_LEASES", filepath.Join(e.WorkDir, ".leases"))
		return nil
	}})
}

const ranksFiles = `-- local/site.hcl --
store { path = "store" }
-- digests.sh --
rcgrpo plan --json "$@" | grep -A6 '"digests"' | grep -E '"[a-z]+": "[0-9a-f]{64}"'
-- x.hcl --
experiment {
}
stage "tasks" "drills" {
  source = "drills"
  train  = 7
  test   = 2
  pool   = 5
  seed   = 1
}
stage "curate" "data" {
  tasks = stage.tasks.drills.train
  seed  = 1
}
stage "model" "random" {
  seed   = 1
  corpus = [stage.curate.data.expert]
  vocab  = 340
  architecture = { family = "qwen2", hidden = 32, layers = 1, heads = 2, kv_heads = 1, mlp = 48, rope_base = 1000,
  context = 1024 }
}
stage "sft" "arm" {
  seed           = 1
  policy         = stage.model.random.checkpoint
  data           = [stage.curate.data.expert]
  epochs         = 1
  batch          = 4
  lr             = 1e-3
  gradient_parts = 4
  resources {
%s
  }
}
`
