//go:build libtorch

package stages

import (
	"bytes"
	"cmp"
	"context"
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

// ranked is a small experiment whose training and evaluation have MORE processes.
const ranked = tinyStart + `
stage "sft" "warm" {
  policy         = stage.model.random.checkpoint
  data           = [stage.curate.data.expert]
  epochs         = EPOCHS
  batch          = 4
  lr             = 1e-2
  gradient_parts = 2
  checkpoints { minutes = MINUTES }
  MORE
}

stage "eval" "score" {
  policy = stage.sft.warm.checkpoint
  tasks  = [stage.tasks.drills.test]
  LIMITS 3 12 320
  MORE
}
`

// rankedRun is one run of an experiment by the engine.
type rankedRun struct {
	keys    map[string]string // of the results, by address
	failure *runs.Failure
	log     string        // of the training, if it failed
	took    time.Duration // from the first progress of the training to the end of the run; 0 without progress
	adopted bool          // the training
	err     error
}

// rankedSettings are the settings of ranked. The text more belongs to the training and the evaluation.
type rankedSettings struct {
	epochs  int
	minutes float64 // between two states
	more    string
}

func (g rankedSettings) text() string {
	return expand(strings.NewReplacer("MORE", g.more, "EPOCHS", strconv.Itoa(g.epochs), "MINUTES",
		fmt.Sprint(g.minutes)).Replace(ranked))
}

// runRanked runs ranked in a folder; onProgress is called at the first progress of the training.
func runRanked(t *testing.T, dir string, store *artifact.Store, g rankedSettings,
	onProgress func(cancel context.CancelFunc)) (r rankedRun) {
	t.Helper()
	p := must.Get(plan.New(loaded(t, dir, g.text()), store, plan.Options{}))(t)
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
		case e.Kind == runs.EventAdopted:
			r.adopted = true
		case e.Kind == runs.EventDone:
			r.keys[e.Address] = e.Key
		case e.Failure != nil:
			r.failure = e.Failure
			text, _ := os.ReadFile(e.Failure.Log)
			r.log = string(text)
		}
	})
	if !begin.IsZero() {
		r.took = time.Since(begin)
	}
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

// noRankIsLeft fails the test if a rank lives 20 seconds later.
func noRankIsLeft(t *testing.T, dir string) {
	t.Helper()
	for end := time.Now().Add(20 * time.Second); len(ranksOf(dir)) > 0 && time.Now().Before(end); {
		time.Sleep(time.Millisecond)
	}
	if left := ranksOf(dir); len(left) > 0 {
		t.Errorf("ranks are left: %v", left)
	}
}

// twoProcesses are the resources of ranks: two processes on the CPU, or by bench/gpu.sh two GPUs.
var twoProcesses = fmt.Sprintf("resources { %s }", cmp.Or(os.Getenv("RCGRPO_TEST_RESOURCES"), "processes = 2"))

func newRanked(t *testing.T) (dir string, store *artifact.Store) {
	t.Helper()
	t.Setenv("RCGRPO_LEASES", filepath.Join(t.TempDir(), "leases"))
	dir = t.TempDir()
	return dir, must.Get(artifact.Open(filepath.Join(dir, "store")))(t)
}

// oneProcess runs ranked without ranks and returns its store and the keys of its results.
func oneProcess(t *testing.T, epochs int) (store *artifact.Store, keys map[string]string) {
	t.Helper()
	store = must.Get(artifact.Open(filepath.Join(t.TempDir(), "store")))(t)
	r := runRanked(t, t.TempDir(), store, rankedSettings{epochs: epochs, minutes: 5}, nil)
	must.OK(t, r.err)
	return store, r.keys
}

// wantResults compares all ports of the results in a store with those of one process.
func wantResults(t *testing.T, store, one *artifact.Store, keys map[string]string) {
	t.Helper()
	for address, key := range keys {
		want := must.Get(one.Manifest(key))(t)
		got, err := store.Manifest(key)
		if err != nil {
			t.Errorf("%s: %v", address, err)
			continue
		}
		for port, output := range want.Outputs {
			if got.Outputs[port].Digest != output.Digest {
				t.Errorf("%s: port %s of two processes differs from that of one", address, port)
			}
		}
	}
}

func TestEngineRunsAStageInSeveralProcesses(t *testing.T) {
	dir, store := newRanked(t)
	two := runRanked(t, dir, store, rankedSettings{3, 5, twoProcesses}, nil)
	if two.err != nil {
		t.Fatalf("%v, %v", two.err, two.failure)
	}
	noRankIsLeft(t, dir)
	one, keys := oneProcess(t, 3)
	wantResults(t, store, one, keys)
	for address, ranked := range map[string]bool{"stage.sft.warm@1": true, "stage.eval.score@1": true,
		"stage.model.random": false} {
		m := must.Get(store.Manifest(keys[address]))(t)
		switch r := m.Ranks; {
		case (r != nil) != ranked:
			t.Errorf("%s: the manifest records the ranks %+v", address, r)
		case ranked && (r.Count != 2 || r.Backend != "gloo" || len(r.PeakBytes) != 2 || min(r.PeakBytes[0],
			r.PeakBytes[1]) < 10<<20 || m.PeakBytes != r.PeakBytes[0]+r.PeakBytes[1]):
			t.Errorf("%s: got %+v and a peak of %d bytes, want two ranks over gloo and their sum", address, *r, m.PeakBytes)
		case m.CPUSeconds <= 0:
			t.Errorf("%s: got %g processor seconds, want those of its processes", address, m.CPUSeconds)
		}
	}
	status := must.Get(runs.ReadStatus(store, must.Get(runs.Find(store, "", "latest"))(t)))(t)
	log := string(must.Get(os.ReadFile(status.Folder.Log("stage.sft.warm@1")))(t))
	must.Contain(t, "\n"+log, "\nmemory on cpu", "\n[1] memory on cpu") // of rank 0, and of rank 1 with its prefix
}

func TestProcessesThatAStageCannotUseAreRefused(t *testing.T) {
	for more, want := range map[string]string{
		"resources { processes = 3 }":                  "because its gradient has that many parts; got processes = 3",
		"resources { gpus = 3 }":                       "because its gradient has that many parts; got gpus = 3",
		"resources {\n processes = 2\n gpus = 1\n }\n": "Each device has a process",
	} {
		dir := t.TempDir()
		path := filepath.Join(dir, "x.hcl")
		must.OK(t, os.WriteFile(path, []byte(rankedSettings{1, 5, more}.text()), 0o600))
		_, diags := lang.Load(lang.Source{Path: path}, lang.Registry(Kinds()))
		must.Match(t, diags.Errs()[0], want)
	}
}
