package remote

import (
	"bytes"
	"cmp"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"rcgrpo/engine/artifact"
)

// marks are the names of objects that a collection may delete.
type marks struct {
	mu    sync.Mutex
	names map[string]bool
	read  time.Time
}

// marked returns the objects that a push must write again although they exist, and when that was read. The answer is at
// most half of the grace old.
func (r *Remote) marked(ctx context.Context) (map[string]bool, time.Time, error) {
	r.marks.mu.Lock()
	defer r.marks.mu.Unlock()
	if r.marks.names != nil && time.Since(r.marks.read) < r.Grace/2 {
		return r.marks.names, r.marks.read, nil
	}
	read := time.Now()
	all, err := r.readMarks(ctx)
	if err != nil {
		return nil, read, err
	}
	names := map[string]bool{}
	for _, m := range all {
		for _, name := range m.Names {
			names[name] = true
		}
	}
	r.marks.names, r.marks.read = names, read
	return names, read, nil
}

// mark is the content of v1/gc/ID.json.
type mark struct {
	Names []string `json:"names"`
	info  Info
}

func (r *Remote) readMarks(ctx context.Context) (all []mark, err error) {
	infos, err := r.list(ctx, "v1/gc/")
	for _, info := range infos {
		if !strings.HasSuffix(info.Name, ".json") || err != nil {
			continue
		}
		m := mark{info: info}
		err = r.small(ctx, func(ctx context.Context) error {
			b, err := r.readAll(ctx, info.Name)
			if err == nil {
				err = json.Unmarshal(b, &m)
			}
			return err
		})
		if errors.Is(err, ErrMissing) { // another collection has deleted it
			err = nil
		}
		all = append(all, m)
	}
	return all, err
}

func (r *Remote) list(ctx context.Context, prefix string) (all []Info, err error) {
	err = r.call(ctx, func(ctx context.Context) error {
		all, err = r.bucket.List(ctx, prefix)
		return err
	})
	return all, err
}

// Clock writes an object and returns how far the storage's clock is ahead of this machine's.
func (r *Remote) Clock(ctx context.Context) (ahead time.Duration, err error) {
	name := "v1/tmp/clock-" + rand.Text()
	err = r.small(ctx, func(ctx context.Context) error {
		if err := r.bucket.Put(ctx, name, strings.NewReader("clock")); err != nil {
			return err
		}
		info, err := r.bucket.Stat(ctx, name)
		ahead = time.Until(info.Time)
		return errors.Join(err, r.bucket.Delete(ctx, name))
	})
	return ahead, err
}

// Stored is a result of the remote store.
type Stored struct {
	Manifest *artifact.Manifest
	blobs    []blob
}

// Results reads the records of all results of the remote store, sorted by address and key. names are those of records
// that are damaged.
func (r *Remote) Results(ctx context.Context) (all []Stored, damaged []string, err error) {
	infos, err := r.list(ctx, "v1/nodes/")
	if err != nil {
		return nil, nil, err
	}
	var mu sync.Mutex
	var group sync.WaitGroup
	var errs []error
	for _, info := range infos {
		key, ok := strings.CutSuffix(strings.TrimPrefix(info.Name, "v1/nodes/"), ".json")
		if !ok {
			continue
		}
		group.Go(func() {
			rec, err := r.read(ctx, key)
			mu.Lock()
			defer mu.Unlock()
			switch {
			case err == nil:
				s := Stored{Manifest: rec.manifest}
				for _, o := range rec.manifest.Outputs {
					for _, object := range o.Objects() {
						s.blobs = append(s.blobs, blobs(object, rec.pack)...)
					}
				}
				all = append(all, s)
			case errors.Is(err, errDamaged):
				damaged = append(damaged, info.Name)
			case !errors.Is(err, ErrMissing):
				errs = append(errs, err)
			}
		})
	}
	group.Wait()
	slices.SortFunc(all, func(a, b Stored) int {
		return cmp.Or(cmp.Compare(a.Manifest.Address, b.Manifest.Address), cmp.Compare(a.Manifest.Key, b.Manifest.Key))
	})
	slices.Sort(damaged)
	if len(errs) > 0 {
		return nil, nil, errs[0]
	}
	return all, damaged, nil
}

// Garbage is what a collection of the remote store would remove.
type Garbage struct {
	Results  []Stored // too old, or worth least
	Damaged  []string // records that cannot be read
	Unnamed  []Info   // objects that no result names, to be marked
	Deleted  []Info   // marked for longer than the grace, and not written since
	Kept     int64    // bytes of the results that stay
	finished []string // marks without a remaining object
}

