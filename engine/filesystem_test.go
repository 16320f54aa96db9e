package engine

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"rcgrpo/engine/internal/disk"
)

// lacking makes the file system lack operations below a path.
func lacking(t *testing.T, fault error, below string, ops ...string) {
	disk.Lack(func(op, path string) error {
		if slices.Contains(ops, op) && strings.HasPrefix(path, below) {
			return fault
		}
		return nil
	})
	t.Cleanup(func() { disk.Lack(nil) })
}

// Runs, logs, published files, gc and adoption work without the operations that a file system such as exFAT lacks.
func TestRunsWithoutWhatAFileSystemMayLack(t *testing.T) {
	want := newLab(t)
	want.write(faultyRun)
	want.mustRun()
	optional := slices.DeleteFunc(slices.Clone(disk.Optional), func(op string) bool { return op == "flock" })
	for _, op := range append(slices.Clone(optional), "all of these") {
		t.Run(op, func(t *testing.T) {
			ops := []string{op}
			if op == "all of these" {
				ops = optional
			}
			l := newLab(t)
			lacking(t, syscall.EPERM, l.dir, ops...)
			l.write(faultyRun + "stage \"light\" \"long\" {\n text = \"long\"\n shell = \"echo said; sleep 0.2\"\n}\n" +
				"stage \"light\" \"silent\" {\n text = \"silent\"\n shell = \"sleep 0.2\"\n}\n")
			l.mustRun()
			for address, digest := range want.digests() {
				if got := l.digests()[address]; got != digest {
					t.Errorf("%s: got %s, want %s as elsewhere", address, got, digest)
				}
			}
			folder := Folder(newestRun(t, l))
			for address, said := range map[string]string{"stage.light.long": "said\n", "stage.light.silent": "", "stage.light.a": ""} {
				if b, err := os.ReadFile(folder.log(address)); err != nil || string(b) != said {
					t.Errorf("log of %s: got %q, %v, want %q", address, b, err, said)
				}
			}
			if p := l.plan(); p.Changes() {
				t.Error("the next plan has work to do")
			}
			if _, err := l.store().Collect(0); err != nil {
				t.Error(err)
			}
			if err := os.Remove(filepath.Join(l.dir, "page.txt")); err != nil {
				t.Fatal(err)
			}
			l.mustRun()
			if _, err := os.Stat(filepath.Join(l.dir, "page.txt")); err != nil {
				t.Errorf("the published file: %v", err)
			}

			l = newLab(t)
			lacking(t, syscall.EPERM, l.dir, ops...)
			g := l.gate()
			l.write(outliving)
			inside := l.killedEngine(g)
			done := l.adopting(t.Context())
			inside.pass()
			if r := <-done; r.err != nil {
				t.Errorf("adoption: %v\n%s", r.err, r.text())
			}
			if b, err := os.ReadFile(Folder(newestRun(t, l)).log("stage.toy.b")); err != nil || len(b) == 0 {
				t.Errorf("log of the adopted stage: got %q, %v, want it, or where it is", b, err)
			}
		})
	}
}

// Without locks there can be no store: two runs would make one result at once. The error says what to do.
func TestStoreWithoutLocksIsRefusedWithTheWayOut(t *testing.T) {
	for _, fault := range []error{syscall.ENOLCK, syscall.ENOSYS, syscall.EOPNOTSUPP} {
		l := newLab(t)
		l.write(faultyRun)
		p := l.plan()
		lacking(t, fault, l.dir, "flock")
		r := l.runPlan(t.Context(), p, RunOptions{})
		disk.Lack(nil)
		for _, want := range []string{"locks", l.storeDir, "another file system", "store { path }"} {
			if r.err == nil || !strings.Contains(r.err.Error(), want) {
				t.Errorf("%v: got %v, want %q in it", fault, r.err, want)
			}
		}
		if len(r.of(EventStarted)) > 0 {
			t.Errorf("%v: stages have started: %s", fault, r.text())
		}
		l.mustRun()
	}
}

// A home without locks, as some network file systems are, has the ledger elsewhere; a folder that the user
// has named does not.
func TestLedgerLiesWhereThereAreLocks(t *testing.T) {
	home := t.TempDir()
	t.Setenv("HOME", home)
	t.Setenv("XDG_STATE_HOME", "")
	t.Setenv(leasesVariable, "")
	l, err := OpenLedger("runs/x/1", "store")
	if err != nil || !strings.HasPrefix(l.dir, home) {
		t.Fatalf("got %+v, %v, want a ledger below %s", l, err, home)
	}
	held := l.mustTake(t, Lease{Address: "stage.toy.a", CPUs: 1}).file.Name()
	lacking(t, syscall.ENOLCK, home, "flock")
	if _, ok := readLease(held); ok || !exists(held) {
		t.Errorf("a lease whose lock fails: read %v, exists %v, want it neither read nor removed", ok, exists(held))
	}
	if err := l.Close(); err != nil {
		t.Error(err)
	}
	l, err = OpenLedger("runs/x/1", "store")
	if want := fmt.Sprintf("/tmp/rcgrpo-%d", os.Getuid()); err != nil || l.dir != want {
		t.Fatalf("home without locks: got %+v, %v, want a ledger in %s", l, err, want)
	}
	if err := l.Close(); err != nil {
		t.Error(err)
	}
	named := filepath.Join(home, "named")
	t.Setenv(leasesVariable, named)
	if _, err := OpenLedger("runs/x/1", "store"); !errors.Is(err, syscall.ENOLCK) || !strings.Contains(err.Error(), leasesVariable) || !strings.Contains(err.Error(), named) {
		t.Errorf("a named folder without locks: got %v, want an error with the way out", err)
	}
}
