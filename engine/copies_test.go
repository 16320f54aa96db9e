package engine

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"rcgrpo/engine/artifact"
)

func TestRecordsOfCopiesSurviveTornLinesAndOtherWriters(t *testing.T) {
	store, err := artifact.Open(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	a, b := openCopies(store), openCopies(store)
	say := func(c *copies, path, digest string) {
		t.Helper()
		if err := c.record(copyRecord{Path: path, SHA256: digest, Bytes: 1, Time: time.Unix(1, 2)}); err != nil {
			t.Fatal(err)
		}
	}
	say(a, "/x", "old")
	if err := a.refresh(); err != nil { // from now on it need not read what it writes itself
		t.Fatal(err)
	}
	say(a, "/y", "y")
	f, err := os.OpenFile(a.path, os.O_WRONLY|os.O_APPEND, 0)
	if err != nil {
		t.Fatal(err)
	}
	fmt.Fprint(f, `{"path":"/z","sha`) // a power cut
	f.Close()
	say(b, "/x", "new")
	say(b, "/y", "")
	for name, c := range map[string]*copies{"the first writer": a, "a newcomer": openCopies(store)} {
		if err := c.refresh(); err != nil {
			t.Fatal(err)
		}
		x, known := c.of("/x")
		if !known || x.SHA256 != "new" || !x.Time.Equal(time.Unix(1, 2)) {
			t.Errorf("%s: got %+v of /x, want the last record", name, x)
		}
		for _, path := range []string{"/y", "/z"} {
			if r, known := c.of(path); known {
				t.Errorf("%s: got %+v of %s, want none", name, r, path)
			}
		}
	}
}

func TestOvertakenRecordsOfCopiesGo(t *testing.T) {
	store, err := artifact.Open(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	var lines strings.Builder
	for i := range 2*compactFrom + 4 {
		fmt.Fprintf(&lines, `{"path":"/p%d","sha256":"%d"}`+"\n", i%3, i)
	}
	c := openCopies(store)
	if err := os.WriteFile(c.path, []byte(lines.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := c.refresh(); err != nil {
		t.Fatal(err)
	}
	want := c.known
	if err := c.compact(); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(c.path)
	if err != nil {
		t.Fatal(err)
	}
	if n := strings.Count(string(text), "\n"); n != 3 {
		t.Errorf("%d lines are left, want 3", n)
	}
	if err := c.refresh(); err != nil {
		t.Fatal(err)
	}
	for path, r := range want {
		if got, _ := c.of(path); got != r {
			t.Errorf("%s: got %+v, want %+v", path, got, r)
		}
	}
}

// A copy is whole when it appears, also where the folder that it is written in is on another file system than the place, or is gone.
func TestCopiesCrossFileSystems(t *testing.T) {
	dir := t.TempDir()
	from := filepath.Join(dir, "from")
	if err := os.WriteFile(from, []byte("made"), 0o600); err != nil {
		t.Fatal(err)
	}
	there, err := os.MkdirTemp("/dev/shm", "rcgrpo-copies-")
	if err != nil {
		t.Skipf("no other file system at hand: %v", err)
	}
	t.Cleanup(func() { os.RemoveAll(there) })
	for name, aside := range map[string]string{"same": t.TempDir(), "other": there, "removed": filepath.Join(dir, "removed")} {
		c := &copies{}
		for i := range 2 {
			to := filepath.Join(dir, name, fmt.Sprint(i), "to")
			info, err := c.copyTo(from, to, aside)
			if err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			b, err := os.ReadFile(to)
			if err != nil || string(b) != "made" || info.Size() != 4 || info.Mode() != 0o644 {
				t.Errorf("%s: got %q, %v, %v, want a copy that others can read", name, b, info.Mode(), err)
			}
			for _, folder := range []string{aside, filepath.Dir(to)} {
				if left, _ := filepath.Glob(filepath.Join(folder, ".publishing-*")); len(left) > 0 {
					t.Errorf("%s: %v is left", name, left)
				}
			}
		}
	}
}
