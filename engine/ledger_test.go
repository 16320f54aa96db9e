package engine

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"rcgrpo/engine/lang"
	"rcgrpo/engine/machine"
	"rcgrpo/engine/proc"
	"rcgrpo/engine/runs"
	"rcgrpo/engine/sched"
)

// ownLedger sets a private ledger folder for the test.
func ownLedger(t testing.TB) string {
	dir := filepath.Join(t.TempDir(), "leases")
	t.Setenv(machine.leasesVariable, dir)
	return dir
}

func openTestLedger(t testing.TB, run string) *machine.Ledger {
	t.Helper()
	l, err := machine.OpenLedger(run, "store")
	if err != nil {
		t.Fatal(err)
	}
	return l
}

func (l *machine.Ledger) mustOthers(t testing.TB) []machine.Lease {
	t.Helper()
	if err := l.Lock(t.Context()); err != nil {
		t.Fatal(err)
	}
	defer l.Unlock()
	all, err := l.Others()
	if err != nil {
		t.Fatal(err)
	}
	return all
}

func (l *machine.Ledger) mustTake(t testing.TB, held machine.Lease) *machine.LeaseFile {
	t.Helper()
	if err := l.Lock(t.Context()); err != nil {
		t.Fatal(err)
	}
	defer l.Unlock()
	s, err := l.Reserve(held)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func TestLeaseCountsUntilTheLastProcessThatInheritedItEnds(t *testing.T) {
	dir := ownLedger(t)
	a, b := openTestLedger(t, "runs/x/1"), openTestLedger(t, "runs/y/2")
	s := a.mustTake(t, machine.Lease{Address: "stage.toy.a", CPUs: 2, GPUs: []string{"1"}, Devices: 1, Memory: 5})
	if got := b.mustOthers(t); len(got) != 1 || got[0].Share() != (sched.Share{2, 1, 5}) || got[0].Run != "runs/x/1" ||
		len(a.mustOthers(t)) != 0 {
		t.Fatalf("others: got %+v, want the lease of the first run, and none for itself", got)
	}
	child := exec.Command("sleep", "600")
	child.ExtraFiles = []*os.File{s.Inherited()}
	if err := child.Start(); err != nil {
		t.Fatal(err)
	}
	s.file.Close() // as after a kill of the engine
	a.mutex.Close()
	if got := b.mustOthers(t); len(got) != 1 {
		t.Errorf("while the stage's process lives: got %+v, want its lease", got)
	}
	child.Process.Kill()
	child.Wait()
	if got := b.mustOthers(t); len(got) != 0 {
		t.Errorf("after its end: got %+v, want nothing", got)
	}
	if err := b.Close(); err != nil {
		t.Error(err)
	}
	entries, err := os.ReadDir(dir)
	if err != nil || len(entries) != 1 {
		t.Errorf("left: %v, %v, want the mutex alone", entries, err)
	}
}

func TestFreedLeaseDoesNotCountAndItsFileIsReused(t *testing.T) {
	dir := ownLedger(t)
	a, b := openTestLedger(t, "runs/x/1"), openTestLedger(t, "runs/y/2")
	for i := range 5 {
		s := a.mustTake(t, machine.Lease{Address: strings.Repeat("long", 5-i), CPUs: 1})
		if got := b.mustOthers(t); len(got) != 1 || got[0].Address != strings.Repeat("long", 5-i) {
			t.Errorf("reserved: got %+v", got)
		}
		if err := s.Free(); err != nil {
			t.Fatal(err)
		}
		if got := b.mustOthers(t); len(got) != 0 {
			t.Errorf("freed: got %+v", got)
		}
	}
	if entries, _ := os.ReadDir(dir); len(entries) != 2 {
		t.Errorf("files: got %v, want the mutex and one lease", entries)
	}
	for _, l := range []*machine.Ledger{a, b} {
		if err := l.Close(); err != nil {
			t.Error(err)
		}
	}
}

func TestReadableLedgerFolderIsRefused(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "open")
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	t.Setenv(machine.leasesVariable, dir)
	if _, err := machine.OpenLedger("r", "s"); err == nil || !strings.Contains(err.Error(), machine.leasesVariable) {
		t.Errorf("a folder that others can read: got %v, want an error that names the variable", err)
	}
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
			other := openTestLedger(t, "runs/y/1")
			tc.held.Address = "stage.other.one"
			s := other.mustTake(t, tc.held)
			l := newLab(t)
			l.write("stage \"toy\" \"a\" {\n count = \"$dir/count\"\n resources {\n " + tc.resources + "\n }\n}\n")
			said := make(chan string, 8)
			done := make(chan error)
			go func() {
				done <- Run(l.plan(), t.Context(), Options{}, func(e runs.Event) {
					if e.Kind == runs.EventNote {
						said <- e.Text
					}
				})
			}()
			if text := <-said; !strings.Contains(text, tc.want) {
				t.Errorf("got %q, want %q in it", text, tc.want)
			}
			if got := l.counted(); len(got) != 0 {
				t.Errorf("started on a reserved machine: %v", got)
			}
			requests := other.mustOthers(t)
			if len(requests) != 1 || !requests[0].Waits || requests[0].Address != "stage.toy.a" {
				t.Errorf("requests: got %+v, want that of toy.a", requests)
			}
			if err := s.Free(); err != nil {
				t.Fatal(err)
			}
			if err := <-done; err != nil {
				t.Error(err)
			}
			if got := l.counted(); len(got) != 1 {
				t.Errorf("starts: got %v, want one", got)
			}
			if err := other.Close(); err != nil {
				t.Error(err)
			}
		})
	}
}

