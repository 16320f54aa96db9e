package runs_test

import (
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"rcgrpo/engine/artifact"
	"rcgrpo/engine/enginetest"
	"rcgrpo/engine/lang"
	"rcgrpo/engine/runs"
	"rcgrpo/internal/must"
)

func TestMain(m *testing.M) { enginetest.Main(m) }

// The slowest rank is the one that has waited least.
func TestStatusDescribesTheRanksOfAStage(t *testing.T) {
	dir := t.TempDir()
	for _, r := range []runs.RankState{{Rank: 0, Phase: "rollout", Waits: true, Waited: 12.34},
		{Rank: 1, Phase: "update 3", Waited: 0.5}} {
		must.OK(t, runs.WriteRank(dir, r))
	}
	const want = `rank 0 waits at "rollout", has waited 12.3 s; rank 1 works after "update 3", has waited 0.5 s ` +
		`(the slowest); rank 2 starts, has waited 0.0 s`
	three := strings.Replace(want, " (the slowest)", "", 1) + " (the slowest)"
	if got := runs.RanksText(runs.ReadRanks(dir, 3)); got != three {
		t.Errorf("got %q, want %q", got, three)
	}
	if got := runs.RanksText(runs.ReadRanks(dir, 2)); got != want[:strings.Index(want, "; rank 2")] {
		t.Errorf("got %q", got)
	}
}

func TestStatusFollowsARun(t *testing.T) {
	l := enginetest.NewLab(t)
	g := l.Gate()
	l.Write(`
stage "toy" "a" {
  gate = "$dir/gate"
}
stage "toy" "bad" {
  from = [stage.toy.a.out]
  fail = "no luck"
}
stage "toy" "below" {
  from = [stage.toy.bad.out]
}
`)
	if _, _, err := l.StageLog("stage.toy.a"); !errors.Is(err, artifact.ErrNotFound) {
		t.Errorf("log before any run: got %v, want ErrNotFound", err)
	}
	done := l.Start(t.Context(), l.Plan())
	inside := g.Next()
	status := func() (*runs.Status, map[string]runs.EventKind) {
		s, states := l.Runs()[0], map[string]runs.EventKind{}
		for _, n := range s.Nodes {
			states[lang.ShortAddress(n.Address)] = n.State
		}
		return s, states
	}
	s, states := status()
	if !s.Live || s.Ended || states["toy.a"] != runs.EventStarted || states["toy.below"] != runs.EventPlanned ||
		!strings.HasPrefix(s.Text(), "running") {
		t.Errorf("during the run: got live %v, ended %v, %v, %q", s.Live, s.Ended, states, s.Text())
	}
	path, live, err := l.StageLog("stage.toy.a")
	if err != nil || !live {
		t.Errorf("log during the run: got %q, %v, %v, want a live one", path, live, err)
	}
	if _, err := os.Stat(path); err != nil {
		t.Error(err)
	}
	inside.Pass()
	<-done
	s, states = status()
	if s.Live || !s.Ended || states["toy.a"] != runs.EventDone || states["toy.bad"] != runs.EventFailed ||
		states["toy.below"] != runs.EventSkipped {
		t.Errorf("after the run: got live %v, ended %v, %v", s.Live, s.Ended, states)
	}
	for _, n := range s.Nodes {
		if n.State == runs.EventFailed && n.Text(time.Now()) != "no luck" {
			t.Errorf("failed node: got %q", n.Text(time.Now()))
		}
	}
	names, err := runs.Experiments(l.Store())
	if err != nil || len(names) != 1 || names[0] != "x" {
		t.Errorf("experiments: got %v, %v, want x", names, err)
	}
	if got, err := runs.FindStage(l.Store(), "x", "toy.bad"); err != nil || got != "stage.toy.bad" {
		t.Errorf("the address of toy.bad: got %q, %v", got, err)
	}
	_, err = runs.FindStage(l.Store(), "x", "toy.bda")
	if err == nil || !strings.Contains(err.Error(), "did you mean toy.bad") {
		t.Errorf("a misspelt address: got %v, want a hint", err)
	}
}

// newRun creates a run of experiment x that executes stage.toy.a; it lives until lock is closed.
func newRun(t *testing.T, store *artifact.Store) (folder runs.Folder, lock *os.File) {
	t.Helper()
	folder, lock, err := runs.Create(store, lang.Source{}, nil,
		runs.Record{Experiment: "x", Nodes: []runs.NodeRecord{{Address: "stage.toy.a", Verb: "run"}}})
	must.OK(t, err)
	return folder, lock
}

// A stranger's run may have an event of a failure without the failure.
func TestAFailureWithoutAReasonHasAStatus(t *testing.T) {
	store := enginetest.NewStore(t)
	folder, lock := newRun(t, store)
	defer lock.Close()
	log := must.Get(runs.OpenEventLog(folder.Journal()))(t)
	must.OK(t, log.Append(runs.Event{Time: time.Now(), Kind: runs.EventFailed, Address: "stage.toy.a"}))
	must.OK(t, log.Close())
	s := must.Get(runs.ReadStatus(store, folder))(t)
	if got := s.Nodes[0].Text(time.Now()); got != "" || s.Nodes[0].State != runs.EventFailed {
		t.Errorf("got %q", got)
	}
}

