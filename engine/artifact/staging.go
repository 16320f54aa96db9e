package artifact

import (
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"rcgrpo/engine/internal/disk"
)

// Staging is a result being written. The caller must hold the lock of its key.
type Staging struct {
	store *Store
	key   string
	dir   string            // created by the first Dir
	ports map[string]string // folder of each port
}

// Begin starts a result and removes the unfinished output of an earlier attempt. The caller holds the lock of
// the key.
func (s *Store) Begin(key string) (*Staging, error) {
	if err := s.Discard(key); err != nil {
		return nil, fmt.Errorf("begin %s: %w", key, err)
	}
	return &Staging{store: s, key: key, dir: s.path("staging", key), ports: map[string]string{}}, nil
}

// Discard removes the unfinished output of a stage. The caller holds the lock of the key.
func (s *Store) Discard(key string) error {
	if err := validKey(key); err != nil {
		return err
	}
	return os.RemoveAll(s.path("staging", key))
}

// Dir returns the folder to fill for a port and creates it at the first call.
func (g *Staging) Dir(port string) (string, error) {
	dir := filepath.Join(g.dir, port)
	if filepath.Dir(dir) != g.dir {
		return "", fmt.Errorf("%q is not a port name", port)
	}
	if have := g.ports[port]; have != "" {
		return have, nil
	}
	g.ports[port] = dir
	return dir, g.store.MakeDir(dir)
}

// Take declares an existing folder as that of a port. It must be on the file system of the store; Commit moves it.
func (g *Staging) Take(port, dir string) error {
	if g.ports[port] != "" {
		return fmt.Errorf("port %q already has a folder", port)
	}
	g.ports[port] = dir
	return nil
}

// Abort removes the output written so far.
func (g *Staging) Abort() error { return os.RemoveAll(g.dir) }

// Committed is a result that is in the store. Until Flush its objects may not be durable.
type Committed struct {
	Manifest *Manifest
	unsealed []Output
}

// Commit moves the objects of a result to their places and names its manifest: from then on Lookup finds it.
// m gets its Key and Outputs; types holds the artifact type of each declared port. A declared port that was
// not written, or a written one that was not declared, is an error. After an error the key has no result and
// Abort may follow.
//
// Nothing is durable before Flush. After a power cut Lookup hashes every object that was not flushed, so a torn one
// counts as damaged and its stage runs again.
func (g *Staging) Commit(m Manifest, types map[string]string) (*Committed, error) {
	s := g.store
	allowGC, err := s.blockGC()
	if err != nil {
		return nil, err
	}
	defer allowGC()
	c := &Committed{Manifest: &m}
	m.Key = g.key
	m.Outputs = make(map[string]Output, len(types))
	for port := range g.ports {
		if _, ok := types[port]; !ok {
			return nil, fmt.Errorf("commit %s: port %q was written but is not declared", m.Address, port)
		}
	}
	for port, typ := range types {
		if g.ports[port] == "" {
			return nil, fmt.Errorf("commit %s: port %q was declared but never created", m.Address, port)
		}
		o, err := g.place(c, port, typ)
		if err != nil {
			return nil, fmt.Errorf("commit %s, port %q: %w", m.Address, port, err)
		}
		m.Outputs[port] = o
	}
	if err := s.record(&m); err != nil {
		return nil, fmt.Errorf("commit %s: %w", m.Address, err)
	}
	g.Abort() // it is empty; RemoveStale removes what remains after an error
	return c, nil
}

// place turns the folder of a port into an object, and its times.* files into a second one.
func (g *Staging) place(c *Committed, port, typ string) (Output, error) {
	dir := g.ports[port]
	all, err := list(dir, refuseLinks)
	if err != nil {
		return Output{}, err
	}
	var files, times []FileInfo
	for _, file := range all {
		if isTimes(file.Name) {
			times = append(times, file)
		} else {
			files = append(files, file)
		}
	}
	if len(files) == 0 {
		return Output{}, errors.New("nothing was written")
	}
	var second *Output
	if len(times) > 0 {
		timesDir := filepath.Join(g.dir, ".times-"+port)
		for _, file := range times {
			name := filepath.FromSlash(file.Name)
			to := filepath.Join(timesDir, name)
			if err := disk.MkdirAll(filepath.Dir(to), 0o700); err != nil {
				return Output{}, err
			}
			if err := disk.Rename(filepath.Join(dir, name), to); err != nil {
				return Output{}, err
			}
		}
		o, err := g.store.placeObject(c, timesDir, "times", times)
		if err != nil {
			return Output{}, err
		}
		second = &o
	}
	o, err := g.store.placeObject(c, dir, typ, files)
	o.Times = second
	return o, err
}

// placeObject renames a folder of files to its object. If the object exists and is intact, the folder is deleted; a
// damaged object is replaced. An object that may not be durable is added to c.
func (s *Store) placeObject(c *Committed, dir, typ string, files []FileInfo) (Output, error) {
	o := Output{Type: typ, Digest: treeDigest(files), Files: files}
	for _, file := range files {
		o.Bytes += file.Bytes
		if err := disk.Chmod(filepath.Join(dir, filepath.FromSlash(file.Name)), 0o444); err != nil {
			return o, err
		}
	}
	target := s.objectDir(o.Digest)
	for range 2 {
		err := s.rename(dir, target)
		if !errors.Is(err, fs.ErrExist) {
			c.unsealed = append(c.unsealed, o)
			return o, err
		}
		sealed, err := s.verify("", o, Sealed)
		if err == nil {
			if !sealed {
				c.unsealed = append(c.unsealed, o)
			}
			return o, os.RemoveAll(dir)
		}
		away := s.path("removed", rand.Text()) // in one step; gc deletes what a kill leaves
		if err := s.rename(target, away); err != nil {
			return o, err
		}
		if err := os.RemoveAll(away); err != nil {
			return o, err
		}
	}
	return o, fmt.Errorf("%s reappears whenever it is moved away", target)
}

