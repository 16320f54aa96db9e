package engine_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"rcgrpo/engine/proc"
	"rcgrpo/engine/runs"
	"rcgrpo/internal/must"
)

// A test cannot set the clock of the machine. Times that another process recorded before the clock was set by a day
// differ from the current time by that day, so these tests change the recorded times.

const day = 24 * time.Hour

// A stage that outlives its engine may run for its timeout even if the clock is set.
func TestTimeoutOfAnAdoptedStageDoesNotFollowTheClock(t *testing.T) {
	for name, moved := range map[string]time.Duration{"set forward": -day, "set back": day} {
		t.Run(name, func(t *testing.T) {
			l, _, inside := orphaned(t, strings.Replace(outliving, `text = "b"`, "text = \"b\"\n timeout = \"1h\"", 1))
			keys := must.Get(l.Store().Locked())(t)
			wantEqual(t, "locks", len(keys), 1)
			var h runs.Holder
			must.OK(t, l.Store().Holder(keys[0], &h))
			setSince(l, keys[0], h, h.Since.Add(moved))
			done := adopt(t.Context(), l)
			inside.SetReadDeadline(time.Now().Add(500 * time.Millisecond)) // several polls of the run
			if _, err := inside.Read(make([]byte, 1)); !errors.Is(err, os.ErrDeadlineExceeded) {
				t.Errorf("at the gate: got %v, want that the stage is not stopped", err)
			}
			inside.Pass()
			r := <-done
			wantSuccess(t, r)
			for _, kind := range []runs.EventKind{runs.EventAdopted, runs.EventDone} {
				if e, _ := r.Find(kind, "toy.b"); e.Seconds < 0 || e.Seconds > time.Hour.Seconds() {
					t.Errorf("%s: got %v s, want some seconds", kind, e.Seconds)
				}
			}
		})
	}
	self, ok := proc.ReadStat(os.Getpid())
	if !ok {
		t.Fatal("no /proc/self/stat")
	}
	h := runs.Holder{Host: proc.HostName(), PID: os.Getpid(), Start: self.Start, Since: time.Now().Add(day)}
	if got := h.Running(); got <= 0 || got > time.Hour {
		t.Errorf("this process: got %v, want its age", got)
	}
}

func TestNewestRunIsTheLastStartedAfterTheClockWasSetBack(t *testing.T) {
	l := newLab(t, toyStage("a", `text = "1"`))
	l.MustRun()
	old := string(l.Runs()[0].Folder)
	ahead := filepath.Join(filepath.Dir(old), time.Now().UTC().Add(day).Format("20060102-150405.000")+"-ffff")
	must.OK(t, os.Rename(old, ahead))
	for _, text := range []string{"2", "3"} {
		l.Write(toyStage("a", fmt.Sprintf("text = %q", text)))
		l.MustRun()
		s := l.Runs()[0]
		if string(s.Folder) == ahead || len(s.Nodes) != 1 || s.Nodes[0].State != runs.EventDone {
			t.Errorf("newest: got %+v, want the run with text %s", s, text)
		}
		if age := time.Since(s.Started); age > time.Hour || age < 0 {
			t.Errorf("start of the newest run: got %v, want now", s.Started)
		}
		ahead = string(s.Folder)
	}
}

// The duration of a result counts from the boot, because the next plan uses it as an estimate.
func TestAProgramWhoseEngineWasKilledHasItsDurationAfterTheClockWasSet(t *testing.T) {
	l := newLab(t, "stage \"light\" \"a\" {\n shell = \"mkdir made; echo 1 > made/out.txt; read x < $dir/fifo\"\n"+
		" takes = true\n}\n")
	fifo := pipe(l)
	kill := startEngine(l)
	key, h := programOf(l)
	kill()
	a := must.Get(h.Run.Assignment(h.Address))(t)
	a.Since = a.Since.Add(-day)
	must.OK(t, h.Run.Assign(a))
	must.OK(t, os.WriteFile(fifo, []byte("go\n"), 0))
	wantEnded(t, h.PID)
	if m, err := l.Store().Lookup(key); err != nil || m.Seconds <= 0 || m.Seconds > 3600 {
		t.Errorf("got %+v, %v, want a short time", m, err)
	}
}
