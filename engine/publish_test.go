package engine_test

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"rcgrpo/engine"
	"rcgrpo/engine/enginetest"
	"rcgrpo/engine/internal/disk"
	"rcgrpo/engine/runs"
	"rcgrpo/internal/must"
)

// publishLab has published page.txt with the text "one". change replaces the text and runs again.
func publishLab(t *testing.T) (l *enginetest.Lab, path string, change func(text string)) {
	l = enginetest.NewLab(t)
	change = func(text string) {
		t.Helper()
		l.Write(fmt.Sprintf("stage \"page\" \"report\" {\n text = %q\n}\n", text))
		l.MustRun()
	}
	change("one")
	return l, filepath.Join(l.Dir, "page.txt"), change
}

func wantFile(l *enginetest.Lab, name, want string) {
	l.Helper()
	wantEqual(l, name, l.Read(name), want)
}

func TestPublishedFilesAreCopiesRestoredAndKeptAside(t *testing.T) {
	l, path, change := publishLab(t)
	wantFile(l, "page.txt", "one\n")
	os.Remove(path)
	r := l.MustRun()
	wantEqual(t, "removed", wantEvent(t, r, runs.EventFile, "").Text, "restored")
	wantFile(l, "page.txt", "one\n")
	os.WriteFile(path, []byte("mine"), 0o644)
	r = l.MustRun()
	wantEvent(t, r, runs.EventFile, "", "page.txt.edited")
	wantFile(l, "page.txt", "one\n")
	wantFile(l, "page.txt.edited", "mine")
	l.Want(l.MustRun(), runs.EventFile)
	change("two")
	wantFile(l, "page.txt", "two\n")
	if disk.Exists(path + ".edited.2") {
		t.Error("an unedited copy was kept aside")
	}
}

// Copies of other results are replaced, whatever their time: of the last result, of one before, of a run with
// missing inputs, and those of stores that did not set the time.
func TestOldCopiesAreReplaced(t *testing.T) {
	l, path, change := publishLab(t)
	touch := func() { must.OK(t, os.Chtimes(path, time.Now(), time.Now())) }
	touch()
	if p := l.Plan(); !p.Idle() || len(p.Unlike()) > 0 {
		t.Errorf("a copy with another time: got %v, want it intact", p.Unlike())
	}
	for _, tc := range []struct {
		name, text string
		before     func()
	}{
		{"a copy without its time", "two", touch},
		{"back to an earlier result", "one", func() {}},
		{"onwards from it", "six", func() {}},
		{"a copy of an earlier result", "ten", func() { os.WriteFile(path, []byte("one\n"), 0o644) }},
	} {
		tc.before()
		change(tc.text)
		wantFile(l, "page.txt", tc.text+"\n")
		if disk.Exists(path + ".edited") {
			t.Fatalf("%s: an unedited copy was kept aside", tc.name)
		}
	}
	for _, text := range []string{"1", "2"} {
		l.Write(toyStage("a", `fail = "broken"`) +
			"stage \"page\" \"report\" {\n from = [stage.toy.a.out]\n text = \"" + text + "\"\n}\n")
		l.Run(engine.Options{})
		wantFile(l, "page.txt", text+"\nstage.toy.a is missing: it failed: broken\n")
	}
	change("end")
	wantFile(l, "page.txt", "end\n")
	if disk.Exists(path + ".edited") {
		t.Error("a copy of a run with missing inputs was kept aside")
	}
}