// record names the manifest and makes it the last one of its address.
func (s *Store) record(m *Manifest) error {
	if err := s.writeJSON(s.Work(m.Key), s.manifestPath(m.Key), m); err != nil {
		return err
	}
	return s.point(pointer{m.Experiment, m.Address, m.Key})
}

// Flush makes results durable and seals their objects.
func (s *Store) Flush(results ...*Committed) error {
	if err := s.sync(); err != nil {
		return fmt.Errorf("flush the store %s: %w", s.dir, err)
	}
	for _, c := range results {
		for _, o := range c.unsealed {
			if err := s.seal(o); err != nil && !errors.Is(err, fs.ErrNotExist) { // collected by gc
				return fmt.Errorf("seal %s: %w", c.Manifest.Address, err)
			}
		}
		c.unsealed = nil
	}
	return nil
}

// flushAfter is how long a Flusher waits for more results after the first of a group.
const flushAfter = 100 * time.Millisecond

// Flusher flushes committed results in groups, beside the stages that run.
type Flusher struct {
	store *Store

	mu      sync.Mutex
	pending []*Committed
	locks   []*Lock

	busy sync.Mutex // held during a flush; guards err
	err  error
}

// Flusher returns one for the store. It must be closed.
func (s *Store) Flusher() *Flusher { return &Flusher{store: s} }

// Add schedules a result for the next flush, which then releases the lock of its key: another run that waits for the
// result would have to hash an unsealed one.
func (f *Flusher) Add(c *Committed, lock *Lock) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.pending, f.locks = append(f.pending, c), append(f.locks, lock)
	if len(f.pending) == 1 {
		time.AfterFunc(flushAfter, f.flush)
	}
}

// Close flushes the pending results, waits for a flush that runs, and returns the errors of all flushes.
func (f *Flusher) Close() error {
	f.flush()
	return f.err
}

func (f *Flusher) flush() {
	f.busy.Lock()
	defer f.busy.Unlock()
	f.mu.Lock()
	group, locks := f.pending, f.locks
	f.pending, f.locks = nil, nil
	f.mu.Unlock()
	if len(group) == 0 {
		return
	}
	errs := []error{f.err, f.store.Flush(group...)}
	for _, l := range locks {
		errs = append(errs, l.Unlock())
	}
	f.err = errors.Join(errs...)
}

// Import commits a result of another store with the bytes of some ports, beside those that this store already has. fill
// writes the files of an object below dir and returns an error unless each has its recorded size and hash. Without
// ports only the manifest is committed, and Lookup returns ErrNotHere. A manifest with a name that is not local, or
// with other digests than the result that this store has for the key, is an error. The caller holds the lock of the
// key.
func (s *Store) Import(m Manifest, ports []string, fill func(o Output, dir string) error) (*Committed, error) {
	if err := m.Check(); err != nil {
		return nil, fmt.Errorf("import %.16s: %w", m.Key, err)
	}
	have, err := s.Manifest(m.Key)
	if err == nil && !have.SameOutputs(&m) {
		return nil, fmt.Errorf("import %s: this store has the key with other digests", m.Address)
	}
	staging, err := s.Begin(m.Key)
	if err != nil {
		return nil, err
	}
	defer staging.Abort()
	filled := map[string]string{} // digest -> folder
	for _, port := range m.Ports() {
		wanted := slices.Contains(ports, port)
		for _, o := range m.Outputs[port].Objects() {
			_, err := s.verify("", o, Sealed)
			if err == nil || filled[o.Digest] != "" || !wanted && errors.Is(err, ErrNotHere) {
				continue
			}
			dir := filepath.Join(staging.dir, o.Digest)
			if err := s.MakeDir(dir); err != nil {
				return nil, err
			}
			if err := fill(o, dir); err != nil {
				return nil, err
			}
			filled[o.Digest] = dir
		}
	}
	return s.commitImport(&m, ports, filled)
}

// commitImport places the filled objects and names the manifest, unless there is one.
func (s *Store) commitImport(m *Manifest, ports []string, filled map[string]string) (*Committed, error) {
	allowGC, err := s.blockGC()
	if err != nil {
		return nil, err
	}
	defer allowGC()
	c := &Committed{Manifest: m}
	for _, o := range m.objects() {
		dir := filled[o.Digest]
		if dir == "" {
			continue
		}
		if _, err := s.placeObject(c, dir, o.Type, o.Files); err != nil {
			return nil, fmt.Errorf("import %s: %w", m.Address, err)
		}
		delete(filled, o.Digest)
	}
	for _, port := range ports {
		if !s.Has(m, port) { // gc has removed an object that was here
			return nil, fmt.Errorf("import %s, port %s: %w", m.Address, port, ErrNotHere)
		}
	}
	if _, err := s.Manifest(m.Key); err == nil {
		return c, nil
	}
	return c, s.writeJSON(s.Work(m.Key), s.manifestPath(m.Key), m)
}
