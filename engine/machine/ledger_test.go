package machine

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"rcgrpo/engine/internal/disk"
	"rcgrpo/engine/proc"
	"rcgrpo/engine/sched"
	"rcgrpo/internal/must"
)

// ownFolder sets a private ledger folder. At the end of the test all runs must have removed their files.
func ownFolder(t *testing.T) string {
	dir := filepath.Join(t.TempDir(), "leases")
	t.Setenv(leasesVariable, dir)
	t.Cleanup(func() {
		if left, err := os.ReadDir(dir); err != nil || len(left) != 1 {
			t.Errorf("files at the end: got %v, %v, want the mutex alone", left, err)
		}
	})
	return dir
}

// open opens the ledger for a run until the end of the test.
func open(t *testing.T, run string) *Ledger {
	t.Helper()
	l := must.Get(OpenLedger(run, "store"))(t)
	t.Cleanup(func() { must.OK(t, l.Close()) })
	return l
}

func others(t *testing.T, l *Ledger) []Lease {
	t.Helper()
	must.OK(t, l.Lock(t.Context()))
	defer l.Unlock()
	return must.Get(l.Others())(t)
}

// wantOthers checks how many leases and requests of other runs a ledger has.
func wantOthers(t *testing.T, what string, l *Ledger, want int) {
	t.Helper()
	if got := others(t, l); len(got) != want {
		t.Errorf("%s: got %+v, want %d", what, got, want)
	}
}

func reserve(t *testing.T, l *Ledger, lease Lease) *LeaseFile {
	t.Helper()
	must.OK(t, l.Lock(t.Context()))
	defer l.Unlock()
	return must.Get(l.Reserve(lease))(t)
}

func TestLeaseCountsUntilTheLastProcessThatInheritedItEnds(t *testing.T) {
	ownFolder(t)
	b := open(t, "runs/y/2")
	a := must.Get(OpenLedger("runs/x/1", "store"))(t)
	f := reserve(t, a, Lease{Address: "stage.toy.a", CPUs: 2, GPUs: []string{"1"}, Devices: 1, Memory: 5})
	if got := others(t, b); len(got) != 1 || got[0].CPUs != 2 || got[0].Devices != 1 || got[0].Memory != 5 ||
		got[0].Run != "runs/x/1" || len(others(t, a)) != 0 {
		t.Fatalf("others: got %+v, want the lease of the first run, and none for itself", got)
	}
	child := exec.Command("sleep", "600")
	child.ExtraFiles = []*os.File{f.File()}
	must.OK(t, child.Start())
	f.File().Close() // as after a kill of the engine
	a.mutex.Close()
	wantOthers(t, "while the stage's process lives", b, 1)
	child.Process.Kill()
	child.Wait()
	wantOthers(t, "after its end", b, 0)
}

func TestFreedLeaseDoesNotCountAndItsFileIsRemoved(t *testing.T) {
	ownFolder(t) // checks the files
	a, b := open(t, "runs/x/1"), open(t, "runs/y/2")
	for i := range 5 {
		address := strings.Repeat("long", 5-i)
		f := reserve(t, a, Lease{Address: address, CPUs: 1})
		if got := others(t, b); len(got) != 1 || got[0].Address != address {
			t.Errorf("reserved: got %+v", got)
		}
		must.OK(t, f.Free())
		wantOthers(t, "freed", b, 0)
	}
	f := reserve(t, a, Lease{CPUs: 1})
	must.OK(t, os.Remove(f.File().Name()))
	must.OK(t, f.Free()) // by then a cleaning tool may have removed it
}

func TestReadableLedgerFolderIsRefused(t *testing.T) {
	dir := t.TempDir()
	must.OK(t, os.Chmod(dir, 0o755))
	t.Setenv(leasesVariable, dir)
	_, err := OpenLedger("r", "s")
	must.Match(t, err, leasesVariable)
}

func TestRequestExpiresUnlessItIsRenewed(t *testing.T) {
	ownFolder(t)
	stopped, other := open(t, "runs/x/1"), open(t, "runs/y/2")
	must.OK(t, stopped.Request(sched.Share{CPUs: 1}, "stage.toy.a", proc.SinceBoot()-time.Hour))
	wantOthers(t, "a new request", other, 1)
	written := stopped.request.lease
	written.Written = proc.SinceBoot() - 2*requestTimeout
	b := must.Get(json.Marshal(written))(t)
	must.Get(stopped.request.File().WriteAt(append(b, '\n'), 0))(t)
	wantOthers(t, "an old request", other, 0)
}

