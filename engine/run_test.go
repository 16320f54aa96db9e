package engine_test

import (
	"bufio"
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"rcgrpo/engine"
	"rcgrpo/engine/enginetest"
	"rcgrpo/engine/lang"
	"rcgrpo/engine/plan"
	"rcgrpo/engine/runs"
	"rcgrpo/internal/must"
)

//go:embed testdata/toys/diamond.hcl
var diamond string

// modTimes maps every file below dir to its modification time.
func modTimes(t *testing.T, dir string) map[string]time.Time {
	t.Helper()
	all := map[string]time.Time{}
	must.OK(t, filepath.Walk(dir, func(path string, info fs.FileInfo, err error) error {
		if err == nil {
			all[path] = info.ModTime()
		}
		return err
	}))
	return all
}

// Between clone and exec, the child of a killed run holds all of its locks for an instant.
func TestRunRemovesAtItsEndLeftoversThatWereLockedAtItsStart(t *testing.T) {
	l := newLab(t, diamond) // checks for locks that are left
	lock := must.Get(l.Store().TryLock(strings.Repeat("ab", 32)))(t)
	released := false
	r := l.RunPlan(t.Context(), l.Plan(), engine.Options{}, func(e runs.Event) {
		if e.Kind == runs.EventPlanned {
			released = lock.File().Close() == nil
		}
	})
	if r.Err != nil || !released {
		t.Errorf("run: got %v; lock of the other process released: got %v, want true", r.Err, released)
	}
}

func TestSecondRunHasNothingToDoAndWritesNothing(t *testing.T) {
	l := newLab(t, diamond)
	l.Want(l.MustRun(), runs.EventDone, "light.c", "light.d", "toy.a", "toy.b")
	wantEqual(t, "output of d", l.Text("light.d"), "d\nb\na\nc\na\n")
	before := modTimes(t, l.StoreDir)
	r := l.MustRun()
	if e := r.Events[0]; len(r.Events) != 1 || e.Kind != runs.EventEnded || e.Counts[string(plan.UpToDate)] != 4 {
		t.Errorf("second run: got %s, want only the end", r)
	}
	wantEqual(t, "times of the files in the store", modTimes(t, l.StoreDir), before)
	wantEqual(t, "number of starts", len(l.Starts()), 4)
}

func TestOnlyStagesBelowAChangeRunAndUnchangedOutputsStopIt(t *testing.T) {
	l := enginetest.NewLab(t)
	noted := strings.Replace(diamond, `text  = "a"`, "text = \"a\"\n  note = \"in the key, not in the output\"", 1)
	for _, step := range []struct {
		change, stages string
		done, kept     []string
	}{
		{"first run", diamond, []string{"light.c", "light.d", "toy.a", "toy.b"}, nil},
		{"setting of b", strings.Replace(diamond, `text  = "b"`, `text  = "B"`, 1), []string{"light.d", "toy.b"}, nil},
		{"setting of a that keeps its output", noted, []string{"toy.a"}, []string{"light.c", "light.d", "toy.b"}},
		{"comment", "# a comment\n" + noted, nil, nil},
		{"back to the first text", diamond, nil, nil},
	} {
		l.Write(step.stages)
		r := l.MustRun()
		wantList(t, step.change+": done", r.Of(runs.EventDone), step.done...)
		wantList(t, step.change+": kept", r.Of(runs.EventKept), step.kept...)
	}
}

func TestStagesReceiveTheirShareOfTheMachine(t *testing.T) {
	l := newLab(t, toyStage("a", "resources {\n cpus = 3\n gpus = 2\n}")+toyStage("b", "from = [stage.toy.a.out]"))
	l.MustRun()
	wantEqual(t, "shares", l.Read("count"), "stage.toy.a threads=3 gpus=0,1\nstage.toy.b threads=1 gpus=\n")
	l.Write(toyStage("a", "text = \"more\"\n resources {\n gpus = 4\n}"))
	must.Contain(t, fmt.Sprint(l.Run(engine.Options{}).Err), "stage.toy.a", "4 GPUs", "this machine offers 3")
}

//go:embed testdata/toys/failing.hcl
var failing string

