package engine_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"rcgrpo/engine"
	"rcgrpo/engine/enginetest"
	"rcgrpo/engine/internal/disk"
	"rcgrpo/engine/lang"
	"rcgrpo/engine/machine"
	"rcgrpo/engine/proc"
	"rcgrpo/engine/runs"
	"rcgrpo/engine/sched"
	"rcgrpo/internal/must"
)

// ownLedger sets a private ledger folder for the test.
func ownLedger(t *testing.T) string {
	dir := filepath.Join(t.TempDir(), "leases")
	t.Setenv("RCGRPO_LEASES", dir)
	return dir
}

// otherRun is another run of the user, simulated by its ledger.
type otherRun struct {
	*machine.Ledger
	t *testing.T
}

func newOtherRun(t *testing.T, store string) otherRun {
	t.Helper()
	l := must.Get(machine.OpenLedger("runs/y/1", store))(t)
	t.Cleanup(func() { must.OK(t, l.Close()) })
	return otherRun{l, t}
}

func (o otherRun) locked(f func() error) {
	o.t.Helper()
	must.OK(o.t, o.Lock(o.t.Context()))
	defer o.Unlock()
	must.OK(o.t, f())
}

// reserve returns the function that frees the lease.
func (o otherRun) reserve(lease machine.Lease) (free func()) {
	o.t.Helper()
	var f *machine.LeaseFile
	o.locked(func() (err error) { f, err = o.Reserve(lease); return err })
	return func() { must.OK(o.t, f.Free()) }
}

// others returns the leases and requests of the runs under test.
func (o otherRun) others() (all []machine.Lease) {
	o.t.Helper()
	o.locked(func() (err error) { all, err = o.Others(); return err })
	return all
}

// startNoted starts the experiment. The channels receive the texts of its notes and its outcome.
func startNoted(l *enginetest.Lab) (notes <-chan string, done <-chan enginetest.Outcome) {
	l.Helper()
	texts := make(chan string, 64)
	return texts, l.Start(l.Context(), l.Plan(), func(e runs.Event) {
		if e.Kind == runs.EventNote {
			texts <- e.Text
		}
	})
}

func wantSuccess(t *testing.T, r enginetest.Outcome) {
	t.Helper()
	if r.Err != nil {
		t.Errorf("the run: got %v, want success\n%s", r.Err, r)
	}
}

// toyStage is a toy with extra settings.
func toyStage(name, settings string) string {
	return fmt.Sprintf("stage \"toy\" %q {\n  count = \"$dir/count\"\n  %s\n}\n", name, settings)
}

// A run on a fully reserved machine starts nothing, reports the holder, and starts once the resources are free.
func TestSecondRunWaitsForItsShare(t *testing.T) {
	for name, tc := range map[string]struct {
		held      machine.Lease
		resources string
		want      string
	}{
		"of the CPUs": {machine.Lease{CPUs: 3}, "cpus = 2", "stage.other.one of run y/1 has 3 CPUs"},
		"of the devices": {machine.Lease{GPUs: []string{"0", "2"}, Devices: 2}, "gpus = 2",
			"stage.other.one of run y/1 has GPU 0, 2"},
	} {
		t.Run(name, func(t *testing.T) {
			ownLedger(t)
			other := newOtherRun(t, "store")
			tc.held.Address = "stage.other.one"
			free := other.reserve(tc.held)
			l := newLab(t, toyStage("a", "resources {\n "+tc.resources+"\n }"))
			notes, done := startNoted(l)
			must.Contain(t, <-notes, tc.want)
			wantList(t, "starts on a reserved machine", l.Starts())
			if got := other.others(); len(got) != 1 || !got[0].Waits || got[0].Address != "stage.toy.a" {
				t.Errorf("requests: got %+v, want that of toy.a", got)
			}
			free()
			wantSuccess(t, <-done)
			wantList(t, "starts", l.Starts(), "stage.toy.a")
		})
	}
}

