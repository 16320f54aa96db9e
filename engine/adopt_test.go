package engine

import (
	"context"
	"errors"
	"maps"
	"os"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"rcgrpo/engine/lang"
	"rcgrpo/engine/proc"
	"rcgrpo/engine/runs"
)

const outliving = `
stage "toy" "a" {
  text  = "a"
  draw  = true
  count = "$dir/count"
}
stage "toy" "b" {
  from  = [stage.toy.a.out]
  text  = "b"
  gate  = "$dir/gate"
  count = "$dir/count"
}
stage "toy" "c" {
  from  = [stage.toy.b.out]
  count = "$dir/count"
}
`

// killedEngine starts an engine on the experiment, waits until a stage is at the gate and kills the engine.
func (l *lab) killedEngine(g *gate) visitor {
	l.Helper()
	engine := l.engine()
	if err := engine.Start(); err != nil {
		l.Fatal(err)
	}
	inside := g.next()
	if err := engine.Process.Kill(); err != nil {
		l.Fatal(err)
	}
	engine.Wait()
	return inside
}

// adopting starts a run and waits until it has adopted a stage.
func (l *lab) adopting(ctx context.Context) (done chan record) {
	l.Helper()
	done = make(chan record, 1)
	adopted := make(chan struct{})
	go func() {
		var r record
		r.err = Run(l.plan(), ctx, Options{}, func(e runs.Event) {
			r.events = append(r.events, e)
			if e.Kind == runs.EventAdopted {
				close(adopted)
			}
		})
		done <- r
	}()
	select {
	case <-adopted:
	case r := <-done:
		l.Fatalf("nothing was adopted: %v\n%s", r.err, r.text())
	case <-time.After(30 * time.Second):
		l.Fatal("nothing was adopted")
	}
	return done
}

func TestStageOutlivesItsEngineAndTheNextRunAdoptsIt(t *testing.T) {
	undisturbed := newLab(t)
	undisturbed.write(strings.ReplaceAll(outliving, `gate  = "$dir/gate"`, ""))
	undisturbed.mustRun()

	l := newLab(t)
	g := l.gate()
	l.write(outliving)
	inside := l.killedEngine(g)

	path, live, err := runs.logOf(l.store(), "x", "stage.toy.b")
	if err != nil || !live {
		t.Errorf("log of the living stage: got %q, live %v, %v, want that it goes on", path, live, err)
	}
	all, err := runs.Orphans(l.store())
	if err != nil || len(all) != 1 || all[0].Address != "stage.toy.b" || all[0].PID != inside.pid || all[0].Adopted ||
		!strings.Contains(all[0].Text(time.Now()), "1/2 halves") {
		t.Errorf("survivors: got %+v, %v, want toy.b with its progress", all, err)
	}

	before, err := runs.Folders(l.store(), "x")
	if err != nil || len(before) != 1 {
		t.Fatalf("runs: got %v, %v, want one", before, err)
	}
	dead, err := runs.ReadStatus(before[0])
	if err != nil || dead.Live || dead.Ended {
		t.Errorf("the killed run: got %+v, %v, want neither live nor ended", dead, err)
	}
	for _, n := range dead.Nodes {
		if want := n.Address == "stage.toy.b"; n.Survives != want {
			t.Errorf("%s survives: got %v, want %v", n.Address, n.Survives, want)
		}
	}

	done := l.adopting(t.Context())
	if all, err := runs.Orphans(l.store()); err != nil || len(all) != 1 || !all[0].Adopted {
		t.Errorf("survivors: got %+v, %v, want an adopted one", all, err)
	}
	folders, err := runs.Folders(l.store(), "x")
	if err != nil || len(folders) != 2 {
		t.Fatalf("runs: got %v, %v, want two", folders, err)
	}
	s, err := runs.ReadStatus(folders[0])
	if err != nil || !s.Live {
		t.Errorf("the new run: got %+v, %v, want a live one", s, err)
	}
	for _, n := range s.Nodes {
		if n.Address == "stage.toy.b" && (n.State != runs.EventStarted || time.Since(n.Started) > time.Minute) {
			t.Errorf("toy.b in the new run: got %+v, want that it runs", n)
		}
	}
	path, live, err = runs.logOf(l.store(), "x", "stage.toy.b")
	if err != nil || !live || !strings.HasPrefix(path, folders[0]) {
		t.Errorf("log of the adopted stage: got %q, live %v, %v, want it through the new run", path, live, err)
	}
	if _, err := os.ReadFile(path); err != nil {
		t.Error(err)
	}
	inside.pass()
	r := <-done
	if r.err != nil {
		t.Fatal(r.err, r.text())
	}
	l.want(r, runs.EventDone, "toy.b", "toy.c")
	l.want(r, runs.EventStarted, "toy.c")
	if e, _ := r.find(runs.EventAdopted, "toy.b"); !strings.Contains(e.Text, runs.Name(folders[1])) ||
		!strings.Contains(e.Text, "1/2 halves") {
		t.Errorf("adoption: got %q, want the run and the progress", e.Text)
	}
	if got, want := l.digests(), undisturbed.digests(); !maps.Equal(got, want) {
		t.Errorf("digests: got %v, want those of an undisturbed run, %v", got, want)
	}
	if got, want := l.counted(), []string{"stage.toy.a", "stage.toy.b", "stage.toy.c"}; !slices.Equal(got, want) {
		t.Errorf("starts: got %v, want each stage once", got)
	}
}

