package artifact

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"sync"
	"time"
)

// Finished is a result whose objects stand in their places and which is not recorded yet. Only the process that made it knows
// of it.
type Finished struct {
	Manifest *Manifest
	file     fs.FileInfo // of the manifest, once it stands under its key
	staging  *Staging
	objects  []Output // not known to be durable
	dropped  bool
}

// Drop lets gc have the objects of a result, unless that is recorded. A nil result has none.
func (f *Finished) Drop() {
	if f != nil && !f.dropped {
		f.dropped = true
		f.staging.store.free()
	}
}

// Committer records results in groups. While one group is being flushed to the disk the next gathers, so that a
// thousand small results cost dozens of flushes and not thousands. Results are recorded in the order in which they are added,
// so none is before those it was made from.
//
// After the first error nothing more is recorded: a store that cannot be written must not go on with holes.
type Committer struct {
	store *Store
	work  chan struct{} // something is pending, or flush or closed is set

	mu      sync.Mutex
	pending []entry
	flush   bool // do not wait for more
	closed  bool
	ended   chan error
}

type entry struct {
	*Finished
	recorded func(error)
}

// gatherFor bounds how long a result waits for others to share its flush.
const gatherFor = 20 * time.Millisecond

// Committer starts one. It must be closed.
func (s *Store) Committer() *Committer {
	c := &Committer{store: s, work: make(chan struct{}, 1), ended: make(chan error, 1)}
	go c.run()
	return c
}

// Add hands a result over. recorded is called, in the order of Add, once its manifest stands under its key, or with the error
// that kept it from there.
func (c *Committer) Add(f *Finished, recorded func(error)) {
	c.mu.Lock()
	c.pending = append(c.pending, entry{f, recorded})
	first := len(c.pending) == 1 // who gathers sleeps on until the group is due
	c.mu.Unlock()
	if first {
		c.wake()
	}
}

// Flush says that nobody will add a result until those that were are recorded.
func (c *Committer) Flush() {
	c.mu.Lock()
	again := c.flush
	c.flush = true
	c.mu.Unlock()
	if !again {
		c.wake()
	}
}

// Close records what is pending and returns when all is durable.
func (c *Committer) Close() error {
	c.mu.Lock()
	c.closed = true
	c.mu.Unlock()
	c.wake()
	return <-c.ended
}

func (c *Committer) wake() {
	select {
	case c.work <- struct{}{}:
	default:
	}
}

func (c *Committer) run() {
	var broken error
	unsynced := false // manifests stand in their places that are not durable
	for {
		group, closed := c.gather()
		recorded := 0
		if broken == nil && len(group) > 0 {
			finished := make([]*Finished, len(group))
			for i, e := range group {
				finished[i] = e.Finished
			}
			recorded, broken = c.store.record(finished, false)
			unsynced = unsynced || recorded > 0
		}
		for i, e := range group {
			if i < recorded {
				e.recorded(nil)
			} else {
				e.recorded(broken)
			}
			e.Drop()
		}
		if closed {
			break
		}
	}
	var err error
	if unsynced {
		err = c.store.sync()
	}
	c.ended <- err
}

// gather waits for the next group: what came while the one before was recorded and a moment longer.
func (c *Committer) gather() (group []entry, closed bool) {
	var due <-chan time.Time
	over := false
	for {
		c.mu.Lock()
		if c.closed || over || c.flush && len(c.pending) > 0 {
			group, c.pending, c.flush = c.pending, nil, false
			closed = c.closed
			c.mu.Unlock()
			return group, closed
		}
		if len(c.pending) > 0 && due == nil {
			due = time.After(gatherFor)
		}
		c.mu.Unlock()
		select {
		case <-c.work:
		case <-due:
			over = true
		}
	}
}

// record makes the bytes of results durable, then lets their manifests appear, in order, and says how many did. Alone,
// a result is flushed file by file, and its manifest too. In a group the whole file system is flushed at once, which for
// a hundred small files takes a tenth of the time, and the manifests become durable with the next flush: a power cut may
// tear one, its node runs again then.
func (s *Store) record(group []*Finished, alone bool) (recorded int, err error) {
	if alone {
		for _, f := range group {
			for _, o := range f.objects {
				err = errors.Join(err, s.syncObject(o))
			}
		}
	} else {
		err = s.sync()
	}
	if err != nil {
		return 0, fmt.Errorf("commit %s: %w", group[0].Manifest.Address, err)
	}
	for i, f := range group {
		if err := f.record(alone); err != nil {
			return i, fmt.Errorf("commit %s: %w", f.Manifest.Address, err)
		}
	}
	return len(group), nil
}

// record stamps the objects, which are durable now, as sealed and puts the manifest under its key: that is the last that can fail.
func (f *Finished) record(durable bool) error {
	s, m := f.staging.store, f.Manifest
	for _, o := range f.objects {
		if err := s.stamp(o); err != nil { // keep has made them read-only
			return err
		}
	}
	path := s.path("nodes", m.Key+".json")
	near := filepath.Dir(path)
	for _, o := range f.objects { // where the file system has room: see makeApart
		near = s.objectDir(o.Digest)
	}
	next, err := s.draft(near, filepath.Dir(path))
	if err != nil {
		return err
	}
	defer next.Close()
	if err := writeInto(next.File, m, durable); err != nil {
		return err
	}
	f.file, _ = next.Stat()
	last := s.pointerPath(m.Experiment, m.Address)
	if s.point(last, next.Link) != nil {
		if err := s.writeJSON(last, pointer{m.Experiment, m.Address, m.Key}, false); err != nil {
			return err
		}
	}
	if err := s.into(path, next.Place); err != nil {
		return err
	}
	if durable {
		if err := syncDir(filepath.Dir(path)); err != nil {
			return err
		}
	}
	f.staging.Abort() // empty now; what stays is for Tidy
	return nil
}
