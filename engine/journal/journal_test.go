package journal_test

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"syscall"
	"testing"

	"rcgrpo/engine/internal/disk"
	"rcgrpo/engine/journal"
	"rcgrpo/internal/must"
)

// write appends numbers to a journal that it opens and closes.
func write(t *testing.T, path string, numbers ...int) {
	t.Helper()
	j := must.Get(journal.Open(path))(t)
	for _, n := range numbers {
		must.OK(t, j.Append(n))
	}
	must.OK(t, j.Close())
}

// read returns the numbers behind an offset.
func read(t *testing.T, path string, from int64) (numbers []int, end int64) {
	t.Helper()
	end = must.Get(journal.Read(path, from, func(record []byte) error {
		var n int
		err := json.Unmarshal(record, &n)
		numbers = append(numbers, n)
		return err
	}))(t)
	return numbers, end
}

// A copied run folder may have a pipe or an endless file in the place of a journal, or a file of terabytes that takes
// no room on the disk.
func TestFilesThatAreNoJournalAreErrors(t *testing.T) {
	dir := t.TempDir()
	pipe, endless, sparse := filepath.Join(dir, "pipe"), filepath.Join(dir, "endless"), filepath.Join(dir, "sparse")
	must.OK(t, syscall.Mkfifo(pipe, 0o600))
	must.OK(t, os.Symlink("/dev/zero", endless))
	write(t, sparse, 1)
	must.OK(t, os.Truncate(sparse, 1<<40))
	for path, want := range map[string]string{pipe: "is no plain file", endless: "is no plain file",
		sparse: "a line has more"} {
		_, err := journal.Read(path, 0, func([]byte) error { return nil })
		must.Match(t, err, want)
	}
}

// Whatever byte is the last one written, the records before it count, and later ones can follow.
func TestTornRecordsAreSkipped(t *testing.T) {
	dir := t.TempDir()
	whole := filepath.Join(dir, "whole")
	write(t, whole, 1, 2, 3)
	text := must.Get(os.ReadFile(whole))(t)
	for cut := range len(text) + 1 {
		path := filepath.Join(dir, "cut")
		must.OK(t, os.WriteFile(path, text[:cut], 0o600))
		want := []int{1, 2, 3}[:cut/(len(text)/3)]
		got, end := read(t, path, 0)
		if !slices.Equal(got, want) {
			t.Fatalf("cut after %d bytes: got %v, want %v", cut, got, want)
		}
		write(t, path, 8, 9)
		if got, _ := read(t, path, 0); !slices.Equal(got, append(want, 8, 9)) {
			t.Fatalf("cut after %d bytes, then two more: got %v", cut, got)
		}
		if got, _ := read(t, path, end); !slices.Equal(got, []int{8, 9}) {
			t.Fatalf("cut after %d bytes, a reader that continues: got %v, want [8 9]", cut, got)
		}
	}
}

func TestDamagedRecordsAreSkipped(t *testing.T) {
	path := filepath.Join(t.TempDir(), "journal")
	write(t, path, 1, 2, 3)
	text := must.Get(os.ReadFile(path))(t)
	text[len(text)/3+10] = '7' // the second number
	must.OK(t, os.WriteFile(path, text, 0o600))
	if got, _ := read(t, path, 0); !slices.Equal(got, []int{1, 3}) {
		t.Errorf("got %v, want [1 3]", got)
	}
}

// A write that a full disk has cut does not damage the next record.
func TestRecordsFollowAFailedWrite(t *testing.T) {
	path := filepath.Join(t.TempDir(), "journal")
	j := must.Get(journal.Open(path))(t)
	defer j.Close()
	must.OK(t, j.Append("first"))
	disk.Fail(func(op, _ string) error { return disk.ErrShort })
	err := j.Append("torn")
	disk.Fail(nil)
	if err == nil {
		t.Fatal("the write has not failed")
	}
	must.OK(t, j.Append("last"))
	var got []string
	must.Get(journal.Read(path, 0, func(record []byte) error {
		got = append(got, string(record))
		return nil
	}))(t)
	if !slices.Equal(got, []string{`"first"`, `"last"`}) {
		t.Errorf("got %q, want the first and the last", got)
	}
}

func TestSeveralWritersShareAJournal(t *testing.T) {
	path := filepath.Join(t.TempDir(), "journal")
	var all sync.WaitGroup
	for w := range 4 {
		all.Go(func() {
			for n := range 100 {
				write(t, path, 100*w+n)
			}
		})
	}
	all.Wait()
	if got, _ := read(t, path, 0); len(slices.Compact(slices.Sorted(slices.Values(got)))) != 400 {
		t.Errorf("got %d different records, want 400", len(got))
	}
}

func TestAnErrorOfTheReaderEndsTheRead(t *testing.T) {
	path := filepath.Join(t.TempDir(), "journal")
	if got, end := read(t, path, 0); len(got) != 0 || end != 0 {
		t.Errorf("a missing journal: got %v up to %d, want no records", got, end)
	}
	write(t, path, 1, 2)
	full := errors.New("full")
	if end, err := journal.Read(path, 0, func([]byte) error { return full }); err != full || end > 1 {
		t.Errorf("got offset %d, %v, want the error at the first record", end, err)
	}
}
