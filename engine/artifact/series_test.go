package artifact

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"rcgrpo/internal/must"
)

// lengthen commits a result of a series with a state beside it.
func lengthen(t *testing.T, s *Store, series, name string, length int) {
	t.Helper()
	g := must.Get(s.Begin(key(name)))(t)
	for file, folder := range map[string]func() (string, error){
		"weights": func() (string, error) { return g.Dir("out") },
		"moments": g.State,
	} {
		dir := must.Get(folder())(t)
		must.OK(t, os.WriteFile(filepath.Join(dir, file), []byte(name+" "+file), 0o600))
	}
	must.OK(t, g.KeepState(key(series), length))
	must.Get(g.Commit(Manifest{Address: name, Seconds: 1}, map[string]string{"out": "checkpoint"}))(t)
}

// longest returns the length of the longest result; 0 if there is none.
func longest(t *testing.T, s *Store, series string, below int) int {
	t.Helper()
	got := must.Get(s.Longest(key(series), below, nil))(t)
	if got == nil {
		return 0
	}
	text, err := os.ReadFile(filepath.Join(got.Dir, "moments"))
	if err != nil || string(text) != got.Manifest.Address+" moments" {
		t.Fatalf("the state of %s is %q, %v", got.Manifest.Address, text, err)
	}
	return got.Length
}

func TestLongestOfASeriesIsBelowTheGivenLength(t *testing.T) {
	s := openStore(t)
	lengthen(t, s, "a", "a20", 20)
	lengthen(t, s, "a", "a100", 100)
	lengthen(t, s, "a", "a9", 9)
	lengthen(t, s, "b", "b30", 30)
	for below, want := range map[int]int{9: 0, 10: 9, 20: 9, 40: 20, 100: 20, 101: 100} {
		wantEqual(t, fmt.Sprint("below ", below), longest(t, s, "a", below), want)
	}
	wantEqual(t, "of a series without results", longest(t, s, "c", 40), 0)
}

func TestDamagedStatesAreNotFound(t *testing.T) {
	for name, harm := range map[string]func(s *Store, dir string) error{
		"a changed byte": func(_ *Store, dir string) error {
			path := filepath.Join(dir, "moments")
			return errors.Join(os.Chmod(path, 0o600), os.WriteFile(path, []byte("a20 m0ments"), 0o600))
		},
		"a missing file":   func(_ *Store, dir string) error { return os.Remove(filepath.Join(dir, "moments")) },
		"no list":          func(_ *Store, dir string) error { return os.Remove(filepath.Join(dir, stateList)) },
		"no result beside": func(s *Store, _ string) error { return os.Remove(s.path("results", key("a20")+".json")) },
	} {
		t.Run(name, func(t *testing.T) {
			s := openStore(t)
			lengthen(t, s, "a", "a9", 9)
			lengthen(t, s, "a", "a20", 20)
			must.OK(t, harm(s, s.path("series", key("a"), "20."+key("a20"))))
			wantEqual(t, "longest", longest(t, s, "a", 40), 9)
		})
	}
}

// A file that a list of a stranger named elsewhere became one of the time of the run.
func TestTheListOfAStateNamesNoFileElsewhere(t *testing.T) {
	s := openStore(t)
	lengthen(t, s, "a", "a20", 20)
	dir := s.path("series", key("a"), "20."+key("a20"))
	precious := filepath.Join(s.Dir(), "precious")
	must.OK(t, os.WriteFile(precious, []byte("x"), 0o600))
	must.OK(t, os.Chtimes(precious, Sealed.Add(-1), Sealed.Add(-1)))
	list := []FileInfo{{Name: "../../../precious", Bytes: 1, SHA256: key("other")}}
	must.OK(t, os.Chmod(filepath.Join(dir, stateList), 0o600))
	must.OK(t, s.writeJSON(dir, filepath.Join(dir, stateList), list))
	wantEqual(t, "longest", longest(t, s, "a", 40), 0)
	if got := must.Get(os.Stat(precious))(t).ModTime(); !got.Equal(Sealed.Add(-1)) {
		t.Errorf("the time of the user's file is %v", got)
	}
}

func TestStatesAreCollectedBeforeResults(t *testing.T) {
	s := openStore(t)
	lengthen(t, s, "a", "a20", 20)
	wantEqual(t, "garbage with room for all", len(must.Get(s.Garbage(1<<20, nil))(t)), 0)
	plan, err := s.Collect(11, nil) // the size of the result, "a20 weights"
	if err != nil || len(plan) != 1 || plan[0].What != "state of a series" || plan[0].Bytes < 11 {
		t.Fatalf("with room for the result: %v, %v", plan, err)
	}
	wantEqual(t, "longest with a state", longest(t, s, "a", 40), 0)
	wantIntact(t, s, "a20", "without its state")
	lengthen(t, s, "a", "a30", 30)
	must.OK(t, os.Remove(s.path("results", key("a30")+".json")))
	wantEqual(t, "a state without a manifest", len(must.Get(s.Collect(0, nil))(t)), 1)
}

func TestLongestPinsItsResult(t *testing.T) {
	s := openStore(t)
	lengthen(t, s, "a", "a20", 20)
	lengthen(t, s, "a", "a100", 100)
	pin := func(keys ...string) error { return s.Pin(s.path("pins"), keys...) }
	got, err := s.Longest(key("a"), 50, pin)
	if err != nil || got.Length != 20 {
		t.Fatalf("longest: got %+v, %v, want a20", got, err)
	}
	wantEqual(t, "pins", ReadPins(s.path("pins")), []string{key("a20")})
	must.Get(s.Collect(1, pins("a20")))(t)
	if !intactState(got.Dir) || s.Verify(got.Manifest) != nil {
		t.Error("gc has removed the result that a stage resumes from")
	}
	wantEqual(t, "longest", longest(t, s, "a", 101), 20)
}
