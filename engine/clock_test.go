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
)

// A test cannot set the clock of the machine, and nobody can intercept how Go reads it. What another process wrote down
// before the clock was set by a day differs from the clock now by that day, so these tests move what was written.

const day = 24 * time.Hour

// clocks names both ways to set a clock by the difference of what was written before.
var clocks = map[string]time.Duration{"set forward": -day, "set back": day}

// A stage that outlives its engine may run for its timeout, whatever happens to the clock meanwhile.
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
			var h Holder
			if err := l.store().Holder(keys[0], &h); err != nil {
				t.Fatal(err)
			}
			h.Since = h.Since.Add(moved)
			lock, err := os.OpenFile(filepath.Join(l.storeDir, "locks", keys[0]), os.O_WRONLY, 0)
			if err != nil {
				t.Fatal(err)
			}
			if err := errors.Join(h.write(lock), lock.Close()); err != nil {
				t.Fatal(err)
			}
			done := l.adopting(t.Context())
			inside.SetReadDeadline(time.Now().Add(5 * followEvery)) // of the looks that the run takes at it
			if _, err := inside.Read(make([]byte, 1)); !errors.Is(err, os.ErrDeadlineExceeded) {
				t.Errorf("at the gate: got %v, want that the stage is not stopped", err)
			}
			inside.pass()
			r := <-done
			if r.err != nil {
				t.Fatalf("got %v\n%s", r.err, r.text())
			}
			if e, _ := r.find(EventAdopted, "toy.b"); e.Seconds < 0 || e.Seconds > time.Hour.Seconds() {
				t.Errorf("it had run for %v s when it was adopted, want some seconds", e.Seconds)
			}
			if e, _ := r.find(EventDone, "toy.b"); e.Seconds < 0 || e.Seconds > time.Hour.Seconds() {
				t.Errorf("it took %v s, want some seconds", e.Seconds)
			}
		})
	}
	self, ok := processStat(os.Getpid())
	if !ok {
		t.Fatal("no /proc/self/stat")
	}
	h := Holder{Host: hostName(), PID: os.Getpid(), Start: self.start, Since: time.Now().Add(day)}
	if got := h.running(); got <= 0 || got > time.Hour {
		t.Errorf("this process: got %v, want its age", got)
	}
}

// The progress that a stage's process reports reaches events.jsonl, status and the display although the clock was set.
func TestProgressGoesOnWhenTheClockIsSet(t *testing.T) {
	path := filepath.Join(t.TempDir(), "events.jsonl")
	log, err := openEventLog(path)
	if err != nil {
		t.Fatal(err)
	}
	var shown strings.Builder
	display := NewDisplay(&shown, DisplayOptions{})
	node := NodeStatus{}
	now := time.Now()
	at := []time.Time{now, now.Add(-day), now.Add(2*time.Second - day), now.Add(4*time.Second - day), now.Add(6 * time.Second)}
	for i, time := range at {
		e := Event{Time: time, Kind: EventProgress, Address: "stage.toy.a", Done: 10 * (i + 1), Total: 1000, Unit: "updates"}
		if err := log.write(e); err != nil {
			t.Fatal(err)
		}
		display.Observe(e)
		node.observe(e)
		if i == 3 {
			if rate, left := node.Pace(e.Time); rate < 4.9 || rate > 5.1 || left <= 0 {
				t.Errorf("after the clock was set back: got %v updates/s and %v s left, want 5/s", rate, left)
			}
			if got := display.running[0].Rate(); got < 4.9 || got > 5.1 {
				t.Errorf("the display: got %v updates/s, want 5", got)
			}
		}
	}
	if err := log.close(); err != nil {
		t.Fatal(err)
	}
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if got := strings.Count(string(b), "\n"); got != len(at) {
		t.Errorf("events.jsonl: got %d of %d lines:\n%s", got, len(at), b)
	}
	if !strings.Contains(shown.String(), "20/1000") {
		t.Errorf("the display says nothing after the clock was set back: %q", shown.String())
	}
	display.Close()
	if got := durationText(-day.Seconds()); got != "0.0s" {
		t.Errorf("a duration of minus a day: got %s, want 0.0s", got)
	}
}

// The newest run is the one that was started last.
func TestNewestRunIsTheLastOneAlsoAfterTheClockWasSetBack(t *testing.T) {
	l := newLab(t)
	l.write("stage \"toy\" \"a\" {\n text = \"1\"\n}\n")
	l.mustRun()
	old := newestRun(t, l)
	ahead := filepath.Join(filepath.Dir(old), time.Now().UTC().Add(day).Format(runTimeFormat)+"-ffff")
	if err := os.Rename(old, ahead); err != nil {
		t.Fatal(err)
	}
	for _, text := range []string{"2", "3"} {
		l.write("stage \"toy\" \"a\" {\n text = \"" + text + "\"\n}\n")
		l.mustRun()
		s, err := Status(newestRun(t, l))
		if err != nil || s.Folder == ahead || len(s.Nodes) != 1 || s.Nodes[0].State != EventDone {
			t.Errorf("newest: got %+v, %v, want the run with text %s", s, err, text)
		}
		if started := s.Started; time.Since(started) > time.Hour || time.Since(started) < 0 {
			t.Errorf("it says that it started at %v, want now", started)
		}
		ahead = s.Folder
	}
}

// Files that were written before the clock was set back look as if they were from the future. They prove nothing by
// their times, and a change that keeps size and time is found all the same.
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

// What a result took is never less than nothing: it is what the next plan expects.
func TestProgramThatEndedBeforeItBeganByTheClockTookNoTime(t *testing.T) {
	l := newLab(t)
	l.write("stage \"light\" \"a\" {\n shell = \"mkdir made; echo 1 > made/out.txt; read x < $dir/go\"\n takes = true\n}\n")
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
	var h Holder
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
	if err := errors.Join(h.write(lock), lock.Close()); err != nil {
		t.Fatal(err)
	}
	if _, err := w.WriteString("go\n"); err != nil {
		t.Fatal(err)
	}
	w.Close()
	until(t, "the program has ended", func() bool { return !sameProcess(h.PID, h.Start) })
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
