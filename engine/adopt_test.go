package engine_test

import (
	"context"
	"os"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"rcgrpo/engine"
	"rcgrpo/engine/enginetest"
	"rcgrpo/engine/lang"
	"rcgrpo/engine/runs"
	"rcgrpo/internal/must"
)

// outliving waits at the gate in its second of three stages.
var outliving = toyStage("a", "text = \"a\"\n draw = true") +
	toyStage("b", "from = [stage.toy.a.out]\n text = \"b\"\n gate = \"$dir/gate\"") +
	toyStage("c", "from = [stage.toy.b.out]")

// orphaned runs stages in an engine that is killed while a stage is at the gate.
func orphaned(t *testing.T, stages string) (l *enginetest.Lab, g *enginetest.Gate, inside enginetest.Visitor) {
	t.Helper()
	l = enginetest.NewLab(t)
	g = l.Gate()
	l.Write(stages)
	return l, g, killEngine(l, g)
}

func TestStageOutlivesItsEngineAndTheNextRunAdoptsIt(t *testing.T) {
	want := digestsOf(t, strings.ReplaceAll(outliving, `gate = "$dir/gate"`, ""))

	l, _, inside := orphaned(t, outliving)
	if path, live, err := l.StageLog("stage.toy.b"); err != nil || !live {
		t.Errorf("log of the orphan: got %q, live %v, %v, want a live one", path, live, err)
	}
	all, err := runs.Orphans(l.Store())
	if err != nil || len(all) != 1 || all[0].Address != "stage.toy.b" || all[0].PID != inside.PID || all[0].Taken ||
		!strings.Contains(all[0].Text(time.Now()), "1/2 halves") {
		t.Errorf("orphans: got %+v, %v, want toy.b with its progress", all, err)
	}
	dead := l.Runs()
	if len(dead) != 1 || dead[0].Live || dead[0].Ended {
		t.Fatalf("the killed run: got %+v, want one that is neither live nor ended", dead)
	}
	for _, n := range dead[0].Nodes {
		if want := n.Address == "stage.toy.b"; n.Survives != want {
			t.Errorf("%s survives: got %v, want %v", n.Address, n.Survives, want)
		}
	}

	done := adopt(t.Context(), l)
	if all, err := runs.Orphans(l.Store()); err != nil || len(all) != 1 || !all[0].Taken {
		t.Errorf("orphans: got %+v, %v, want an adopted one", all, err)
	}
	both := l.Runs()
	if len(both) != 2 || !both[0].Live {
		t.Fatalf("runs: got %+v, want two, the new one live", both)
	}
	for _, n := range both[0].Nodes {
		if n.Address == "stage.toy.b" && (n.State != runs.EventStarted || time.Since(n.Started) > time.Minute) {
			t.Errorf("toy.b in the new run: got %+v, want it running", n)
		}
	}
	path, live, err := l.StageLog("stage.toy.b")
	if err != nil || !live || !strings.HasPrefix(path, string(both[0].Folder)) {
		t.Errorf("log of the adopted stage: got %q, live %v, %v, want a live one in the new run", path, live, err)
	}
	must.Get(os.ReadFile(path))(t)
	inside.Pass()
	r := <-done
	wantSuccess(t, r)
	l.Want(r, runs.EventDone, "toy.b", "toy.c")
	l.Want(r, runs.EventStarted, "toy.c")
	wantEvent(t, r, runs.EventAdopted, "toy.b", both[1].Folder.Name(), "1/2 halves")
	wantDigests(l, "after the adoption", want)
	wantList(t, "starts", l.Starts(), "stage.toy.a", "stage.toy.b", "stage.toy.c")
}

func TestInterruptOfTheAdoptingRunStopsTheStage(t *testing.T) {
	l, g, inside := orphaned(t, outliving)
	ctx, cancel := context.WithCancel(t.Context())
	done := adopt(ctx, l)
	cancel()
	must.Match(t, (<-done).Err, engine.ErrInterrupted.Error())
	wantEnded(t, inside.PID)
	done = l.Start(t.Context(), l.Plan())
	g.Next().Pass()
	must.Contain(t, logOf(t, <-done, "toy.b"), "resumed from 1")
}

func TestAdoptedStageFailsWithItsCause(t *testing.T) {
	failing := func(on string) string {
		return toyStage("a", `gate = "$dir/gate"
  fail  = "the loss is not a number"
  cause = "nan"
  until = 2
  retry {
    attempts = 2
    on       = ["`+on+`"]
  }`)
	}
	t.Run("and starts again if a retry names it", func(t *testing.T) {
		l, g, inside := orphaned(t, failing("nan"))
		done := adopt(t.Context(), l)
		inside.Pass()
		g.Next().Pass()
		r := <-done
		l.Want(r, runs.EventDone, "toy.a")
		if e, ok := r.Find(runs.EventStarted, "toy.a"); !ok || e.Attempt != 2 || len(l.Starts()) != 2 {
			t.Errorf("got %+v after %d starts, want the second attempt\n%s", e, len(l.Starts()), r)
		}
	})
	t.Run("and is the run's failure otherwise", func(t *testing.T) {
		l, _, inside := orphaned(t, failing("oom"))
		done := adopt(t.Context(), l)
		inside.Pass()
		r := <-done
		f := wantFailure(t, r, "toy.a", lang.CauseNaN, "the loss is not a number")
		if !slices.Contains(f.Lines, "about to fail") {
			t.Errorf("lines of the log: got %q, want the stage's", f.Lines)
		}
	})
	t.Run("also if its process is killed", func(t *testing.T) {
		l, _, inside := orphaned(t, failing("nan"))
		done := adopt(t.Context(), l)
		syscall.Kill(inside.PID, syscall.SIGKILL)
		wantFailure(t, <-done, "toy.a", lang.CauseKilled, "")
	})
}

func TestTimeoutOfAnAdoptedStageCountsFromItsStart(t *testing.T) {
	l, _, inside := orphaned(t, outliving)
	l.Write(strings.Replace(outliving, `text = "b"`, "text = \"b\"\n timeout = \"1ms\"", 1))
	wantFailure(t, <-adopt(t.Context(), l), "toy.b", lang.CauseTimeout, "timeout of 1ms")
	wantEnded(t, inside.PID)
}

func TestOrphanThatNoStageNeedsIsReported(t *testing.T) {
	l, _, inside := orphaned(t, outliving)
	l.Write(toyStage("a", `text = "something else"`))
	r := l.MustRun()
	wantEvent(t, r, runs.EventNote, "", "stage.toy.b", "kill ")
	syscall.Kill(inside.PID, syscall.SIGTERM)
	wantEnded(t, inside.PID)
}
