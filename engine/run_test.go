package engine

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

const diamond = `
stage "toy" "a" {
  text  = "a"
  count = "$dir/count"
}
stage "toy" "b" {
  from  = [stage.toy.a.out]
  text  = "b"
  count = "$dir/count"
}
stage "light" "c" {
  from  = [stage.toy.a.out]
  text  = "c"
  count = "$dir/count"
}
stage "light" "d" {
  from  = [stage.toy.b.out, stage.light.c.out]
  text  = "d"
  count = "$dir/count"
}
`

// tree lists every file below dir with size and time stamp.
func tree(t *testing.T, dir string) map[string]string {
	t.Helper()
	all := map[string]string{}
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := d.Info()
		all[path] = info.ModTime().String()
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// The child of a killed run has all its locks for an instant, between clone and exec.
func TestRunTidiesAtItsEndWhatWasBusyAtItsStart(t *testing.T) {
	l := newLab(t) // which looks for locks that are left
	l.write(diamond)
	lock, err := l.store().TryLock(strings.Repeat("ab", 32))
	if err != nil {
		t.Fatal(err)
	}
	gone := false
	err = l.plan().Run(t.Context(), RunOptions{}, func(e Event) {
		if e.Kind == EventPlanned {
			gone = lock.File().Close() == nil
		}
	})
	if err != nil || !gone {
		t.Errorf("run: %v; the other's lock was there: %v", err, gone)
	}
}

func TestSecondRunHasNothingToDoAndWritesNothing(t *testing.T) {
	l := newLab(t)
	l.write(diamond)
	l.want(l.mustRun(), EventDone, "light.c", "light.d", "toy.a", "toy.b")
	if got, want := l.text("light.d"), "d\nb\na\nc\na\n"; got != want {
		t.Errorf("output of d: got %q, want %q", got, want)
	}
	before := tree(t, l.storeDir)
	r := l.mustRun()
	if len(r.events) != 1 || r.events[0].Kind != EventEnded || r.events[0].Counts[string(UpToDate)] != 4 {
		t.Errorf("second run: got %s, want the end alone", r.text())
	}
	if after := tree(t, l.storeDir); !maps.Equal(before, after) {
		t.Error("the second run wrote to the store")
	}
	if n := len(l.counted()); n != 4 {
		t.Errorf("stages ran %d times, want 4", n)
	}
}

func TestOnlyStagesBelowAChangeRunAndUnchangedOutputsStopIt(t *testing.T) {
	l := newLab(t)
	l.write(diamond)
	l.mustRun()
	l.write(strings.Replace(diamond, `"b"
  count`, `"B"
  count`, 1))
	r := l.mustRun()
	l.want(r, EventDone, "light.d", "toy.b")
	// Another setting of a that gives the same bytes: what reads it is kept.
	noted := strings.Replace(diamond, `text  = "a"`, `text  = "a"
  note  = "in the key, not in the output"`, 1)
	l.write(noted)
	r = l.mustRun()
	l.want(r, EventDone, "toy.a")
	l.want(r, EventKept, "light.c", "light.d", "toy.b")
	starts := len(l.counted())
	l.write("# a comment\n" + noted)
	r = l.mustRun()
	l.want(r, EventDone)
	l.want(r, EventKept)
	// And back again: everything is still there.
	l.write(diamond)
	l.want(l.mustRun(), EventDone)
	if got := len(l.counted()); got != starts {
		t.Errorf("starts: got %d, want %d as before", got, starts)
	}
}

func TestHeavyStagesGetTheirShareOfTheMachine(t *testing.T) {
	l := newLab(t)
	l.write(`
stage "toy" "a" {
  count = "$dir/count"
  resources {
    cpus = 3
    gpus = 2
  }
}
stage "toy" "b" {
  from = [stage.toy.a.out]
  count = "$dir/count"
}
`)
	l.mustRun()
	b, _ := os.ReadFile(filepath.Join(l.dir, "count"))
	want := "stage.toy.a threads=3 gpus=0,1\nstage.toy.b threads=1 gpus=\n"
	if string(b) != want {
		t.Errorf("shares: got %q, want %q", b, want)
	}
	l.write(`
stage "toy" "a" {
  text = "more"
  resources {
    gpus = 4
  }
}
`)
	if r := l.run(RunOptions{}); r.err == nil || !strings.Contains(r.err.Error(), "needs 4 GPUs, and this machine offers 3") {
		t.Errorf("too many GPUs: got %v, want a refusal before anything runs", r.err)
	}
}

const failing = `
stage "toy" "a" {
  text = "a"
}
stage "toy" "bad" {
  from = [stage.toy.a.out]
  fail = "the loss is not a number"
}
stage "toy" "below" {
  from = [stage.toy.bad.out]
}
stage "light" "beside" {
  from = [stage.toy.a.out, stage.toy.late.out]
}
stage "toy" "late" {
  from = [stage.toy.a.out]
  text = "late"
  resources {
    cpus = 4
  }
}
stage "page" "report" {
  from = [stage.toy.bad.out, stage.toy.a.out, stage.toy.below.out]
  text = "page"
}
`

func TestFailureIsToldOnceWithItsLogAndOnlyItsReadersAreSkipped(t *testing.T) {
	l := newLab(t)
	l.write(failing)
	r := l.run(RunOptions{KeepGoing: true})
	var e *RunError
	if !errors.As(r.err, &e) || !slices.Equal(e.Failed, []string{"stage.toy.bad"}) || !slices.Equal(e.Skipped, []string{"stage.toy.below"}) {
		t.Fatalf("run: got %v, want toy.bad failed and toy.below skipped", r.err)
	}
	l.want(r, EventFailed, "toy.bad")
	l.want(r, EventDone, "light.beside", "toy.a", "toy.late")
	failed, _ := r.find(EventFailed, "toy.bad")
	if f := failed.Failure; f == nil || f.Text != "the loss is not a number" || !slices.Contains(f.Lines, "about to fail") || f.Work == "" {
		t.Errorf("failure: got %+v, want the error, the log's lines and the scratch folder", failed.Failure)
	}
	if b, err := os.ReadFile(failed.Failure.Log); err != nil || !strings.Contains(string(b), "about to fail") {
		t.Errorf("log: got %q, %v", b, err)
	}
	// The page ran, says what is missing, is published and not kept.
	l.want(r, EventShown, "page.report")
	got, err := os.ReadFile(filepath.Join(l.dir, "page.txt"))
	want := "page\nstage.toy.bad is missing: it failed: the loss is not a number\na\n" +
		"stage.toy.below is missing: it was skipped: stage.toy.bad failed\n"
	if err != nil || string(got) != want {
		t.Errorf("page: got %q, %v, want %q", got, err, want)
	}
	for _, n := range l.plan().Nodes {
		if ShortAddress(n.Address) == "page.report" && n.Verb == UpToDate {
			t.Error("the page made without its inputs was kept")
		}
	}
	// Mended, it goes on from there.
	l.write(strings.Replace(failing, `fail = "the loss is not a number"`, "", 1))
	l.want(l.mustRun(), EventDone, "page.report", "toy.bad", "toy.below")
}

func TestAfterAFailureNothingNewStartsWithoutKeepGoing(t *testing.T) {
	l := newLab(t)
	l.write(failing)
	p := l.plan()
	for _, n := range p.Nodes { // the failing stage is on the longest path, so it comes first
		if ShortAddress(n.Address) == "toy.bad" {
			n.Estimate = time.Hour
		}
	}
	r := l.runPlan(t.Context(), p, RunOptions{})
	l.want(r, EventDone, "toy.a")
	l.want(r, EventSkipped, "light.beside", "toy.below", "toy.late")
	l.want(r, EventShown, "page.report")
}

func TestPanicOfALightStageIsItsFailure(t *testing.T) {
	l := newLab(t)
	l.write(`
stage "light" "a" {
  panic = true
}
`)
	r := l.run(RunOptions{})
	failed, ok := r.find(EventFailed, "light.a")
	if !ok || failed.Text != "panic: a mistake in a kind" || len(failed.Failure.Lines) == 0 {
		t.Errorf("got %s, want a failure with the stack in the log", r.text())
	}
}

// A stage's process says in a sentence what broke, also where the stage's own Run has not begun or is over, and never ends
// with a trace of Go.
func TestPanicOfAStageProcessIsASentence(t *testing.T) {
	l := newLab(t)
	l.write("stage \"toy\" \"a\" {\n}\n")
	l.mustRun()
	runs, err := filepath.Glob(filepath.Join(l.storeDir, "runs", "x", "*"))
	if err != nil || len(runs) != 1 {
		t.Fatalf("got %v, %v, want one run", runs, err)
	}
	broken := toys()
	broken[0].New = func() Stage { panic("a mistake in a kind") }
	var stderr strings.Builder
	if code := NodeMain(runs[0], "stage.toy.a", broken, &stderr); code != 1 {
		t.Errorf("exit code: got %d, want 1", code)
	}
	if got := stderr.String(); !strings.Contains(got, "stage.toy.a ended by a mistake of the program: a mistake in a kind") || strings.Contains(got, "goroutine") {
		t.Errorf("got %q, want a sentence", got)
	}
}

func TestRetriesFollowTheCauseOfTheFailure(t *testing.T) {
	for name, tc := range map[string]struct {
		settings string
		starts   int
		ok       bool
	}{
		"a named cause":                   {"fail = \"x\"\n cause = \"oom\"\n until = 3\n retry {\n attempts = 3\n on = [\"oom\"]\n }", 3, true},
		"too few attempts":                {"fail = \"x\"\n cause = \"oom\"\n until = 3\n retry {\n attempts = 2\n on = [\"oom\"]\n }", 2, false},
		"another cause":                   {"fail = \"x\"\n cause = \"nan\"\n until = 2\n retry {\n attempts = 3\n on = [\"oom\"]\n }", 1, false},
		"a deterministic error":           {"fail = \"x\"\n until = 2\n retry {\n attempts = 3\n on = [\"oom\", \"nan\", \"timeout\", \"preempted\"]\n }", 1, false},
		"a pattern of the text":           {"fail = \"link down\"\n until = 2\n retry {\n attempts = 2\n on = [\"link (down|lost)\"]\n }", 2, true},
		"an allocator's words, unlabeled": {"fail = \"CUDA out of memory\"\n until = 2\n retry {\n attempts = 2\n on = [\"oom\"]\n }", 2, true},
	} {
		t.Run(name, func(t *testing.T) {
			l := newLab(t)
			l.write("stage \"toy\" \"a\" {\n count = \"$dir/count\"\n " + tc.settings + "\n}\n")
			r := l.run(RunOptions{})
			if (r.err == nil) != tc.ok || len(l.counted()) != tc.starts {
				t.Errorf("got %v after %d starts, want success %v after %d\n%s", r.err, len(l.counted()), tc.ok, tc.starts, r.text())
			}
		})
	}
}

func TestTimeoutStopsAStageAndIsACause(t *testing.T) {
	l := newLab(t)
	l.gate() // nobody lets the stage in, whether it has come that far or not
	l.write(`
stage "toy" "a" {
  gate    = "$dir/gate"
  timeout = "100ms"
}
`)
	r := l.run(RunOptions{})
	failed, ok := r.find(EventFailed, "toy.a")
	if !ok || failed.Failure.Cause != CauseTimeout || !strings.Contains(failed.Text, "timeout of 100ms") {
		t.Errorf("got %s, want a failure with cause timeout", r.text())
	}
}

func TestInterruptLetsStagesSaveAndTheNextRunResumes(t *testing.T) {
	l := newLab(t)
	g := l.gate()
	l.write(`
stage "toy" "a" {
  gate = "$dir/gate"
}
stage "toy" "b" {
  from = [stage.toy.a.out]
}
`)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan record)
	go func() { done <- l.runPlan(ctx, l.plan(), RunOptions{}) }()
	g.next()
	cancel()
	r := <-done
	if !errors.Is(r.err, ErrInterrupted) {
		t.Fatalf("run: got %v, want ErrInterrupted\n%s", r.err, r.text())
	}
	l.want(r, EventFailed)
	go func() { done <- l.run(RunOptions{}) }()
	g.next().pass()
	r = <-done
	l.want(r, EventDone, "toy.a", "toy.b")
	started, _ := r.find(EventStarted, "toy.a")
	if b, _ := os.ReadFile(started.Path); !strings.Contains(string(b), "resumed from 1") {
		t.Errorf("log of the second run: got %q, want that it resumed", b)
	}
	if left, _ := os.ReadDir(filepath.Join(l.storeDir, "work")); len(left) > 0 {
		t.Errorf("scratch folders left: %v", left)
	}
}

