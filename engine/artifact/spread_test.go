package artifact

import (
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
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
