//go:build libtorch

package stages

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"rcgrpo/engine"
	"rcgrpo/engine/artifact"
	"rcgrpo/engine/lang"
	"rcgrpo/engine/plan"
	"rcgrpo/engine/runs"
	"rcgrpo/internal/must"
)

// ganged is a small experiment whose training and evaluation have MORE processes.
const ganged = tinyStart + `
stage "sft" "warm" {
  policy         = stage.model.random.checkpoint
  data           = [stage.curate.data.expert]
  epochs         = EPOCHS
  batch          = 4
  lr             = 1e-2
  gradient_parts = 2
  MORE
}

stage "eval" "score" {
  policy = stage.sft.warm.checkpoint
  tasks  = [stage.tasks.drills.test]
  LIMITS 3 12 320
  MORE
}
`

// gangRun is one run of an experiment by the engine.
type gangRun struct {
	keys    map[string]string // of the results, by address
	failure *runs.Failure
	took    time.Duration // from the first progress of the training to the end of the run
	err     error
}

// runGang runs ganged in a folder; onProgress is called at the first progress of the training.
func runGang(t *testing.T, dir string, store *artifact.Store, epochs int, more string,
	onProgress func(cancel context.CancelFunc)) (r gangRun) {
	t.Helper()
	text := expand(strings.NewReplacer("MORE", more, "EPOCHS", strconv.Itoa(epochs)).Replace(ganged))
	p := must.Get(plan.New(loaded(t, dir, text), store, plan.Options{}))(t)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	r.keys = map[string]string{}
	var begin time.Time
	r.err = engine.Run(ctx, p, engine.Options{}, func(e runs.Event) {
		switch {
		case e.Kind == runs.EventProgress && e.Address == "stage.sft.warm@1" && begin.IsZero():
			begin = time.Now()
			if onProgress != nil {
				onProgress(cancel)
			}
		case e.Kind == runs.EventDone:
			r.keys[e.Address] = e.Key
		case e.Failure != nil:
			r.failure = e.Failure
		}
	})
	r.took = time.Since(begin)
	return r
}

// ranksOf returns the PIDs of the processes below dir that are a rank, by rank.
func ranksOf(dir string) map[int]int {
	found := map[int]int{}
	folders, _ := filepath.Glob("/proc/[0-9]*")
	for _, folder := range folders {
		env, _ := os.ReadFile(filepath.Join(folder, "environ"))
		rank, ours := -1, false
		for _, v := range bytes.Split(env, []byte{0}) {
			if text, ok := bytes.CutPrefix(v, []byte("RCGRPO_RANK=")); ok {
				rank, _ = strconv.Atoi(string(text))
			}
			ours = ours || bytes.HasPrefix(v, []byte("RCGRPO_RENDEZVOUS="+dir))
		}
		if pid, err := strconv.Atoi(filepath.Base(folder)); err == nil && ours && rank >= 0 {
			found[rank] = pid
		}
	}
	return found
}

// parentOf returns the PID of the parent of a process.
func parentOf(t *testing.T, pid int) int {
	t.Helper()
	stat := string(must.Get(os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid)))(t))
	return must.Get(strconv.Atoi(strings.Fields(stat[strings.LastIndexByte(stat, ')')+1:])[1]))(t)
}

func killProcess(t *testing.T, pid int) {
	t.Helper()
	if pid <= 1 {
		t.Errorf("no process to kill")
		return
	}
	must.OK(t, syscall.Kill(pid, syscall.SIGKILL))
}

// noRankIsLeft fails the test if a rank lives two seconds later, or its folder is left.
func noRankIsLeft(t *testing.T, dir string) {
	t.Helper()
	for end := time.Now().Add(2 * time.Second); len(ranksOf(dir)) > 0 && time.Now().Before(end); {
	}
	if left := ranksOf(dir); len(left) > 0 {
		t.Errorf("ranks are left: %v", left)
	}
}

const twoProcesses = "resources { processes = 2 }"

func newGang(t *testing.T) (dir string, store *artifact.Store) {
	t.Helper()
	t.Setenv("RCGRPO_LEASES", filepath.Join(t.TempDir(), "leases"))
	dir = t.TempDir()
	return dir, must.Get(artifact.Open(filepath.Join(dir, "store")))(t)
}

