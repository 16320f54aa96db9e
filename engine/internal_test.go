package engine

import (
	"errors"
	"math"
	"os"
	"path/filepath"
	"reflect"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"rcgrpo/engine/lang"
	"rcgrpo/engine/plan"
	"rcgrpo/engine/runs"
	"rcgrpo/internal/must"
)

func wantEqual[T any](t *testing.T, what string, got, want T) {
	t.Helper()
	if !reflect.DeepEqual(got, want) {
		t.Errorf("%s: got %v, want %v", what, got, want)
	}
}

// A kill counts as OOM only if the kernel counted one more kill for lack of memory.
func TestKillIsAnOOMIfTheCountHasGrown(t *testing.T) {
	for name, tc := range map[string]struct {
		before, after int64
		want          string
	}{
		"the count has grown":        {3, 4, lang.CauseOOM},
		"it has not":                 {3, 3, lang.CauseKilled},
		"the kernel does not count":  {-1, -1, lang.CauseKilled},
		"it was unreadable at first": {-1, 4, lang.CauseKilled},
	} {
		wantEqual(t, name, CauseOf(killedError(tc.before, tc.after)), tc.want)
	}
}

func TestCausesOfFailures(t *testing.T) {
	for text, want := range map[string]string{
		"CUDA error: out of memory":                                                          lang.CauseOOM,
		"terminate called after throwing std::bad_alloc":                                     lang.CauseOOM,
		"fork/exec: cannot allocate memory":                                                  lang.CauseOOM,
		"DefaultCPUAllocator: can't allocate memory: you tried to allocate 8589934592 bytes": lang.CauseOOM,
		"torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 20.00 MiB":            lang.CauseOOM,
		"shape [2, 3], want [3, 2]":                                                          "",
		"the room is full":                                                                   "",
	} {
		wantEqual(t, text, CauseOf(errors.New(text)), want)
	}
	wantEqual(t, "marked", CauseOf(WithCause(lang.CauseNaN, errors.New("loss"))), lang.CauseNaN)
}

// Log lines of earlier attempts do not determine the cause of a failure.
func TestCauseComesFromTheLastAttempt(t *testing.T) {
	lines := []string{"CUDA out of memory", attemptMark + "2", "no such file"}
	wantEqual(t, "lines of the second attempt", ofLastAttempt(lines), lines[2:])
	wantEqual(t, "lines of a first attempt", ofLastAttempt(lines[:1]), lines[:1])
	wantEqual(t, "cause", failureCause(errors.New("exit code 1"), ofLastAttempt(lines)), "")
}

func TestRunFoldersOmitSecretsOfTheEnvironment(t *testing.T) {
	for v, want := range map[string]bool{"HOME=/home/a": false, "RCGRPO_SITE=site.hcl": false, "HF_TOKEN=hf_x": true,
		"RCGRPO_VAR_base=/models": true, "PATH=/bin": true} {
		wantEqual(t, v+" is omitted", omitFromFolder(v), want)
	}
}

func TestVerbsOfRunFoldersAreThoseOfPlans(t *testing.T) {
	if plan.UpToDate != runs.VerbUpToDate || plan.NotHere != runs.VerbNotHere {
		t.Errorf("got %q and %q, want %q and %q", runs.VerbUpToDate, runs.VerbNotHere, plan.UpToDate, plan.NotHere)
	}
}

func TestProgressIsThrottledExceptTheEnd(t *testing.T) {
	var reported []runs.Event
	j := &Job{observe: func(e runs.Event) { reported = append(reported, e) }}
	for i := range 1000 {
		j.Progress(i+1, 1000, "updates", runs.Value{Name: "loss", Value: math.NaN()}, runs.Value{Name: "reward", Value: 1})
	}
	if last := reported[len(reported)-1]; len(reported) > 500 || last.Done != 1000 || len(last.Values) != 1 {
		t.Errorf("got %d events, the last %+v; want few, the end, and no NaN", len(reported), last)
	}
}

// A copy is complete when it appears, also if the temporary folder is on another file system or does not exist.
func TestCopiesCrossFileSystems(t *testing.T) {
	had := unix.Umask(0o027)
	defer unix.Umask(had)
	dir := t.TempDir()
	from := filepath.Join(dir, "from")
	must.OK(t, os.WriteFile(from, []byte("made"), 0o600))
	there, err := os.MkdirTemp("/dev/shm", "rcgrpo-copies-")
	if err != nil {
		t.Skipf("no other file system at hand: %v", err)
	}
	t.Cleanup(func() { os.RemoveAll(there) })
	at := time.Unix(1, 2)
	folders := map[string]string{"same": t.TempDir(), "other": there, "removed": filepath.Join(dir, "removed")}
	for name, temp := range folders {
		to := filepath.Join(dir, name, "deep", "to")
		if err := copyFile(from, to, temp, at); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		b, err := os.ReadFile(to)
		info, _ := os.Stat(to)
		if err != nil || string(b) != "made" || info.Mode() != 0o640 || !info.ModTime().Equal(at) {
			t.Errorf("%s: got %q, %v, %v, want a copy with its time and the mode of the umask", name, b, info, err)
		}
		for _, folder := range []string{temp, filepath.Dir(to)} {
			if left, _ := filepath.Glob(filepath.Join(folder, ".new-*")); len(left) > 0 {
				t.Errorf("%s: %v is left", name, left)
			}
		}
	}
}

// By default CUDA numbers GPUs by speed; nvidia-smi numbers them by PCI bus.
func TestStagesCountDevicesAsTheDriverDoes(t *testing.T) {
	w := &Work{Assignment: runs.Assignment{CPUs: 1, GPUs: []string{"1"}}}
	got := w.Env([]string{"CUDA_DEVICE_ORDER=FASTEST_FIRST"})
	want := []string{"OMP_NUM_THREADS=1", "CUDA_DEVICE_ORDER=PCI_BUS_ID", "CUDA_VISIBLE_DEVICES=1", childVariable + "=1"}
	wantEqual(t, "environment", got, want)
}
