package artifact

import (
	"cmp"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"rcgrpo/engine/internal/disk"
)

// Garbage is one item that gc would remove.
type Garbage struct {
	What string // "result", "state of a series", "unreferenced object", "unfinished output",
	// "program of jobs"
	Name     string // address of a result, otherwise its folder's name
	Manifest *Manifest
	Bytes    int64   // freed by its removal, after the items before it
	Seconds  float64 // to execute the stage again; 0 for unusable files
	paths    []string
}

// Pins returns the keys of the results that gc leaves alone; a nil function pins none.
type Pins func(*Store) (map[string]bool, error)

// Garbage plans a collection: first unusable files (objects without a manifest, output
// of killed stages), then, while objects and states have more than limit bytes, the states of series, and
// after them results by ascending seconds to recreate per byte. A limit of 0 keeps every result. Pinned
// results stay. Manifests always stay, so the nodes that read a collected result keep their keys.
func (s *Store) Garbage(limit int64, pins Pins) ([]Garbage, error) {
	pinned := map[string]bool{}
	if pins != nil {
		var err error
		if pinned, err = pins(s); err != nil {
			return nil, err
		}
	}
	manifests, _, err := s.Manifests()
	if err != nil {
		return nil, err
	}
	uses := map[string]int{} // of each object
	whole := map[string]*Manifest{}
	for _, m := range manifests {
		if len(s.Absent(m)) == 0 {
			whole[m.Key] = m
		}
		for _, o := range m.objects() {
			uses[o.Digest]++
		}
	}
	plan, states, total, err := s.unusable(uses, whole, pinned)
	if err != nil || limit <= 0 {
		return plan, err
	}
	for _, g := range states {
		if total > limit {
			plan = append(plan, g)
			total -= g.Bytes
		}
	}
	slices.SortStableFunc(manifests, func(a, b *Manifest) int {
		return cmp.Compare(a.Seconds*float64(b.Bytes()), b.Seconds*float64(a.Bytes())) // seconds per byte, without dividing
	})
	removed := map[string]bool{} // objects
	var results []Garbage
	for _, m := range manifests {
		if total <= limit {
			break
		}
		if pinned[m.Key] {
			continue
		}
		g := Garbage{What: "result", Name: m.Address, Manifest: m, Seconds: m.Seconds}
		for _, o := range m.objects() {
			if uses[o.Digest]--; uses[o.Digest] == 0 && s.has(o) {
				removed[o.Digest] = true
				g.Bytes += o.Bytes
				g.paths = append(g.paths, s.objectDir(o.Digest))
			}
		}
		total -= g.Bytes
		results = append(results, g)
	}
	for _, g := range results { // the others are not here, or all of their objects are needed by results that stay
		if slices.ContainsFunc(g.Manifest.objects(), func(o Output) bool { return removed[o.Digest] }) {
			plan = append(plan, g)
		}
	}
	return plan, nil
}

// unnamedFor is how long an object without a manifest stays: another machine may be pushing it to this folder, which
// takes no lock here.
const unnamedFor = 24 * time.Hour

// unusable plans the removal of everything that no result needs. It also returns the states of series that
// results could do without, and the bytes of all usable objects and states.
func (s *Store) unusable(uses map[string]int, whole map[string]*Manifest, pinned map[string]bool) (
	plan, states []Garbage, total int64, err error) {
	keys, _ := os.ReadDir(s.path("jobs"))
	inUse := slices.ContainsFunc(keys, func(e os.DirEntry) bool { return s.HasJob(e.Name()) })
	recent := time.Now().Add(-unnamedFor)
	for _, in := range []struct {
		folder, what string
		needed       func(name string, changed time.Time) bool
	}{
		{"objects", "unreferenced object", func(digest string, changed time.Time) bool {
			return uses[digest] > 0 || changed.After(recent)
		}},
		{"staging", "unfinished output", func(key string, _ time.Time) bool { return pinned[key] }},
		{"bin", "program of jobs", func(string, time.Time) bool { return inUse }},
	} {
		err = errors.Join(err, s.each(in.folder, func(name, path string) error {
			n, changed, err := measure(path)
			if !in.needed(name, changed) {
				plan = append(plan, Garbage{What: in.what, Name: name, Bytes: n, paths: []string{path}})
			} else if in.folder == "objects" {
				total += n
			}
			return err
		}))
	}
	err = errors.Join(err, s.eachState(func(key, dir string) error {
		n, _, err := measure(dir)
		g := Garbage{What: "state of a series", Name: filepath.Base(dir), Bytes: n, paths: []string{dir}}
		m := whole[key]
		switch {
		case pinned[key]: // its result may be about to be committed
			total += n
		case m != nil:
			g.Name = m.Address
			total += n
			states = append(states, g)
		default:
			plan = append(plan, g)
		}
		return err
	}))
	return plan, states, total, err
}

// Collect removes the items of Garbage(limit) and returns them. Runs continue beside it: they wait before a commit or a
// pin while gc chooses and renames, not while it deletes. After a kill the next gc deletes the rest.
func (s *Store) Collect(limit int64, pins Pins) ([]Garbage, error) {
	if !disk.Exists(s.dir) {
		return nil, nil
	}
	if _, err := s.RemoveStale(); err != nil {
		return nil, err
	}
	release, err := s.use(unix.LOCK_EX)
	if err != nil {
		return nil, err
	}
	plan, err := s.choose(limit, pins)
	if err = errors.Join(err, release()); err != nil {
		return nil, err
	}
	return plan, s.deleteGone()
}

// choose gives the items of Garbage(limit) the names of deleted objects. The caller has the lock `use` alone.
func (s *Store) choose(limit int64, pins Pins) ([]Garbage, error) {
	plan, err := s.Garbage(limit, pins)
	if err != nil {
		return nil, err
	}
	for _, g := range plan {
		for _, path := range g.paths {
			if err := s.rename(path, s.newGone()); err != nil {
				return nil, err
			}
		}
	}
	return plan, nil
}

// deleteGone deletes what has lost its name, and temporary files of killed processes.
func (s *Store) deleteGone() error {
	deleted, err := filepath.Glob(s.path("objects", gone+"*"))
	for _, path := range deleted {
		err = errors.Join(err, os.RemoveAll(path))
	}
	temporary, globErr := filepath.Glob(s.path("*", disk.TempPattern))
	for _, path := range temporary {
		if info, statErr := os.Lstat(path); statErr == nil && time.Since(info.ModTime()) > unnamedFor {
			err = errors.Join(err, os.Remove(path))
		}
	}
	return errors.Join(err, globErr)
}

// each calls f for every entry of a folder of the store, except hidden ones.
func (s *Store) each(folder string, f func(name, path string) error) error {
	entries, err := os.ReadDir(s.path(folder))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	for _, e := range entries {
		if strings.HasPrefix(e.Name(), ".") {
			continue
		}
		if err := f(e.Name(), s.path(folder, e.Name())); err != nil {
			return err
		}
	}
	return nil
}

// measure returns the bytes of the files below path, and when the newest of its folders got or lost a file. Files that
// disappear meanwhile count 0.
func measure(path string) (n int64, changed time.Time, err error) {
	err = filepath.WalkDir(path, func(_ string, d fs.DirEntry, err error) error {
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if err != nil {
			return err
		}
		info, err := d.Info()
		switch {
		case err != nil: // it has disappeared
		case !d.IsDir():
			n += info.Size()
		case info.ModTime().After(changed):
			changed = info.ModTime()
		}
		return nil
	})
	return n, changed, err
}
