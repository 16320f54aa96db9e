package engine

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"rcgrpo/engine/artifact"
	"rcgrpo/engine/internal/disk"
)

// faultyRun needs every kind of write: a program with its exit record, a chain, two nodes with identical
// bytes, and a published file.
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

// failAt makes the n-th write fail, and with after also the later ones. It returns the number of writes and
// the one that failed.
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
			what := op + " " + path
			hit.Store(&what)
		}
		return fault
	})
	t.Cleanup(func() { disk.Fail(nil) })
	return writes, hit
}

// Whatever write of a run fails, the run ends with an error that names the path, no key has a partial result,
// and a run afterwards makes identical results and repeats no committed stage.
func TestEveryWriteMayFail(t *testing.T) {
	undisturbed := newLab(t)
	undisturbed.write(faultyRun)
	undisturbed.mustRun()
	want := undisturbed.digests()
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
					more = faultAt(t, n, tc.after, tc.fault, want)
				})
				if n > 1000 {
					t.Fatal("a run of four stages has more than 1000 writes")
				}
			}
		})
	}
}

// faultAt runs with one fault and then without. more reports whether the run had so many writes.
func faultAt(t *testing.T, n int64, after bool, fault error, want map[string]string) (more bool) {
	l := newLab(t)
	l.write(faultyRun)
	p := l.plan()
	_, hit := failAt(t, n, after, fault)
	ended := make(chan record, 1)
	go func() { ended <- l.runPlan(t.Context(), p, RunOptions{}) }()
	var r record
	select {
	case r = <-ended:
	case <-time.After(30 * time.Second):
		disk.Fail(nil)
		t.Fatal("the run hangs")
	}
	disk.Fail(nil)
	if hit.Load() == nil {
		if r.err != nil {
			t.Errorf("without a fault: %v", r.err)
		}
		return false
	}
	what := *hit.Load()
	if r.err == nil && len(r.of(EventFailed)) > 0 {
		t.Errorf("%s: stages failed and the run did not: %s", what, r.text())
	}
	if r.err != nil {
		text := r.err.Error() + r.text()
		if !strings.Contains(text, l.storeDir) && !strings.Contains(text, l.dir) {
			t.Errorf("%s: got %q, want the place", what, text)
		}
	}
	if problems, err := l.store().Check(); err != nil || len(problems) > 0 {
		t.Errorf("%s: the store afterwards: %v, %v", what, problems, err)
	}
	var committed []string
	for _, d := range l.plan().Nodes {
		if d.Verb == UpToDate {
			committed = append(committed, ShortAddress(d.Address))
		}
	}
	if r.err == nil && len(committed) != 4 {
		t.Errorf("%s: the run reports success, and %v is committed", what, committed)
	}
	again := l.mustRun()
	for _, name := range again.of(EventStarted) {
		if slices.Contains(committed, name) {
			t.Errorf("%s: %s was committed and ran again", what, name)
		}
	}
	if got := l.digests(); !maps.Equal(got, want) {
		t.Errorf("%s: digests afterwards: got %v, want %v", what, got, want)
	}
	if b, err := os.ReadFile(filepath.Join(l.dir, "page.txt")); err != nil || len(b) == 0 {
		t.Errorf("%s: the published file afterwards: %q, %v", what, b, err)
	}
	return true
}

// A plan reads a read-only store without a write; the error of a run names the store.
func TestStoreThatCannotBeWrittenIsRead(t *testing.T) {
	l := newLab(t)
	l.write(faultyRun)
	l.mustRun()
	l.write(strings.Replace(faultyRun, `"a"`+"\n  shell", `"other"`+"\n  shell", 1))
	writes, _ := failAt(t, 1, true, syscall.EROFS)
	p := l.plan()
	if _, err := Runs(l.store(), "x"); err != nil {
		t.Error(err)
	}
	if n := writes.Load(); n != 0 {
		t.Errorf("plan tried to write %d times, want none", n)
	}
	r := l.runPlan(t.Context(), p, RunOptions{})
	if r.err == nil || !errors.Is(r.err, syscall.EROFS) || !strings.Contains(r.err.Error(), l.storeDir) {
		t.Errorf("run: got %v, want a read-only file system and the place", r.err)
	}
}