func TestFailureIsReportedOnceWithItsLogAndOnlyItsReadersAreSkipped(t *testing.T) {
	l := newLab(t, failing)
	r := l.Run(engine.Options{KeepGoing: true})
	var e *engine.RunError
	if !errors.As(r.Err, &e) {
		t.Fatalf("run: got %v, want a RunError", r.Err)
	}
	wantList(t, "failed", e.Failed, "stage.toy.bad")
	wantList(t, "skipped", e.Skipped, "stage.toy.below")
	l.Want(r, runs.EventDone, "light.beside", "toy.a", "toy.late")
	l.Want(r, runs.EventFailed, "toy.bad")
	f := wantFailure(t, r, "toy.bad", "", "the loss is not a number")
	if !slices.Contains(f.Lines, "about to fail") || f.Work == "" {
		t.Errorf("failure: got %+v, want the error, the log's lines and the scratch folder", f)
	}
	if b, err := os.ReadFile(f.Log); err != nil || !strings.Contains(string(b), "about to fail") {
		t.Errorf("log: got %q, %v, want the stage's output", b, err)
	}
	// The page ran, names the missing inputs, is published but not committed.
	l.Want(r, runs.EventShown, "page.report")
	want := "page\nstage.toy.bad is missing: it failed: the loss is not a number\na\n" +
		"stage.toy.below is missing: it was skipped: stage.toy.bad failed\n"
	wantEqual(t, "page", l.Read("page.txt"), want)
	if l.Planned("page.report").Verb == plan.UpToDate {
		t.Error("the page that was made without its inputs is up to date")
	}
	l.Write(strings.Replace(failing, `fail = "the loss is not a number"`, "", 1))
	l.Want(l.MustRun(), runs.EventDone, "page.report", "toy.bad", "toy.below")
}

// The key has the digest of the file as the plan read it, so a result of another content would be found under it.
func TestAFileThatChangesDuringARunLeavesNoResult(t *testing.T) {
	for name, tc := range map[string]struct{ data, shell string }{
		"a file":                     {`file("data.txt")`, "echo new > $lab/data.txt"},
		"a file of a folder":         {`dir("folder")`, "echo new > $lab/folder/data.txt"},
		"another file in the folder": {`dir("folder")`, "touch $lab/folder/more.txt"},
		"a removed file":             {`file("data.txt")`, "rm $lab/data.txt"},
		"a file with the old time": {`file("data.txt")`,
			"touch -r $lab/data.txt t; echo new > $lab/data.txt; touch -r t $lab/data.txt"},
		"the same content again":  {`file("data.txt")`, "echo old > $lab/data.txt"},
		"a name that is left out": {`dir("folder", ["out"])`, "touch $lab/folder/out"},
	} {
		t.Run(name, func(t *testing.T) {
			l := newLab(t, "")
			t.Setenv("LAB", l.Dir)
			must.OK(t, os.MkdirAll(filepath.Join(l.Dir, "folder"), 0o700))
			for _, file := range []string{"data.txt", "folder/data.txt"} {
				must.OK(t, os.WriteFile(filepath.Join(l.Dir, file), []byte("old\n"), 0o600))
			}
			l.Write(fmt.Sprintf("stage \"toy\" \"a\" {\n  data = [%s]\n  shell = %q\n}\n", tc.data, tc.shell))
			r := l.Run(engine.Options{})
			if strings.Contains(name, "same") || strings.Contains(name, "left out") {
				must.OK(t, r.Err)
				return
			}
			wantFailure(t, r, "toy.a", "", filepath.Base(strings.Trim(strings.Split(tc.data, `"`)[1], "/")))
			if manifests, _, _ := l.Store().Manifests(); len(manifests) != 0 {
				t.Errorf("the store has %d results", len(manifests))
			}
		})
	}
}

func TestAfterAFailureNoStageStartsWithoutKeepGoing(t *testing.T) {
	l := newLab(t, failing)
	p := l.Plan()
	for _, n := range p.Nodes { // on the longest path, so the failing stage starts first
		if lang.ShortAddress(n.Address) == "toy.bad" {
			n.Estimate = time.Hour
		}
	}
	r := l.RunPlan(t.Context(), p, engine.Options{})
	l.Want(r, runs.EventDone, "toy.a")
	l.Want(r, runs.EventSkipped, "light.beside", "toy.below", "toy.late")
	l.Want(r, runs.EventShown, "page.report")
}

