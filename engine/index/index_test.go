package index

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"rcgrpo/engine"
	"rcgrpo/engine/artifact"
)

// raced says that the race detector is on: SQLite, translated from C, is some thirty times as slow under it.
var raced bool

// TestMain lets the test binary be one more process that asks: it prints what `answers` gives.
func TestMain(m *testing.M) {
	if dir := os.Getenv("INDEX_TEST_STORE"); dir != "" {
		store, err := artifact.Open(dir)
		if err != nil {
			panic(err)
		}
		x := Open(store)
		fmt.Print(answers(x, store))
		x.Close()
		os.Exit(0)
	}
	os.Setenv("GORACE", "atexit_sleep_ms=0")
	os.Exit(m.Run())
}

// answers is everything that can be asked of an index, as text.
func answers(x *Index, store *artifact.Store) string {
	var b strings.Builder
	print := func(v any, err error) {
		text, jsonErr := json.Marshal(v)
		fmt.Fprintf(&b, "%s %v %v\n", text, err, jsonErr)
	}
	results, problems, err := x.Results()
	print(results, err)
	print(problems, nil)
	experiments, err := engine.Experiments(store)
	print(experiments, err)
	for _, e := range experiments {
		folders, err := engine.Runs(store, e)
		print(folders, err)
		for _, f := range folders {
			short, err := x.Summary(f)
			print(short, err)
			whole, err := x.Run(f)
			print(whole, err)
		}
	}
	return b.String()
}

// history is a store that things happen to.
type history struct {
	testing.TB
	*rand.Rand
	store *artifact.Store
	keys  []string
	runs  []string
	n     int
}

func newHistory(t testing.TB, seed uint64) *history {
	store, err := artifact.Open(filepath.Join(t.TempDir(), "st?re #1%41")) // a name that a URI must quote
	if err != nil {
		t.Fatal(err)
	}
	h := &history{TB: t, Rand: rand.New(rand.NewPCG(seed, 1)), store: store}
	h.must(os.MkdirAll(filepath.Join(store.Dir(), "nodes"), 0o700))
	return h
}

func (h *history) must(err error) {
	h.Helper()
	if err != nil {
		h.Fatal(err)
	}
}

// put writes a file as the engine does: aside, then renamed.
func (h *history) put(path string, v any) {
	h.Helper()
	b, err := json.Marshal(v)
	h.must(err)
	h.must(os.WriteFile(path+".new", b, 0o600))
	h.must(os.Rename(path+".new", path))
}

func (h *history) indexPath() string { return filepath.Join(h.store.Dir(), FileName) }
func (h *history) manifest(key string) string {
	return filepath.Join(h.store.Dir(), "nodes", key+".json")
}

func (h *history) result(key string) {
	h.n++
	m := artifact.Manifest{Key: key, Kind: "toy", Experiment: "x", Address: fmt.Sprintf("stage.toy.n[%q]@%d", key[:4], h.IntN(3)), Seconds: h.Float64() * 100,
		Started: time.Unix(int64(1e9+h.n), 0).UTC(), Outputs: map[string]artifact.Output{"out": {Type: "files", Digest: key, Bytes: h.Int64N(1e9)}}}
	if h.IntN(4) == 0 {
		m.Collected = time.Unix(2e9, 0).UTC()
	}
	h.put(h.manifest(key), m)
}

func (h *history) newRun(nodes int) {
	h.n++
	id := fmt.Sprintf("20260101-%06d", h.n)
	dir := filepath.Join(h.store.Runs("x"), id)
	h.must(os.MkdirAll(dir, 0o700))
	r := engine.RunRecord{ID: id, Experiment: "x", Started: time.Unix(int64(1e9+h.n), 0).UTC(), Revision: "r"}
	for i := range nodes {
		verb := engine.Run
		if h.IntN(3) == 0 {
			verb = engine.UpToDate
		}
		r.Nodes = append(r.Nodes, engine.RunNodeRecord{Address: fmt.Sprintf("stage.toy.n%d", i), Verb: verb, Key: "k"})
	}
	h.put(filepath.Join(dir, "plan.json"), r)
	h.runs = append(h.runs, dir)
}

