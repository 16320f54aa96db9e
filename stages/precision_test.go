//go:build libtorch

package stages

import (
	"bytes"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"rcgrpo/internal/must"
	"rcgrpo/stages/rl"
)

// inPrecision is a line of trainings; $split is replaced by settings of both, $precision by one of every stage.
var inPrecision = expand(tinyStart + `
stage "rctp-ft" "warm" {
  policy = stage.model.random.checkpoint
  data   = [stage.curate.data.mixed]
  batch  = 4
  lr     = 1e-2
  $split
  $precision
}

stage "rc-grpo" "arm" {
  policy  = stage.rctp-ft.warm.checkpoint
  tasks   = stage.tasks.drills.train
  updates = 2
  batch   = 2
  group   = 3
  lr      = 1e-2
  $split
  $precision
  LIMITS 2 8 400
}

stage "eval" "last" {
  policy = stage.rc-grpo.arm.checkpoint
  tasks  = [stage.tasks.drills.test]
  $precision
  LIMITS 2 8 400
}
`)

// runInPrecision runs the line and returns the folder of its ports.
func runInPrecision(t *testing.T, split, precision string) string {
	t.Helper()
	dir := t.TempDir()
	for _, n := range loaded(t, dir, strings.NewReplacer("$split", split, "$precision",
		precision).Replace(inPrecision)).Nodes {
		runNode(t, n, dir, nil)
	}
	return dir
}

// Recomputation changes no output byte. bf16 changes values slightly and still writes float32 checkpoints.
func TestStagesInBF16AndWithRecomputation(t *testing.T) {
	plain := runInPrecision(t, "", "")
	again := runInPrecision(t, "recompute = true", "")
	coarse := runInPrecision(t, "", `precision = "bf16"`)
	read := func(dir, stage string) []byte {
		return must.Get(os.ReadFile(filepath.Join(dir, stage, "checkpoint", "model.safetensors")))(t)
	}
	for _, stage := range []string{"stage.rctp-ft.warm@1", "stage.rc-grpo.arm@1"} {
		want := read(plain, stage)
		if !bytes.Equal(read(again, stage), want) {
			t.Errorf("%s: recomputation changes the checkpoint", stage)
		}
		if got := read(coarse, stage); bytes.Equal(got, want) || len(got) != len(want) {
			t.Errorf("%s: a checkpoint of %d bytes in bf16, want another of %d", stage, len(got), len(want))
		}
	}
	first := func(dir, stage string) map[string]float64 {
		return rows[rl.Metric](t, filepath.Join(dir, stage, "metrics"), rl.MetricsFile)[0].Values
	}
	fine, rough := first(plain, "stage.rctp-ft.warm@1")["loss"], first(coarse, "stage.rctp-ft.warm@1")["loss"]
	if fine == rough || math.Abs(rough-fine) > 0.01*fine {
		t.Errorf("loss of the first update: %v in bf16, want near %v and not equal", rough, fine)
	}
	if values := first(coarse, "stage.rc-grpo.arm@1"); !(values["sampler_gap"] < 0.1) {
		t.Errorf("in bf16: sampled against recomputed %v, want less than 0.1", values["sampler_gap"])
	}
}
