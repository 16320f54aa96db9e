package artifact

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"rcgrpo/engine/internal/disk"
	"rcgrpo/internal/must"
)

// pins pins the keys of names.
func pins(names ...string) Pins {
	return func(*Store) (map[string]bool, error) {
		pinned := map[string]bool{}
		for _, name := range names {
			pinned[key(name)] = true
		}
		return pinned, nil
	}
}

func TestGarbageLeavesPinnedResults(t *testing.T) {
	s := openStore(t)
	commit(t, s, "mine", files{"x": "mine"})
	commit(t, s, "same", files{"x": "mine"}) // the same object
	commit(t, s, "other", files{"x": "other"})
	leaveUnfinished(t, s, "unmade")
	leaveUnfinished(t, s, "killed")
	pinned := pins("mine", "unmade")
	planned := must.Get(s.Garbage(1, pinned))(t)
	running := lock(t, s, "unmade")     // otherwise its output is stale
	other := must.Get(Open(s.Dir()))(t) // as another process has it
	done := must.Get(other.Collect(1, pinned))(t)
	names := func(plan []Garbage) string {
		var all []string
		for _, g := range plan {
			all = append(all, g.Name)
		}
		return strings.Join(all, " ")
	}
	wantEqual(t, "plan", names(planned), key("killed")+" stage.toy.other")
	wantEqual(t, "collected", names(done), "stage.toy.other") // stale output goes before
	wantIntact(t, s, "mine", "while it is pinned")
	wantEqual(t, "the output being written exists", disk.Exists(s.path("staging", key("unmade"), "half")), true)
	wantNothingGone(t, s)
	must.OK(t, errors.Join(os.RemoveAll(s.path("staging", key("unmade"))), running.Unlock()))
	wantEqual(t, "collected without pins", names(must.Get(other.Collect(1, nil))(t)), "stage.toy.mine stage.toy.same")
}

// wantNothingGone checks that nothing waits for its deletion.
func wantNothingGone(t *testing.T, s *Store) {
	t.Helper()
	entries, _ := os.ReadDir(s.path("objects"))
	for _, e := range entries {
		if strings.HasPrefix(e.Name(), gone) {
			t.Errorf("%s is not deleted", e.Name())
		}
	}
}

// gc deletes what it has renamed; after a kill in between the next one does.
func TestACollectionThatWasKilledIsCompleted(t *testing.T) {
	s := openStore(t)
	commit(t, s, "a", files{"x": "12"})
	release := must.Get(s.use(unix.LOCK_EX))(t)
	wantEqual(t, "chosen", len(must.Get(s.choose(1, nil))(t)), 1)
	must.OK(t, release())
	_, err := s.Lookup(key("a"))
	wantError(t, "lookup after the kill", err, ErrNotHere)
	must.Get(s.Collect(0, nil))(t)
	wantNothingGone(t, s)
}

// An object has its name before the manifest that names it, and one that is here already may be chosen by gc.
func TestCollectionWaitsForACommit(t *testing.T) {
	s := openStore(t)
	defer disk.Fail(nil)
	manifest, tried := s.path("results", key("a")+".json"), false
	disk.Fail(func(op, path string) error {
		if op == "rename" && path == manifest && !tried {
			tried = true
			lock, err := lockFile(s.path("use"), unix.LOCK_EX|unix.LOCK_NB)
			wantEqual(t, "gc can choose before the manifest exists", lock != nil || err != nil, false)
			if lock != nil {
				lock.file.Close()
			}
		}
		return nil
	})
	commit(t, s, "a", files{"x": "1"})
	disk.Fail(nil)
	must.Get(must.Get(Open(s.Dir()))(t).Collect(0, nil))(t)
	wantEqual(t, "tried", tried, true)
	wantIntact(t, s, "a", "afterwards")
}

// A kill between the files would leave an attempt without its exit, which counts as a job that runs.
func TestTheFilesOfJobsGoTogether(t *testing.T) {
	s := openStore(t)
	k := key("a")
	must.OK(t, s.RemoveJobs(k))
	must.OK(t, s.MakeDir(s.Jobs(k)))
	for _, name := range []string{"1", "1.alive", "1.exit", "1.out"} {
		must.OK(t, os.WriteFile(filepath.Join(s.Jobs(k), name), []byte("{}"), 0o600))
	}
	defer disk.Fail(nil)
	for _, remove := range []func() error{
		func() error { return s.RemoveJobs(k) },
		func() error { _, err := s.RemoveStale(); return err },
	} {
		disk.Fail(func(op, path string) error {
			if op == "rename" {
				return unix.EIO
			}
			return nil
		})
		err := remove()
		if left, _ := os.ReadDir(s.Jobs(k)); err == nil || len(left) != 4 {
			t.Errorf("without a rename: got %v and %d files, want an error and all 4", err, len(left))
		}
	}
	disk.Fail(nil)
	must.OK(t, s.RemoveJobs(k))
	wantEmpty(t, s.path("jobs"))
}

// A pin is written while gc does not choose.
func TestAPinWaitsForACollection(t *testing.T) {
	s := openStore(t)
	commit(t, s, "a", files{"x": "1"})
	file := s.path("pins")
	release := must.Get(s.use(unix.LOCK_EX))(t)
	done := make(chan error)
	go func() { done <- s.Pin(file, key("a"), "") }()
	select {
	case <-done:
		t.Error("a pin was written while gc chooses")
	case <-time.After(20 * time.Millisecond):
	}
	must.OK(t, release())
	must.OK(t, <-done)
	must.OK(t, s.Pin(file, key("b")))
	wantEqual(t, "pins", ReadPins(file), []string{key("a"), key("b")})
}

// In a shared folder, another machine may be pushing an object whose manifest comes later.
func TestAnObjectWithoutAManifestStaysForADay(t *testing.T) {
	s := openStore(t)
	m := commit(t, s, "a", files{"x": "1", "sub/y": "2"})
	object := s.objectDir(m.Outputs["out"].Digest)
	must.OK(t, os.Remove(s.manifestPath(m.Key)))
	yesterday := time.Now().Add(-25 * time.Hour)
	for _, dir := range []string{object, object + "/sub"} {
		wantEqual(t, "collected while a folder of it is new", len(must.Get(s.Collect(0, nil))(t)), 0)
		must.OK(t, os.Chtimes(dir, yesterday, yesterday))
	}
	plan := must.Get(s.Collect(0, nil))(t)
	wantEqual(t, "collected after a day", len(plan), 1)
	wantEqual(t, "its bytes", plan[0].Bytes, 2)
}