// The engine is killed after its first event, after its second, and so on: wherever it was, a plain run afterwards comes
// to the same bytes and repeats nothing that was committed.
func TestKillAfterAnyEventConverges(t *testing.T) {
	undisturbed := newLab(t)
	undisturbed.write(diamond)
	undisturbed.mustRun()
	want := undisturbed.digests()
	for k := 1; ; k++ {
		l := newLab(t)
		l.write(diamond)
		engine := l.engine()
		out, err := engine.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := engine.Start(); err != nil {
			t.Fatal(err)
		}
		var done []string
		lines, last := bufio.NewScanner(out), ""
		for range k {
			if !lines.Scan() {
				break
			}
			last = lines.Text()
			if address, ok := strings.CutPrefix(last, "done "); ok {
				done = append(done, strings.TrimSpace(address))
			}
		}
		engine.Process.Kill()
		engine.Wait()
		r := l.mustRun()
		if got := l.digests(); !maps.Equal(got, want) {
			t.Errorf("killed after event %d (%s): got digests %v, want %v", k, last, got, want)
		}
		for _, address := range done {
			if slices.Contains(r.of(EventStarted), ShortAddress(address)) {
				t.Errorf("killed after event %d (%s): %s was committed and ran again", k, last, address)
			}
		}
		l.tidy() // an idle run writes nothing, so it leaves this to the next
		if strings.HasPrefix(last, string(EventEnded)) {
			break
		}
	}
}

