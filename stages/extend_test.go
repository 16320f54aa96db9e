//go:build libtorch

package stages

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"rcgrpo/engine"
	"rcgrpo/engine/artifact"
	"rcgrpo/engine/lang"
	"rcgrpo/engine/plan"
	"rcgrpo/engine/runs"
	"rcgrpo/internal/must"
)

// growing is an experiment with trainings of EPOCHS and UPDATES by so many PROCESSES.
var growing = expand(drillStart(7, 2) + `
defaults "sft" "rctp-ft" "rc-grpo" {
  policy         = stage.model.random.checkpoint
  gradient_parts = 2
  resources      = { processes = PROCESSES }
}

defaults "sft" "rctp-ft" {
  data   = [stage.curate.data.expert]
  epochs = EPOCHS
  batch  = 3
  lr     = 1e-2
}

defaults "rc-grpo" {
  tasks   = stage.tasks.drills.train
  updates = UPDATES
  batch   = 2
  group   = 3
  lr      = 1e-3
  LIMITS 2 8 256
}

stage "sft" "warm" {
  schedule {
    shape  = "constant"
    warmup = 3
  }
}

stage "rctp-ft" "adapter" {
  schedule {
    shape  = "constant"
    warmup = 3
  }
  lora {
    rank  = 2
    alpha = 4
  }
}

stage "sft" "cooling" {}

stage "rc-grpo" "arm" {
  keep   = 3
  passes = 2
  evaluate {
    tasks = [stage.tasks.drills.train]
    every = 7
  }
}

stage "rc-grpo" "adapter" {
  lora {
    rank    = 2
    alpha   = 4
    targets = ["q_proj", "down_proj"]
  }
}
`)

// grow runs growing through the engine, in the store of root, and returns the plan and the digests of the outputs
// by address and port.
func grow(t *testing.T, root string, epochs, updates, processes int) (begins, digests map[string]string) {
	t.Helper()
	t.Setenv("RCGRPO_LEASES", filepath.Join(t.TempDir(), "leases"))
	path := filepath.Join(root, "growing.hcl")
	text := strings.NewReplacer("EPOCHS", fmt.Sprint(epochs), "UPDATES", fmt.Sprint(updates), "PROCESSES",
		fmt.Sprint(processes)).Replace(growing)
	must.OK(t, os.WriteFile(path, []byte(text), 0o600))
	kinds := lang.Registry(Kinds())
	for _, k := range kinds {
		k.InProcess = processes == 0 // in this process
	}
	x, diags := lang.Load(lang.Source{Path: path}, kinds)
	if len(diags) > 0 {
		t.Fatal(diags)
	}
	store := must.Get(artifact.Open(filepath.Join(root, "store")))(t)
	p := must.Get(plan.New(x, store, plan.Options{}))(t)
	begins, digests = map[string]string{}, map[string]string{}
	for _, n := range p.Nodes {
		if n.ContinuesFrom != "" {
			begins[n.Address] = n.ContinuesFrom
		}
	}
	must.OK(t, engine.Run(t.Context(), p, engine.Options{}, func(runs.Event) {}))
	if p = must.Get(plan.New(x, store, plan.Options{}))(t); p.Changes() {
		t.Fatal("after the run, the plan has work to do")
	}
	for _, n := range p.Nodes {
		for port, o := range n.Manifest.Outputs {
			digests[n.Address+"."+port] = o.Digest
		}
	}
	return begins, digests
}

func TestTwentyUpdatesAndTwentyAreForty(t *testing.T) {
	long := t.TempDir()
	if begins, _ := grow(t, long, 4, 40, 0); len(begins) > 0 {
		t.Errorf("an empty store gives something to go on from: %v", begins)
	}
	_, want := grow(t, long, 4, 40, 0)

	// All rewards are 0, so the first evaluation is the best. The best policy is that of a run which ends there.
	_, first := grow(t, t.TempDir(), 4, 7, 0)
	if best, last := want["stage.rc-grpo.arm@1.best"], first["stage.rc-grpo.arm@1.checkpoint"]; best == "" ||
		best != last {
		t.Errorf("the best policy is %q, want that of update 7, %q", best, last)
	}

	steps := t.TempDir()
	_, half := grow(t, steps, 2, 20, 0)
	begins, got := grow(t, steps, 4, 40, 2) // by two ranks
	if want := map[string]string{
		"stage.sft.warm@1": "continues from epochs = 2",
		"stage.sft.cooling@1": "from the start, not from epochs = 2: " +
			`the learning rate (schedule.shape = "cosine") depends on the number of updates`,
		"stage.rc-grpo.arm@1":     "continues from updates = 20",
		"stage.rctp-ft.adapter@1": "continues from epochs = 2",
		"stage.rc-grpo.adapter@1": "continues from updates = 20",
	}; !maps.Equal(begins, want) {
		t.Errorf("the plan says %v, want %v", begins, want)
	}
	if !maps.Equal(got, want) {
		t.Errorf("20 and 20 updates: %v\nwant the bytes of 40: %v", got, want)
	}
	for address, digest := range half {
		if (strings.Contains(address, "arm") || strings.Contains(address, "adapter")) &&
			!strings.HasSuffix(address, ".best") && got[address] == digest {
			t.Errorf("%s is the same after 20 and 40 updates, so this shows nothing", address)
		}
	}
	must.Contain(t, lastLog(t, steps, "rc-grpo.arm"), "resuming after update 20")
}

// lastLog is the log of a stage in the newest run below root.
func lastLog(t *testing.T, root, stage string) string {
	t.Helper()
	var text []byte
	must.OK(t, filepath.WalkDir(filepath.Join(root, "store", "runs"), func(path string, d os.DirEntry, err error) error {
		if err == nil && strings.Contains(filepath.Base(path), stage) && strings.HasSuffix(path, ".log") {
			text, err = os.ReadFile(path)
		}
		return err
	}))
	return string(text)
}
