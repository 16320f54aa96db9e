package alive_test

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"rcgrpo/engine/internal/alive"
	"rcgrpo/internal/must"
)

// open opens the alive file of a test; each call is a descriptor of its own.
func open(t *testing.T, path string) *os.File {
	t.Helper()
	f := must.Get(os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600))(t)
	t.Cleanup(func() { f.Close() })
	return f
}

// ended looks once, as another process does.
func ended(t *testing.T, path, id, boot string) bool {
	t.Helper()
	f := must.Get(os.Open(path))(t)
	defer f.Close()
	return alive.Ended(f, id, boot)
}

// The lock decides on this boot of this host, and at once.
func TestAHolderOfThisHostEndsWithItsLock(t *testing.T) {
	path := filepath.Join(t.TempDir(), "alive")
	holder := open(t, path)
	if held, err := alive.Hold(holder); !held || err != nil {
		t.Fatalf("a new file: got %v, %v, want it held", held, err)
	}
	if held, err := alive.Hold(open(t, path)); held || err != nil {
		t.Errorf("a second holder: got %v, %v, want neither", held, err)
	}
	if !alive.Held(open(t, path)) || ended(t, path, "a", alive.Boot()) {
		t.Error("a held file counts as released")
	}
	must.OK(t, holder.Close())
	if alive.Held(open(t, path)) || !ended(t, path, "a", alive.Boot()) {
		t.Error("a file without a holder counts as held")
	}
}

// Without a lock that this host can see, the heartbeat decides.
func TestAHolderOfAnotherHostEndsWithItsHeartbeat(t *testing.T) {
	beat, lost := alive.SetTimes(time.Millisecond, 200*time.Millisecond)
	t.Cleanup(func() { alive.SetTimes(beat, lost) })
	path := filepath.Join(t.TempDir(), "alive")
	holder := open(t, path)
	old := time.Now().Add(-time.Hour)
	must.OK(t, os.Chtimes(path, old, old))
	if alive.Recent(path) {
		t.Error("a file that was touched an hour ago counts as recent")
	}
	if ended(t, path, "b", "another boot") {
		t.Error("the holder has ended at the first look, by its clock")
	}
	stop := alive.Beat(holder)
	for !must.Get(os.Stat(path))(t).ModTime().After(old) {
		time.Sleep(time.Millisecond)
	}
	stop()
	for !ended(t, path, "b", "another boot") {
		time.Sleep(time.Millisecond)
	}
	if alive.Recent(path + "missing") {
		t.Error("a missing file counts as recent")
	}
}