func TestKilledStageFailsWithItsSignal(t *testing.T) {
	l := newLab(t)
	g := l.gate()
	l.write(`
stage "toy" "a" {
  gate = "$dir/gate"
}
`)
	done := make(chan record)
	go func() { done <- l.run(RunOptions{}) }()
	syscall.Kill(g.next().pid, syscall.SIGKILL)
	r := <-done
	failed, ok := r.find(EventFailed, "toy.a")
	if !ok || failed.Failure.Cause != CauseKilled || !strings.Contains(failed.Text, "SIGKILL") {
		t.Errorf("got %s, want a failure that names the signal", r.text())
	}
}

func TestTwoRunsAtOnceRunEachStageOnce(t *testing.T) {
	l := newLab(t)
	g := l.gate()
	l.write(`
stage "toy" "a" {
  gate  = "$dir/gate"
  count = "$dir/count"
}
stage "toy" "b" {
  from  = [stage.toy.a.out]
  count = "$dir/count"
}
`)
	first := make(chan record)
	go func() { first <- l.run(RunOptions{}) }()
	inside := g.next()
	second := make(chan record)
	waits := make(chan struct{})
	go func() {
		var r record
		var once sync.Once
		r.err = l.plan().Run(t.Context(), RunOptions{}, func(e Event) {
			r.events = append(r.events, e)
			if e.Kind == EventNote && strings.HasPrefix(e.Text, "waiting") {
				once.Do(func() { close(waits) })
			}
		})
		second <- r
	}()
	<-waits
	inside.pass()
	for _, r := range []record{<-first, <-second} {
		if r.err != nil {
			t.Errorf("run: %v\n%s", r.err, r.text())
		}
		if done, kept := r.of(EventDone), r.of(EventKept); len(done)+len(kept) != 2 {
			t.Errorf("got done %v and kept %v, want two stages in all", done, kept)
		}
	}
	if got := l.counted(); !slices.Equal(got, []string{"stage.toy.a", "stage.toy.b"}) {
		t.Errorf("starts: got %v, want each stage once", got)
	}
}

