package resume

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"rcgrpo/internal/must"
)

// trained is a counter of five updates with states after the second and the fourth, and in each a folder "best"
// that was replaced at that update and, after the last state, once more.
func trained(t *testing.T) (dir string) {
	t.Helper()
	dir = t.TempDir()
	c := open(t, dir, 2)
	for n := 1; n <= 5; n++ {
		c.update(t, n)
		if n%2 == 0 || n == 5 {
			must.OK(t, c.Replace("best", func(dir string) error {
				if err := os.Mkdir(filepath.Join(dir, "inner"), 0o700); err != nil {
					return err
				}
				return os.WriteFile(filepath.Join(dir, "inner", "weight"), fmt.Append(nil, c.weight), 0o600)
			}))
		}
		if n%2 == 0 {
			c.save(t, n)
		}
	}
	must.OK(t, c.Close())
	return dir
}

func best(t *testing.T, c *counter) string {
	t.Helper()
	return string(must.Get(os.ReadFile(filepath.Join(c.Folder("best"), "inner", "weight")))(t))
}

// change rewrites a file; flip changes one bit of its byte at a share of its length.
func change(t *testing.T, path string, edit func([]byte) []byte) {
	t.Helper()
	text := must.Get(os.ReadFile(path))(t)
	must.OK(t, os.WriteFile(path, edit(text), 0o600))
}

func flip(at float64) func([]byte) []byte {
	return func(text []byte) []byte {
		text[int(at*float64(len(text)-1))] ^= 1
		return text
	}
}

// withFormat gives a state file another format, checksum included.
func withFormat(n int) func([]byte) []byte {
	return func(raw []byte) []byte {
		_, text, _ := bytes.Cut(raw, []byte("\n"))
		text = bytes.Replace(text, fmt.Appendf(nil, `"format":%d`, format), fmt.Appendf(nil, `"format":%d`, n), 1)
		return fmt.Appendf(nil, "%x\n%s", sha256.Sum256(text), text)
	}
}

func TestDamagedStateIsReportedAndTheOlderOneRestored(t *testing.T) {
	newest := func(dir string) string { return filepath.Join(dir, "states", stateName(4)) }
	bestOf := func(t *testing.T, dir string) string {
		s := must.Get(readState(newest(dir)))(t)
		return filepath.Join(dir, "folders", s.Folders["best"].Dir, "inner", "weight")
	}
	for name, tc := range map[string]struct {
		harm func(t *testing.T, dir string)
		want string
	}{
		"nothing": {func(*testing.T, string) {}, ""},
		"weights flipped": {func(t *testing.T, dir string) { change(t, filepath.Join(newest(dir), "weight"), flip(1)) },
			"weight is damaged"},
		"weights cut": {func(t *testing.T, dir string) {
			change(t, filepath.Join(newest(dir), "weight"), func(b []byte) []byte { return b[:1] })
		}, "weight is damaged: it has 1 bytes, want 2"},
		"weights gone": {func(t *testing.T, dir string) { os.Remove(filepath.Join(newest(dir), "weight")) },
			"no such file"},
		"state flipped early": {func(t *testing.T, dir string) {
			change(t, filepath.Join(newest(dir), stateFile), flip(0))
		}, "state.json is damaged"},
		"state flipped late": {func(t *testing.T, dir string) {
			change(t, filepath.Join(newest(dir), stateFile), flip(0.5))
		}, "state.json is damaged"},
		"state's numbers": {func(t *testing.T, dir string) {
			change(t, filepath.Join(newest(dir), stateFile), func(b []byte) []byte {
				return bytes.Replace(b, []byte(`"Numbers":4`), []byte(`"Numbers":5`), 1)
			})
		}, "state.json is damaged"},
		"state empty": {func(t *testing.T, dir string) {
			change(t, filepath.Join(newest(dir), stateFile), func([]byte) []byte { return nil })
		}, "state.json is damaged"},
		"a newer version": {func(t *testing.T, dir string) {
			change(t, filepath.Join(newest(dir), stateFile), withFormat(format+1))
		}, "in format 3; this one reads format 2"},
		"rows": {func(t *testing.T, dir string) { change(t, filepath.Join(dir, "rows", "sums"), flip(0.6)) },
			"the rows sums beside it are damaged"},
		"rows cut": {func(t *testing.T, dir string) {
			change(t, filepath.Join(dir, "rows", "sums"), func(b []byte) []byte { return b[:5] })
		}, "the rows sums beside it are damaged"},
		"best flipped": {func(t *testing.T, dir string) { change(t, bestOf(t, dir), flip(0)) },
			"inner/weight is damaged"},
		"best gone": {func(t *testing.T, dir string) { os.RemoveAll(filepath.Dir(bestOf(t, dir))) }, "no such file"},
	} {
		t.Run(name, func(t *testing.T) {
			dir := trained(t)
			tc.harm(t, dir)
			c := open(t, dir, 2)
			wantWeight, wantBest, logged := 3, "3", []int{3, 4, 5}
			if tc.want == "" {
				wantWeight, wantBest, logged = 10, "10", []int{5}
			}
			if c.weight != wantWeight || best(t, c) != wantBest || !slices.Equal(c.logged, logged) {
				t.Errorf("weight %d, best %s, logged %v; want %d, %s and %v", c.weight, best(t, c), c.logged, wantWeight,
					wantBest, logged)
			}
			said := strings.Join(c.Passed, "; ")
			if tc.want == "" && said != "" {
				t.Errorf("got %q, want no word", said)
			}
			if tc.want != "" && (!strings.HasPrefix(said, "the checkpoint after update 4 in the scratch folder cannot be "+
				"used: ") || !strings.Contains(said, tc.want) ||
				!strings.HasSuffix(said, "resuming from the checkpoint after update 2")) {
				t.Errorf("got %q, want the checkpoint, %q and where it resumes", said, tc.want)
			}
			for n := c.Scratch.update + 1; n <= 6; n++ { // it goes on, and the damaged state is replaced
				c.update(t, n)
			}
			c.save(t, 6)
			c.Close()
			if c = open(t, dir, 2); c.weight != 21 || c.sums(t) != "1\n3\n6\n10\n15\n21\n" || c.Passed != nil {
				t.Errorf("after six updates: weight %d, rows %q, said %q", c.weight, c.sums(t), c.Passed)
			}
		})
	}
}