// A stage that outlived its engine has left its failure; status shows it as the engine would have.
func TestTheFailureOfAStageOfAKilledRunHasItsLogAndScratch(t *testing.T) {
	const address = "stage.toy.a"
	store := enginetest.NewStore(t)
	folder, lock := newRun(t, store)
	must.OK(t, folder.Assign(runs.Assignment{Address: address, Key: "a1", Store: store.Dir()}))
	for path, e := range map[string]runs.Event{
		folder.Journal():       {Kind: runs.EventStarted},
		folder.Events(address): {Kind: runs.EventFailed, Failure: &runs.Failure{Text: "no luck"}},
	} {
		log := must.Get(runs.OpenEventLog(path))(t)
		e.Address, e.Time = address, time.Now()
		must.OK(t, errors.Join(log.Write(e), log.Close()))
	}
	must.OK(t, errors.Join(os.WriteFile(folder.Log(address), []byte("the end\n"), 0o600),
		os.MkdirAll(store.Work("a1"), 0o700), lock.Close()))
	got := must.Get(runs.ReadStatus(store, folder))(t).Nodes[0].Failure
	if want := (&runs.Failure{Text: "no luck", Log: folder.Log(address), Lines: []string{"the end"},
		Work: store.Work("a1")}); !reflect.DeepEqual(got, want) {
		t.Errorf("got %#v, want %#v", got, want)
	}
}

// The assignments in a copy of a stranger's store may name any folder as their store.
func TestAStatusOpensNoFolderThatAnAssignmentNames(t *testing.T) {
	const address = "stage.toy.a"
	store, other := enginetest.NewStore(t), t.TempDir()
	folder, lock := newRun(t, store)
	log := must.Get(runs.OpenEventLog(folder.Journal()))(t)
	must.OK(t, errors.Join(folder.Assign(runs.Assignment{Address: address, Key: "a1", Store: other}),
		log.Append(runs.Event{Time: time.Now(), Kind: runs.EventStarted, Address: address}), log.Close(), lock.Close()))
	own := filepath.Join(other, "folder")
	must.OK(t, os.WriteFile(own, []byte("the user's"), 0o600))
	must.Get(runs.ReadStatus(store, folder))(t)
	if got := must.Get(os.ReadFile(own))(t); string(got) != "the user's" {
		t.Errorf("the user's file has become %q", got)
	}
}

func TestFileNamesOfAddressesAreDistinctAndPlain(t *testing.T) {
	seen := map[string]string{}
	for _, address := range []string{`stage.eval.arm["SFT + GRPO"]@1`, `stage.eval.arm["SFT_+_GRPO"]@1`,
		`stage.eval.arm["a/b"]`, `stage.eval.arm["../../x"]`, "stage.sft.warm",
		`stage.eval.arm["` + strings.Repeat("long", 100) + `"]`} {
		name := runs.FileName(address)
		if strings.ContainsAny(name, "/ \"") || len(name) > 200 || seen[name] != "" {
			t.Errorf("%s: got %q, want a plain and unique name (other address: %q)", address, name, seen[name])
		}
		seen[name] = address
	}
}

// Progress reaches events.jsonl and the status after the clock was set.
func TestProgressContinuesWhenTheClockIsSet(t *testing.T) {
	store := enginetest.NewStore(t)
	folder, lock := newRun(t, store)
	defer lock.Close()
	log := must.Get(runs.OpenEventLog(folder.Journal()))(t)
	const day = 24 * time.Hour
	now := time.Now()
	for i, at := range []time.Time{now, now.Add(-day), now.Add(2*time.Second - day), now.Add(4*time.Second - day),
		now.Add(6 * time.Second)} {
		done := 10 * (i + 1)
		if err := log.Write(runs.Event{Time: at, Kind: runs.EventProgress, Address: "stage.toy.a", Done: done, Total: 1000,
			Unit: "updates"}); err != nil {
			t.Fatal(err)
		}
		s, err := runs.ReadStatus(store, folder)
		if err != nil || s.Nodes[0].Progress.Done != done {
			t.Fatalf("status: got %+v, %v, want %d updates", s, err, done)
		}
		if rate, left := s.Nodes[0].Pace(at); i == 3 && (rate < 4.9 || rate > 5.1 || left <= 0) {
			t.Errorf("after the clock was set back: got %v updates/s and %v s left, want 5/s", rate, left)
		}
	}
	must.OK(t, log.Close())
	n := runs.NodeStatus{State: runs.EventDone, Seconds: -day.Seconds()}
	if got := n.Text(now); got != "0.0s" {
		t.Errorf("a duration of minus a day: got %s, want 0.0s", got)
	}
}

func TestLastLinesEndWithTheEndOfALongLine(t *testing.T) {
	path := filepath.Join(t.TempDir(), "log")
	long := strings.Repeat("x", 1_000_000)
	for text, want := range map[string]string{
		long + "the end":         "the end",
		long + "the end\n":       "the end",
		"one\n" + long + "end\n": "end",
		long + "\nlast\n":        "last",
	} {
		must.OK(t, os.WriteFile(path, []byte(text), 0o600))
		lines := runs.LastLines(path)
		if len(lines) == 0 || !strings.HasSuffix(lines[len(lines)-1], want) {
			t.Fatalf("got %d lines, want the last to end with %q", len(lines), want)
		}
		for _, line := range lines {
			if len(line) > 2000 {
				t.Errorf("got a line of %d bytes, want one that a person can read", len(line))
			}
		}
	}
}