func TestNodesWithEqualKeysRunOnce(t *testing.T) {
	l := newLab(t)
	l.write(`
stage "toy" "a" {
  text  = "same"
  count = "$dir/count"
}
stage "toy" "b" {
  text  = "same"
  count = "$dir/count"
}
`)
	r := l.mustRun()
	if len(l.counted()) != 1 || len(r.of(EventKept)) != 1 {
		t.Errorf("starts: got %v, want one\n%s", l.counted(), r.text())
	}
}

func TestDeletedArtifactIsMadeAgainAlone(t *testing.T) {
	l := newLab(t)
	l.write(diamond)
	l.mustRun()
	before := l.digests()
	for _, n := range l.plan().Nodes {
		if ShortAddress(n.Address) == "toy.b" {
			if err := os.RemoveAll(filepath.Join(l.storeDir, "objects", n.Manifest.Outputs["out"].Digest)); err != nil {
				t.Fatal(err)
			}
		}
	}
	r := l.mustRun()
	l.want(r, EventDone, "toy.b")
	if !maps.Equal(before, l.digests()) {
		t.Error("other digests than before")
	}
}

func TestCollectedResultsAreMadeAgainOnlyForWhoReadsThem(t *testing.T) {
	l := newLab(t)
	l.write(diamond)
	l.mustRun()
	if _, err := l.store().Collect(1); err != nil { // everything goes, the manifests stay
		t.Fatal(err)
	}
	r := l.run(RunOptions{})
	if r.err != nil {
		t.Fatal(r.err)
	}
	l.want(r, EventDone)
	l.write(strings.Replace(diamond, `text  = "c"`, `text  = "C"`, 1))
	r = l.mustRun()
	// c reads a, and d reads b and c.
	l.want(r, EventDone, "light.c", "light.d", "toy.a", "toy.b")
}