// A power cut may tear any unflushed file. Each of them is cut at every position, one after the other.
func TestTornFilesAreHealed(t *testing.T) {
	l := newLab(t)
	l.write(`
stage "light" "a" {
  text = "a"
}
`)
	l.mustRun()
	want := l.digests()
	var torn []string
	for _, pattern := range []string{"nodes/*.json", "last/*.json", "runs/x/*/events.jsonl", "runs/x/*/plan.json"} {
		paths, err := filepath.Glob(filepath.Join(l.storeDir, pattern))
		if err != nil {
			t.Fatal(err)
		}
		torn = append(torn, paths...)
	}
	if len(torn) < 4 {
		t.Fatalf("got %v, want a manifest, a pointer, events and a plan", torn)
	}
	for _, path := range torn {
		whole, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		for cut := 0; cut < len(whole); cut += max(1, len(whole)/40) {
			if err := errors.Join(os.Remove(path), os.WriteFile(path, whole[:cut], 0o600)); err != nil {
				t.Fatal(err)
			}
			if _, err := Runs(l.store(), "x"); err != nil {
				t.Errorf("%s cut at %d: status: %v", path, cut, err)
			}
			p, err := planToys(l.file, l.storeDir)
			if err != nil {
				t.Fatalf("%s cut at %d: plan: %v", path, cut, err)
			}
			if r := l.runPlan(t.Context(), p, RunOptions{}); r.err != nil {
				t.Fatalf("%s cut at %d: run: %v", path, cut, r.err)
			}
			if got := l.digests(); !maps.Equal(got, want) {
				t.Fatalf("%s cut at %d: digests %v, want %v", path, cut, got, want)
			}
		}
	}
}

// After a power cut, an object that was not flushed may have any content. Its stage alone runs again.
func TestTornUnsealedObjectIsMadeAgain(t *testing.T) {
	l := newLab(t)
	l.write(fmt.Sprintf(belowLight, 0))
	t.Cleanup(func() { disk.Fail(nil) })
	disk.Fail(func(op, _ string) error {
		if op == "syncfs" || op == "sync" {
			return syscall.EIO
		}
		return nil
	})
	if r := l.run(RunOptions{}); !errors.Is(r.err, syscall.EIO) || len(r.of(EventDone)) != 2 {
		t.Fatalf("without a flush: got %v, want the error of the flush and two results\n%s", r.err, r.text())
	}
	disk.Fail(nil)
	want := l.digests()
	for _, n := range l.plan().Nodes {
		if n.Name == "b" {
			path := filepath.Join(l.storeDir, "objects", n.Manifest.Outputs["out"].Digest, "out.txt")
			text, err := os.ReadFile(path)
			if err := errors.Join(err, os.Chmod(path, 0o600), os.WriteFile(path, make([]byte, len(text)), 0)); err != nil {
				t.Fatal(err)
			}
		}
	}
	l.want(l.mustRun(), EventDone, "light.b")
	if got := l.digests(); !maps.Equal(got, want) {
		t.Errorf("digests: got %v, want %v", got, want)
	}
}

// If gc removes the results that a plan has found, the run makes them again.
func TestCollectionBetweenPlanAndRun(t *testing.T) {
	l := newLab(t)
	l.write(fmt.Sprintf(belowLight, 0))
	l.mustRun()
	l.write(fmt.Sprintf(belowLight, 1))
	p := l.plan()
	if _, err := l.store().Collect(1); err != nil {
		t.Fatal(err)
	}
	r := l.runPlan(t.Context(), p, RunOptions{})
	if r.err != nil {
		t.Fatalf("after a collection: %v\n%s", r.err, r.text())
	}
	l.want(r, EventDone, "light.a", "light.b")
}

