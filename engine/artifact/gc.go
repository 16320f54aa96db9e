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
)

// ErrBusy says that a run is using the store, so nothing may be removed from it now.
var ErrBusy = errors.New("a run is using the store")

// Garbage is one thing that gc would remove.
type Garbage struct {
	What     string // "result", "state of a series", "unreferenced object", "edited object", "unfinished output"
	Name     string // address of a result, otherwise its folder's name
	Manifest *Manifest
	Bytes    int64   // freed by removing it, given what is removed before it
	Seconds  float64 // to make it again; 0 for what nothing can use
	paths    []string
}

// Garbage plans a collection: first what nothing can use (objects without a manifest, objects moved aside, output of
// killed stages), then, while objects and states take more than limit bytes, the states of series and after them results
// in the order of seconds to recreate per byte. A limit of 0 keeps every result. Manifests stay, so nodes below keep their keys.
func (s *Store) Garbage(limit int64) ([]Garbage, error) {
	manifests, _, err := s.Manifests()
	if err != nil {
		return nil, err
	}
	users := map[string]int{} // of each object
	for _, m := range manifests {
		if m.Collected.IsZero() {
			for _, o := range m.objects() {
				users[o.Digest]++
			}
		}
	}
	var plan, states []Garbage
	var total int64
	err = s.each("objects", func(name, path string) error {
		n, err := size(path)
		if users[name] == 0 {
			plan = append(plan, Garbage{What: "unreferenced object", Name: name, Bytes: n, paths: []string{path}})
		} else {
			total += n
		}
		return err
	})
	for _, rest := range []struct{ folder, what string }{{"edited", "edited object"}, {"staging", "unfinished output"}} {
		err = errors.Join(err, s.each(rest.folder, func(name, path string) error {
			n, err := size(path)
			plan = append(plan, Garbage{What: rest.what, Name: name, Bytes: n, paths: []string{path}})
			return err
		}))
	}
	alive := map[string]*Manifest{}
	for _, m := range manifests {
		if m.Collected.IsZero() {
			alive[m.Key] = m
		}
	}
	err = errors.Join(err, s.eachState(func(key, dir string) error {
		n, err := size(dir)
		g := Garbage{What: "state of a series", Name: filepath.Base(dir), Bytes: n, paths: []string{dir}}
		if m := alive[key]; m != nil {
			g.Name = m.Address
			total += n
			states = append(states, g)
		} else {
			plan = append(plan, g)
		}
		return err
	}))
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
	for _, m := range manifests {
		if total <= limit {
			break
		}
		if !m.Collected.IsZero() {
			continue
		}
		g := Garbage{What: "result", Name: m.Address, Manifest: m, Seconds: m.Seconds}
		for _, o := range m.objects() {
			if users[o.Digest]--; users[o.Digest] == 0 {
				g.Bytes += o.Bytes
				g.paths = append(g.paths, s.objectDir(o.Digest))
			}
		}
		total -= g.Bytes
		plan = append(plan, g)
	}
	return plan, nil
}

// Collect removes what Garbage(limit) names and returns it, or ErrBusy while a run uses the store. A kill in the
// middle leaves unreferenced objects for the next time.
func (s *Store) Collect(limit int64) ([]Garbage, error) {
	if _, err := os.Stat(s.dir); errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	lock, err := s.lock(s.path("locks", "store"), unix.LOCK_EX|unix.LOCK_NB)
	if err != nil {
		return nil, err
	}
	if lock == nil {
		return nil, ErrBusy
	}
	defer lock.file.Close()                        // the name stays: others may hold the same file
	if busy, err := s.Tidy(); busy || err != nil { // a stage may outlive its engine for a moment
		return nil, errors.Join(err, ErrBusy)
	}
	plan, err := s.Garbage(limit)
	if err != nil {
		return nil, err
	}
	for _, folder := range []string{"nodes", "last"} { // written aside by a killed process and never renamed
		left, err := filepath.Glob(s.path(folder, asidePattern))
		if err != nil {
			return nil, err
		}
		for _, path := range left {
			if err := os.Remove(path); err != nil {
				return nil, err
			}
		}
	}
	// Told before, for a kill in the middle, and after, for who looks meanwhile.
	tell := func() error {
		if len(plan) == 0 {
			return nil
		}
		_, err := lock.file.WriteAt([]byte(time.Now().UTC().Format(time.RFC3339Nano+"         ")), 0)
		return err
	}
	if err := tell(); err != nil {
		return nil, err
	}
	if err := os.RemoveAll(s.path("compiled")); err != nil { // concluded from the results, and cheap to conclude again
		return nil, err
	}
	for _, g := range plan {
		if g.Manifest != nil {
			m := *g.Manifest
			m.Collected = time.Now().UTC()
			if err := s.writeJSON(s.path("nodes", m.Key+".json"), &m, true); err != nil {
				return nil, err
			}
		}
		for _, path := range g.paths {
			if err := os.RemoveAll(path); err != nil {
				return nil, err
			}
		}
	}
	return plan, tell()
}

// Use keeps gc away until the returned function is called or the process ends. Any number of runs use a store at once.
func (s *Store) Use() (done func() error, err error) {
	lock, err := s.lock(s.path("locks", "store"), unix.LOCK_SH)
	if err != nil {
		return nil, err
	}
	return lock.file.Close, nil
}

// LastCollection says when gc removed something last; "" for never. What was looked up before, and not under Use, may be
// gone since.
func (s *Store) LastCollection() string {
	b, _ := os.ReadFile(s.path("locks", "store"))
	return string(b)
}

// each calls f for every entry of a folder of the store.
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

// size is the sum of the files below path; what is removed meanwhile counts nothing.
func size(path string) (n int64, err error) {
	err = filepath.WalkDir(path, func(_ string, d fs.DirEntry, err error) error {
		if err == nil && !d.IsDir() {
			var info fs.FileInfo
			if info, err = d.Info(); err == nil {
				n += info.Size()
			}
		}
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		return err
	})
	return n, err
}
