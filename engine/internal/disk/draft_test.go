package disk

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"
)

// Both sorts of draft, for file systems with and without files that have no name, do the same: nothing shows before Place, then
// all of it, in place of what was there, and nothing else stays behind.
func TestDraftsShowOnlyWhenTheyArePlaced(t *testing.T) {
	sorts := map[string]func(dir string) (*Draft, error){
		"as the file system can": func(dir string) (*Draft, error) { return NewDraft(dir, dir, ".new-*") },
		"with a temporary name": func(dir string) (*Draft, error) {
			f, err := CreateTemp(dir, ".new-*")
			if err != nil {
				return nil, err
			}
			return &Draft{File: f, temporary: f.Name()}, nil
		},
	}
	for name, make := range sorts {
		t.Run(name, func(t *testing.T) {
			dir, aside := t.TempDir(), t.TempDir()
			to, other := filepath.Join(dir, "to"), filepath.Join(dir, "other")
			for _, text := range []string{"first", "second"} {
				before, _ := os.ReadFile(to)
				d, err := make(aside)
				if err != nil {
					t.Fatal(err)
				}
				if _, err := d.WriteString(text); err != nil {
					t.Fatal(err)
				}
				if now, _ := os.ReadFile(to); string(now) != string(before) {
					t.Errorf("before %q is placed: got %q, want %q", text, now, before)
				}
				if err := LinkOver(d.Link, other); err != nil {
					t.Fatal(err)
				}
				if err := d.Link(other); !errors.Is(err, fs.ErrExist) {
					t.Errorf("a name that something has: got %v, want %v", err, fs.ErrExist)
				}
				if err := errors.Join(d.Place(to), d.Close()); err != nil {
					t.Fatal(err)
				}
				for _, path := range []string{to, other} {
					if now, err := os.ReadFile(path); err != nil || string(now) != text {
						t.Errorf("%s: got %q, %v, want %q", path, now, err, text)
					}
				}
			}
			current := "second"
			for _, op := range []string{"link", "rename"} { // one that fails leaves what was there
				d, err := make(aside)
				if err != nil {
					t.Fatal(err)
				}
				if _, err := d.WriteString("without " + op); err != nil {
					t.Fatal(err)
				}
				Fail(func(did, _ string) error {
					if did == op {
						return fs.ErrPermission
					}
					return nil
				})
				placed := d.Place(to)
				Fail(nil)
				switch {
				case placed == nil && op == "rename":
					t.Error("a rename that failed was not told")
				case placed == nil:
					current = "without " + op
				}
				if now, err := os.ReadFile(to); err != nil || string(now) != current {
					t.Errorf("without %s: got %q, %v, want %q", op, now, err, current)
				}
				if err := d.Close(); err != nil {
					t.Error(err)
				}
			}
			d, err := make(aside) // given up
			if err != nil {
				t.Fatal(err)
			}
			if err := d.Close(); err != nil {
				t.Error(err)
			}
			for dir, want := range map[string]int{dir: 2, aside: 0} {
				if left, err := os.ReadDir(dir); err != nil || len(left) != want {
					t.Errorf("left: got %v, %v, want %d", left, err, want)
				}
			}
		})
	}
	if _, err := NewDraft(filepath.Join(t.TempDir(), "none"), filepath.Join(t.TempDir(), "none"), ".new-*"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("in a folder that is not there: got %v, want %v", err, fs.ErrNotExist)
	}
}
