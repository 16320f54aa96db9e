package engine_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"

	"rcgrpo/engine"
	"rcgrpo/engine/enginetest"
	"rcgrpo/engine/internal/disk"
	"rcgrpo/engine/lang"
	"rcgrpo/engine/plan"
	"rcgrpo/engine/runs"
	"rcgrpo/internal/must"
)

// faultyRun contains everything that a run writes: a program, a chain, two nodes with identical outputs, and a
// published file.
const faultyRun = `
stage "light" "a" {
  text  = "a"
  shell = "true"
}
stage "light" "b" {
  from = [stage.light.a.out]
  text = "b"
}
stage "light" "twin" {
  from = [stage.light.a.out]
  text = "b"
  note = "another key, the same bytes"
}
stage "page" "c" {
  from = [stage.light.b.out, stage.light.twin.out]
}
`

// failAt makes the n-th write fail, and all later ones if after is set. It returns the number of writes so
// far and a description of the failed one.
func failAt(t *testing.T, n int64, after bool, fault error) (writes *atomic.Int64, hit *atomic.Pointer[string]) {
	writes, hit = new(atomic.Int64), new(atomic.Pointer[string])
	disk.Fail(func(op, path string) error {
		if fault == disk.ErrShort && op != "write" {
			return nil
		}
		i := writes.Add(1)
		if i < n || i > n && !after {
			return nil
		}
		if i == n {
			failed := op + " " + path
			hit.Store(&failed)
		}
		return fault
	})
	t.Cleanup(func() { disk.Fail(nil) })
	return writes, hit
}

// failOps makes operations on files fail.
func failOps(t *testing.T, fault error, ops ...string) {
	disk.Fail(func(op, _ string) error {
		if slices.Contains(ops, op) {
			return fault
		}
		return nil
	})
	t.Cleanup(func() { disk.Fail(nil) })
}

// Whichever write of a run fails, the run ends with an error that contains the path, no key has a partial
// result, and a plain run afterwards gives the same results and repeats no committed stage.
func TestEveryWriteMayFail(t *testing.T) {
	want := digestsOf(t, faultyRun)
	for _, tc := range []struct {
		name  string
		fault error
		after bool
		step  int64
	}{
		{"a broken block", syscall.EIO, false, 1},
		{"a torn write", disk.ErrShort, false, 1},
		{"a full disk", syscall.ENOSPC, true, 5},
	} {
		t.Run(tc.name, func(t *testing.T) {
			for n, more := int64(1), true; more; n += tc.step {
				t.Run(fmt.Sprint("write ", n), func(t *testing.T) {
					more = runWithFault(t, n, tc.after, tc.fault, want)
				})
				if n > 1000 {
					t.Fatal("a run of four stages has more than 1000 writes")
				}
			}
		})
	}
}

// runWithFault runs with one fault and then without. It reports whether the run had n writes.
func runWithFault(t *testing.T, n int64, after bool, fault error, want map[string]string) bool {
	l := newLab(t, faultyRun)
	p := l.Plan()
	_, hit := failAt(t, n, after, fault)
	r := l.RunPlan(t.Context(), p, engine.Options{})
	disk.Fail(nil)
	if hit.Load() == nil {
		wantSuccess(t, r)
		return false
	}
	t.Log("failing write:", *hit.Load())
	if r.Err == nil && len(r.Of(runs.EventFailed)) > 0 {
		t.Errorf("stages failed and the run did not: %s", r)
	}
	if r.Err != nil && !strings.Contains(r.Err.Error()+r.String(), l.Dir) {
		t.Errorf("got %v\n%s, want the path", r.Err, r)
	}
	wantEqual(t, "store afterwards", fmt.Sprint(l.Store().Check()), "[] <nil>")
	var committed []string
	for _, d := range l.Plan().Nodes {
		if d.Verb == plan.UpToDate {
			committed = append(committed, lang.ShortAddress(d.Address))
		}
	}
	if r.Err == nil && len(committed) != 4 {
		t.Errorf("the run succeeded, and only %v are committed", committed)
	}
	for _, name := range l.MustRun().Of(runs.EventStarted) {
		if slices.Contains(committed, name) {
			t.Errorf("%s was committed and ran again", name)
		}
	}
	wantDigests(l, "of the next run", want)
	if l.Read("page.txt") == "" {
		t.Error("published file afterwards: got none")
	}
	return true
}

