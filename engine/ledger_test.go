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
)

// ownLedger gives the test a ledger of its own.
func ownLedger(t testing.TB) string {
	dir := filepath.Join(t.TempDir(), "leases")
	t.Setenv(leasesVariable, dir)
	return dir
}

func openTestLedger(t testing.TB, run string) *Ledger {
	t.Helper()
	l, err := OpenLedger(run, "store")
	if err != nil {
		t.Fatal(err)
	}
	return l
}

func (l *Ledger) mustOthers(t testing.TB) []Lease {
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

func (l *Ledger) mustTake(t testing.TB, held Lease) *LeaseFile {
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

func TestLeaseLivesAsLongAsTheLastProcessThatInheritedIt(t *testing.T) {
	dir := ownLedger(t)
	a, b := openTestLedger(t, "runs/x/1"), openTestLedger(t, "runs/y/2")
	s := a.mustTake(t, Lease{Address: "stage.toy.a", CPUs: 2, GPUs: []string{"1"}, Devices: 1, Memory: 5})
	if got := b.mustOthers(t); len(got) != 1 || got[0].Share() != (Share{2, 1, 5}) || got[0].Run != "runs/x/1" || len(a.mustOthers(t)) != 0 {
		t.Fatalf("others: got %+v, want what the first run took, and none for itself", got)
	}
	child := exec.Command("sleep", "600")
	child.ExtraFiles = []*os.File{s.Inherited()}
	if err := child.Start(); err != nil {
		t.Fatal(err)
	}
	s.file.Close() // as when the engine is killed
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

func TestLeaseThatIsGivenBackCountsNoMoreAndItsFileServesAgain(t *testing.T) {
	dir := ownLedger(t)
	a, b := openTestLedger(t, "runs/x/1"), openTestLedger(t, "runs/y/2")
	for i := range 5 {
		s := a.mustTake(t, Lease{Address: strings.Repeat("long", 5-i), CPUs: 1})
		if got := b.mustOthers(t); len(got) != 1 || got[0].Address != strings.Repeat("long", 5-i) {
			t.Errorf("taken: got %+v", got)
		}
		if err := s.Free(); err != nil {
			t.Fatal(err)
		}
		if got := b.mustOthers(t); len(got) != 0 {
			t.Errorf("given back: got %+v", got)
		}
	}
	if entries, _ := os.ReadDir(dir); len(entries) != 2 {
		t.Errorf("files: got %v, want the mutex and one lease", entries)
	}
	for _, l := range []*Ledger{a, b} {
		if err := l.Close(); err != nil {
			t.Error(err)
		}
	}
}

func TestLedgerOfSomebodyElseIsRefused(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "open")
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	t.Setenv(leasesVariable, dir)
	if _, err := OpenLedger("r", "s"); err == nil || !strings.Contains(err.Error(), leasesVariable) {
		t.Errorf("a folder that others can read: got %v, want an error with the way out", err)
	}
}

// A run that finds the machine taken starts nothing, says whom it waits for, and goes on when there is room.
func TestSecondRunWaitsForItsShare(t *testing.T) {
	for name, tc := range map[string]struct {
		held      Lease
		resources string
		want      string
	}{
		"of the CPUs":    {Lease{CPUs: 3}, "cpus = 2", "stage.other.one of run y/1 has 3 CPUs"},
		"of the devices": {Lease{GPUs: []string{"0", "2"}, Devices: 2}, "gpus = 2", "stage.other.one of run y/1 has GPU 0, 2"},
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
				done <- l.plan().Run(t.Context(), RunOptions{}, func(e Event) {
					if e.Kind == EventNote {
						said <- e.Text
					}
				})
			}()
			if text := <-said; !strings.Contains(text, tc.want) {
				t.Errorf("got %q, want %q in it", text, tc.want)
			}
			if got := l.counted(); len(got) != 0 {
				t.Errorf("started all the same: %v", got)
			}
			wishes := other.mustOthers(t)
			if len(wishes) != 1 || !wishes[0].Waits || wishes[0].Address != "stage.toy.a" {
				t.Errorf("wishes: got %+v, want that of toy.a", wishes)
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

// A gang of another run that has waited longer is not starved: nothing starts that would take what it waits for, and
// what does not, starts.
func TestLongerWishOfAnotherRunIsLeftFree(t *testing.T) {
	ownLedger(t)
	other := openTestLedger(t, "runs/y/1")
	held := other.mustTake(t, Lease{Address: "stage.other.small", GPUs: []string{"0"}, Devices: 1, CPUs: 1})
	wish := func(since time.Duration) {
		if err := other.Lock(t.Context()); err != nil {
			t.Fatal(err)
		}
		defer other.Unlock()
		if err := other.Request(Share{CPUs: 1, GPUs: 3}, "stage.other.gang", since); err != nil {
			t.Fatal(err)
		}
	}
	wish(sinceBoot() - time.Hour)
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
		done <- l.plan().Run(t.Context(), RunOptions{}, func(e Event) {
			if e.Kind == EventDone {
				started <- ShortAddress(e.Address)
			}
		})
	}()
	if got := <-started; got != "toy.plain" {
		t.Errorf("first: got %s, want toy.plain", got)
	}
	select {
	case got := <-started:
		t.Errorf("%s started, although an older wish needs what it took", got)
	case <-time.After(3 * admitEvery):
	}
	wish(sinceBoot()) // younger than ours
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

// A run whose waiting stage another run makes meanwhile wants no share any more: a wish that stayed would keep that other
// run, and with it itself, waiting for ever.
func TestWishGoesWhenSomebodyElseMakesTheStage(t *testing.T) {
	ownLedger(t)
	l := newLab(t)
	l.write("stage \"toy\" \"a\" {\n count = \"$dir/count\"\n}\n")
	plan := l.plan()
	key, store := plan.Nodes[0].Key, l.store()
	other := openTestLedger(t, "runs/y/1")
	other.store = store.Dir()
	all := other.mustTake(t, Lease{Address: "stage.other.one", CPUs: 64})
	done := make(chan error)
	go func() { done <- plan.Run(t.Context(), RunOptions{}, func(Event) {}) }()
	await := func(wishes int) {
		t.Helper()
		for deadline := time.Now().Add(requestTimeout / 2); len(other.mustOthers(t)) != wishes; time.Sleep(time.Millisecond) {
			if time.Now().After(deadline) {
				t.Fatalf("wishes: got %+v, want %d", other.mustOthers(t), wishes)
			}
		}
	}
	await(1)
	lock, err := store.TryLock(key)
	if err != nil || lock == nil {
		t.Fatal(lock, err)
	}
	same := other.mustTake(t, Lease{Address: "stage.toy.a", Key: key, CPUs: 1})
	await(0)
	for _, s := range []*LeaseFile{all, same} {
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

func TestWishThatNobodyRenewsKeepsNothing(t *testing.T) {
	dir := ownLedger(t)
	stopped, other := openTestLedger(t, "runs/x/1"), openTestLedger(t, "runs/y/2")
	if err := stopped.Request(Share{CPUs: 1}, "stage.toy.a", sinceBoot()-time.Hour); err != nil {
		t.Fatal(err)
	}
	if got := other.mustOthers(t); len(got) != 1 {
		t.Errorf("a wish just written: got %+v, want it", got)
	}
	written := stopped.request.lease
	written.Written = sinceBoot() - 2*requestTimeout
	b, err := json.Marshal(written)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := stopped.request.file.WriteAt(append(b, '\n'), 0); err != nil {
		t.Fatal(err)
	}
	if got := other.mustOthers(t); len(got) != 0 {
		t.Errorf("a wish written long ago: got %+v, want none", got)
	}
	for _, l := range []*Ledger{stopped, other} {
		if err := l.Close(); err != nil {
			t.Error(err)
		}
	}
	if left, _ := os.ReadDir(dir); len(left) != 1 {
		t.Errorf("left: %v, want the mutex alone", left)
	}
}

// BenchmarkLease takes a share of the machine and gives it back, as each start of a stage does.
func BenchmarkLease(b *testing.B) {
	for _, runs := range []int{0, 1, 8} {
		b.Run(fmt.Sprintf("beside %d runs", runs), func(b *testing.B) {
			ownLedger(b)
			for i := range runs {
				other := openTestLedger(b, fmt.Sprintf("runs/y/%d", i))
				other.mustTake(b, Lease{Address: "stage.toy.a", CPUs: 1})
				b.Cleanup(func() { other.Close() })
			}
			own := openTestLedger(b, "runs/x/1")
			for b.Loop() {
				own.mustOthers(b)
				if err := own.mustTake(b, Lease{Address: "stage.toy.b", Key: strings.Repeat("0", 64), CPUs: 1}).Free(); err != nil {
					b.Fatal(err)
				}
			}
			if err := own.Close(); err != nil {
				b.Fatal(err)
			}
		})
	}
}
