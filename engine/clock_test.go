package engine

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"rcgrpo/engine/proc"
	"rcgrpo/engine/runs"
)

// A test cannot set the clock of the machine or intercept how Go reads it. Times that another process recorded before
// the clock was set by a day differ from the current time by that day, so these tests change the recorded times.

const day = 24 * time.Hour

// clocks lists the differences of recorded times, one per direction.
var clocks = map[string]time.Duration{"set forward": -day, "set back": day}

// A stage that outlives its engine may run for its timeout even if the clock is set.
func TestTimeoutOfAnAdoptedStageDoesNotFollowTheClock(t *testing.T) {
	for name, moved := range clocks {
		t.Run(name, func(t *testing.T) {
			l := newLab(t)
			g := l.gate()
			l.write(strings.Replace(outliving, `gate  = "$dir/gate"`, "gate = \"$dir/gate\"\n  timeout = \"1h\"", 1))
			inside := l.killedEngine(g)
			keys, err := l.store().Locked()
			if err != nil || len(keys) != 1 {
				t.Fatal(keys, err)
			}
			var h runs.Holder
			if err := l.store().Holder(keys[0], &h); err != nil {
				t.Fatal(err)
			}
			h.Since = h.Since.Add(moved)
			lock, err := os.OpenFile(filepath.Join(l.storeDir, "locks", keys[0]), os.O_WRONLY, 0)
			if err != nil {
				t.Fatal(err)
			}
			if err := errors.Join(h.Write(lock), lock.Close()); err != nil {
				t.Fatal(err)
			}
			done := l.adopting(t.Context())
			inside.SetReadDeadline(time.Now().Add(5 * runs.followEvery)) // several polls of the run
			if _, err := inside.Read(make([]byte, 1)); !errors.Is(err, os.ErrDeadlineExceeded) {
				t.Errorf("at the gate: got %v, want that the stage is not stopped", err)
			}
			inside.pass()
			r := <-done
			if r.err != nil {
				t.Fatalf("got %v\n%s", r.err, r.text())
			}
			if e, _ := r.find(runs.EventAdopted, "toy.b"); e.Seconds < 0 || e.Seconds > time.Hour.Seconds() {
				t.Errorf("it had run for %v s when it was adopted, want some seconds", e.Seconds)
			}
			if e, _ := r.find(runs.EventDone, "toy.b"); e.Seconds < 0 || e.Seconds > time.Hour.Seconds() {
				t.Errorf("it took %v s, want some seconds", e.Seconds)
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

// Progress reaches events.jsonl, status and the display after the clock was set.
func TestProgressContinuesWhenTheClockIsSet(t *testing.T) {
	path := filepath.Join(t.TempDir(), "events.jsonl")
	log, err := runs.OpenEventLog(path)
	if err != nil {
		t.Fatal(err)
	}
	node := runs.NodeStatus{}
	now := time.Now()
	at := []time.Time{now, now.Add(-day), now.Add(2*time.Second - day), now.Add(4*time.Second - day),
		now.Add(6 * time.Second)}
	for i, time := range at {
		e := runs.Event{Time: time, Kind: runs.EventProgress, Address: "stage.toy.a", Done: 10 * (i + 1), Total: 1000,
			Unit: "updates"}
		if err := log.Write(e); err != nil {
			t.Fatal(err)
		}
		node.observe(e)
		if i == 3 {
			if rate, left := node.Pace(e.Time); rate < 4.9 || rate > 5.1 || left <= 0 {
				t.Errorf("after the clock was set back: got %v updates/s and %v s left, want 5/s", rate, left)
			}
		}
	}
	if err := log.Close(); err != nil {
		t.Fatal(err)
	}
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if got := strings.Count(string(b), "\n"); got != len(at) {
		t.Errorf("events.jsonl: got %d of %d lines:\n%s", got, len(at), b)
	}
	if got := runs.durationText(-day.Seconds()); got != "0.0s" {
		t.Errorf("a duration of minus a day: got %s, want 0.0s", got)
	}
}

func TestNewestRunIsTheLastStartedAfterTheClockWasSetBack(t *testing.T) {
	l := newLab(t)
	l.write("stage \"toy\" \"a\" {\n text = \"1\"\n}\n")
	l.mustRun()
	old := newestRun(t, l)
	ahead := filepath.Join(filepath.Dir(old), time.Now().UTC().Add(day).Format(runs.runTimeFormat)+"-ffff")
	if err := os.Rename(old, ahead); err != nil {
		t.Fatal(err)
	}
	for _, text := range []string{"2", "3"} {
		l.write("stage \"toy\" \"a\" {\n text = \"" + text + "\"\n}\n")
		l.mustRun()
		s, err := runs.ReadStatus(newestRun(t, l))
		if err != nil || s.Folder == ahead || len(s.Nodes) != 1 || s.Nodes[0].State != runs.EventDone {
			t.Errorf("newest: got %+v, %v, want the run with text %s", s, err, text)
		}
		if started := s.Started; time.Since(started) > time.Hour || time.Since(started) < 0 {
			t.Errorf("it says that it started at %v, want now", started)
		}
		ahead = s.Folder
	}
}

// After the clock was set back, files have times in the future. Such times prove nothing, and a change that
// keeps size and time is detected.
func TestFilesFromTheFutureAreReadAgain(t *testing.T) {
	l := newLab(t)
	future := time.Now().Add(day)
	put := func(text string) {
		l.put("data.txt", text)
		if err := os.Chtimes(filepath.Join(l.dir, "data.txt"), future, future); err != nil {
			t.Fatal(err)
		}
	}
	put("one\n")
	l.write("stage \"toy\" \"a\" {\n data = [file(\"data.txt\")]\n}\n")
	l.mustRun()
	if p := l.plan(); p.Changes() {
		t.Error("nothing has changed: got work to do")
	}
	put("two\n")
	if p := l.plan(); !p.Changes() {
		t.Error("the content has changed: got nothing to do")
	}
}

// The duration of a result is never negative, because the next plan uses it as an estimate.
func TestProgramThatEndsBeforeItsStartByTheClockTakesNoTime(t *testing.T) {
	l := newLab(t)
	l.write("stage \"light\" \"a\" {\n shell = \"mkdir made; echo 1 > made/out.txt; read x < $dir/go\"\n" +
		" takes = true\n}\n")
	fifo := filepath.Join(l.dir, "go")
	if err := unix.Mkfifo(fifo, 0o600); err != nil {
		t.Fatal(err)
	}
	engine := l.engine()
	if err := engine.Start(); err != nil {
		t.Fatal(err)
	}
	w, err := os.OpenFile(fifo, os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	var h runs.Holder
	var key string
	until(t, "the program is named", func() bool {
		keys, _ := l.store().Locked()
		if len(keys) != 1 {
			return false
		}
		key = keys[0]
		return l.store().Holder(key, &h) == nil && h.PID != 0
	})
	engine.Process.Kill()
	engine.Wait()
	h.Since = h.Since.Add(day) // the clock was set back since
	path := filepath.Join(l.storeDir, "locks", key)
	lock, err := os.OpenFile(path, os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(h.Write(lock), lock.Close()); err != nil {
		t.Fatal(err)
	}
	if _, err := w.WriteString("go\n"); err != nil {
		t.Fatal(err)
	}
	w.Close()
	until(t, "the program has ended", func() bool { return !proc.Same(h.PID, h.Start) })
	r := l.mustRun()
	m, err := l.store().Lookup(key)
	if err != nil {
		t.Fatal(err, r.text())
	}
	if m.Seconds != 0 {
		b, _ := json.Marshal(m)
		t.Errorf("seconds: got %v, want 0: %s", m.Seconds, b)
	}
}
