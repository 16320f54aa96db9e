package artifact

import (
	"cmp"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"rcgrpo/engine/internal/disk"
)

// ErrBusy says that nothing may be removed from the store now: a stage whose engine is gone still runs, or results come into it without
// a pause.
var ErrBusy = errors.New("the store is busy")

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
// in the order of seconds to recreate per byte. A limit of 0 keeps every result. What users keep is not in it.
// Manifests stay, so nodes below keep their keys.
func (s *Store) Garbage(limit int64) ([]Garbage, error) {
	kept, err := s.kept()
	if err != nil {
		return nil, err
	}
	return s.garbage(limit, kept)
}

func (s *Store) garbage(limit int64, kept map[string]bool) ([]Garbage, error) {
	manifests, _, err := s.Manifests()
	if err != nil {
		return nil, err
	}
	uses := map[string]int{} // of each object
	for _, m := range manifests {
		if m.Collected.IsZero() {
			for _, o := range m.objects() {
				uses[o.Digest]++
			}
		}
	}
	var plan, states []Garbage
	var total int64
	err = s.each("objects", func(name, path string) error {
		n, err := size(path)
		if uses[name] == 0 {
			plan = append(plan, Garbage{What: "unreferenced object", Name: name, Bytes: n, paths: []string{path}})
		} else {
			total += n
		}
		return err
	})
	for _, rest := range []struct{ folder, what string }{{"edited", "edited object"}, {"staging", "unfinished output"}} {
		err = errors.Join(err, s.each(rest.folder, func(name, path string) error {
			if kept[name] {
				return nil
			}
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
		if kept[key] { // perhaps of a result that is just being recorded
			total += n
			return err
		}
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
		if !m.Collected.IsZero() || kept[m.Key] {
			continue
		}
		g := Garbage{What: "result", Name: m.Address, Manifest: m, Seconds: m.Seconds}
		for _, o := range m.objects() {
			if uses[o.Digest]--; uses[o.Digest] == 0 {
				g.Bytes += o.Bytes
				g.paths = append(g.paths, s.objectDir(o.Digest))
			}
		}
		total -= g.Bytes
		plan = append(plan, g)
	}
	return plan, nil
}

// Collect removes what Garbage(limit) names and returns it. Runs go on meanwhile; they wait where they would record or look for
// something, but not until the files are deleted. A kill in the middle leaves garbage for the next time.
func (s *Store) Collect(limit int64) ([]Garbage, error) {
	if _, err := os.Stat(s.dir); errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	lock, err := s.alone()
	if err != nil {
		return nil, err
	}
	if lock == nil {
		return nil, fmt.Errorf("%w: results come into it without a pause", ErrBusy)
	}
	plan, err := s.collect(limit, lock.file)
	if err := errors.Join(err, lock.file.Close()); err != nil { // the name stays: others may hold the same file
		return nil, err
	}
	return plan, s.each("removed", func(_, path string) error { return os.RemoveAll(path) }) // also of one that was killed
}

// collect moves what Garbage(limit) names out of the way. The caller is alone, and told is the file of that lock.
func (s *Store) collect(limit int64, told *os.File) ([]Garbage, error) {
	busy, err := s.Tidy()
	if err != nil {
		return nil, err
	}
	kept, err := s.kept()
	if err != nil {
		return nil, err
	}
	if err := s.outlived(busy, kept); err != nil {
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
	plan, err := s.garbage(limit, kept)
	if err == nil {
		err = s.setGarbageAside(plan, told)
	}
	if !errors.Is(err, unix.ENOSPC) {
		return plan, err
	}
	made, err := s.makeRoom(plan)
	if err == nil {
		plan, err = s.garbage(limit, kept)
	}
	if err == nil {
		err = s.setGarbageAside(plan, told)
	}
	return append(made, plan...), err
}

// setGarbageAside moves garbage to a folder below removed/, so that it is nobody's any more, and with it the compiled forms of
// experiments: they were concluded from results, and are cheap to conclude again.
func (s *Store) setGarbageAside(plan []Garbage, told *os.File) error {
	aside, compiled := s.path("removed", rand.Text()), s.path("compiled")
	if _, err := os.Lstat(compiled); len(plan) == 0 && err != nil {
		return nil
	}
	// Told before, for a kill in the middle, and after, for who looks meanwhile.
	tell := func() error {
		if len(plan) == 0 {
			return nil
		}
		_, err := disk.WriteAt(told, []byte(time.Now().UTC().Format(time.RFC3339Nano+"         ")), 0)
		return err
	}
	if err := tell(); err != nil {
		return err
	}
	if err := s.MakeDir(aside); err != nil {
		return err
	}
	if err := disk.Rename(compiled, filepath.Join(aside, "compiled")); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	marked := false
	for _, g := range plan {
		if g.Manifest != nil {
			if err := s.markCollected(g.Manifest); err != nil {
				return err
			}
			marked = true
		}
	}
	if marked { // before the bytes that they spoke of are gone
		if err := s.sync(); err != nil {
			return err
		}
	}
	n := 0
	for _, g := range plan {
		for _, path := range g.paths {
			n++
			if err := disk.Rename(path, filepath.Join(aside, strconv.Itoa(n))); err != nil {
				return err
			}
		}
	}
	return tell()
}

func (s *Store) markCollected(m *Manifest) error {
	gone := *m
	gone.Collected = time.Now().UTC()
	return s.writeJSON(s.path("nodes", m.Key+".json"), &gone, false)
}

// makeRoom deletes something where nothing can be written, as on a disk that is full: what nothing can use, or, where there is no such
// thing, the first result whose bytes are its own. That can be marked only afterwards; with a kill in between it is a damaged one.
func (s *Store) makeRoom(plan []Garbage) (made []Garbage, err error) {
	useless := slices.DeleteFunc(slices.Clone(plan), func(g Garbage) bool { return g.Manifest != nil })
	if len(useless) > 0 {
		plan = useless
	} else if i := slices.IndexFunc(plan, func(g Garbage) bool { return g.Bytes > 0 }); i >= 0 {
		plan = plan[:i+1]
	}
	for _, g := range plan {
		for _, path := range g.paths {
			if err := os.RemoveAll(path); err != nil {
				return made, err
			}
		}
		made = append(made, g)
	}
	for _, g := range made {
		if g.Manifest != nil {
			if err := s.markCollected(g.Manifest); err != nil {
				return made, err
			}
		}
	}
	return made, nil
}

// outlived refuses to go on while one of the locked keys is of a stage that no user keeps: its engine was killed, and it reads what nobody
// says to keep.
func (s *Store) outlived(locked []string, kept map[string]bool) error {
	for _, key := range locked {
		var holder json.RawMessage
		if !kept[key] && s.Holder(key, &holder) == nil { // without a holder it is a lock of no stage: see blank
			return fmt.Errorf("%w: a stage whose engine is gone still runs", ErrBusy)
		}
	}
	return nil
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
