package artifact

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"rcgrpo/engine/internal/disk"
)

func TestRetiredLocksServeOtherKeys(t *testing.T) {
	s := openStore(t)
	first, err := s.TryLock(key("a"))
	if err != nil {
		t.Fatal(err)
	}
	before, err := first.File().Stat()
	if err != nil {
		t.Fatal(err)
	}
	if err := first.Describe([]byte(`"a's"`)); err != nil {
		t.Fatal(err)
	}
	if err := first.AwaitExit(); err != nil {
		t.Fatal(err)
	}
	if _, err := fmt.Fprintln(first.File(), strings.ReplaceAll(ExitText(), "$?", "0")); err != nil { // as the program's shell
		t.Fatal(err)
	}
	if code, _, ok := first.Exit(); code != 0 || !ok {
		t.Fatalf("exit record: got %d, %v, want 0", code, ok)
	}
	if err := first.Retire(); err != nil {
		t.Fatal(err)
	}
	second, err := s.TryLock(key("b"))
	if err != nil || second == nil {
		t.Fatal(second, err)
	}
	after, err := second.File().Stat()
	if err != nil {
		t.Fatal(err)
	}
	if !os.SameFile(before, after) {
		t.Error("the lock of b is another file than a's was")
	}
	var holder string
	if err := s.Holder(key("b"), &holder); !errors.Is(err, ErrNotFound) {
		t.Errorf("the holder of b is said to be %q (%v)", holder, err)
	}
	if code, _, ok := second.Exit(); ok || second.Left() {
		t.Errorf("b is said to have left a program that ended with %d", code)
	}
	if l, err := s.TryLock(key("b")); l != nil || err != nil {
		t.Errorf("b can be locked twice (%v)", err)
	}
	other, err := Open(s.Dir()) // another process
	if err != nil {
		t.Fatal(err)
	}
	third, err := other.TryLock(key("a"))
	if err != nil || third == nil {
		t.Fatalf("a cannot be locked after it was retired (%v)", err)
	}
	for _, l := range []*Lock{second, third} {
		if err := l.Unlock(); err != nil {
			t.Error(err)
		}
	}
}

// How long a program took that ended while nobody attended to it is counted to its end, not to when somebody found it.
func TestExitRecordKeepsItsTime(t *testing.T) {
	s := openStore(t)
	killed, err := s.TryLock(key("a"))
	if err != nil {
		t.Fatal(err)
	}
	if err := killed.AwaitExit(); err != nil {
		t.Fatal(err)
	}
	if _, err := fmt.Fprintln(killed.File(), strings.ReplaceAll(ExitText(), "$?", "0")); err != nil {
		t.Fatal(err)
	}
	killed.File().Close()
	ended := time.Now().Add(-time.Hour).Truncate(time.Second)
	if err := os.Chtimes(killed.path, ended, ended); err != nil {
		t.Fatal(err)
	}
	next, err := s.TryLock(key("a"))
	if err != nil {
		t.Fatal(err)
	}
	if err := next.Describe([]byte(`"the next one"`)); err != nil {
		t.Fatal(err)
	}
	if code, at, ok := next.Exit(); code != 0 || !ok || !at.Equal(ended) {
		t.Errorf("exit record: got %d at %v, %v, want 0 at %v", code, at, ok, ended)
	}
	if err := next.AwaitExit(); err != nil { // begins anew
		t.Fatal(err)
	}
	if _, err := fmt.Fprintln(next.File(), strings.ReplaceAll(ExitText(), "$?", "3")); err != nil {
		t.Fatal(err)
	}
	if code, at, ok := next.Exit(); code != 3 || !ok || time.Since(at) > time.Minute {
		t.Errorf("exit record of the next program: got %d at %v, %v, want 3 now", code, at, ok)
	}
	if err := next.Unlock(); err != nil {
		t.Error(err)
	}
}

// A waiter sleeps on no file: its holder may take that to another key and keep it for hours.
func TestWhoWaitsForALockGetsItWhenItIsRetired(t *testing.T) {
	s := openStore(t)
	l, err := s.TryLock(key("a"))
	if err != nil {
		t.Fatal(err)
	}
	got := make(chan error, 1)
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	other, err := Open(s.Dir())
	if err != nil {
		t.Fatal(err)
	}
	go func() {
		waited, err := other.Lock(ctx, key("a"))
		if err == nil {
			err = waited.Unlock()
		}
		got <- err
	}()
	time.Sleep(3 * awaitEvery)
	if err := l.Retire(); err != nil {
		t.Fatal(err)
	}
	if next, err := s.TryLock(key("b")); err != nil || next == nil {
		t.Fatal(err)
	}
	if err := <-got; err != nil {
		t.Error(err)
	}
}