func TestPanicOfAStageInsideTheEngineIsItsFailure(t *testing.T) {
	l := newLab(t, "stage \"light\" \"a\" {\n  panic = true\n}\n")
	f := wantFailure(t, l.Run(engine.Options{}), "light.a", "", "panic: a mistake in a kind")
	if len(f.Lines) == 0 {
		t.Error("got no lines of the log, want the stack")
	}
}

// The rule also holds before the stage's Run begins and after it ends.
func TestPanicOfAStageProcessIsASentenceWithoutAStack(t *testing.T) {
	l := newLab(t, toyStage("a", ""))
	l.MustRun()
	broken := enginetest.ToyKinds()
	broken[0].New = func() lang.Stage { panic("a mistake in a kind") }
	var stderr strings.Builder
	folder := string(l.Runs()[0].Folder)
	wantEqual(t, "exit code", engine.NodeMain(folder, "stage.toy.a", broken, &stderr, nil), 1)
	got, want := stderr.String(), "stage.toy.a ended with a bug in the program: a mistake in a kind"
	if !strings.Contains(got, want) || strings.Contains(got, "goroutine") {
		t.Errorf("got %q, want %q and no stack", got, want)
	}
}

func TestRetriesFollowTheCauseOfTheFailure(t *testing.T) {
	for name, tc := range map[string]struct {
		settings string
		attempts int
		on       string
		starts   int
		ok       bool
	}{
		"the cause is named":              {"fail = \"x\"\n cause = \"oom\"\n until = 3", 3, `"oom"`, 3, true},
		"too few attempts":                {"fail = \"x\"\n cause = \"oom\"\n until = 3", 2, `"oom"`, 2, false},
		"another cause is named":          {"fail = \"x\"\n cause = \"nan\"\n until = 2", 3, `"oom"`, 1, false},
		"the error has no cause":          {"fail = \"x\"\n until = 2", 3, `"oom", "nan", "timeout"`, 1, false},
		"a pattern matches the text":      {"fail = \"link down\"\n until = 2", 2, `"link (down|lost)"`, 2, true},
		"the text is that of an OOM":      {"fail = \"CUDA out of memory\"\n until = 2", 2, `"oom"`, 2, true},
		"a pattern matches no cause text": {"fail = \"x\"\n until = 2", 2, `"link (down|lost)"`, 1, false},
	} {
		t.Run(name, func(t *testing.T) {
			retry := fmt.Sprintf("\n retry {\n attempts = %d\n on = [%s]\n }", tc.attempts, tc.on)
			l := newLab(t, toyStage("a", tc.settings+retry))
			r := l.Run(engine.Options{})
			if got := len(l.Starts()); (r.Err == nil) != tc.ok || got != tc.starts {
				t.Errorf("got %v after %d starts, want success %v after %d\n%s", r.Err, got, tc.ok, tc.starts, r)
			}
		})
	}
}

// Between two attempts a stage holds no CPU, so that others run. In the end the interrupt also ends the pause.
func TestAStageHoldsNoShareBeforeItsNextAttempt(t *testing.T) {
	all := "\n resources {\n cpus = 4\n }\n"
	l := newLab(t, toyStage("a", all+"fail = \"x\"\n retry {\n attempts = 2\n on = [\"x\"]\n backoff = \"1h\"\n }")+
		toyStage("b", all+"text = \"b\""))
	ctx, cancel := context.WithCancel(t.Context())
	r := l.RunPlan(ctx, l.Plan(), engine.Options{KeepGoing: true}, func(e runs.Event) {
		if e.Kind == runs.EventDone {
			cancel()
		}
	})
	must.Match(t, r.Err, engine.ErrInterrupted.Error())
	l.Want(r, runs.EventDone, "toy.b")
	wantList(t, "starts", l.Starts(), "stage.toy.a", "stage.toy.b")
}