// Resources that another run has requested for longer stay free for it; stages that need other resources start.
func TestOlderRequestOfAnotherRunHasPriority(t *testing.T) {
	ownLedger(t)
	other := openTestLedger(t, "runs/y/1")
	held := other.mustTake(t, machine.Lease{Address: "stage.other.small", GPUs: []string{"0"}, Devices: 1, CPUs: 1})
	request := func(since time.Duration) {
		if err := other.Lock(t.Context()); err != nil {
			t.Fatal(err)
		}
		defer other.Unlock()
		if err := other.Request(sched.Share{CPUs: 1, GPUs: 3}, "stage.other.gang", since); err != nil {
			t.Fatal(err)
		}
	}
	request(proc.SinceBoot() - time.Hour)
	l := newLab(t)
	l.write(`
stage "toy" "device" {
  resources {
    gpus = 1
  }
}
stage "toy" "plain" {
  text = "plain"
}
`)
	started, done := make(chan string, 8), make(chan error)
	go func() {
		done <- Run(l.plan(), t.Context(), Options{}, func(e runs.Event) {
			if e.Kind == runs.EventDone {
				started <- lang.ShortAddress(e.Address)
			}
		})
	}()
	if got := <-started; got != "toy.plain" {
		t.Errorf("first: got %s, want toy.plain", got)
	}
	select {
	case got := <-started:
		t.Errorf("%s started on resources of an older request", got)
	case <-time.After(3 * admitEvery):
	}
	request(proc.SinceBoot()) // younger than that of the run
	if got := <-started; got != "toy.device" {
		t.Errorf("then: got %s, want toy.device", got)
	}
	if err := <-done; err != nil {
		t.Error(err)
	}
	if err := held.Free(); err != nil {
		t.Error(err)
	}
	if err := other.Close(); err != nil {
		t.Error(err)
	}
}

// Once another run executes the stage that a run waits for, its request would block that other run, and so itself,
// for ever.
func TestRequestIsWithdrawnWhenAnotherRunExecutesTheStage(t *testing.T) {
	ownLedger(t)
	l := newLab(t)
	l.write("stage \"toy\" \"a\" {\n count = \"$dir/count\"\n}\n")
	plan := l.plan()
	key, store := plan.Nodes[0].Key, l.store()
	other := openTestLedger(t, "runs/y/1")
	other.Store = store.Dir()
	all := other.mustTake(t, machine.Lease{Address: "stage.other.one", CPUs: 64})
	done := make(chan error)
	go func() { done <- Run(plan, t.Context(), Options{}, func(runs.Event) {}) }()
	await := func(requests int) {
		t.Helper()
		deadline := time.Now().Add(machine.requestTimeout / 2)
		for ; len(other.mustOthers(t)) != requests; time.Sleep(time.Millisecond) {
			if time.Now().After(deadline) {
				t.Fatalf("requests: got %+v, want %d", other.mustOthers(t), requests)
			}
		}
	}
	await(1)
	lock, err := store.TryLock(key)
	if err != nil || lock == nil {
		t.Fatal(lock, err)
	}
	same := other.mustTake(t, machine.Lease{Address: "stage.toy.a", Key: key, CPUs: 1})
	await(0)
	for _, s := range []*machine.LeaseFile{all, same} {
		if err := s.Free(); err != nil {
			t.Error(err)
		}
	}
	if err := lock.Unlock(); err != nil {
		t.Error(err)
	}
	if err := <-done; err != nil {
		t.Error(err)
	}
	if err := other.Close(); err != nil {
		t.Error(err)
	}
}

func TestRequestExpiresUnlessItIsRenewed(t *testing.T) {
	dir := ownLedger(t)
	stopped, other := openTestLedger(t, "runs/x/1"), openTestLedger(t, "runs/y/2")
	if err := stopped.Request(sched.Share{CPUs: 1}, "stage.toy.a", proc.SinceBoot()-time.Hour); err != nil {
		t.Fatal(err)
	}
	if got := other.mustOthers(t); len(got) != 1 {
		t.Errorf("a new request: got %+v, want one", got)
	}
	written := stopped.request.lease
	written.Written = proc.SinceBoot() - 2*machine.requestTimeout
	b, err := json.Marshal(written)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := stopped.request.file.WriteAt(append(b, '\n'), 0); err != nil {
		t.Fatal(err)
	}
	if got := other.mustOthers(t); len(got) != 0 {
		t.Errorf("an old request: got %+v, want none", got)
	}
	for _, l := range []*machine.Ledger{stopped, other} {
		if err := l.Close(); err != nil {
			t.Error(err)
		}
	}
	if left, _ := os.ReadDir(dir); len(left) != 1 {
		t.Errorf("left: %v, want the mutex alone", left)
	}
}

// BenchmarkLease reserves and frees a share of the machine, as each start of a stage does.
func BenchmarkLease(b *testing.B) {
	for _, runs := range []int{0, 1, 8} {
		b.Run(fmt.Sprintf("beside %d runs", runs), func(b *testing.B) {
			ownLedger(b)
			for i := range runs {
				other := openTestLedger(b, fmt.Sprintf("runs/y/%d", i))
				other.mustTake(b, machine.Lease{Address: "stage.toy.a", CPUs: 1})
				b.Cleanup(func() { other.Close() })
			}
			own := openTestLedger(b, "runs/x/1")
			for b.Loop() {
				own.mustOthers(b)
				if err := own.mustTake(b, machine.Lease{Address: "stage.toy.b", Key: strings.Repeat("0", 64),
					CPUs: 1}).Free(); err != nil {
					b.Fatal(err)
				}
			}
			if err := own.Close(); err != nil {
				b.Fatal(err)
			}
		})
	}
}