func TestWithoutAWholeStateTheTrainingRestarts(t *testing.T) {
	dir := trained(t)
	for _, n := range []int{2, 4} {
		change(t, filepath.Join(dir, "states", stateName(n), "weight"), flip(0))
	}
	c := open(t, dir, 2)
	if c.weight != 0 || c.Scratch.update != 0 || c.sums(t) != "" ||
		!slices.Contains(c.Passed, "resuming from the start: no checkpoint is whole") {
		t.Errorf("weight %d, update %d, rows %q, said %q; want the start", c.weight, c.Scratch.update, c.sums(t), c.Passed)
	}
}

// A state that is whole but cannot be read has perhaps filled half a model, so without an older one the attempt
// ends, and the next starts again.
func TestUnreadableStateFallsBackOrEndsTheAttempt(t *testing.T) {
	for bad, want := range map[int]string{1: "",
		2: "no other checkpoint is left, so the stage starts again at the next run"} {
		c := must.Get(Open(trained(t), 0, 2, 0))(t)
		defer c.Close()
		read := 0
		var p taken
		update, err := c.Restore(&p, func(string) error {
			if read++; read <= bad {
				return errors.New("it is of another model")
			}
			return nil
		})
		if want == "" && (err != nil || update != 2 || p.Numbers != 2) {
			t.Errorf("restored update %d with progress %d, %v; want 2", update, p.Numbers, err)
		}
		if want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("got %v, want %q", err, want)
		}
		if known, err := numbered(c.states()); err != nil || len(known) != 2-bad {
			t.Errorf("%d states are left, %v; want %d", len(known), err, 2-bad)
		}
	}
}

func TestFoldersThatNoStateContainsAreRemoved(t *testing.T) {
	dir := trained(t)
	c := open(t, dir, 2)
	for n := 5; n <= 8; n++ {
		c.update(t, n)
		c.save(t, n)
	}
	left, err := os.ReadDir(filepath.Join(dir, "folders"))
	if err != nil || len(left) != 1 || best(t, c) != "10" {
		t.Errorf("%d folders are left, %v, the best %s; want one, that of update 4", len(left), err, best(t, c))
	}
}