func TestInterruptOfTheAdoptingRunStopsTheStage(t *testing.T) {
	l := newLab(t)
	g := l.gate()
	l.write(outliving)
	inside := l.killedEngine(g)
	ctx, cancel := context.WithCancel(t.Context())
	done := l.adopting(ctx)
	cancel()
	if r := <-done; !errors.Is(r.err, ErrInterrupted) {
		t.Errorf("got %v, want ErrInterrupted\n%s", r.err, r.text())
	}
	gonePids(t, []int{inside.pid})
	go func() { done <- l.run(Options{}) }()
	g.next().pass()
	r := <-done
	started, _ := r.find(runs.EventStarted, "toy.b")
	if b, _ := os.ReadFile(started.Path); !strings.Contains(string(b), "resumed from 1") {
		t.Errorf("log of the next run: got %q, want that it resumed from the checkpoint", b)
	}
}

func TestAdoptedStageFailsWithItsCause(t *testing.T) {
	const stage = `
stage "toy" "a" {
  gate  = "$dir/gate"
  count = "$dir/count"
  fail  = "the loss is not a number"
  cause = "nan"
  until = 2
  retry {
    attempts = 2
    on       = ["CAUSE"]
  }
}
`
	t.Run("and starts again where a retry names it", func(t *testing.T) {
		l := newLab(t)
		g := l.gate()
		l.write(strings.Replace(stage, "CAUSE", "nan", 1))
		inside := l.killedEngine(g)
		done := l.adopting(t.Context())
		inside.pass()
		g.next().pass()
		r := <-done
		l.want(r, runs.EventDone, "toy.a")
		if e, ok := r.find(runs.EventStarted, "toy.a"); !ok || e.Attempt != 2 || len(l.counted()) != 2 {
			t.Errorf("got %+v after %d starts, want the second attempt\n%s", e, len(l.counted()), r.text())
		}
	})
	t.Run("and is the run's failure otherwise", func(t *testing.T) {
		l := newLab(t)
		g := l.gate()
		l.write(strings.Replace(stage, "CAUSE", "oom", 1))
		inside := l.killedEngine(g)
		done := l.adopting(t.Context())
		inside.pass()
		r := <-done
		failed, ok := r.find(runs.EventFailed, "toy.a")
		if !ok || failed.Text != "the loss is not a number" || failed.Failure.Cause != lang.CauseNaN ||
			!slices.Contains(failed.Failure.Lines, "about to fail") {
			t.Errorf("got %s, want the failure with cause and log", r.text())
		}
	})
	t.Run("also when somebody killed it", func(t *testing.T) {
		l := newLab(t)
		g := l.gate()
		l.write(strings.Replace(stage, "CAUSE", "nan", 1))
		inside := l.killedEngine(g)
		done := l.adopting(t.Context())
		syscall.Kill(inside.pid, syscall.SIGKILL)
		r := <-done
		if failed, ok := r.find(runs.EventFailed, "toy.a"); !ok || failed.Failure.Cause != lang.CauseKilled {
			t.Errorf("got %s, want a failure with cause killed", r.text())
		}
	})
}

func TestTimeoutOfAnAdoptedStageCountsFromItsStart(t *testing.T) {
	l := newLab(t)
	g := l.gate()
	l.write(outliving)
	inside := l.killedEngine(g)
	l.write(strings.Replace(outliving, `text  = "b"`, "text  = \"b\"\n  timeout = \"1ms\"", 1))
	done := l.adopting(t.Context())
	r := <-done
	if failed, ok := r.find(runs.EventFailed, "toy.b"); !ok || failed.Failure.Cause != lang.CauseTimeout ||
		!strings.Contains(failed.Text, "timeout of 1ms") {
		t.Errorf("got %s, want a timeout", r.text())
	}
	gonePids(t, []int{inside.pid})
}

func TestOrphanThatNoStageNeedsIsReported(t *testing.T) {
	l := newLab(t)
	g := l.gate()
	l.write(outliving)
	inside := l.killedEngine(g)
	l.write("stage \"toy\" \"a\" {\n text = \"something else\"\n}\n")
	r := l.mustRun()
	if e, ok := r.find(runs.EventNote, ""); !ok || !strings.Contains(e.Text, "stage.toy.b") || !strings.Contains(e.Text,
		"kill ") {
		t.Errorf("got %s, want a note about toy.b and how to stop it", r.text())
	}
	syscall.Kill(inside.pid, syscall.SIGTERM)
	gonePids(t, []int{inside.pid})
	l.tidy()
}

// The kernel counts kills because memory ran out; other kills do not change that count.
func TestOOMKillsAreCounted(t *testing.T) {
	if path := proc.oomFile(); path == "" {
		t.Skip("this kernel counts no kills")
	}
	if n := proc.OOMKills(); n < 0 {
		t.Errorf("%s: got %d, want a count", proc.oomFile(), n)
	}
	for name, tc := range map[string]struct {
		before, after int64
		want          string
	}{
		"the count has grown": {3, 4, lang.CauseOOM},
		"it has not":          {3, 3, lang.CauseKilled},
		"nobody counts":       {-1, -1, lang.CauseKilled},
	} {
		if got := causeOf(killedError(tc.before, tc.after)); got != tc.want {
			t.Errorf("%s: got %q, want %q", name, got, tc.want)
		}
	}
}