func TestReadOnlyStoreIsReadAndARunReportsTheFailedWrite(t *testing.T) {
	l := newLab(t, faultyRun)
	l.MustRun()
	l.Write(strings.Replace(faultyRun, `"a"`+"\n  shell", `"other"`+"\n  shell", 1))
	writes, _ := failAt(t, 1, true, syscall.EROFS)
	p := l.Plan()
	must.Get(runs.Folders(l.Store(), "x"))(t)
	wantEqual(t, "writes by plan", writes.Load(), 0)
	r := l.RunPlan(t.Context(), p, engine.Options{})
	if !errors.Is(r.Err, syscall.EROFS) || !strings.Contains(r.Err.Error(), l.StoreDir) {
		t.Errorf("run: got %v, want a read-only file system and the path", r.Err)
	}
}

// A power cut may tear files. Each file of the store is cut at about 40 offsets.
func TestTornFilesAreHealed(t *testing.T) {
	l := newLab(t, "stage \"light\" \"a\" {\n  text = \"a\"\n}\n")
	l.MustRun()
	want := l.Digests()
	var files []string
	for _, pattern := range []string{"results/*.json", "last/*.json", "runs/x/*/journal", "runs/x/*/plan.json"} {
		files = append(files, must.Get(filepath.Glob(filepath.Join(l.StoreDir, pattern)))(t)...)
	}
	if len(files) < 4 {
		t.Fatalf("got %v, want a manifest, a pointer, events and a plan", files)
	}
	for _, path := range files {
		whole := must.Get(os.ReadFile(path))(t)
		for cut := 0; cut < len(whole); cut += max(1, len(whole)/40) {
			must.OK(t, errors.Join(os.Remove(path), os.WriteFile(path, whole[:cut], 0o600)))
			if _, err := runs.Folders(l.Store(), "x"); err != nil {
				t.Errorf("%s cut at %d: list of runs: %v", path, cut, err)
			}
			wantSuccess(t, l.Run(engine.Options{}))
			wantDigests(l, fmt.Sprintf("after %s was cut at %d", path, cut), want)
		}
	}
}

// Without a flush no result has a manifest: its stage fails, and runs again.
func TestAFailedFlushFailsTheStage(t *testing.T) {
	l := newLab(t, fmt.Sprintf(readsLight, 0))
	failOps(t, syscall.EIO, "syncfs")
	if r := l.Run(engine.Options{}); r.Err == nil || len(r.Of(runs.EventDone)) != 0 || len(r.Of(runs.EventFailed)) != 1 {
		t.Fatalf("without a flush: got %v, want one failed stage and no result\n%s", r.Err, r)
	}
	disk.Fail(nil)
	l.Want(l.MustRun(), runs.EventDone, "light.a", "light.b")
}

// A stage whose output is written is not executed again, whatever fails in its commit.
func TestAFailedCommitIsCompletedByTheNextRun(t *testing.T) {
	l := newLab(t, fmt.Sprintf(readsLight, 0))
	objects := filepath.Join(l.StoreDir, "objects")
	disk.Fail(func(op, path string) error {
		if op == "rename" && filepath.Dir(path) == objects {
			return syscall.ENOSPC
		}
		return nil
	})
	t.Cleanup(func() { disk.Fail(nil) })
	if r := l.Run(engine.Options{}); r.Err == nil || len(r.Of(runs.EventFailed)) != 1 ||
		!strings.Contains(r.String(), "no space left") {
		t.Fatalf("a disk without space for the commit: got %v, want one failed stage\n%s", r.Err, r)
	}
	disk.Fail(nil)
	r := l.MustRun()
	wantEqual(t, "stages that were executed again", len(r.Of(runs.EventStarted)), 1)
	wantEqual(t, "stages whose commit was completed", len(r.Of(runs.EventKept)), 1)
}