// The scratch folder and the result of a shorter run may be those of a copied store.
func TestFilesOfScratchThatAreNoPlainFilesAreNotRead(t *testing.T) {
	for name, put := range must.NoPlainFiles {
		t.Run(name, func(t *testing.T) {
			dir := trained(t)
			state, sums := filepath.Join(dir, "states", stateName(4)), filepath.Join(dir, "rows", "sums")
			instead := func(path string) string {
				must.OK(t, os.RemoveAll(path))
				must.OK(t, put(path))
				return path
			}
			if must.Get(readState(state))(t).Rows["sums"].reached(instead(sums)) {
				t.Error("the rows are whole")
			}
			if got, err := sum(instead(filepath.Join(state, "weight"))); err == nil {
				t.Errorf("a weight is %v, want an error", got)
			}
			instead(filepath.Join(state, stateFile))
			if _, err := readState(state); err == nil {
				t.Error("the state was read")
			}
			var p taken
			if instead(filepath.Join(dir, progressFile)); ReadProgress(dir, &p) == nil {
				t.Error("the progress was read")
			}
			if err := open(t, t.TempDir(), 1).rows.CopyFrom(sums); err == nil {
				t.Error("the rows were copied")
			}
		})
	}
}

// A folder of a state becomes the port of a result, which may be sent elsewhere.
func TestAStateNamesNoFolderElsewhere(t *testing.T) {
	c := must.Get(Open(trained(t), 0, 1, 0))(t)
	state := filepath.Join(c.states(), stateName(4))
	s := must.Get(readState(state))(t)
	s.Folders["best"] = folder{Dir: "../../precious"}
	writeState(t, state, s)
	_, err := c.whole(state)
	must.Match(t, err, "is no folder of the state")
}

// 20,000 names of a file of 60 MB took longer than a minute.
func TestAFileWithManyNamesInAStateIsReadOnce(t *testing.T) {
	c := must.Get(Open(trained(t), 0, 1, 0))(t)
	state := filepath.Join(c.states(), stateName(4))
	s := must.Get(readState(state))(t)
	before := Steps()
	must.Get(c.whole(state))(t)
	alone := Steps() - before
	for name, content := range s.Files {
		for i := range 1000 {
			s.Files[fmt.Sprintf("%d/../%s", i, name)] = content
		}
		break
	}
	for i := range 1000 {
		s.Folders[fmt.Sprint("best", i)] = s.Folders["best"]
	}
	writeState(t, state, s)
	before = Steps()
	must.Get(c.whole(state))(t)
	if got := Steps() - before; got != alone {
		t.Errorf("%d pieces are read, want %d as with one name", got, alone)
	}
	s.Files["../../../precious"] = file{}
	writeState(t, state, s)
	_, err := c.whole(state)
	must.Match(t, err, "is no file of the state")
	delete(s.Files, "../../../precious")
	for name, m := range s.Rows {
		s.Rows["x/../"+name] = m
		break
	}
	writeState(t, state, s)
	_, err = c.whole(state)
	must.Match(t, err, "is no file of rows")
}

func TestAStateWithoutFoldersIsResumed(t *testing.T) {
	dir := trained(t)
	c := open(t, dir, 1)
	s := must.Get(readState(filepath.Join(c.states(), stateName(4))))(t)
	must.OK(t, c.Close())
	s.Folders, s.Rows = nil, nil // null in the file
	writeState(t, filepath.Join(c.states(), stateName(4)), s)
	c = open(t, dir, 1)
	defer c.Close()
	must.OK(t, c.Replace("best", func(string) error { return nil }))
}

// An update is an index of batches.
func TestAStateOfAnotherUpdateThanItsNameIsDamaged(t *testing.T) {
	c := must.Get(Open(trained(t), 0, 1, 0))(t)
	s := must.Get(readState(filepath.Join(c.states(), stateName(4))))(t)
	for _, s.Update = range []int{-5, 0, 5} {
		dir := filepath.Join(c.states(), stateName(min(s.Update, 4)))
		writeState(t, dir, s)
		_, err := readState(dir)
		must.Match(t, err, "which is none or another")
	}
}

func writeState(t *testing.T, dir string, s state) {
	text := must.Get(json.Marshal(s))(t)
	os.MkdirAll(dir, 0o700)
	must.OK(t, os.WriteFile(filepath.Join(dir, stateFile), fmt.Appendf(nil, "%x\n%s", sha256.Sum256(text), text), 0o600))
}