const belowLight = `
stage "light" "a" {
  text = "a"
}
stage "light" "b" {
  from = [stage.light.a.out]
  text = "%d"
}
`

// gc of everything, again and again, removes no result that a run beside it has found or made.
func TestCollectionsBesideRuns(t *testing.T) {
	l := newLab(t)
	end := l.collecting(1, false)
	var runs sync.WaitGroup
	for range 3 { // with equal nodes, so that they also reuse results of each other
		runs.Go(func() {
			for i := range 10 {
				dir := t.TempDir()
				own := &lab{T: t, dir: dir, file: filepath.Join(dir, "x.hcl"), storeDir: l.storeDir}
				own.put("site.hcl", labSite)
				own.write(fmt.Sprintf(belowLight+`
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
				if r := own.run(RunOptions{}); r.err != nil {
					t.Errorf("%v\n%s", r.err, r.text())
				}
			}
		})
	}
	runs.Wait()
	if end() == 0 {
		t.Error("nothing was ever collected")
	}
}

// gc beside a running stage removes only results that its run does not need, also after the engine was killed.
func TestCollectionBesideAStageThatRuns(t *testing.T) {
	const waits = `
stage "light" "a" {
  text = "%d"
}
stage "%s" "b" {
  from = [stage.light.a.out]
  gate = "$dir/gate"
}
`
	for _, of := range []struct {
		kind   string
		killed bool
	}{{"toy", false}, {"light", false}, {"toy", true}} {
		t.Run(fmt.Sprintf("%s, killed %v", of.kind, of.killed), func(t *testing.T) {
			l := newLab(t)
			l.write(fmt.Sprintf(belowLight, 0))
			l.mustRun()
			g := l.gate()
			l.write(fmt.Sprintf(waits, 1, of.kind))
			var inside visitor
			var done chan record
			if of.killed {
				inside = l.killedEngine(g)
			} else {
				done = make(chan record, 1)
				go func() { done <- l.run(RunOptions{}) }()
				inside = g.next()
			}
			plan, err := l.store().Collect(1)
			var gone []string
			for _, g := range plan {
				gone = append(gone, g.What+" "+g.Name)
			}
			slices.Sort(gone)
			if want := []string{"result stage.light.a", "result stage.light.b"}; err != nil || !slices.Equal(gone, want) {
				t.Errorf("collected: got %v, %v, want the results of before: %v", gone, err, want)
			}
			if of.killed {
				done = l.adopting(t.Context())
			}
			inside.pass()
			if r := <-done; r.err != nil {
				t.Fatalf("%v\n%s", r.err, r.text())
			}
			if plan, err := l.store().Collect(1); err != nil || len(plan) != 2 {
				t.Errorf("collected after the run: got %v, %v, want its two results", plan, err)
			}
		})
	}
}

// The inputs of a program whose engine was killed are not pinned, so gc is refused until it ends.
func TestCollectionIsRefusedBesideAnOrphanedProgram(t *testing.T) {
	l := newLab(t)
	l.write(`
stage "light" "a" {
  shell = "mkdir -p made; echo a > made/out.txt; touch $dir/runs; while [ ! -e $dir/go ]; do sleep 0.01; done"
  takes = true
}
`)
	engine := l.engine()
	if err := engine.Start(); err != nil {
		t.Fatal(err)
	}
	for !exists(filepath.Join(l.dir, "runs")) {
		time.Sleep(time.Millisecond)
	}
	if err := engine.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	engine.Wait()
	if _, err := l.store().Collect(1); !errors.Is(err, artifact.ErrBusy) {
		t.Errorf("collect while it runs: got %v, want ErrBusy", err)
	}
	l.put("go", "")
	l.tidy()
	if _, err := l.store().Collect(1); err != nil {
		t.Errorf("collect after its end: %v", err)
	}
	if r := l.run(RunOptions{}); r.err != nil {
		t.Errorf("%v\n%s", r.err, r.text())
	}
}
