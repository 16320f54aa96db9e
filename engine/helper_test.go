package engine_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"rcgrpo/engine/enginetest"
	"rcgrpo/engine/plan"
	"rcgrpo/engine/proc"
	"rcgrpo/engine/runs"
	"rcgrpo/internal/must"
)

func TestMain(m *testing.M) { enginetest.Main(m) }

// until polls a condition for up to 30 seconds.
func until(t *testing.T, condition string, holds func() bool) {
	t.Helper()
	for deadline := time.Now().Add(30 * time.Second); !holds(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("not after 30 s: %s", condition)
		}
	}
}

// startEngine runs the experiment in another process. kill ends that process, but not its stages.
func startEngine(l *enginetest.Lab) (kill func()) {
	l.Helper()
	cmd := l.Engine()
	must.OK(l, cmd.Start())
	return func() {
		cmd.Process.Kill()
		cmd.Wait()
	}
}

// killEngine runs the experiment in another process and kills that process, but not the stage, when a stage
// reaches the gate.
func killEngine(l *enginetest.Lab, g *enginetest.Gate) enginetest.Visitor {
	l.Helper()
	kill := startEngine(l)
	defer kill()
	return g.Next()
}

// adopt starts a run and returns once the run has adopted a stage.
func adopt(ctx context.Context, l *enginetest.Lab) <-chan enginetest.Outcome {
	l.Helper()
	return adoptBy(ctx, l, l.Plan())
}

// adoptBy is adopt with a plan.
func adoptBy(ctx context.Context, l *enginetest.Lab, p *plan.Plan) <-chan enginetest.Outcome {
	l.Helper()
	adopted := make(chan struct{})
	done := l.Start(ctx, p, func(e runs.Event) {
		if e.Kind == runs.EventAdopted {
			close(adopted)
		}
	})
	select {
	case <-adopted:
	case r := <-done:
		l.Fatalf("no stage was adopted: %v\n%s", r.Err, r)
	case <-time.After(2 * time.Minute):
		l.Fatal("no stage was adopted within two minutes")
	}
	return done
}

// programOf waits until the lock of the first node's key contains its program.
func programOf(l *enginetest.Lab) (key string, h runs.Holder) {
	l.Helper()
	key = l.Plan().Nodes[0].Key
	until(l.T, "the lock contains the program", func() bool {
		return l.Store().Holder(key, &h) == nil && h.PID != 0 && h.Alive()
	})
	return key, h
}

// setSince changes the start time of a stage in the lock of its key.
func setSince(l *enginetest.Lab, key string, h runs.Holder, since time.Time) {
	l.Helper()
	h.Since = since
	lock := must.Get(os.OpenFile(filepath.Join(l.StoreDir, "locks", key), os.O_WRONLY, 0))(l)
	must.OK(l, errors.Join(h.Write(lock), lock.Close()))
}

// pipe creates a named pipe in the lab's folder.
func pipe(l *enginetest.Lab) (path string) {
	l.Helper()
	path = filepath.Join(l.Dir, "fifo")
	must.OK(l, syscall.Mkfifo(path, 0o600))
	return path
}

// readPIDs waits until a program has written n PIDs to a file.
func readPIDs(t *testing.T, path string, n int) (pids []int) {
	t.Helper()
	until(t, "PIDs in "+path, func() bool {
		b, _ := os.ReadFile(path)
		pids = nil
		for word := range strings.FieldsSeq(string(b)) {
			pids = append(pids, must.Get(strconv.Atoi(word))(t))
		}
		return len(pids) == n
	})
	return pids
}

// running reports whether a process has not ended; one that is not reaped has.
func running(pid int) bool {
	s, ok := proc.ReadStat(pid)
	return ok && proc.Same(pid, s.Start)
}

// wantEnded waits until processes have ended and thereby released their locks.
func wantEnded(t *testing.T, pids ...int) {
	t.Helper()
	for _, pid := range pids {
		until(t, "the end of process "+strconv.Itoa(pid), func() bool { return !running(pid) })
	}
}

func wantEqual[T any](t testing.TB, what string, got, want T) {
	t.Helper()
	if !reflect.DeepEqual(got, want) {
		t.Errorf("%s: got %v, want %v", what, got, want)
	}
}

// wantList compares two lists of strings.
func wantList(t *testing.T, what string, got []string, want ...string) {
	t.Helper()
	if !slices.Equal(got, want) {
		t.Errorf("%s: got %v, want %v", what, got, want)
	}
}

// newLab creates a lab with an experiment.
func newLab(t *testing.T, stages string) *enginetest.Lab {
	t.Helper()
	l := enginetest.NewLab(t)
	l.Write(stages)
	return l
}

// digestsOf returns the digests of an undisturbed run.
func digestsOf(t *testing.T, stages string) map[string]string {
	t.Helper()
	l := newLab(t, stages)
	l.MustRun()
	return l.Digests()
}

// logOf returns the log of a stage that a run started or adopted.
func logOf(t *testing.T, r enginetest.Outcome, address string) string {
	t.Helper()
	e, ok := r.Find(runs.EventStarted, address)
	if !ok {
		e, _ = r.Find(runs.EventAdopted, address)
	}
	b, err := os.ReadFile(e.Path)
	if err != nil {
		t.Errorf("log of %s: %v", address, err)
	}
	return string(b)
}

// wantDigests compares the digests of all results with those of an undisturbed run.
func wantDigests(l *enginetest.Lab, when string, want map[string]string) {
	l.Helper()
	wantEqual(l, "digests "+when, l.Digests(), want)
}

// wantEvent returns the first event of a kind and a short address; its text must contain all of texts.
func wantEvent(t *testing.T, r enginetest.Outcome, kind runs.EventKind, address string, texts ...string) runs.Event {
	t.Helper()
	e, ok := r.Find(kind, address)
	if !ok {
		t.Fatalf("got %s, want an event %s of %q", r, kind, address)
	}
	must.Contain(t, e.Text, texts...)
	return e
}

// wantFailure checks that a stage failed with a cause and a part of its error, and returns the failure.
func wantFailure(t *testing.T, r enginetest.Outcome, address, cause, text string) *runs.Failure {
	t.Helper()
	e, ok := r.Find(runs.EventFailed, address)
	if !ok || e.Failure.Cause != cause || e.Failure.Text != e.Text || !strings.Contains(e.Text, text) {
		t.Fatalf("got %s, want a failure of %s with %q and cause %q", r, address, text, cause)
	}
	return e.Failure
}

// collect runs gc with a limit again and again until end is called. end returns the number of collections
// that removed something.
func collect(l *enginetest.Lab, limit int64) (end func() int) {
	store, over, collected := l.Store(), make(chan struct{}), make(chan int)
	go func() {
		n := 0
		for {
			select {
			case <-over:
				collected <- n
				return
			case <-time.After(time.Millisecond):
			}
			gone, err := store.Collect(limit, runs.Pins)
			if err != nil {
				l.Errorf("gc: %v", err)
			}
			if len(gone) > 0 {
				n++
			}
		}
	}()
	return func() int {
		close(over)
		return <-collected
	}
}