func TestSparesAreEmptyAndLeaveNothing(t *testing.T) {
	s := openStore(t)
	for _, k := range []string{"a", "b", "c"} {
		fresh, err := s.MakeWork(key(k))
		if err != nil || !fresh {
			t.Fatalf("%s: fresh %v (%v)", k, fresh, err)
		}
	}
	if fresh, err := s.MakeWork(key("a")); err != nil || fresh {
		t.Errorf("a folder that is there is made again (%v)", err)
	}
	if err := os.WriteFile(filepath.Join(s.Work(key("b")), "left"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, k := range []string{"a", "b"} {
		if err := s.RemoveWork(key(k)); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := os.Stat(s.Work(key("b"))); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a scratch folder with files is kept for others: %v", err)
	}
	if fresh, err := s.MakeWork(key("c")); err != nil || fresh {
		t.Errorf("a folder that is there is made again (%v)", err)
	}
	if fresh, err := s.MakeWork(key("d"), "out"); err != nil || !fresh {
		t.Fatal(err)
	}
	if _, err := os.Stat(s.Work(key("a"))); err != nil {
		t.Errorf("a folder without folders is taken over for a node that wants some: %v", err)
	}
	if err := os.Remove(filepath.Join(s.Work(key("d")), "out")); err != nil { // as who takes it for an output
		t.Errorf("a new scratch folder lacks a folder: %v", err)
	}
	if err := s.RemoveWork(key("d"), "out", "out/deep"); err != nil {
		t.Fatal(err)
	}
	if fresh, err := s.MakeWork(key("e"), "out", "out/deep"); err != nil || !fresh {
		t.Fatal(err)
	}
	if _, err := os.Stat(filepath.Join(s.Work(key("e")), "out", "deep")); err != nil {
		t.Errorf("folders that a node wants were not made ahead: %v", err)
	}
	if err := s.RemoveWork(key("e")); err != nil {
		t.Fatal(err)
	}
	if fresh, err := s.MakeWork(key("d")); err != nil || !fresh {
		t.Fatal(err)
	}
	if _, err := os.Stat(s.Work(key("a"))); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a's folder was not taken over: %v", err)
	}
	if err := s.RemoveWork(key("d")); err != nil {
		t.Fatal(err)
	}
	if err := s.RemoveSpares(); err != nil {
		t.Fatal(err)
	}
	left, err := os.ReadDir(filepath.Dir(s.Work(key("c"))))
	if err != nil || len(left) != 1 {
		t.Errorf("left in work: %v (%v), want c only", left, err)
	}
}

// A run that begins tidies what it takes for left, and another one that goes on may take the same folder over: one of the two has it
// whole. The loser makes another folder, once.
func TestTidyAndARunDoNotShareASpare(t *testing.T) {
	s := openStore(t)
	commit(t, s, "a", files{"x": "1"})
	spare := func() {
		t.Helper()
		if _, err := s.MakeWork(key("a"), "out"); err != nil {
			t.Fatal(err)
		}
		if err := os.Remove(filepath.Join(s.Work(key("a")), "out")); err != nil { // as who takes it for an output
			t.Fatal(err)
		}
		if err := s.RemoveWork(key("a"), "out"); err != nil {
			t.Fatal(err)
		}
	}
	tidy := func() {
		t.Helper()
		other, err := Open(s.Dir())
		if err != nil {
			t.Fatal(err)
		}
		if _, err := other.Tidy(); err != nil {
			t.Error(err)
		}
	}
	spare()
	taken := false
	disk.Fail(func(op, path string) error {
		if op == "rename" && path == s.path("staging", key("a")) && !taken { // Tidy has decided
			taken = true
			if fresh, err := s.MakeWork(key("b"), "out"); err != nil || !fresh {
				t.Errorf("fresh %v (%v)", fresh, err)
			}
		}
		return nil
	})
	t.Cleanup(func() { disk.Fail(nil) })
	tidy()
	if _, err := os.Stat(filepath.Join(s.Work(key("b")), "out")); err != nil || !taken {
		t.Errorf("the folder that the run took over is not whole: %v (asked for: %v)", err, taken)
	}
	disk.Fail(nil)
	spare()
	tidy()
	if _, err := os.Stat(s.Work(key("a"))); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("what a killed run left stays: %v", err)
	}
	if fresh, err := s.MakeWork(key("c"), "out"); err != nil || !fresh {
		t.Errorf("fresh %v (%v)", fresh, err)
	}
	if n := len(s.spare.folders); n > 0 {
		t.Errorf("%d folders that are gone count as spares", n)
	}
	left, err := os.ReadDir(s.path("staging"))
	if err != nil || len(left) > 0 {
		t.Errorf("left in staging: %v (%v)", left, err)
	}
}

// Who waits for a lock looks again and again; that uses up no spare.
func TestWaitingForALockKeepsTheSpares(t *testing.T) {
	s := openStore(t)
	held, err := s.TryLock(key("held"))
	if err != nil {
		t.Fatal(err)
	}
	defer held.Unlock()
	spare, err := s.TryLock(key("a"))
	if err != nil {
		t.Fatal(err)
	}
	if err := spare.Retire(); err != nil {
		t.Fatal(err)
	}
	before := len(s.spare.locks)
	for range 3 {
		if l, err := s.TryLock(key("held")); l != nil || err != nil {
			t.Fatalf("locked twice (%v)", err)
		}
	}
	if after := len(s.spare.locks); before == 0 || after != before {
		t.Errorf("spare locks: got %d, want %d", after, before)
	}
}