// events appends what could happen in a run; the last line may be torn, and is finished by the next call.
func (h *history) events(dir string, count int) {
	f, err := os.OpenFile(filepath.Join(dir, "events.jsonl"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	h.must(err)
	defer f.Close()
	if h.IntN(2) == 0 {
		fmt.Fprintln(f) // the end of a torn line, or an empty one
	}
	kinds := []engine.EventKind{engine.EventStarted, engine.EventProgress, engine.EventDone, engine.EventFailed, engine.EventNote,
		engine.EventKept, engine.EventSkipped, engine.EventFile, engine.EventShown}
	for range count {
		h.n++
		e := engine.Event{Kind: kinds[h.IntN(len(kinds))], Time: time.Unix(int64(1e9+h.n), 0).UTC(), Address: fmt.Sprintf("stage.toy.n%d", h.IntN(8)), Done: h.IntN(9),
			Total: 9, Text: "text", Key: "k2", Seconds: h.Float64()}
		if e.Kind == engine.EventFailed {
			e.Failure = &engine.Failure{Text: "no luck", Log: "log"}
		}
		if h.IntN(20) == 0 {
			e = engine.Event{Kind: engine.EventEnded, Time: e.Time, Counts: map[string]int{"done": 3}}
		}
		b, err := json.Marshal(e)
		h.must(err)
		_, err = f.Write(append(b, '\n'))
		h.must(err)
	}
	if h.IntN(4) == 0 {
		_, err := f.WriteString(`{"kind":"do`)
		h.must(err)
	}
}

// write appends events as they are.
func (h *history) write(dir string, events []engine.Event) {
	f, err := os.OpenFile(filepath.Join(dir, "events.jsonl"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	h.must(err)
	defer f.Close()
	out := json.NewEncoder(f)
	for _, e := range events {
		h.must(out.Encode(e))
	}
}

// happen lets one thing happen and says what.
func (h *history) happen() string {
	pick := func(all []string) string {
		if len(all) == 0 {
			return ""
		}
		return all[h.IntN(len(all))]
	}
	key, run := pick(h.keys), pick(h.runs)
	switch what := h.IntN(9); {
	case what == 0 || key == "":
		key = fmt.Sprintf("%064x", h.Uint64())
		h.keys = append(h.keys, key)
		h.result(key)
		return "a new result"
	case what == 1:
		h.result(key)
		return "a result made again"
	case what == 2 && h.IntN(2) == 0:
		os.Remove(h.manifest(key))
		return "a manifest removed"
	case what == 2:
		h.must(os.WriteFile(h.manifest(key), []byte(`{"key":`), 0o600))
		return "a manifest damaged"
	case what == 3 || run == "":
		h.newRun(1 + h.IntN(8))
		return "a new run"
	case what == 4 && h.IntN(4) == 0:
		os.RemoveAll(run)
		h.runs = slices.DeleteFunc(h.runs, func(f string) bool { return f == run })
		return "a run folder removed"
	case what == 4:
		os.Remove(filepath.Join(run, "events.jsonl"))
		h.events(run, 3)
		return "other events"
	}
	h.events(run, 1+h.IntN(30)*h.IntN(30)) // sometimes more than worthWriting
	return "events"
}

// disturb does something to the index's file and says what; undo ends it.
func (h *history) disturb() (what string, undo func()) {
	path := h.indexPath()
	b, err := os.ReadFile(path)
	if err != nil {
		return "no index", func() {}
	}
	switch h.IntN(10) {
	case 0:
		h.must(os.Remove(path))
		return "index deleted", func() {}
	case 1:
		h.must(os.Truncate(path, h.Int64N(int64(len(b))+1)))
		return "index cut short", func() {}
	case 2:
		for range 1 + h.IntN(200) {
			b[h.IntN(len(b))] = byte(h.IntN(256))
		}
		h.must(os.WriteFile(path, b, 0o600))
		return "index garbled", func() {}
	case 3: // digits only, so that numbers and texts stay well-formed
		for range 200 {
			if i := h.IntN(len(b)); b[i] >= '0' && b[i] <= '9' {
				b[i] = '0' + byte(h.IntN(10))
			}
		}
		h.must(os.WriteFile(path, b, 0o600))
		return "digits garbled", func() {}
	case 4:
		h.must(os.WriteFile(path, []byte("not a database\n"), 0o600))
		return "another file", func() {}
	case 5:
		h.must(os.Remove(path))
		h.foreign(path, "CREATE TABLE results (a, b); INSERT INTO results VALUES (1, 2)")
		return "another database", func() {}
	case 6:
		h.must(os.Remove(path))
		h.must(os.Mkdir(path, 0o700))
		h.must(os.WriteFile(filepath.Join(path, "x"), nil, 0o600))
		return "a folder", func() { h.must(os.RemoveAll(path)) }
	case 7:
		if h.locked(path) {
			db, err := open(path)
			h.must(err)
			_, err = db.Exec("BEGIN EXCLUSIVE")
			h.must(err)
			return "locked by a writer", func() { db.Close() }
		}
	}
	return "", func() {}
}

// locked says whether the file is sound enough to be locked.
func (h *history) locked(path string) bool {
	x := Open(h.store)
	defer x.Close()
	return x.db != nil
}

func (h *history) foreign(path, statements string) {
	h.must(os.WriteFile(path, nil, 0o600))
	db, err := open(path)
	h.must(err)
	defer db.Close()
	_, err = db.Exec(statements)
	h.must(err)
}

// same compares the answers with the index and without.
func (h *history) same(after string) {
	h.Helper()
	want := answers(Without(h.store), h.store)
	x := Open(h.store)
	got := answers(x, h.store)
	x.Close()
	if got != want {
		a, b := strings.Split(got, "\n"), strings.Split(want, "\n")
		for i := range min(len(a), len(b)) {
			if a[i] != b[i] {
				h.Fatalf("after %s: with the index\n%s\nwithout it\n%s", after, a[i], b[i])
			}
		}
		h.Fatalf("after %s: got %d answers, want %d", after, len(a), len(b))
	}
}

func TestAnswersAreThoseOfTheTruthWhateverHappens(t *testing.T) {
	seeds, steps := uint64(4), 40
	if raced {
		seeds, steps = 1, 8
	}
	for seed := range seeds {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			h := newHistory(t, seed)
			h.same("nothing")
			for range steps {
				what := h.happen()
				disturbance, undo := h.disturb()
				h.same(what + ", " + disturbance)
				undo()
			}
			h.same("the end")
			if x := Open(h.store); x.db == nil {
				t.Error("at the end there is no index that can be used")
			} else {
				x.Close()
			}
			if left, _ := filepath.Glob(strings.NewReplacer("?", `\?`).Replace(h.indexPath()) + "?*"); len(left) > 0 {
				t.Errorf("beside the index lie %v, want nothing", left)
			}
		})
	}
}

// A second question reads nothing of the truth again: it answers although the truth says otherwise under the same stamp.
func TestWhatDidNotChangeIsNotReadAgain(t *testing.T) {
	h := newHistory(t, 1)
	key := strings.Repeat("ab", 32)
	h.result(key)
	h.newRun(4)
	h.events(h.runs[0], 30)
	h.same("the first question")
	x := Open(h.store)
	defer x.Close()
	before := answers(x, h.store)
	for _, path := range []string{h.manifest(key), filepath.Join(h.runs[0], "events.jsonl"), filepath.Join(h.runs[0], "plan.json")} {
		info, err := os.Stat(path)
		h.must(err)
		b, err := os.ReadFile(path)
		h.must(err)
		copy(b[:len(b)/2], strings.Repeat("x", len(b))) // the end of events.jsonl is looked at again
		h.must(os.WriteFile(path, b, 0o600))
		h.must(os.Chtimes(path, info.ModTime(), info.ModTime()))
	}
	if after := answers(x, h.store); after != before {
		t.Errorf("got\n%s\nwant what was known:\n%s", after, before)
	}
	if truth := answers(Without(h.store), h.store); truth == before {
		t.Error("the truth did not change: this test shows nothing")
	}
}

func TestReadOnlyStoreIsAnsweredAndStaysAsItIs(t *testing.T) {
	if os.Geteuid() == 0 {
		t.Log("root writes where it likes: only the answers are compared")
	}
	for _, indexed := range []bool{false, true} {
		h := newHistory(t, 3)
		h.result(strings.Repeat("cd", 32))
		h.newRun(3)
		h.events(h.runs[0], 5)
		if indexed {
			h.same("the first question")
			h.must(os.Chmod(h.indexPath(), 0o400))
			h.result(strings.Repeat("ef", 32))
		}
		h.must(os.Chmod(h.store.Dir(), 0o500))
		h.same("the store became read-only")
		if _, err := os.Stat(h.indexPath()); !indexed && err == nil && os.Geteuid() != 0 {
			t.Error("an index was written into a read-only store")
		}
		h.must(os.Chmod(h.store.Dir(), 0o700))
	}
}

func TestAMissingStoreStaysMissing(t *testing.T) {
	store, err := artifact.Open(filepath.Join(t.TempDir(), "none"))
	if err != nil {
		t.Fatal(err)
	}
	x := Open(store)
	defer x.Close()
	if got, want := answers(x, store), "null <nil> <nil>\nnull <nil> <nil>\nnull <nil> <nil>\n"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	if _, err := os.Stat(store.Dir()); err == nil {
		t.Error("asking made the store's folder")
	}
}

func TestManyAskAtOnceWhileRunsGoOn(t *testing.T) {
	h := newHistory(t, 5)
	things, rounds := 40, 5
	if raced {
		things, rounds = 8, 2
	}
	for range things {
		h.happen()
	}
	stop := make(chan struct{})
	var writers, askers sync.WaitGroup
	writers.Go(func() { // a run that goes on
		for {
			select {
			case <-stop:
				return
			default:
				h.newRun(8)
				h.events(h.runs[len(h.runs)-1], 100)
				time.Sleep(5 * time.Millisecond) // leave the processors to the askers
			}
		}
	})
	for range 4 {
		askers.Go(func() {
			for range rounds {
				x := Open(h.store)
				if text := answers(x, h.store); strings.Contains(text, "database") {
					t.Errorf("an error of the database came out:\n%s", text)
				}
				x.Close()
			}
		})
	}
	for range 3 {
		askers.Go(func() {
			for range rounds / 2 {
				cmd := exec.CommandContext(t.Context(), os.Args[0])
				cmd.Env = append(os.Environ(), "INDEX_TEST_STORE="+h.store.Dir())
				if out, err := cmd.CombinedOutput(); err != nil {
					t.Errorf("another process: %v\n%s", err, out)
				}
			}
		})
	}
	askers.Wait()
	close(stop)
	writers.Wait()
	h.same("all that")
	want := answers(Without(h.store), h.store)
	cmd := exec.CommandContext(context.Background(), os.Args[0])
	cmd.Env = append(os.Environ(), "INDEX_TEST_STORE="+h.store.Dir())
	out, err := cmd.Output()
	if err != nil || string(out) != want {
		t.Errorf("another process answers otherwise (%v)", err)
	}
}

func TestTheIndexCanBeAskedWithAnySQLite(t *testing.T) {
	h := newHistory(t, 7)
	h.result(strings.Repeat("ab", 32))
	h.newRun(3)
	h.same("the first question")
	db, err := open(h.indexPath())
	h.must(err)
	defer db.Close()
	var n int
	err = db.QueryRow(`SELECT count(*) FROM results, runs JOIN nodes ON nodes.run = runs.name WHERE kind = 'toy' AND results.seconds > 0
		AND runs.experiment = 'x' AND state IN ('planned', '')`).Scan(&n)
	if err != nil || n != 3 {
		t.Errorf("got %d, %v, want 3 nodes", n, err)
	}
}
