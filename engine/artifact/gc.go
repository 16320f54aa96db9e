package artifact

import (
	"cmp"
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"rcgrpo/engine/internal/disk"
)

// ErrBusy reports that gc may not remove anything now: a stage runs whose engine was killed, or runs commit results
// without a pause.
var ErrBusy = errors.New("the store is busy")

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

// Garbage plans a collection: first unusable files (objects without a manifest, output
// of killed stages), then, while objects and states have more than limit bytes, the states of series, and
// after them results by ascending seconds to recreate per byte. A limit of 0 keeps every result. Pinned
// results stay. Manifests always stay, so the nodes that read a collected result keep their keys.
func (s *Store) Garbage(limit int64) ([]Garbage, error) {
	pinned, err := s.pinned()
	if err != nil {
		return nil, err
	}
	return s.garbage(limit, pinned)
}

func (s *Store) garbage(limit int64, pinned map[string]bool) ([]Garbage, error) {
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
	gone := map[string]bool{} // objects
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
				gone[o.Digest] = true
				g.Bytes += o.Bytes
				g.paths = append(g.paths, s.objectDir(o.Digest))
			}
		}
		total -= g.Bytes
		results = append(results, g)
	}
	for _, g := range results { // the others are not here, or all of their objects are needed by results that stay
		if slices.ContainsFunc(g.Manifest.objects(), func(o Output) bool { return gone[o.Digest] }) {
			plan = append(plan, g)
		}
	}
	return plan, nil
}

// unusable plans the removal of everything that no result needs. It also returns the states of series that
// results could do without, and the bytes of all usable objects and states.
func (s *Store) unusable(uses map[string]int, whole map[string]*Manifest, pinned map[string]bool) (
	plan, states []Garbage, total int64, err error) {
	inUse := s.anyOpenJob()
	for _, in := range []struct {
		folder, what string
		needed       func(name string) bool
	}{
		{"objects", "unreferenced object", func(digest string) bool { return uses[digest] > 0 }},
		{"staging", "unfinished output", func(key string) bool { return pinned[key] }},
		{"bin", "program of jobs", func(string) bool { return inUse }},
	} {
		err = errors.Join(err, s.each(in.folder, func(name, path string) error {
			n, err := size(path)
			if !in.needed(name) {
				plan = append(plan, Garbage{What: in.what, Name: name, Bytes: n, paths: []string{path}})
			} else if in.folder == "objects" {
				total += n
			}
			return err
		}))
	}
	err = errors.Join(err, s.eachState(func(key, dir string) error {
		n, err := size(dir)
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

// Collect removes the items of Garbage(limit) and returns them. Runs continue beside it; they wait before a
// commit or a pin until the items are planned and moved away. After a kill the next gc removes the rest.
func (s *Store) Collect(limit int64) ([]Garbage, error) {
	if !disk.Exists(s.dir) {
		return nil, nil
	}
	lock, err := s.waitExclusive()
	if err != nil {
		return nil, err
	}
	if lock == nil {
		return nil, fmt.Errorf("%w: results come into it without a pause", ErrBusy)
	}
	plan, err := s.collect(limit)
	release := lock.file.Close // the file stays: other processes may have it open
	if s.shared {
		release = lock.Unlock
	}
	if err = errors.Join(err, release()); err != nil {
		return nil, err
	}
	return plan, s.each("removed", func(_, path string) error { return os.RemoveAll(path) }) // of a killed gc too
}

// collect moves the items of Garbage(limit) to removed/. The caller has the gc barrier.
func (s *Store) collect(limit int64) ([]Garbage, error) {
	busy, err := s.RemoveStale()
	if err != nil {
		return nil, err
	}
	pinned, err := s.pinned()
	if err != nil {
		return nil, err
	}
	if err := s.checkOrphans(busy, pinned); err != nil {
		return nil, err
	}
	left, err := filepath.Glob(s.path("*", disk.TempPattern)) // temporary files of killed processes
	for _, path := range left {
		err = errors.Join(err, os.Remove(path))
	}
	if err != nil {
		return nil, err
	}
	plan, err := s.garbage(limit, pinned)
	if err != nil {
		return nil, err
	}
	return plan, s.moveAway(plan)
}

// moveAway moves garbage to a folder below removed/.
func (s *Store) moveAway(plan []Garbage) error {
	if len(plan) == 0 {
		return nil
	}
	away := s.path("removed", rand.Text())
	// LastCollection changes twice: before, in case of a kill, and after, for plans made in between.
	mark := func() error {
		f, err := disk.OpenFile(s.collectionPath(), os.O_CREATE|os.O_RDWR, 0o600)
		if err != nil {
			return err
		}
		_, err = disk.WriteAt(f, []byte(time.Now().UTC().Format(time.RFC3339Nano+"         ")), 0)
		return errors.Join(err, f.Close())
	}
	if err := mark(); err != nil {
		return err
	}
	if err := s.MakeDir(away); err != nil {
		return err
	}
	n := 0
	for _, g := range plan {
		for _, path := range g.paths {
			n++
			if err := disk.Rename(path, filepath.Join(away, strconv.Itoa(n))); err != nil {
				return err
			}
		}
	}
	return mark()
}

// checkOrphans returns an error if a locked key is not pinned: the engine of that stage was killed, and its
// inputs have lost their pins.
func (s *Store) checkOrphans(locked []string, pinned map[string]bool) error {
	for _, key := range locked {
		var holder any
		if !pinned[key] && s.Holder(key, &holder) == nil {
			return fmt.Errorf("%w: a stage whose engine is gone still runs", ErrBusy)
		}
	}
	return nil
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

// size is the sum of the files below path. Files that disappear meanwhile count 0.
func size(path string) (n int64, err error) {
	err = filepath.WalkDir(path, func(_ string, d fs.DirEntry, err error) error {
		if err == nil && !d.IsDir() {
			if info, infoErr := d.Info(); infoErr == nil {
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
