package engine_test

import (
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
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

func TestPublishedFilesAreRestoredAndEditedOnesStay(t *testing.T) {
	l, path, change := publishLab(t)
	wantFile(l, "page.txt", "one\n")
	os.Remove(path)
	r := l.MustRun()
	wantEqual(t, "removed", wantEvent(t, r, runs.EventFile, "").Text, "restored")
	wantFile(l, "page.txt", "one\n")
	os.WriteFile(path, []byte("mine"), 0o644)
	for _, text := range []string{"one", "two"} {
		l.Write(fmt.Sprintf("stage \"page\" \"report\" {\n text = %q\n}\n", text))
		r = l.MustRun()
		wantEvent(t, r, runs.EventNote, "page.report", "page.txt is not published")
		l.Want(r, runs.EventFile)
		wantFile(l, "page.txt", "mine")
	}
	os.Remove(path)
	change("two")
	wantFile(l, "page.txt", "two\n")
	change("six")
	wantFile(l, "page.txt", "six\n")
	// Neither size and time make a copy, nor a record alone: a stranger's may name the content of any file.
	info := must.Get(os.Stat(path))(t)
	must.OK(t, os.WriteFile(path, []byte("own\n"), 0o644))
	must.OK(t, os.Chtimes(path, info.ModTime(), info.ModTime()))
	change("one")
	wantFile(l, "page.txt", "own\n")
	for _, object := range must.Get(filepath.Glob(filepath.Join(l.StoreDir, "objects", "*", "*")))(t) {
		replaceFile(object, []byte("TWO\n"))
	}
	must.OK(t, os.WriteFile(path, []byte("two\n"), 0o644))
	change("ten")
	wantFile(l, "page.txt", "two\n")
	must.OK(t, os.RemoveAll(filepath.Join(l.StoreDir, "objects"))) // so that the store is whole
}

// Copies of other results are replaced, whatever their time: of the last result, of one before, and of a run with
// missing inputs.
func TestOldCopiesAreReplaced(t *testing.T) {
	l, path, change := publishLab(t)
	touch := func() { must.OK(t, os.Chtimes(path, time.Now(), time.Now())) }
	touch()
	if p := l.Plan(); !p.Idle() || len(p.Unlike()) > 0 {
		t.Errorf("a copy with another time: got %v, want it intact", p.Unlike())
	}
	for _, tc := range []struct {
		text   string
		before func()
	}{
		{"two", touch}, // a copy without its time
		{"one", func() {}},
		{"six", func() {}},
		{"ten", func() { os.WriteFile(path, []byte("one\n"), 0o644) }}, // a copy of an earlier result
	} {
		tc.before()
		change(tc.text)
		wantFile(l, "page.txt", tc.text+"\n")
	}
	for _, text := range []string{"1", "2"} {
		l.Write(toyStage("a", `fail = "broken"`) +
			"stage \"page\" \"report\" {\n from = [stage.toy.a.out]\n text = \"" + text + "\"\n}\n")
		l.Run(engine.Options{})
		wantFile(l, "page.txt", text+"\nstage.toy.a is missing: it failed: broken\n")
	}
	change("end")
	wantFile(l, "page.txt", "end\n")
}

// A manifest in a remote store cannot choose which file of the user is replaced.
func TestAPoisonedRecordReplacesNoFile(t *testing.T) {
	dir := t.TempDir()
	sharedLab(t, dir).MustRun()
	records := must.Get(filepath.Glob(filepath.Join(dir, "results/*.json")))(t)
	for _, path := range records {
		var m map[string]any
		must.OK(t, json.Unmarshal(must.Get(os.ReadFile(path))(t), &m))
		none := strings.Repeat("0", 64)
		m["sum"] = none
		m["published"] = []any{map[string]any{"port": "out", "file": "out.txt", "name": "site.hcl"},
			map[string]any{"port": "out", "file": "out.txt", "name": "notes.txt"}}
		poisoned := must.Get(json.Marshal(m))(t)
		sum := fmt.Sprintf("%x", sha256.Sum256(poisoned))
		replaceFile(path, []byte(strings.Replace(string(poisoned), none, sum, 1)))
	}
	l := sharedLab(t, dir)
	site := l.Read("site.hcl")
	l.Want(l.MustRun(), runs.EventFetched, "light.a", "light.b", "page.report")
	wantFile(l, "site.hcl", site)
	if disk.Exists(filepath.Join(l.Dir, "notes.txt")) {
		t.Error("a manifest has made a file of its choice")
	}
}