// Resources that another run has requested for longer stay free for it; stages that need other resources start.
func TestOlderRequestOfAnotherRunHasPriority(t *testing.T) {
	ownLedger(t)
	other := newOtherRun(t, "store")
	other.reserve(machine.Lease{Address: "stage.other.small", GPUs: []string{"0"}, Devices: 1, CPUs: 1})
	request := func(since time.Duration) {
		other.locked(func() error {
			return other.Request(sched.Share{CPUs: 1, GPUs: 3}, "stage.other.large", since)
		})
	}
	request(proc.SinceBoot() - time.Hour)
	l := newLab(t, toyStage("device", "resources {\n gpus = 1\n }")+toyStage("plain", "text = \"plain\""))
	ended := make(chan string, 8)
	done := l.Start(t.Context(), l.Plan(), func(e runs.Event) {
		if e.Kind == runs.EventDone {
			ended <- lang.ShortAddress(e.Address)
		}
	})
	wantEqual(t, "first", <-ended, "toy.plain")
	select {
	case got := <-ended:
		t.Errorf("%s started on resources of an older request", got)
	case <-time.After(300 * time.Millisecond): // a blocked run polls every 100 ms
	}
	request(proc.SinceBoot()) // younger than that of the run
	wantEqual(t, "then", <-ended, "toy.device")
	wantSuccess(t, <-done)
}

// Once another run executes the stage that a run waits for, its request would block that other run, and so itself,
// for ever.
func TestRequestIsWithdrawnWhenAnotherRunExecutesTheStage(t *testing.T) {
	ownLedger(t)
	l := newLab(t, toyStage("a", ""))
	key, store := l.Planned("toy.a").Key, l.Store()
	other := newOtherRun(t, store.Dir())
	freeAll := other.reserve(machine.Lease{Address: "stage.other.one", CPUs: 64})
	done := l.Start(t.Context(), l.Plan())
	begun := time.Now()
	until(t, "the run has a request", func() bool { return len(other.others()) == 1 })
	lock := must.Get(store.TryLock(key))(t)
	freeSame := other.reserve(machine.Lease{Address: "stage.toy.a", Key: key, CPUs: 1})
	until(t, "the request is withdrawn", func() bool { return len(other.others()) == 0 })
	if took := time.Since(begun); took > 8*time.Second { // after 10 s requests expire
		t.Errorf("withdrawn after %v, so that it may have expired", took)
	}
	freeAll()
	freeSame()
	must.OK(t, lock.Unlock())
	wantSuccess(t, <-done)
}

// The reader of a run's events may block for ever, as a terminal does after ^S; other runs must be able to lock the
// ledger during that time.
func TestNoEventIsReportedWhileTheLedgerIsLocked(t *testing.T) {
	for name, tc := range map[string]struct {
		held  machine.Lease
		stage string
		same  bool // another run makes the stage
		want  string
	}{
		"waiting for CPUs":           {machine.Lease{CPUs: 3}, "resources {\n cpus = 2\n }", false, "waiting for its share"},
		"waiting for a result":       {machine.Lease{CPUs: 1}, "", true, "made by another run"},
		"the driver gives no answer": {machine.Lease{CPUs: 1}, "resources {\n gpus = 1\n }", false, "cannot check"},
	} {
		t.Run(name, func(t *testing.T) {
			dir := ownLedger(t)
			fakeDriver(t, "no table\n", "")
			l := newLab(t, toyStage("a", tc.stage))
			store := l.Store()
			other := newOtherRun(t, store.Dir())
			tc.held.Address = "stage.other.one"
			unlock := func() error { return nil }
			if tc.same {
				tc.held.Key = l.Planned("toy.a").Key
				unlock = must.Get(store.TryLock(tc.held.Key))(t).Unlock
			}
			free := other.reserve(tc.held)
			seen := false
			wantSuccess(t, l.RunPlan(t.Context(), l.Plan(), engine.Options{}, func(e runs.Event) {
				if e.Kind != runs.EventNote || seen { // only the loop emits notes, and no other process uses the mutex
					return
				}
				seen = true
				must.Contain(t, e.Text, tc.want)
				mutex := must.Get(os.OpenFile(filepath.Join(dir, "mutex"), os.O_RDWR, 0))(t)
				if err := unix.Flock(int(mutex.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
					t.Errorf("the ledger is locked while the run reports %q: %v", e.Text, err)
				}
				free()
				must.OK(t, errors.Join(mutex.Close(), unlock()))
			}))
			wantEqual(t, "a note", seen, true)
		})
	}
}

func TestLedgerThatCannotBeLockedFailsTheStage(t *testing.T) {
	mutex := filepath.Join(ownLedger(t), "mutex")
	l := newLab(t, "stage \"light\" \"a\" {\n}\n"+toyStage("b", "from = [stage.light.a.out]"))
	r := l.RunPlan(t.Context(), l.Plan(), engine.Options{}, func(e runs.Event) {
		if e.Kind == runs.EventStarted && e.Address == "stage.light.a" {
			lacking(t, syscall.EIO, mutex, "flock")
		}
	})
	disk.Lack(nil)
	wantEvent(t, r, runs.EventFailed, "toy.b", "share the machine with other runs")
}
