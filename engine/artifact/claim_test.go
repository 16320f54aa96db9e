package artifact

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"rcgrpo/engine/internal/disk"
	"rcgrpo/internal/must"
)

const claimKey = "0123456789abcdef"

// sharedStore returns a shared store with short times on a file system whose locks reach no other process, as between
// two hosts.
func sharedStore(t *testing.T) *Store {
	t.Helper()
	beat, lost := beatEvery, lostAfter
	SetClaimTimes(20*time.Millisecond, 300*time.Millisecond)
	disk.Lack(func(op, path string) error {
		if op == "flock" {
			return unix.EOPNOTSUPP
		}
		return nil
	})
	t.Cleanup(func() { SetClaimTimes(beat, lost); disk.Lack(nil) })
	s := must.Get(Open(filepath.Join(t.TempDir(), "store")))(t)
	must.OK(t, s.Share())
	other := must.Get(Open(s.Dir()))(t)
	if !other.Shared() {
		t.Fatal("another process does not see that the store is shared")
	}
	return s
}

// within waits up to 10 s for a lock.
func within(t *testing.T, s *Store) *Lock {
	t.Helper()
	for deadline := time.Now().Add(10 * time.Second); ; time.Sleep(10 * time.Millisecond) {
		l := must.Get(s.TryLock(claimKey))(t)
		if l != nil || time.Now().After(deadline) {
			return l
		}
	}
}

func TestClaimsHaveOneHolder(t *testing.T) {
	s := sharedStore(t)
	first := must.Get(s.TryLock(claimKey))(t)
	for until := time.Now().Add(2 * lostAfter); time.Now().Before(until); time.Sleep(10 * time.Millisecond) {
		if l := must.Get(s.TryLock(claimKey))(t); l != nil {
			t.Fatal("a claim with a beat was taken over")
		}
	}
	must.OK(t, first.Unlock())
	second := must.Get(s.TryLock(claimKey))(t)
	if second == nil {
		t.Fatal("a released claim is not free")
	}
	must.OK(t, second.Unlock())
	if left := must.Get(os.ReadDir(filepath.Join(s.Dir(), "claims")))(t); len(left) > 0 {
		t.Errorf("left: %v", left)
	}
}

// A holder without a beat has a successor, which it finds before a commit, and which its release does not touch.
func TestSilentClaimsHaveOneSuccessor(t *testing.T) {
	s := sharedStore(t)
	first := must.Get(s.TryLock(claimKey))(t)
	first.stop()
	winners := make(chan *Lock)
	for range 8 {
		go func() {
			for range 100 {
				if l, _ := s.TryLock(claimKey); l != nil {
					winners <- l
					return
				}
				time.Sleep(10 * time.Millisecond)
			}
			winners <- nil
		}()
	}
	var second *Lock
	for range 8 {
		if l := <-winners; l != nil && second != nil {
			t.Fatal("two processes have taken over")
		} else if l != nil {
			second = l
		}
	}
	if CheckClaim(first.File()) == nil || CheckClaim(second.File()) != nil {
		t.Errorf("got %v, %v, want only the first claim lost", CheckClaim(first.File()), CheckClaim(second.File()))
	}
	must.OK(t, first.Unlock())
	if l := must.Get(s.TryLock(claimKey))(t); l != nil {
		t.Fatal("the release of the lost claim released its successor")
	}
	second.stop()
	third := within(t, s)
	if third == nil || CheckClaim(second.File()) == nil {
		t.Fatal("the second successor did not come")
	}
	must.OK(t, third.Unlock())
	must.OK(t, second.Unlock())
	if left := must.Get(os.ReadDir(filepath.Join(s.Dir(), "claims")))(t); len(left) > 0 {
		t.Errorf("left: %v", left)
	}
}

func TestSharedStoresKeepWhatOtherHostsUse(t *testing.T) {
	s := sharedStore(t)
	session := must.Get(s.NewSession())(t)
	must.OK(t, session.Pin(claimKey))
	l := must.Get(s.TryLock(claimKey))(t)
	staging := must.Get(s.Begin(claimKey))(t)
	must.Get(staging.Dir("out"))(t)
	busy := must.Get(s.RemoveStale())(t)
	if len(busy) == 0 || !disk.Exists(filepath.Join(s.Dir(), "staging", claimKey)) {
		t.Errorf("got busy %v, want the staging folder kept", busy)
	}
	if pinned := must.Get(s.pinned())(t); !pinned[claimKey] {
		t.Errorf("got pins %v, want that of the session", pinned)
	}
	if _, err := s.Collect(0); !errors.Is(err, ErrBusy) {
		t.Errorf("gc beside a session: got %v, want ErrBusy", err)
	}
	l.stop()
	session.lock.stop()
	if _, err := s.Collect(0); err != nil {
		t.Errorf("gc after the death of the session: %v", err)
	}
	within(t, s).Unlock()
}

func TestStoresInUseAreNotShared(t *testing.T) {
	s := must.Get(Open(filepath.Join(t.TempDir(), "store")))(t)
	l := must.Get(s.TryLock(claimKey))(t)
	if err := s.Share(); err == nil {
		t.Error("a store with a locked key became shared")
	}
	must.OK(t, l.Unlock())
	must.OK(t, s.Share())
}
