package resume

import (
	"compress/gzip"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"testing"
	"time"

	"rcgrpo/engine/artifact"
	"rcgrpo/internal/must"
)

// counter is a training in miniature: its weight is the sum of the numbers of its updates, its row each sum, its
// log each number.
type counter struct {
	*Scratch
	rows   *Rows
	weight int
	logged []int // replayed
}

type taken struct{ Numbers int }

func open(t *testing.T, dir string, keep int) *counter {
	t.Helper()
	c := &counter{}
	c.Scratch = must.Get(Open(dir, 0, keep, 0))(t)
	t.Cleanup(func() { c.Close() })
	var p taken
	update := must.Get(c.Restore(&p, func(dir string) error {
		text, err := os.ReadFile(filepath.Join(dir, "weight"))
		if err != nil {
			return err
		}
		c.weight, err = strconv.Atoi(string(text))
		return err
	}))(t)
	if p.Numbers != update || update != c.Scratch.update {
		t.Fatalf("restored the progress %d at update %d, %d", p.Numbers, update, c.Scratch.update)
	}
	must.OK(t, c.Replayed(func(record []byte) error {
		var n int
		err := json.Unmarshal(record, &n)
		if n > update {
			c.logged = append(c.logged, n)
		}
		return err
	}))
	c.rows = must.Get(c.Rows("sums"))(t)
	return c
}

func (c *counter) update(t *testing.T, n int) {
	t.Helper()
	c.weight += n
	must.OK(t, c.Append(n))
	must.OK(t, c.rows.Append(c.weight))
}

func (c *counter) save(t *testing.T, n int) {
	t.Helper()
	must.OK(t, c.Save(n, taken{n}, func(dir string) error {
		return os.WriteFile(filepath.Join(dir, "weight"), []byte(strconv.Itoa(c.weight)), 0o600)
	}))
}

func (c *counter) sums(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	must.OK(t, c.rows.CopyTo(dir, "sums.jsonl"))
	return string(must.Get(os.ReadFile(filepath.Join(dir, "sums.jsonl")))(t))
}

func TestAttemptResumesFromTheLastStateAndTheLog(t *testing.T) {
	dir := t.TempDir()
	c := open(t, dir, 2)
	for n := 1; n <= 5; n++ {
		c.update(t, n)
		if n == 3 {
			c.save(t, n)
		}
	}
	c.Close() // what a kill does
	c = open(t, dir, 2)
	if c.weight != 6 || !slices.Equal(c.logged, []int{4, 5}) || c.sums(t) != "1\n3\n6\n" {
		t.Errorf("weight %d, logged %v, rows %q; want 6, [4 5] and three rows", c.weight, c.logged, c.sums(t))
	}
	c.update(t, 4)
	if got := c.sums(t); got != "1\n3\n6\n10\n" {
		t.Errorf("after one more update: rows %q", got)
	}
}

// Whatever byte of the log is the last one written, the records before it count, and later ones can follow.
func TestTornTailOfTheLogIsIgnored(t *testing.T) {
	whole := t.TempDir()
	c := open(t, whole, 1)
	for n := 1; n <= 3; n++ {
		c.update(t, n)
	}
	c.Close()
	text := must.Get(os.ReadFile(filepath.Join(whole, "log", stateName(0))))(t)
	for cut := range len(text) + 1 {
		dir := t.TempDir()
		open(t, dir, 1).Close()
		must.OK(t, os.WriteFile(filepath.Join(dir, "log", stateName(0)), text[:cut], 0o600))
		c := open(t, dir, 1)
		want := make([]int, 0, 4)
		for n := range cut / (len(text) / 3) {
			want = append(want, n+1)
		}
		if !slices.Equal(c.logged, want) {
			t.Fatalf("cut after %d bytes: logged %v, want %v", cut, c.logged, want)
		}
		c.update(t, 9)
		c.Close()
		if got := open(t, dir, 1).logged; !slices.Equal(got, append(want, 9)) {
			t.Fatalf("cut after %d bytes, then one more: %v", cut, got)
		}
	}
}

func TestDamagedRecordsOfTheLogAreSkipped(t *testing.T) {
	dir := t.TempDir()
	c := open(t, dir, 1)
	for n := 1; n <= 3; n++ {
		c.update(t, n)
	}
	c.Close()
	path := filepath.Join(dir, "log", stateName(0))
	text := must.Get(os.ReadFile(path))(t)
	text[len(text)/3+10] = '7' // the second number
	must.OK(t, os.WriteFile(path, text, 0o600))
	if got := open(t, dir, 1).logged; !slices.Equal(got, []int{1, 3}) {
		t.Errorf("logged %v, want [1 3]", got)
	}
}

