package artifact

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
)

// Staging is a result being written. Only the holder of the key's lock may have one.
type Staging struct {
	store *Store
	key   string
	dir   string
	ports []string
}

// Begin starts a result for key and removes what a killed run may have left of an earlier one. The caller holds the
// key's lock.
func (s *Store) Begin(key string) (*Staging, error) {
	if err := s.Discard(key); err != nil {
		return nil, fmt.Errorf("begin %s: %w", key, err)
	}
	g := &Staging{store: s, key: key, dir: s.path("staging", key)}
	return g, s.makeDir(g.dir)
}

// Discard removes what a killed stage left of an unfinished result. The caller holds the key's lock.
func (s *Store) Discard(key string) error {
	if err := validKey(key); err != nil {
		return err
	}
	return os.RemoveAll(s.path("staging", key))
}

// Dir returns the folder to fill for a port and creates it when it is not there yet.
func (g *Staging) Dir(port string) (string, error) {
	dir := filepath.Join(g.dir, port)
	if filepath.Dir(dir) != g.dir {
		return "", fmt.Errorf("%q is no port name", port)
	}
	if !slices.Contains(g.ports, port) {
		g.ports = append(g.ports, port)
	}
	return dir, g.store.makeDir(dir)
}

// Abort throws the result away.
func (g *Staging) Abort() error { return os.RemoveAll(g.dir) }

// Commit makes the result appear under its key, whole and durable, and returns its manifest: m with key and outputs
// filled in. types gives the artifact type of each port; a port that is declared and not written, or written and not
// declared, is an error. After an error nothing stands under the key and the staging can still be aborted.
func (g *Staging) Commit(m Manifest, types map[string]string) (*Manifest, error) {
	m.Key = g.key
	m.Outputs = make(map[string]Output, len(types))
	for _, port := range g.ports {
		if _, ok := types[port]; !ok {
			return nil, fmt.Errorf("commit %s: port %q was written but is not declared", m.Address, port)
		}
	}
	for port, typ := range types {
		if !slices.Contains(g.ports, port) {
			return nil, fmt.Errorf("commit %s: port %q was declared but never created", m.Address, port)
		}
		o, err := g.adopt(port, typ)
		if err != nil {
			return nil, fmt.Errorf("commit %s, port %q: %w", m.Address, port, err)
		}
		m.Outputs[port] = o
	}
	if err := syncDir(g.store.path("objects")); err != nil {
		return nil, err
	}
	if err := g.store.writeJSON(g.store.path("nodes", g.key+".json"), &m); err != nil {
		return nil, fmt.Errorf("commit %s: %w", m.Address, err)
	}
	if err := g.store.Remember(m.Experiment, m.Address, g.key); err != nil {
		return nil, fmt.Errorf("commit %s: %w", m.Address, err)
	}
	return &m, g.Abort()
}

// adopt turns a port's folder into an object, and its times.* files into another one beside it.
func (g *Staging) adopt(port, typ string) (Output, error) {
	dir := filepath.Join(g.dir, port)
	all, err := list(dir, refuseLinks)
	if err != nil {
		return Output{}, err
	}
	var files, times []FileInfo
	for _, f := range all {
		if aside(f.Name) {
			times = append(times, f)
		} else {
			files = append(files, f)
		}
	}
	if len(files) == 0 {
		return Output{}, errors.New("nothing was written")
	}
	var apart *Output
	if len(times) > 0 {
		timesDir := filepath.Join(g.dir, ".times-"+port)
		for _, f := range times {
			to := filepath.Join(timesDir, filepath.FromSlash(f.Name))
			if err := os.MkdirAll(filepath.Dir(to), 0o700); err != nil {
				return Output{}, err
			}
			if err := os.Rename(filepath.Join(dir, filepath.FromSlash(f.Name)), to); err != nil {
				return Output{}, err
			}
		}
		o, err := g.store.keep(timesDir, "times", times)
		if err != nil {
			return Output{}, err
		}
		apart = &o
	}
	o, err := g.store.keep(dir, typ, files)
	o.Aside = apart
	return o, err
}

// keep seals the files of dir, makes them durable and renames the folder to its object. When the object is there
// already and intact, dir is dropped; when it was edited, it is moved to edited/ and replaced.
func (s *Store) keep(dir, typ string, files []FileInfo) (Output, error) {
	o := Output{Type: typ, Digest: treeDigest(files), Files: files}
	for _, f := range files {
		o.Bytes += f.Bytes
	}
	target := s.objectDir(o.Digest)
	if _, err := os.Lstat(target); err == nil {
		if err := s.intact("", o); err == nil {
			return o, os.RemoveAll(dir)
		}
		if _, err := s.setAside(o.Digest); err != nil {
			return o, err
		}
	}
	if err := makeDurable(dir, files); err != nil {
		return o, err
	}
	if err := s.makeDir(filepath.Dir(target)); err != nil {
		return o, err
	}
	err := os.Rename(dir, target)
	if errors.Is(err, fs.ErrExist) && s.intact("", o) == nil { // another node made the same bytes meanwhile
		return o, os.RemoveAll(dir)
	}
	return o, err
}

// makeDurable seals files and flushes them and the folders that name them.
func makeDurable(dir string, files []FileInfo) error {
	for _, f := range files {
		path := filepath.Join(dir, filepath.FromSlash(f.Name))
		if err := seal(path); err != nil {
			return err
		}
		if err := syncFile(path); err != nil {
			return err
		}
	}
	return filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || !d.IsDir() {
			return err
		}
		return syncDir(path)
	})
}

// setAside moves an object that is not what its record says to edited/ and returns where it went.
func (s *Store) setAside(digest string) (string, error) {
	if err := s.makeDir(s.path("edited")); err != nil {
		return "", err
	}
	for n := 1; ; n++ {
		to := s.path("edited", fmt.Sprintf("%s.%d", digest, n))
		if _, err := os.Lstat(to); err == nil {
			continue
		}
		return to, os.Rename(s.objectDir(digest), to)
	}
}