func TestPublishedFilesAreCopiesRestoredAndKeptAside(t *testing.T) {
	l := newLab(t)
	stages := `
stage "page" "report" {
  text = "one"
}
`
	l.write(stages)
	l.mustRun()
	path := filepath.Join(l.dir, "page.txt")
	read := func(path string) string {
		b, err := os.ReadFile(path)
		if err != nil {
			t.Error(err)
		}
		return string(b)
	}
	if got := read(path); got != "one\n" {
		t.Fatalf("published: got %q", got)
	}
	os.Remove(path)
	r := l.mustRun()
	if e, ok := r.find(EventFile, ""); !ok || e.Text != "restored" || read(path) != "one\n" {
		t.Errorf("removed: got %s, want it restored", r.text())
	}
	os.WriteFile(path, []byte("mine"), 0o644)
	r = l.mustRun()
	if e, ok := r.find(EventFile, ""); !ok || !strings.Contains(e.Text, "page.txt.edited") || read(path) != "one\n" || read(path+".edited") != "mine" {
		t.Errorf("edited: got %s, want it kept aside and restored", r.text())
	}
	l.want(l.mustRun(), EventFile)
	l.write(strings.Replace(stages, "one", "two", 1))
	l.mustRun()
	if read(path) != "two\n" {
		t.Error("a new result is not published")
	}
	if _, err := os.Stat(path + ".edited.2"); err == nil {
		t.Error("a copy nobody edited was kept aside")
	}
}

func TestEventsFileHoldsWhatWasTold(t *testing.T) {
	l := newLab(t)
	l.write(diamond)
	r := l.mustRun()
	folders, err := runFolders(l.store(), "x")
	if err != nil || len(folders) != 1 {
		t.Fatalf("run folders: got %v, %v, want one", folders, err)
	}
	f, err := os.Open(folders[0].path("events.jsonl"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	var told []Event
	for _, e := range r.events {
		if e.Kind != EventProgress {
			told = append(told, e)
		}
	}
	var written []Event
	if _, err := ReadEvents(f, func(e Event) {
		if e.Kind != EventProgress {
			written = append(written, e)
		}
	}); err != nil {
		t.Fatal(err)
	}
	a, _ := json.Marshal(told)
	b, _ := json.Marshal(written)
	if string(a) != string(b) {
		t.Errorf("events.jsonl: got %s, want %s", b, a)
	}
}
