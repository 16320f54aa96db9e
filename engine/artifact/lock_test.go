package artifact

import (
	"crypto/rand"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"rcgrpo/engine/internal/alive"
	"rcgrpo/engine/internal/disk"
	"rcgrpo/internal/must"
)

func lock(t *testing.T, s *Store, name string) *Lock {
	t.Helper()
	l, err := s.TryLock(key(name))
	if err != nil || l == nil {
		t.Fatalf("lock of %s: got %v, %v", name, l, err)
	}
	return l
}

func unlock(t *testing.T, l *Lock) {
	t.Helper()
	wantError(t, "unlock", l.Unlock(), nil)
}

func TestLockIsExclusive(t *testing.T) {
	s := openStore(t)
	first := lock(t, s, "a")
	if second, err := s.TryLock(key("a")); second != nil || err != nil {
		t.Fatalf("second lock: got %v, %v, want neither", second, err)
	}
	var inside sync.Mutex
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			l, err := s.TryLock(key("a"))
			for ; l == nil && err == nil; l, err = s.TryLock(key("a")) {
				time.Sleep(time.Millisecond)
			}
			if err != nil {
				t.Error(err)
				return
			}
			if !inside.TryLock() {
				t.Error("two holders at once")
			}
			inside.Unlock()
			unlock(t, l)
		})
	}
	unlock(t, first)
	all.Wait()
	wantEmpty(t, s.path("locks"))
}

func TestUnlockReleasesTheLockOfAnInheritedFile(t *testing.T) {
	s := openStore(t)
	l := lock(t, s, "a")
	child := exec.Command("sleep", "600")
	child.ExtraFiles = []*os.File{l.File()}
	must.OK(t, child.Start())
	unlock(t, l)
	unlock(t, lock(t, s, "a"))
	child.Process.Kill()
	child.Wait()
}

func TestStaleFilesAreRemoved(t *testing.T) {
	s := openStore(t)
	commit(t, s, "done", files{"x": "1"})
	for _, name := range []string{"done", "killed", "running"} {
		if first, again := must.Get(s.MakeWork(key(name)))(t), must.Get(s.MakeWork(key(name)))(t); !first || again {
			t.Errorf("scratch folder of %s: fresh %v, then %v", name, first, again)
		}
		must.Get(stage(s, name, files{"x": "half"}))(t)
	}
	running := lock(t, s, "running")
	lock(t, s, "killed").File().Close()
	busy, err := s.RemoveStale()
	if err != nil || len(busy) == 0 || busy[0] != key("running") {
		t.Errorf("busy: got %v, %v, want the running stage", busy, err)
	}
	for path, want := range map[string]bool{
		s.Work(key("done")): false, s.Work(key("killed")): true, s.Work(key("running")): true,
		s.path("staging", key("done")): false, s.path("staging", key("killed")): false,
		s.path("staging", key("running")): true,
		s.path("locks", key("killed")):    false,
	} {
		wantEqual(t, path+" exists", disk.Exists(path), want)
	}
	must.OK(t, s.Discard(key("running")))
	unlock(t, running)
}

const claimKey = "0123456789abcdef"

// sharedStore returns a shared store with short times on a file system whose locks reach no other process, as between
// two hosts.
func sharedStore(t *testing.T) *Store {
	t.Helper()
	beat, lost := alive.SetTimes(20*time.Millisecond, 300*time.Millisecond)
	disk.Lack(func(op, path string) error {
		if op == "flock" {
			return unix.EOPNOTSUPP
		}
		return nil
	})
	t.Cleanup(func() { alive.SetTimes(beat, lost); disk.Lack(nil) })
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
	for until := time.Now().Add(2 * alive.Lost()); time.Now().Before(until); time.Sleep(10 * time.Millisecond) {
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
	wantEmpty(t, s.path("claims"))
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
	// On a busy machine the beat of a successor may be silent too long, so that it has one of its own.
	var second *Lock
	names := map[string]bool{}
	for range 8 {
		l := <-winners
		if l == nil {
			continue
		}
		if names[l.path] {
			t.Fatal("two processes have taken over one claim")
		}
		names[l.path] = true
		if second == nil || len(l.before) > len(second.before) {
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
	wantEmpty(t, s.path("claims"))
}

func TestSharedStoresKeepWhatOtherHostsUse(t *testing.T) {
	s := sharedStore(t)
	l := must.Get(s.TryLock(claimKey))(t)
	staging := must.Get(s.Begin(claimKey))(t)
	must.Get(staging.Dir("out"))(t)
	busy := must.Get(s.RemoveStale())(t)
	if len(busy) == 0 || !disk.Exists(filepath.Join(s.Dir(), "staging", claimKey)) {
		t.Errorf("got busy %v, want the staging folder kept", busy)
	}
	_, open := must.Get(s.OpenWork())(t)[claimKey]
	wantEqual(t, "the key is open work", open, true)
	release := must.Get(s.Use())(t)
	done := make(chan error)
	go func() {
		_, err := s.Collect(0, nil)
		done <- err
	}()
	select {
	case <-done:
		t.Error("gc has chosen while another host writes pins")
	case <-time.After(100 * time.Millisecond):
	}
	must.OK(t, release())
	must.OK(t, <-done)
	l.stop()
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

// A copied store may have a claim with many successors of other hosts. Their silence is measured at the same time.
func TestManySilentSuccessorsTakeTheTimeOfOne(t *testing.T) {
	s := sharedStore(t)
	at := s.path("claims", claimKey)
	must.OK(t, os.MkdirAll(filepath.Dir(at), 0o700))
	for range 40 {
		id := rand.Text()[:idLength]
		must.OK(t, os.WriteFile(at, append(make([]byte, claimAt), id+"\nanother boot\n"+at+"\n"...), 0o600))
		at = s.path("claims", claimKey+"."+id)
	}
	for until := time.Now().Add(10 * alive.Lost()); ; time.Sleep(10 * time.Millisecond) {
		if l := must.Get(s.TryLock(claimKey))(t); l != nil {
			must.OK(t, l.Unlock())
			wantEmpty(t, s.path("claims"))
			return
		}
		if time.Now().After(until) {
			t.Fatalf("the claim is not free after %v", 10*alive.Lost())
		}
	}
}

// A successor has the id of its claim in its path. In a stranger's store the ids may lead to files of the user, which a
// release would remove, or in a ring.
func TestClaimsOfAStrangerLeadNowhere(t *testing.T) {
	for _, text := range []string{"x/../../../precious\n\n\n", "ABCDEFGHIJKL\n\nx/../../../precious",
		"ABCDEFGHIJKL\n\n\n"} {
		s := sharedStore(t)
		path := s.path("claims", claimKey)
		precious := filepath.Join(filepath.Dir(s.Dir()), "precious")
		must.OK(t, os.WriteFile(precious, []byte("x"), 0o600))
		must.OK(t, os.MkdirAll(path+".x", 0o700))
		for _, at := range []string{path, path + ".ABCDEFGHIJKL"} { // the second is its own successor
			must.OK(t, os.WriteFile(at, append(make([]byte, claimAt), text...), 0o600))
		}
		must.Get(s.OpenWork())(t)
		for until := time.Now().Add(5 * alive.Lost()); time.Now().Before(until); time.Sleep(10 * time.Millisecond) {
			if l, err := s.TryLock(claimKey); err != nil || l != nil {
				break
			}
		}
		if !disk.Exists(precious) {
			t.Errorf("%q: the file of the user is gone", text)
		}
		must.OK(t, os.RemoveAll(s.path("claims")))
	}
}
