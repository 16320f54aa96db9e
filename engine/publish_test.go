package engine

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"rcgrpo/engine/proc"
	"rcgrpo/engine/runs"
)

const onePage = `
stage "page" "report" {
  text = "one"
}
`

// publishLab has run onePage. change replaces its text and runs again.
func publishLab(t *testing.T) (l *lab, path string, change func(text string) record) {
	l = newLab(t)
	l.write(onePage)
	l.mustRun()
	return l, filepath.Join(l.dir, "page.txt"), func(text string) record {
		t.Helper()
		l.write(strings.Replace(onePage, "one", text, 1))
		return l.mustRun()
	}
}

func (l *lab) wantFile(path, want string) {
	l.Helper()
	if b, err := os.ReadFile(path); err != nil || string(b) != want {
		l.Errorf("%s: got %q, %v, want %q", filepath.Base(path), b, err, want)
	}
}

func TestPublishedFilesAreCopiesRestoredAndKeptAside(t *testing.T) {
	l, path, change := publishLab(t)
	l.wantFile(path, "one\n")
	os.Remove(path)
	r := l.mustRun()
	if e, ok := r.find(runs.EventFile, ""); !ok || e.Text != "restored" {
		t.Errorf("removed: got %s, want it restored", r.text())
	}
	l.wantFile(path, "one\n")
	os.WriteFile(path, []byte("mine"), 0o644)
	r = l.mustRun()
	if e, ok := r.find(runs.EventFile, ""); !ok || !strings.Contains(e.Text, "page.txt.edited") {
		t.Errorf("edited: got %s, want it kept aside and restored", r.text())
	}
	l.wantFile(path, "one\n")
	l.wantFile(path+".edited", "mine")
	l.want(l.mustRun(), runs.EventFile)
	change("two")
	l.wantFile(path, "two\n")
	if proc.Exists(path + ".edited.2") {
		t.Error("a copy nobody edited was kept aside")
	}
}

// Copies of other results are replaced, whatever their time: of the last result, of one before, of a run with
// missing inputs, and those of stores that did not set the time.
func TestOldCopiesAreReplaced(t *testing.T) {
	l, path, change := publishLab(t)
	touch := func() {
		if err := os.Chtimes(path, time.Now(), time.Now()); err != nil {
			t.Fatal(err)
		}
	}
	touch()
	if p := l.plan(); !p.Idle() || len(p.Unlike()) > 0 {
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
		l.wantFile(path, tc.text+"\n")
		if proc.Exists(path + ".edited") {
			t.Fatalf("%s: a copy nobody edited was kept aside", tc.name)
		}
	}
	const broken = "stage \"light\" \"a\" {\n fail = \"broken\"\n}\n" +
		"stage \"page\" \"report\" {\n from = [stage.light.a.out]\n text = \"%\"\n}\n"
	for _, text := range []string{"1", "2"} {
		l.write(strings.Replace(broken, "%", text, 1))
		l.run(Options{})
		l.wantFile(path, text+"\nstage.light.a is missing: it failed: broken\n")
	}
	change("end")
	l.wantFile(path, "end\n")
	if proc.Exists(path + ".edited") {
		t.Error("a copy of a run with missing inputs was kept aside")
	}
}

// A copy is complete when it appears, also if the temporary folder is on another file system or does not exist.
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
	at := time.Unix(1, 2)
	folders := map[string]string{"same": t.TempDir(), "other": there, "removed": filepath.Join(dir, "removed")}
	for name, temp := range folders {
		to := filepath.Join(dir, name, "deep", "to")
		if err := copyFile(from, to, temp, at); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		b, err := os.ReadFile(to)
		info, _ := os.Stat(to)
		if err != nil || string(b) != "made" || info.Mode() != 0o644 || !info.ModTime().Equal(at) {
			t.Errorf("%s: got %q, %v, %v, want a copy with its time that others can read", name, b, info, err)
		}
		for _, folder := range []string{temp, filepath.Dir(to)} {
			if left, _ := filepath.Glob(filepath.Join(folder, ".new-*")); len(left) > 0 {
				t.Errorf("%s: %v is left", name, left)
			}
		}
	}
}