// A file of an object that is not right by its time may have any content. Only its stage runs again.
func TestATornObjectIsMadeAgain(t *testing.T) {
	l := newLab(t, fmt.Sprintf(readsLight, 0))
	l.MustRun()
	want := l.Digests()
	digest := l.Planned("light.b").Manifest.Outputs["out"].Digest
	path := filepath.Join(l.StoreDir, "objects", digest, "out.txt")
	text, err := os.ReadFile(path)
	must.OK(t, errors.Join(err, os.Chmod(path, 0o600), os.WriteFile(path, make([]byte, len(text)), 0)))
	must.Contain(t, l.Planned("light.b").Cause.Text, "out.txt is edited")
	l.Want(l.MustRun(), runs.EventDone, "light.b")
	wantDigests(l, "of the next run", want)
}

const readsLight = `
stage "light" "a" {
  text = "a"
}
stage "light" "b" {
  from = [stage.light.a.out]
  text = "%d"
}
`

// gc of everything, again and again, beside runs of all sorts of stages: no result that a run found or made
// is missing.
func TestCollectionsBesideRuns(t *testing.T) {
	l := enginetest.NewLab(t)
	end := collect(l, 1)
	var others sync.WaitGroup
	for range 3 { // with equal nodes, so that each run also finds results of the others
		others.Go(func() {
			for i := range 10 {
				own := enginetest.NewLab(t)
				own.StoreDir = l.StoreDir
				own.Write(fmt.Sprintf(readsLight+`
stage "light" "c" {
  from  = [stage.light.b.out]
  shell = "mkdir -p made; echo c > made/out.txt"
  takes = true
}
stage "toy" "d" {
  from = [stage.light.a.out, stage.light.c.out]
  text = "d"
}
`, i))
				wantSuccess(t, own.Run(engine.Options{}))
			}
		})
	}
	others.Wait()
	if end() == 0 {
		t.Error("no collection removed a result")
	}
}

// While a stage runs, gc removes exactly the results that its run does not need, even if the engine was killed.
func TestCollectionBesideARunningStage(t *testing.T) {
	for name, tc := range map[string]struct {
		kind   string
		killed bool
	}{
		"in its own process":                       {"toy", false},
		"inside the engine":                        {"light", false},
		"in its own process, the engine is killed": {"toy", true},
	} {
		t.Run(name, func(t *testing.T) {
			l := newLab(t, fmt.Sprintf(readsLight, 0))
			l.MustRun()
			l.Write(fmt.Sprintf(`
stage "light" "a" {
  text = "1"
}
stage "%s" "b" {
  from = [stage.light.a.out]
  gate = "$dir/gate"
}
`, tc.kind))
			g := l.Gate()
			var inside enginetest.Visitor
			var done <-chan enginetest.Outcome
			if tc.killed {
				inside = killEngine(l, g)
			} else {
				done = l.Start(t.Context(), l.Plan())
				inside = g.Next()
			}
			var gone []string
			for _, c := range must.Get(l.Store().Collect(1, runs.Pins))(t) {
				gone = append(gone, c.What+" "+c.Name)
			}
			slices.Sort(gone)
			wantList(t, "collected", gone, "result stage.light.a", "result stage.light.b") // of the earlier run
			if tc.killed {
				done = adopt(t.Context(), l)
			}
			inside.Pass()
			wantSuccess(t, <-done)
			wantEqual(t, "results collected after the run", len(must.Get(l.Store().Collect(1, runs.Pins))(t)), 2)
		})
	}
}

// The plan of a run stays pinned while a program runs whose engine was killed, beside a gc of everything else.
func TestCollectionKeepsThePlanOfAProgramWhoseEngineWasKilled(t *testing.T) {
	l := newLab(t, `
stage "light" "a" {
  text = "a"
}
stage "light" "b" {
  from  = [stage.light.a.out]
  shell = "mkdir made; echo b >made/out.txt; echo yes >$dir/runs; until [ -e $dir/go ]; do sleep 0.01; done"
  takes = true
}
`)
	kill := startEngine(l)
	until(t, "the program runs", func() bool { return l.Read("runs") != "" })
	kill()
	wantEqual(t, "collected while it runs", len(must.Get(l.Store().Collect(1, runs.Pins))(t)), 0)
	wantEqual(t, "its input", l.Planned("light.a").Verb, plan.UpToDate)
	l.Put("go", "")
	l.Tidy()
	wantEqual(t, "collected after its end", len(must.Get(l.Store().Collect(1, runs.Pins))(t)), 2)
	l.MustRun()
}
