package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"rcgrpo/engine/artifact"
	"rcgrpo/engine/plan"
	"rcgrpo/engine/proc"
	"rcgrpo/engine/runs"
	"rcgrpo/internal/must"
)

// loggedRun is a hand-made run folder with one stage.
type loggedRun struct {
	*testing.T
	dir  string
	lock *os.File
}

func newLoggedRun(t *testing.T, store *artifact.Store, id string, live bool, nodes ...runs.NodeRecord) *loggedRun {
	t.Helper()
	r := &loggedRun{T: t, dir: filepath.Join(store.Runs("x"), id)}
	must.OK(t, os.MkdirAll(filepath.Join(r.dir, "logs"), 0o700))
	lock := must.Get(os.Create(filepath.Join(r.dir, "lock")))(t)
	r.lock = lock
	t.Cleanup(func() { lock.Close() })
	if live {
		must.OK(t, unix.Flock(int(lock.Fd()), unix.LOCK_EX))
	}
	if nodes == nil {
		nodes = []runs.NodeRecord{{Address: "stage.toy.a", Verb: string(plan.MustRun)}}
	}
	r.json("plan.json", runs.Record{ID: id, Experiment: "x", Host: proc.HostName(), Nodes: nodes})
	return r
}

func (r *loggedRun) append(name, text string) {
	r.Helper()
	f := must.Get(os.OpenFile(filepath.Join(r.dir, name), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600))(r)
	defer f.Close()
	must.Get(f.WriteString(text))(r)
}

func (r *loggedRun) json(name string, v any) {
	r.Helper()
	b := must.Get(json.Marshal(v))(r)
	r.append(name, string(b)+"\n")
}

func (r *loggedRun) event(kind runs.EventKind) {
	events := must.Get(runs.OpenEventLog(filepath.Join(r.dir, "journal")))(r)
	defer events.Close()
	must.OK(r, events.Write(runs.Event{Kind: kind, Address: "stage.toy.a"}))
}

func logStore(t *testing.T) *artifact.Store {
	t.Helper()
	return must.Get(artifact.Open(t.TempDir()))(t)
}

func printerOf(t *testing.T, store *artifact.Store, folder string) (*logPrinter, *bytes.Buffer) {
	t.Helper()
	w := must.Get(runs.NewWatch(store, "x", "stage.toy.a", runs.Folder(folder)))(t)
	out := new(bytes.Buffer)
	p := &logPrinter{Watch: w, out: out, note: io.Discard, pinned: folder != ""}
	t.Cleanup(p.close)
	return p, out
}

// wantLog prints the last n lines of the log of a run folder, or of the newest run.
func wantLog(t *testing.T, store *artifact.Store, folder string, n int, follow bool, want string) {
	t.Helper()
	p, out := printerOf(t, store, folder)
	if err := p.print(t.Context(), n, follow); err != nil || out.String() != want {
		t.Errorf("last %d lines: got %d bytes %.60q, %v, want %d %.60q", n, out.Len(), out, err, len(want), want)
	}
}

func TestLogIsPrintedFromItsLastLines(t *testing.T) {
	long := strings.Repeat("x", 300_000) + "\n" // longer than a buffer
	for _, end := range []string{"", "\n"} {
		store := logStore(t)
		r := newLoggedRun(t, store, "1", false)
		r.event(runs.EventStarted)
		r.append("logs/toy.a.log", "one\n"+long+"three"+end)
		r.event(runs.EventFailed)
		for n, want := range []string{"one\n" + long + "three", "three", long + "three", "one\n" + long + "three"} {
			wantLog(t, store, "", n, true, want+end)
		}
	}
}