// Garbage plans a collection: results that started before a time, then, while the rest has more than limit bytes, those
// with the fewest seconds per byte. A zero time or limit keeps all. A clock of the storage that is off by more than the
// grace is an error.
func (r *Remote) Garbage(ctx context.Context, before time.Time, limit int64) (*Garbage, error) {
	ahead, err := r.Clock(ctx)
	if err != nil {
		return nil, err
	}
	if ahead.Abs() > r.Grace {
		return nil, fmt.Errorf("the clock of remote %s is off by %v, more than its grace of %v: set the clocks first",
			r.Name, ahead.Round(time.Second), r.Grace)
	}
	all, damaged, err := r.Results(ctx)
	if err != nil {
		return nil, err
	}
	g := &Garbage{Damaged: damaged}
	named := g.choose(all, before, limit)
	marks, err := r.readMarks(ctx)
	if err != nil {
		return nil, err
	}
	objects := map[string]Info{}
	for _, prefix := range []string{"v1/packs/", "v1/files/", "v1/tmp/"} {
		infos, err := r.list(ctx, prefix)
		if err != nil {
			return nil, err
		}
		for _, info := range infos {
			if !named[info.Name] {
				objects[info.Name] = info
			}
		}
	}
	now := time.Now().Add(ahead)
	marked := map[string]bool{}
	for _, m := range marks {
		open := false
		for _, name := range m.Names {
			info, unnamed := objects[name]
			switch {
			case !unnamed || info.Time.After(m.info.Time): // named or written since
			case now.Sub(m.info.Time) <= r.Grace:
				open, marked[name] = true, true
			case !marked[name]:
				marked[name] = true
				g.Deleted = append(g.Deleted, info)
			}
		}
		if !open {
			g.finished = append(g.finished, m.info.Name)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(objects)) {
		if !marked[name] {
			g.Unnamed = append(g.Unnamed, objects[name])
		}
	}
	return g, nil
}

// choose sets Results and Kept, and returns the names of the objects of the results that stay.
func (g *Garbage) choose(all []Stored, before time.Time, limit int64) (named map[string]bool) {
	uses, total := map[string]int{}, int64(0)
	for _, s := range all {
		for _, b := range s.blobs {
			if uses[b.name]++; uses[b.name] == 1 {
				total += b.bytes
			}
		}
	}
	remove := func(s Stored) {
		g.Results = append(g.Results, s)
		for _, b := range s.blobs {
			if uses[b.name]--; uses[b.name] == 0 {
				total -= b.bytes
			}
		}
	}
	worth := slices.Clone(all)
	slices.SortStableFunc(worth, func(a, b Stored) int { // seconds per byte, without dividing
		return cmp.Compare(a.Manifest.Seconds*float64(b.Manifest.Bytes()), b.Manifest.Seconds*float64(a.Manifest.Bytes()))
	})
	for _, s := range worth {
		if s.Manifest.Started.Before(before) {
			remove(s)
		}
	}
	for _, s := range worth {
		if limit > 0 && total > limit && !s.Manifest.Started.Before(before) {
			remove(s)
		}
	}
	g.Kept = total
	named = map[string]bool{}
	for name, n := range uses {
		named[name] = n > 0
	}
	return named
}

// Collect removes the results of a plan, marks the objects that no result names now, and deletes those that were marked
// before the grace.
func (r *Remote) Collect(ctx context.Context, g *Garbage) error {
	var names []string
	for _, info := range g.Unnamed {
		names = append(names, info.Name)
	}
	text, err := json.Marshal(mark{Names: names})
	if err != nil {
		return err
	}
	remove := slices.Clone(g.Damaged)
	for _, s := range g.Results {
		remove = append(remove, nodeName(s.Manifest.Key))
	}
	for _, info := range g.Deleted {
		remove = append(remove, info.Name)
	}
	for _, name := range append(remove, g.finished...) {
		if err := r.small(ctx, func(ctx context.Context) error { return r.bucket.Delete(ctx, name) }); err != nil {
			return err
		}
	}
	if len(names) == 0 {
		return nil
	}
	return r.small(ctx, func(ctx context.Context) error {
		return r.bucket.Put(ctx, "v1/gc/"+rand.Text()+".json", bytes.NewReader(text))
	})
}
