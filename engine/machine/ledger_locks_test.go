package machine

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"rcgrpo/engine/internal/disk"
	"rcgrpo/engine/proc"
)

// A home folder without locks, as on some network file systems, moves the ledger; a folder that the user
// has named is an error.
func TestLedgerNeedsAFolderWithLocks(t *testing.T) {
	home := t.TempDir()
	t.Setenv("HOME", home)
	t.Setenv("XDG_STATE_HOME", "")
	t.Setenv(leasesVariable, "")
	l, err := OpenLedger("runs/x/1", "store")
	if err != nil || !strings.HasPrefix(l.Dir, home) {
		t.Fatalf("got %+v, %v, want a ledger below %s", l, err, home)
	}
	held := l.mustTake(t, Lease{Address: "stage.toy.a", CPUs: 1}).file.Name()
	disk.Lack(func(op, path string) error {
		if op == "flock" && strings.HasPrefix(path, home) {
			return syscall.ENOLCK
		}
		return nil
	})
	t.Cleanup(func() { disk.Lack(nil) })
	if _, ok := readLease(held); ok || !proc.Exists(held) {
		t.Errorf("lease whose lock cannot be tested: got read %v, exists %v, want false, true", ok, proc.Exists(held))
	}
	if err := l.Close(); err != nil {
		t.Error(err)
	}
	l, err = OpenLedger("runs/x/1", "store")
	if want := fmt.Sprintf("/tmp/rcgrpo-%d", os.Getuid()); err != nil || l.Dir != want {
		t.Fatalf("home without locks: got %+v, %v, want a ledger in %s", l, err, want)
	}
	if err := l.Close(); err != nil {
		t.Error(err)
	}
	named := filepath.Join(home, "named")
	t.Setenv(leasesVariable, named)
	_, err = OpenLedger("runs/x/1", "store")
	text := fmt.Sprint(err)
	if !errors.Is(err, syscall.ENOLCK) || !strings.Contains(text, leasesVariable) || !strings.Contains(text, named) {
		t.Errorf("named folder without locks: got %v, want an error with the way out", err)
	}
}