// A training that is told to stop saves the update before the open one, whose records are in the log already.
func TestRecordsOfTheOpenUpdateSurviveASave(t *testing.T) {
	dir := t.TempDir()
	c := open(t, dir, 2)
	c.update(t, 1)
	must.OK(t, c.Append(2))
	c.save(t, 1)
	c.Close()
	if got := open(t, dir, 2).logged; !slices.Equal(got, []int{2}) {
		t.Errorf("logged %v, want [2]", got)
	}
}

func TestLastStatesAreKept(t *testing.T) {
	dir := t.TempDir()
	c := open(t, dir, 2)
	for n := 1; n <= 6; n++ {
		c.update(t, n)
		c.save(t, n)
	}
	for _, folder := range []string{"states", "log"} {
		if got, err := numbered(filepath.Join(dir, folder)); err != nil || !slices.Equal(got, []int{5, 6}) {
			t.Errorf("%s: %v, %v; want those of 5 and 6", folder, got, err)
		}
	}
}

// The next state comes when saving the last one has taken at most a twentieth of the time, except with an interval of
// 0.
func TestStatesTakeATwentiethOfTheTime(t *testing.T) {
	c := open(t, t.TempDir(), 1)
	c.update(t, 1)
	c.save(t, 1)
	if c.took <= 0 {
		t.Errorf("the state took %v", c.took)
	}
	for name, tc := range map[string]struct {
		minutes    float64
		took, past time.Duration
		want       bool
	}{
		"before the interval":            {1, 0, 59 * time.Second, false},
		"after the interval":             {1, 0, 61 * time.Second, true},
		"a state that took 6 s, 119 s":   {1, 6 * time.Second, 119 * time.Second, false},
		"a state that took 6 s, 121 s":   {1, 6 * time.Second, 121 * time.Second, true},
		"without an interval, at once":   {0, time.Hour, 0, true},
		"a state that took no time, 0 s": {1, 0, 0, false},
	} {
		c.minutes, c.took, c.saved = tc.minutes, tc.took, time.Now().Add(-tc.past)
		if got := c.Due(); got != tc.want {
			t.Errorf("%s: got %v, want %v", name, got, tc.want)
		}
	}
}

// The supervisor of ranks kills a process that makes no step for some minutes.
func TestSavingAndRestoringLargeStatesMakeSteps(t *testing.T) {
	const size = 10 << 20
	c := open(t, t.TempDir(), 1)
	c.update(t, 1)
	before := Steps()
	must.OK(t, c.Save(1, taken{1}, func(dir string) error {
		return os.WriteFile(filepath.Join(dir, "weight"), make([]byte, size), 0o600)
	}))
	saved := Steps() - before
	must.Get(c.whole(filepath.Join(c.states(), stateName(1))))(t)
	if restored := Steps() - before - saved; min(saved, restored) < size>>20 {
		t.Errorf("a state of %d bytes: %d steps for saving and %d for restoring, want one for each MiB", size, saved,
			restored)
	}
}

func TestFailedSaveLeavesTheOlderState(t *testing.T) {
	dir := t.TempDir()
	c := open(t, dir, 1)
	c.update(t, 1)
	c.save(t, 1)
	c.update(t, 2)
	full := fmt.Errorf("no space left")
	if err := c.Save(2, taken{2}, func(string) error { return full }); err == nil {
		t.Fatal("a state was saved although its writer failed")
	}
	c.Close()
	if c = open(t, dir, 1); c.weight != 1 || !slices.Equal(c.logged, []int{2}) {
		t.Errorf("weight %d, logged %v; want 1 and [2]", c.weight, c.logged)
	}
}

func TestRowsAreCopiedInBothForms(t *testing.T) {
	c := open(t, t.TempDir(), 1)
	c.update(t, 1)
	c.update(t, 2)
	dir := t.TempDir()
	for _, name := range []string{"a.jsonl", "a.jsonl.gz"} {
		must.OK(t, c.rows.CopyTo(dir, name))
		other := open(t, t.TempDir(), 1)
		must.OK(t, other.rows.CopyFrom(filepath.Join(dir, name)))
		if got := other.sums(t); got != "1\n3\n" {
			t.Errorf("%s: %q", name, got)
		}
	}
}

// A few kilobytes of gzip in a shared store can contain more than the disk.
func TestRowsOfAShorterRunDoNotFillTheDisk(t *testing.T) {
	path := filepath.Join(t.TempDir(), "rows.jsonl.gz")
	f := must.Get(os.Create(path))(t)
	z := must.Get(gzip.NewWriterLevel(f, gzip.BestSpeed))(t)
	for piece, n := make([]byte, 1<<20), artifact.FewRowsBytes>>20+1; n > 0; n-- {
		must.Get(z.Write(piece))(t)
	}
	must.OK(t, errors.Join(z.Close(), f.Close()))
	c := open(t, t.TempDir(), 1)
	c.rows.file = must.Get(os.OpenFile(os.DevNull, os.O_WRONLY, 0))(t)
	must.Match(t, c.rows.CopyFrom(path), "its rows have more than 536870912 bytes")
}
