package artifact

import (
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

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

// Commit makes the files of a result durable, moves them to their objects and names its manifest: from then on Lookup
// finds it. m gets its Key and Outputs; types holds the artifact type of each declared port. A declared port that was
// not written, or a written one that was not declared, is an error. After an error, such as that of the flush, the key
// has no new result and Abort may follow.
func (g *Staging) Commit(m Manifest, types map[string]string) (*Manifest, error) {
	m.Key = g.key
	m.Outputs = make(map[string]Output, len(types))
	for port := range g.ports {
		if _, ok := types[port]; !ok {
			return nil, fmt.Errorf("commit %s: port %q was written but is not declared", m.Address, port)
		}
	}
	folders := map[string]string{} // by digest
	for port, typ := range types {
		if g.ports[port] == "" {
			return nil, fmt.Errorf("commit %s: port %q was declared but never created", m.Address, port)
		}
		o, err := g.finish(port, typ, folders)
		if err != nil {
			return nil, fmt.Errorf("commit %s, port %q: %w", m.Address, port, err)
		}
		m.Outputs[port] = o
	}
	err := g.name(&m, m.Ports(), folders, true)
	if err == nil {
		err = g.store.Remember(m.Experiment, m.Address, m.Key)
	}
	if err != nil {
		return nil, fmt.Errorf("commit %s: %w", m.Address, err)
	}
	g.Abort() // it is empty; RemoveStale removes what remains after an error
	return &m, nil
}

// finish records the files of a port, whose times.* files form an object of their own, and gives them the mode and the
// time of files of results. It adds the folders of the objects to folders.
func (g *Staging) finish(port, typ string, folders map[string]string) (Output, error) {
	dir := filepath.Join(g.dir, port)
	if taken := g.ports[port]; taken != dir { // a scratch folder, whose files must not become read-only there
		if err := g.store.rename(taken, dir); err != nil {
			return Output{}, err
		}
	}
	all, err := list(dir, refuseLinks)
	if err != nil {
		return Output{}, err
	}
	var files, times []FileInfo
	timesDir := filepath.Join(g.dir, ".times-"+port)
	for _, file := range all {
		path := filepath.Join(dir, filepath.FromSlash(file.Name))
		if err := seal(path); err != nil {
			return Output{}, err
		}
		if !isTimes(file.Name) {
			files = append(files, file)
			continue
		}
		times = append(times, file)
		if err := g.store.rename(path, filepath.Join(timesDir, filepath.FromSlash(file.Name))); err != nil {
			return Output{}, err
		}
	}
	if len(files) == 0 {
		return Output{}, errors.New("nothing was written")
	}
	o := newOutput(typ, files)
	folders[o.Digest] = dir
	if len(times) > 0 {
		second := newOutput("times", times)
		o.Times, folders[second.Digest] = &second, timesDir
	}
	return o, nil
}

// newOutput describes an object.
func newOutput(typ string, files []FileInfo) Output {
	o := Output{Type: typ, Digest: treeDigest(files), Files: files}
	for _, file := range files {
		o.Bytes += file.Bytes
	}
	return o
}

// name flushes a result, renames the folders of its objects to their names, and gives its manifest its name. The
// objects of ports must then be here. Without replace, a manifest that exists stays, which has the same outputs.
//
// The manifest is written before the flush, so that none is ever torn. gc is kept out between the first object and the
// manifest: it removes what no manifest names, and an object that is here already may be one that it has chosen.
func (g *Staging) name(m *Manifest, ports []string, folders map[string]string, replace bool) error {
	s, record := g.store, filepath.Join(g.dir, ".manifest")
	if err := s.writeJSON(g.dir, record, m); err != nil {
		return err
	}
	if err := s.flushes.flush(s.sync); err != nil {
		return fmt.Errorf("flush the store %s: %w", s.dir, err)
	}
	release, err := s.Use()
	if err != nil {
		return err
	}
	defer release()
	for _, o := range m.objects() {
		if dir := folders[o.Digest]; dir != "" {
			if err := s.place(dir, o); err != nil {
				return err
			}
			delete(folders, o.Digest) // two ports may have the same files
		}
	}
	for _, port := range ports {
		if !s.Has(m, port) { // gc has removed an object that was here
			return fmt.Errorf("port %s: %w", port, ErrNotHere)
		}
	}
	if !replace && disk.Exists(s.manifestPath(m.Key)) {
		return nil
	}
	return s.rename(record, s.manifestPath(m.Key))
}

// place renames a folder to its object. An object that exists and is right stays; a wrong one is replaced whole.
func (s *Store) place(dir string, o Output) error {
	target := s.objectDir(o.Digest)
	for range 2 {
		err := s.rename(dir, target)
		if !errors.Is(err, fs.ErrExist) {
			return err
		}
		if _, err := s.verify("", o, Sealed); err == nil {
			return os.RemoveAll(dir)
		}
		if err := s.remove(target); err != nil {
			return err
		}
	}
	return fmt.Errorf("%s reappears whenever it is moved away", target)
}

// gone is the prefix of objects that are being deleted. gc deletes those that a kill leaves.
const gone = ".gone-"

func (s *Store) newGone() string { return s.path("objects", gone+rand.Text()) }

// remove deletes a file or folder of the store, which loses its name in one step.
func (s *Store) remove(path string) error {
	away := s.newGone()
	if err := s.rename(path, away); err != nil {
		return err
	}
	return os.RemoveAll(away)
}

// Import commits a result of another store with the bytes of some ports, beside those that this store already has. fill
// writes the files of an object below dir and returns an error unless each has its recorded size and hash. Without
// ports only the manifest is committed, and Lookup returns ErrNotHere. A manifest with a name that is not local, or
// with other digests than the result that this store has for the key, is an error. The caller holds the lock of the
// key.
func (s *Store) Import(m Manifest, ports []string, fill func(o Output, dir string) error) (*Manifest, error) {
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
	folders := map[string]string{} // by digest
	for _, port := range m.Ports() {
		wanted := slices.Contains(ports, port)
		for _, o := range m.Outputs[port].Objects() {
			_, err := s.verify("", o, Sealed)
			if err == nil || folders[o.Digest] != "" || !wanted && errors.Is(err, ErrNotHere) {
				continue
			}
			dir := filepath.Join(staging.dir, o.Digest)
			if err := s.MakeDir(dir); err != nil {
				return nil, err
			}
			if err := fill(o, dir); err != nil {
				return nil, err
			}
			for _, f := range o.Files {
				if err := seal(filepath.Join(dir, filepath.FromSlash(f.Name))); err != nil {
					return nil, err
				}
			}
			folders[o.Digest] = dir
		}
	}
	if err := staging.name(&m, ports, folders, have == nil); err != nil {
		return nil, fmt.Errorf("import %s: %w", m.Address, err)
	}
	return &m, nil
}
