package remote

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"slices"
	"sync"
	"time"

	"rcgrpo/engine/artifact"
)

// Probe creates, reads and deletes an object, and returns how far the storage's clock is ahead of this machine's. A
// storage that creates an object twice is an error: the first result of a key would not stay.
func (r *Remote) Probe(ctx context.Context) (ahead time.Duration, err error) {
	name := "v1/tmp/probe-" + rand.Text()
	err = r.small(ctx, func(ctx context.Context) error {
		if err := r.bucket.Create(ctx, name, text(name)); err != nil {
			return fmt.Errorf("write an object: %w", err)
		}
		if err := r.bucket.Create(ctx, name, text(name)); err == nil {
			return errors.New("it has no conditional writes (If-None-Match), so a second result would replace the first")
		} else if !errors.Is(err, errExists) {
			return fmt.Errorf("write an object conditionally: %w", err)
		}
		body, err := r.bucket.Get(ctx, name, 0)
		if err != nil {
			return fmt.Errorf("read an object: %w", err)
		}
		defer body.Close()
		if got, err := io.ReadAll(body); err != nil || string(got) != name {
			return fmt.Errorf("read an object: got %q and error %v, want %q", got, err, name)
		}
		info, err := r.bucket.Stat(ctx, name)
		if err != nil {
			return fmt.Errorf("ask for an object: %w", err)
		}
		ahead = time.Until(info.Time)
		if err := r.bucket.Delete(ctx, name); err != nil {
			return fmt.Errorf("delete an object: %w", err)
		}
		return nil
	})
	return ahead, err
}

// Stored is a result of the remote store.
type Stored struct {
	Manifest *artifact.Manifest
	blobs    []blob
}

// Results reads the records of all results of the remote store, sorted by address and key. damaged are the names of
// records that are damaged.
func (r *Remote) Results(ctx context.Context) (all []Stored, damaged []string, err error) {
	keys, err := r.Keys(ctx)
	if err != nil {
		return nil, nil, err
	}
	var mu sync.Mutex
	err = each(keys, func(key string) error {
		rec, err := r.read(ctx, key)
		mu.Lock()
		defer mu.Unlock()
		switch {
		case err == nil:
			all = append(all, Stored{rec.manifest, rec.blobs()})
		case errors.Is(err, errDamaged):
			damaged = append(damaged, nodeName(key))
		case !errors.Is(err, errMissing): // else it was removed meanwhile
			return err
		}
		return nil
	})
	slices.SortFunc(all, func(a, b Stored) int {
		return cmp.Or(cmp.Compare(a.Manifest.Address, b.Manifest.Address), cmp.Compare(a.Manifest.Key, b.Manifest.Key))
	})
	slices.Sort(damaged)
	return all, damaged, err
}

// Garbage is what a collection of the remote store would remove.
type Garbage struct {
	Results []Stored // too old, or worth least; the next collection removes their objects
	Damaged []string // records that cannot be read
	Unnamed []Info   // objects that no record names, not written within the grace
	Uploads []Upload // uploads in parts that got no part within the grace
	Kept    int64    // bytes of the results that stay

	UploadsErr error // the storage does not list uploads, for example because that is denied
}

// Garbage plans a collection: results that started before a time, then, while the rest has more than limit bytes, those
// with the fewest seconds per byte. A zero time or limit keeps all. A clock of the storage that is off by more than the
// grace is an error.
func (r *Remote) Garbage(ctx context.Context, before time.Time, limit int64) (*Garbage, error) {
	ahead, err := r.Probe(ctx)
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
	for _, prefix := range []string{"v1/packs/", "v1/files/", "v1/tmp/"} {
		infos, err := r.list(ctx, prefix)
		if err != nil {
			return nil, err
		}
		for _, info := range infos {
			if !named[info.Name] && time.Since(info.Time)+ahead > r.Grace {
				g.Unnamed = append(g.Unnamed, info)
			}
		}
	}
	g.UploadsErr = r.call(ctx, r.Deadline, func(ctx context.Context, _ func(int)) (err error) {
		g.Uploads, err = r.bucket.Unfinished(ctx)
		return err
	})
	g.Uploads = slices.DeleteFunc(g.Uploads, func(u Upload) bool { return time.Since(u.Time)+ahead <= r.Grace })
	return g, nil
}

// choose sets Results and Kept, and returns the names of all objects of results.
func (g *Garbage) choose(all []Stored, before time.Time, limit int64) (named map[string]bool) {
	named = map[string]bool{}
	uses := map[string]int{}
	for _, s := range all {
		for _, b := range s.blobs {
			named[b.name] = true
			if uses[b.name]++; uses[b.name] == 1 {
				g.Kept += b.bytes
			}
		}
	}
	young := func(s Stored) int {
		if s.Manifest.Started.Before(before) {
			return 0
		}
		return 1
	}
	all = slices.Clone(all)
	slices.SortStableFunc(all, func(a, b Stored) int { // old results, then by seconds per byte, without dividing
		return cmp.Or(cmp.Compare(young(a), young(b)),
			cmp.Compare(a.Manifest.Seconds*float64(b.Manifest.Bytes()), b.Manifest.Seconds*float64(a.Manifest.Bytes())))
	})
	for _, s := range all {
		if young(s) == 1 && (limit == 0 || g.Kept <= limit) {
			break
		}
		g.Results = append(g.Results, s)
		for _, b := range s.blobs {
			if uses[b.name]--; uses[b.name] == 0 {
				g.Kept -= b.bytes
			}
		}
	}
	return named
}

// Collect removes the results and objects of a plan and aborts its uploads. An object that was written since then
// stays; a push that continues an aborted upload starts it again.
func (r *Remote) Collect(ctx context.Context, g *Garbage) error {
	records := slices.Clone(g.Damaged)
	for _, s := range g.Results {
		records = append(records, nodeName(s.Manifest.Key))
	}
	err := each(records, func(name string) error {
		return r.small(ctx, func(ctx context.Context) error { return r.bucket.Delete(ctx, name) })
	})
	if err != nil {
		return err
	}
	err = each(g.Uploads, func(u Upload) error {
		return r.small(ctx, func(ctx context.Context) error { return r.bucket.Abort(ctx, u) })
	})
	if err != nil {
		return err
	}
	return each(g.Unnamed, func(planned Info) error {
		return r.small(ctx, func(ctx context.Context) error {
			info, err := r.bucket.Stat(ctx, planned.Name)
			switch {
			case errors.Is(err, errMissing), err == nil && info.Time.Sub(planned.Time) > time.Second: // HTTP has no parts of it
				return nil
			case err != nil:
				return err
			}
			return r.bucket.Delete(ctx, planned.Name)
		})
	})
}
