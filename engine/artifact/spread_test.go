package artifact

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"rcgrpo/engine/internal/disk"
)

func TestFoldersOfAStoreLeaveNothingBeside(t *testing.T) {
	s := openStore(t)
	for _, dir := range []string{s.path("objects", "x"), s.path("objects", "y"), s.path("nodes")} {
		if err := s.MakeDir(dir); err != nil {
			t.Fatal(err)
		}
		if info, err := os.Stat(dir); err != nil || info.Mode().Perm() != 0o700 {
			t.Errorf("%s: got %v, %v, want a private folder", dir, info, err)
		}
	}
	killed, err := os.MkdirTemp(s.Dir(), asidePattern)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.Tidy(); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(killed); err == nil {
		t.Errorf("%s of a killed run is left", killed)
	}
	if left, _ := filepath.Glob(filepath.Join(s.Dir(), "*")); len(left) != 2 {
		t.Errorf("the store has %v, want objects and nodes", left)
	}
}

func TestMarkTopAddsOneFlag(t *testing.T) {
	dir := t.TempDir()
	d, err := os.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	before, err := unix.IoctlGetUint32(int(d.Fd()), getFlags)
	if err != nil {
		t.Skipf("the file system of %s keeps no flags: %v", dir, err)
	}
	for range 2 {
		markTop(dir)
		if after, err := unix.IoctlGetUint32(int(d.Fd()), getFlags); err != nil || after != before|topFlag && after != before {
			t.Errorf("flags: got %#x, %v, want %#x, or %#x where that flag is unknown", after, err, before|topFlag, before)
		}
	}
	markTop(filepath.Join(dir, "missing"))
}

// A store whose folders lie where files were removed a short while ago makes new ones elsewhere.
func TestCrowdedFoldersAreLeft(t *testing.T) {
	s := openStore(t)
	spare := "" // the one that is crowded
	disk.Fail(func(op, path string) error {
		if path == spare {
			time.Sleep(2 * crowdedTimes * (s.room.best + crowdedFrom))
		}
		return nil
	})
	t.Cleanup(func() { disk.Fail(nil) })
	var info os.FileInfo
	for i := range 2 * lookForRoom {
		if fresh, err := s.MakeWork(key(fmt.Sprint(i))); err != nil || !fresh {
			t.Fatalf("folder %d: fresh %v (%v)", i, fresh, err)
		}
		before := info
		var err error
		if info, err = os.Stat(s.Work(key(fmt.Sprint(i)))); err != nil {
			t.Fatal(err)
		}
		if same := before != nil && os.SameFile(before, info); same != (i > 0 && i != lookForRoom) {
			t.Errorf("folder %d is that of the one before: %v", i, same)
		}
		held, err := os.Open(s.Work(key(fmt.Sprint(i)))) // so that no other folder gets its number
		if err != nil {
			t.Fatal(err)
		}
		defer held.Close()
		if spare = s.Work(key(fmt.Sprint(i))); i != lookForRoom-1 {
			spare = ""
		}
		if err := s.RemoveWork(key(fmt.Sprint(i))); err != nil {
			t.Fatal(err)
		}
	}
}

func TestWhatIsSlowEverywhereIsNotCrowded(t *testing.T) {
	var r room
	for _, c := range []struct {
		took    time.Duration
		crowded bool
	}{{time.Millisecond, false}, {crowdedTimes * time.Millisecond, false}, {crowdedTimes*time.Millisecond + 1, true},
		{crowdedFrom / crowdedTimes, false}, {crowdedFrom, false}, {crowdedFrom + 1, true}} {
		if got := r.crowded(c.took); got != c.crowded {
			t.Errorf("after the best of %v, %v is crowded: got %v, want %v", r.best, c.took, got, c.crowded)
		}
	}
}
