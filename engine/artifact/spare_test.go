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
