//go:build libtorch

package main

import (
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"rcgrpo/engine/artifact"
)

const interrupted = `
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

stage "rc-grpo" "arm" {
  seed    = 1
  policy  = stage.model.random.checkpoint
  tasks   = stage.tasks.drills.train
  updates = 30
  batch   = 2
  group   = 3
  lr      = 1e-3
  limits {
    steps   = 2
    reply   = 16
    context = 256
  }
}
`

// results returns the digests of all ports in the store of a folder.
func results(t *testing.T, dir string) map[string]string {
	t.Helper()
	store, err := artifact.Open(filepath.Join(dir, "store"))
	if err != nil {
		t.Fatal(err)
	}
	manifests, problems, err := store.Manifests()
	if err != nil || len(problems) > 0 {
		t.Fatal(err, problems)
	}
	out := map[string]string{}
	for _, m := range manifests {
		for port, o := range m.Outputs {
			out[m.Address+"."+port] = o.Digest
		}
	}
	return out
}

// After ^C a training stage writes its checkpoint and the command exits with 130. The next run resumes it. The result
// is identical to that of an uninterrupted run.
func TestInterruptedTrainingIsResumed(t *testing.T) {
	binary := commandBinary(t, t.TempDir())
	folder := func() string {
		dir := t.TempDir()
		for name, text := range map[string]string{"x.hcl": interrupted, "site.hcl": "store {\n  path = \"store\"\n}\n"} {
			if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		return dir
	}
	start := func(dir string) (*exec.Cmd, *strings.Builder) {
		cmd, said := exec.Command(binary, "run", "x.hcl"), &strings.Builder{}
		cmd.Dir, cmd.Stdout, cmd.Stderr = dir, said, said
		cmd.Env = append(os.Environ(), "HOME="+dir)
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		return cmd, said
	}
	whole := folder()
	cmd, said := start(whole)
	if err := cmd.Wait(); err != nil {
		t.Fatalf("%v: %s", err, said)
	}

	dir := folder()
	cmd, said = start(dir)
	for begin := time.Now(); ; time.Sleep(time.Millisecond) { // until a trajectory has been sampled
		logs, err := filepath.Glob(filepath.Join(dir, "store", "work", "*", "log", "*"))
		if err != nil || time.Since(begin) > time.Minute {
			cmd.Process.Kill()
			t.Fatalf("no trajectory after a minute: %v: %s", err, said)
		}
		if len(logs) > 0 {
			if info, err := os.Stat(logs[0]); err == nil && info.Size() > 0 {
				break
			}
		}
	}
	if err := cmd.Process.Signal(os.Interrupt); err != nil {
		t.Fatal(err)
	}
	cmd.Wait()
	if got := cmd.ProcessState.ExitCode(); got != 130 {
		t.Fatalf("exit code %d after ^C, want 130: %s", got, said)
	}
	for address := range results(t, dir) {
		if strings.Contains(address, "rc-grpo") {
			t.Fatalf("%s exists although its stage was stopped", address)
		}
	}
	cmd, said = start(dir)
	if err := cmd.Wait(); err != nil {
		t.Fatalf("the run after ^C: %v: %s", err, said)
	}
	if got, want := results(t, dir), results(t, whole); !maps.Equal(got, want) {
		t.Errorf("after ^C and another run: got %v\nwant %v", got, want)
	}
	logs, err := filepath.Glob(filepath.Join(dir, "store", "runs", "x", "*", "logs", "rc-grpo.arm.log"))
	if err != nil {
		t.Fatal(err)
	}
	var text []byte
	for _, path := range logs {
		part, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		text = append(text, part...)
	}
	went := regexp.MustCompile(`resuming after update (\d+), with (\d+) trajectories`).FindSubmatch(text)
	if went == nil {
		t.Fatalf("the second run did not resume the first: %s", text)
	}
	if after, _ := strconv.Atoi(string(went[1])); after >= 30 {
		t.Errorf("it resumed after update %d of 30", after)
	}
	t.Logf("%s", went[0])
}