// holdMutex starts a process that holds the mutex of a ledger.
func holdMutex(t *testing.T, dir string) *os.Process {
	t.Helper()
	flock, err := exec.LookPath("flock")
	if err != nil {
		t.Skip("there is no flock(1)")
	}
	cmd := exec.Command(flock, "--no-fork", filepath.Join(dir, "mutex"), "sh", "-c", "echo locked; exec sleep 600")
	out := must.Get(cmd.StdoutPipe())(t)
	must.OK(t, cmd.Start())
	t.Cleanup(func() {
		cmd.Process.Kill()
		cmd.Wait()
	})
	if line, err := bufio.NewReader(out).ReadString('\n'); line != "locked\n" {
		t.Fatal(line, err)
	}
	return cmd.Process
}

func TestLedgerLockEndsWithTheContextOrNamesTheHolder(t *testing.T) {
	dir := ownFolder(t)
	l := open(t, "runs/x/1")
	holder := holdMutex(t, dir)
	defer func(d time.Duration) { ledgerTimeout = d }(ledgerTimeout)

	ledgerTimeout = time.Hour
	cause := errors.New("interrupted by the user")
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(cause)
	if err := l.Lock(ctx); !errors.Is(err, cause) {
		t.Errorf("with a context that has ended: got %v, want its cause", err)
	}
	ledgerTimeout = 20 * time.Millisecond
	must.Match(t, l.Lock(t.Context()), fmt.Sprintf("by process %d:", holder.Pid), "a process holds it")
	must.OK(t, holder.Signal(syscall.SIGSTOP))
	for deadline := time.Now().Add(30 * time.Second); !proc.Stopped(holder.Pid) && time.Now().Before(deadline); {
		time.Sleep(time.Millisecond)
	}
	must.Contain(t, fmt.Sprint(l.Lock(t.Context())), filepath.Join(dir, "mutex"), "stopped",
		fmt.Sprintf("kill -CONT %d", holder.Pid))
}

func TestLedgerFolderIsNotCleanedByAge(t *testing.T) {
	home, state, leases := t.TempDir(), t.TempDir(), filepath.Join(t.TempDir(), "named")
	foreign := "/proc/sys" // belongs to root
	if os.Getuid() == 0 {
		foreign = t.TempDir()
		must.OK(t, os.Chown(foreign, 12345, 12345))
	}
	temporary, name := fmt.Sprintf("/tmp/rcgrpo-%d", os.Getuid()), "leases-"+proc.HostName()
	for what, tc := range map[string]struct {
		home, state, leases string
		want                []string
	}{
		"a home":          {home, "", "", []string{filepath.Join(home, ".local/state/rcgrpo", name), temporary}},
		"a state folder":  {home, state, "", []string{filepath.Join(state, "rcgrpo", name), temporary}},
		"no home":         {"", "", "", []string{temporary}},
		"a missing home":  {"/nonexistent", "", "", []string{temporary}},
		"home of another": {foreign, "", "", []string{temporary}},
		"a named folder":  {home, "", leases, []string{leases}},
	} {
		t.Setenv("HOME", tc.home)
		t.Setenv("XDG_STATE_HOME", tc.state)
		t.Setenv(leasesVariable, tc.leases)
		if got := ledgerFolders(); !slices.Equal(got, tc.want) {
			t.Errorf("%s: got %v, want %v", what, got, tc.want)
		}
	}
}

// A home folder without locks, as on some network file systems, moves the ledger; a folder that the user has
// named is an error.
func TestLedgerNeedsAFolderWithLocks(t *testing.T) {
	home := t.TempDir()
	t.Setenv("HOME", home)
	t.Setenv("XDG_STATE_HOME", "")
	t.Setenv(leasesVariable, "")
	l := open(t, "runs/x/1")
	if !strings.HasPrefix(l.Dir, home) {
		t.Fatalf("got %s, want a ledger below %s", l.Dir, home)
	}
	held := reserve(t, l, Lease{Address: "stage.toy.a", CPUs: 1}).File().Name()
	disk.Lack(func(op, path string) error {
		if op == "flock" && strings.HasPrefix(path, home) {
			return syscall.ENOLCK
		}
		return nil
	})
	t.Cleanup(func() { disk.Lack(nil) })
	if _, ok := readLease(held); ok || !disk.Exists(held) {
		t.Errorf("lease whose lock cannot be tested: got read %v, exists %v, want false, true", ok, disk.Exists(held))
	}
	if l, want := open(t, "runs/x/1"), fmt.Sprintf("/tmp/rcgrpo-%d", os.Getuid()); l.Dir != want {
		t.Errorf("home without locks: got a ledger in %s, want %s", l.Dir, want)
	}
	named := filepath.Join(home, "named")
	t.Setenv(leasesVariable, named)
	_, err := OpenLedger("runs/x/1", "store")
	text := fmt.Sprint(err)
	if !errors.Is(err, syscall.ENOLCK) || !strings.Contains(text, leasesVariable) || !strings.Contains(text, named) {
		t.Errorf("named folder without locks: got %v, want an error with the way out", err)
	}
}
