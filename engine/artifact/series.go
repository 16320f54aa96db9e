package artifact

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"rcgrpo/engine/internal/disk"
)

// A series is the results that differ only in how long they were worked on: 350 updates, 400 updates. Beside a result may
// lie the state from which a longer one goes on. It is part of no digest, nothing needs it, and gc drops it first.
//
// States lie under series/SERIES/LENGTH.KEY, KEY being the result's and SERIES the key without the length.

// recordFile says what a state is made of.
const recordFile = "record.json"

// Shorter is a result that a longer one of its series can go on from.
type Shorter struct {
	Length   int
	Manifest *Manifest
	Dir      string // of its state
}

// State returns the folder to fill with the state from which a longer result goes on.
func (g *Staging) State() (dir string, err error) {
	dir = filepath.Join(g.dir, ".state")
	return dir, g.store.MakeDir(dir)
}

// KeepState makes the state, if there is one, appear under the series. It is done before Commit: a state without a result
// is never found.
func (g *Staging) KeepState(series string, length int) error {
	from := filepath.Join(g.dir, ".state")
	files, err := list(from, refuseLinks)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err == nil {
		err = validKey(series)
	}
	if err == nil {
		err = g.store.writeJSON(filepath.Join(from, recordFile), files, true)
	}
	to := g.store.path("series", series, fmt.Sprintf("%d.%s", length, g.key))
	if err == nil {
		err = errors.Join(os.RemoveAll(to), g.store.MakeDir(filepath.Dir(to)))
	}
	for _, f := range files {
		err = errors.Join(err, syncFile(filepath.Join(from, filepath.FromSlash(f.Name))))
	}
	if err == nil {
		err = disk.Rename(from, to)
	}
	if err != nil {
		return fmt.Errorf("keep the state of %s: %w", g.key, err)
	}
	return syncDir(filepath.Dir(to))
}

// Longest returns the longest result of a series below a length whose files and state are intact, nil without any. user keeps it; nil: it
// may be gone by now.
func (s *Store) Longest(series string, below int, user *User) (*Shorter, error) {
	if err := validKey(series); err != nil {
		return nil, err
	}
	eachShorter := func(f func(length int, key, dir string) error) error {
		return s.each(filepath.Join("series", series), func(name, dir string) error {
			if length, key, ok := stateName(name); ok && length < below {
				return f(length, key, dir)
			}
			return nil
		})
	}
	if user != nil {
		if err := eachShorter(func(_ int, key, _ string) error { return user.Keep(key) }); err != nil {
			return nil, err
		}
	}
	var best *Shorter
	err := eachShorter(func(length int, key, dir string) error {
		if best != nil && length <= best.Length {
			return nil
		}
		if m, err := s.Lookup(key); err == nil && intactState(dir) {
			best = &Shorter{length, m, dir}
		}
		return nil
	})
	return best, err
}

func stateName(name string) (length int, key string, ok bool) {
	number, key, ok := strings.Cut(name, ".")
	length, err := strconv.Atoi(number)
	return length, key, ok && err == nil && validKey(key) == nil
}

// intactState compares a state with its record.
func intactState(dir string) bool {
	var record []FileInfo
	if err := readJSON(filepath.Join(dir, recordFile), &record); err != nil {
		return false
	}
	for _, f := range record {
		if sum, _, err := hashFile(filepath.Join(dir, filepath.FromSlash(f.Name))); err != nil || sum != f.SHA256 {
			return false
		}
	}
	return true
}

// eachState calls f for every state of the store.
func (s *Store) eachState(f func(key, dir string) error) error {
	return s.each("series", func(series, _ string) error {
		return s.each(filepath.Join("series", series), func(name, dir string) error {
			_, key, _ := stateName(name)
			return f(key, dir)
		})
	})
}