// gated waits at the gate; below reads it.
var gated = toyStage("a", `gate = "$dir/gate"`) + toyStage("below", "from = [stage.toy.a.out]")

func TestTimeoutStopsAStageAndIsACause(t *testing.T) {
	l := newLab(t, toyStage("a", "gate = \"$dir/gate\"\n timeout = \"100ms\""))
	l.Gate() // never lets the stage pass
	wantFailure(t, l.Run(engine.Options{}), "toy.a", lang.CauseTimeout, "timeout of 100ms")
}

// The engine is killed after its first event, after its second, and so on. A plain run afterwards gives the
// same results and repeats no committed stage.
func TestKillAfterAnyEventConverges(t *testing.T) {
	want := digestsOf(t, diamond)
	for k := 1; ; k++ {
		l := newLab(t, diamond)
		cmd := l.Engine()
		out := must.Get(cmd.StdoutPipe())(t)
		must.OK(t, cmd.Start())
		var done []string
		lines, last := bufio.NewScanner(out), ""
		for n := 0; n < k && lines.Scan(); n++ {
			last = lines.Text()
			if address, ok := strings.CutPrefix(last, "done "); ok {
				done = append(done, lang.ShortAddress(strings.TrimSpace(address)))
			}
		}
		cmd.Process.Kill()
		cmd.Wait()
		r := l.MustRun()
		wantDigests(l, fmt.Sprintf("after a kill at event %d (%s)", k, last), want)
		for _, address := range done {
			if slices.Contains(r.Of(runs.EventStarted), address) {
				t.Errorf("killed after event %d (%s): %s was committed and ran again", k, last, address)
			}
		}
		if strings.HasPrefix(last, string(runs.EventEnded)) {
			break
		}
	}
}

func TestTwoRunsAtOnceRunEachStageOnce(t *testing.T) {
	l := newLab(t, gated)
	g := l.Gate()
	first := l.Start(t.Context(), l.Plan())
	inside := g.Next()
	notes, second := startNoted(l)
	must.Contain(t, <-notes, "waiting")
	inside.Pass()
	for _, r := range []enginetest.Outcome{<-first, <-second} {
		if done, kept := r.Of(runs.EventDone), r.Of(runs.EventKept); r.Err != nil || len(done)+len(kept) != 2 {
			t.Errorf("got %v, done %v and kept %v, want two stages in total\n%s", r.Err, done, kept, r)
		}
	}
	wantList(t, "starts", l.Starts(), "stage.toy.a", "stage.toy.below")
}

func TestNodesWithEqualKeysRunOnce(t *testing.T) {
	l := newLab(t, toyStage("a", "")+toyStage("b", ""))
	got := enginetest.Causes(l.Plan())
	wantEqual(t, "plan", got, map[string]string{"toy.a": "run: new",
		"toy.b": "run unless unchanged: same key as stage.toy.a, which runs"})
	r := l.MustRun()
	l.Want(r, runs.EventDone, "toy.a")
	l.Want(r, runs.EventKept, "toy.b")
	wantList(t, "starts", l.Starts(), "stage.toy.a")
}

// A run does not change the plan of its caller, even if gc removed results in between, so that the run plans again and
// makes them again.
func TestRunDoesNotChangeThePlanOfItsCaller(t *testing.T) {
	l := newLab(t, faultyRun)
	l.MustRun()
	l.Write(strings.Replace(faultyRun, "text  = \"a\"", "text  = \"other\"", 1))
	p := l.Plan()
	snapshot := func() (text string) {
		for _, n := range p.Nodes {
			result := must.Get(json.Marshal(n.Manifest))(t)
			text += fmt.Sprintln(n.Address, n.Verb, n.Cause.Text, n.Key, n.DuplicateOf != nil, n.Estimate, string(result))
		}
		return text
	}
	before, nodes := snapshot(), slices.Clone(p.Nodes)
	must.Get(l.Store().Collect(1, runs.Pins))(t)
	wantSuccess(t, l.RunPlan(t.Context(), p, engine.Options{}))
	wantEqual(t, "the plan after its run", snapshot(), before)
	if !slices.Equal(p.Nodes, nodes) {
		t.Error("the run has put other nodes into the plan")
	}
}
