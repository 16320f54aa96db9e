package artifact

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"rcgrpo/engine/internal/disk"
)

// A series is a set of results that differ in their length only: 350 updates, 400 updates. A result may have
// a state from which a longer one resumes. The state is part of no digest, no result needs it, and gc removes
// it first.
//
// States are in series/SERIES/LENGTH.KEY: KEY is the key of the result, SERIES the key without the length.

// stateList is the file of a state that lists the others.
const stateList = "record.json"

// Shorter is a result from which a longer one of its series can resume.
type Shorter struct {
	Length   int
	Manifest *Manifest
	Dir      string // of the state
}

// State returns the folder to fill with the state from which a longer result resumes.
func (g *Staging) State() (dir string, err error) {
	dir = filepath.Join(g.dir, ".state")
	return dir, g.store.MakeDir(dir)
}

// KeepState moves the state, if there is one, to its series. It comes before Commit: a state without a result
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
	for _, f := range files {
		err = errors.Join(err, seal(filepath.Join(from, filepath.FromSlash(f.Name))))
	}
	if err == nil {
		err = g.store.writeJSON(from, filepath.Join(from, stateList), files)
	}
	to := g.store.path("series", series, fmt.Sprintf("%d.%s", length, g.key))
	if err == nil {
		err = errors.Join(syncTree(from), os.RemoveAll(to))
	}
	if err == nil {
		err = g.store.rename(from, to)
	}
	if err == nil {
		err = syncFile(filepath.Dir(to))
	}
	if err != nil {
		return fmt.Errorf("store the state of %s: %w", g.key, err)
	}
	return nil
}

// Longest returns the longest result of a series below a length that is intact and has an intact state, nil
// without any. pin pins the candidates; with a nil function gc may remove the result at any time.
func (s *Store) Longest(series string, below int, pin func(keys ...string) error) (*Shorter, error) {
	if err := validKey(series); err != nil {
		return nil, err
	}
	var found []Shorter
	var keys []string
	err := s.each(filepath.Join("series", series), func(name, dir string) error {
		if length, key, ok := stateName(name); ok && length < below {
			found = append(found, Shorter{Length: length, Dir: dir})
			keys = append(keys, key)
		}
		return nil
	})
	if err == nil && pin != nil && len(keys) > 0 {
		err = pin(keys...)
	}
	if err != nil {
		return nil, err
	}
	var best *Shorter
	for i, f := range found {
		if best != nil && f.Length <= best.Length {
			continue
		}
		if m, err := s.Lookup(keys[i]); err == nil && len(s.Absent(m)) == 0 && intactState(f.Dir) {
			f.Manifest = m
			best = &f
		}
	}
	return best, nil
}

func stateName(name string) (length int, key string, ok bool) {
	number, key, ok := strings.Cut(name, ".")
	length, err := strconv.Atoi(number)
	return length, key, ok && err == nil && validKey(key) == nil
}

// intactState compares the files of a state with its list, as those of an object.
func intactState(dir string) bool {
	var listed []FileInfo
	err := disk.ReadJSON(filepath.Join(dir, stateList), MaxManifest, &listed)
	if err = cmp.Or(err, checkFiles(listed)); err == nil { // the store may be a copy
		_, err = verifyFiles(dir, "", listed, Sealed)
	}
	return err == nil
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