func TestLogsFollowAStageThroughItsRunsUntilItHasEnded(t *testing.T) {
	store := logStore(t)
	first := newLoggedRun(t, store, "1", true)
	p, _ := printerOf(t, store, "") // before the stage has started
	lines, out := io.Pipe()
	p.out, p.note = out, out
	done := make(chan error, 1)
	go func() {
		done <- p.print(t.Context(), 0, true)
		out.Close()
	}()
	in := bufio.NewReader(lines)
	want := func(text string) {
		t.Helper()
		if line, err := in.ReadString('\n'); err != nil || !strings.Contains(line, text) {
			t.Fatalf("got %q, %v, want %q", line, err, text)
		}
	}
	first.event(runs.EventStarted)
	first.append("logs/toy.a.log", "one\n")
	want("one")
	first.event(runs.EventStarted) // a second attempt goes on in the same log
	first.append("logs/toy.a.log", "again\n")
	want("again")
	first.lock.Close() // killed
	want("run x/1 was killed; waiting")
	second := newLoggedRun(t, store, "2", true)
	second.append("logs/toy.a.log", "two\n")
	second.event(runs.EventStarted)
	want("run x/2")
	want("two")
	// The third run adopts the stage: its log is a link to the log of the second run.
	third := newLoggedRun(t, store, "3", true)
	must.OK(t, os.Symlink(filepath.Join(second.dir, "logs", "toy.a.log"),
		filepath.Join(third.dir, "logs", "toy.a.log")))
	third.event(runs.EventAdopted)
	second.lock.Close()
	second.append("logs/toy.a.log", "three\n")
	want("three")
	third.append("logs/toy.a.log", "four\n")
	third.event(runs.EventDone)
	want("four")
	must.OK(t, <-done)
	if rest, err := io.ReadAll(in); err != nil || len(rest) > 0 {
		t.Errorf("after the end: got %q, %v, want nothing", rest, err)
	}
}

func TestLogsOfAStageInAnotherRunAreOfThatRun(t *testing.T) {
	store := logStore(t)
	maker := newLoggedRun(t, store, "1", true)
	maker.append("logs/toy.a.log", "made here\n")
	maker.event(runs.EventStarted)
	waiting := newLoggedRun(t, store, "2", true)
	wantLog(t, store, "", 0, false, "made here\n")
	waiting.event(runs.EventKept)
	maker.event(runs.EventDone)
	wantLog(t, store, "", 0, true, "made here\n")
	p, _ := printerOf(t, store, waiting.dir)
	must.Match(t, p.print(t.Context(), 0, true), "run x/2 has not started stage.toy.a", "the run that waited")
}

// While the newest run waits for another run with the same key, logs follows the other run.
func TestLogsFollowTheRunThatHoldsTheKey(t *testing.T) {
	store := logStore(t)
	const key = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"
	maker := newLoggedRun(t, store, "1", true)
	maker.append("logs/toy.a.log", "made here\n")
	node := runs.NodeRecord{Address: "stage.toy.a", Verb: string(plan.MustRun), Key: key}
	waiting := newLoggedRun(t, store, "2", true, node)
	if p, _ := printerOf(t, store, ""); string(p.Folder) != waiting.dir {
		t.Errorf("a key that nobody has: got run %s, want the newest", p.Folder)
	}
	lock := must.Get(store.TryLock(key))(t)
	must.OK(t, artifact.Describe(lock.File(), map[string]string{"run": maker.dir, "address": "stage.toy.a"}))
	if p, _ := printerOf(t, store, ""); string(p.Folder) != maker.dir {
		t.Errorf("a key that run 1 has: got run %s, want that one", p.Folder)
	}
	must.OK(t, lock.Unlock())
}

func TestErrorOfAnUnknownStageNamesTheListOfStages(t *testing.T) {
	store := logStore(t)
	newLoggedRun(t, store, "1", false, runs.NodeRecord{Address: "stage.toy.a"})
	_, err := runs.FindStage(store, "x", "nothing")
	must.Match(t, err, "no run of x had a stage nothing; `rcgrpo status --all`")
}

func TestLogsOfAGivenRunIgnoreLaterRuns(t *testing.T) {
	store := logStore(t)
	for i := range 2 {
		r := newLoggedRun(t, store, fmt.Sprint(i), false)
		r.append("logs/toy.a.log", fmt.Sprintf("run %d\n", i))
		r.event(runs.EventStarted)
	}
	wantLog(t, store, filepath.Join(store.Runs("x"), "0"), 0, true, "run 0\n")
}

func TestForeignTextCannotControlTheTerminal(t *testing.T) {
	for text, want := range map[string]string{
		"a\tb\r\nü €\n":           "a\tb\r\nü €\n",
		"\x1b[2J\x07\x00\x7f":     "�[2J���",
		"\u009b31m":               "�31m",
		"the end is cut \xe2\x82": "the end is cut ��",
		"\xff\xfe end":            "�� end",
		"\u202e and \U0001F600":   "� and \U0001F600",
	} {
		for cut := range len(text) { // the boundaries of writes do not matter
			var got bytes.Buffer
			w := printableLog(&got)
			for _, part := range []string{text[:cut], text[cut:]} {
				must.Get(io.WriteString(w, part))(t)
			}
			if err := w.Close(); err != nil || got.String() != want {
				t.Errorf("%q, cut at %d: got %q, %v, want %q", text, cut, got.String(), err, want)
			}
		}
	}
}