func TestEngineRunsAStageInSeveralProcesses(t *testing.T) {
	dir, store := newGang(t)
	seen := 0
	two := runGang(t, dir, store, 3, twoProcesses, func(context.CancelFunc) { seen = len(ranksOf(dir)) })
	if two.err != nil || seen != 2 {
		t.Fatalf("%v, %v; got %d ranks during the training, want 2", two.err, two.failure, seen)
	}
	noRankIsLeft(t, dir)
	other := must.Get(artifact.Open(filepath.Join(t.TempDir(), "store")))(t)
	one := runGang(t, t.TempDir(), other, 3, "", nil)
	must.OK(t, one.err)
	for address, key := range one.keys {
		if two.keys[address] != key {
			t.Errorf("%s: got the keys %s and %s", address, two.keys[address], key)
			continue
		}
		got, want := must.Get(store.Manifest(key))(t), must.Get(other.Manifest(key))(t)
		for port, output := range want.Outputs {
			if got.Outputs[port].Digest != output.Digest {
				t.Errorf("%s: port %s of two processes differs from that of one", address, port)
			}
		}
	}
}

func TestFailuresOfRanks(t *testing.T) {
	for name, tc := range map[string]struct {
		strike func(t *testing.T, dir string, cancel context.CancelFunc)
		want   string // the failure; "" for an interrupted run
	}{
		"a rank is killed": {func(t *testing.T, dir string, _ context.CancelFunc) {
			killProcess(t, ranksOf(dir)[1])
		}, "rank 1 of 2: its process was killed (SIGKILL)"},
		"rank 0 is killed": {func(t *testing.T, dir string, _ context.CancelFunc) {
			killProcess(t, ranksOf(dir)[0])
		}, "rank 0 of 2: its process was killed (SIGKILL)"},
		"the supervisor is killed": {func(t *testing.T, dir string, _ context.CancelFunc) {
			killProcess(t, parentOf(t, ranksOf(dir)[0]))
		}, "its process was killed (SIGKILL)"},
		"the run is stopped": {func(_ *testing.T, _ string, cancel context.CancelFunc) { cancel() }, ""},
	} {
		t.Run(name, func(t *testing.T) {
			dir, store := newGang(t)
			r := runGang(t, dir, store, 500, twoProcesses, func(cancel context.CancelFunc) { tc.strike(t, dir, cancel) })
			switch {
			case tc.want == "" && !errors.Is(r.err, engine.ErrInterrupted):
				t.Errorf("got %v, %v, want an interrupted run", r.err, r.failure)
			case tc.want != "" && (r.failure == nil || r.failure.Text != tc.want):
				t.Errorf("got %v, %+v, want %q", r.err, r.failure, tc.want)
			}
			if r.took > 10*time.Second {
				t.Errorf("the run has ended after %v", r.took)
			}
			noRankIsLeft(t, dir)
			states, _ := filepath.Glob(filepath.Join(dir, "store", "*", "*", "states", "0*"))
			if stopped := tc.want == ""; stopped != (len(states) > 0) {
				t.Errorf("stopped %v: got the states %v", stopped, states)
			}
			if left, _ := filepath.Glob(filepath.Join(dir, "store", "runs", "*", "*", "ranks.*")); len(left) > 0 &&
				name != "the supervisor is killed" {
				t.Errorf("folders are left: %v", left)
			}
		})
	}
}

func TestProcessesThatAStageCannotUseAreRefused(t *testing.T) {
	for more, want := range map[string]string{
		"resources { processes = 3 }":                  "because its gradient has that many parts; got processes = 3",
		"resources { gpus = 3 }":                       "because its gradient has that many parts; got gpus = 3",
		"resources {\n processes = 2\n gpus = 1\n }\n": "Each device has a process",
	} {
		dir := t.TempDir()
		path := filepath.Join(dir, "x.hcl")
		text := expand(strings.NewReplacer("MORE", more, "EPOCHS", "1").Replace(ganged))
		must.OK(t, os.WriteFile(path, []byte(text), 0o600))
		_, diags := lang.Load(lang.Source{Path: path}, lang.Registry(Kinds()))
		must.Match(t, diags.Errs()[0], want)
	}
}
