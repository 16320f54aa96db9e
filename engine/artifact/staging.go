package artifact

import (
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
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

// stagedManifest is the name of a manifest beside the staged ports of its result: all of them are written, and any
// process can complete the commit.
const stagedManifest = ".manifest"

// Begin starts a result and removes the output of an earlier attempt. The caller holds the lock of the key.
func (s *Store) Begin(key string) (*Staging, error) {
	dir, err := s.path("staging", key), validKey(key)
	if err == nil {
		err = os.RemoveAll(dir)
	}
	if err != nil {
		return nil, fmt.Errorf("begin %s: %w", key, err)
	}
	return &Staging{store: s, key: key, dir: dir, ports: map[string]string{}}, nil
}

// Discard removes the output of a stage unless all of it is written: then Complete commits it. The caller holds the
// lock of the key.
func (s *Store) Discard(key string) error {
	dir := s.path("staging", key)
	if err := validKey(key); err != nil || disk.Exists(filepath.Join(dir, stagedManifest)) {
		return err
	}
	return os.RemoveAll(dir)
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

// Abort is Discard.
func (g *Staging) Abort() error { return g.store.Discard(g.key) }

// Commit makes the files of a result durable, moves them to their objects and names its manifest: from then on Lookup
// finds it. m gets its Key and Outputs; types holds the artifact type of each declared port. A declared port that was
// not written, or a written one that was not declared, is an error. It has three phases:
//
//  1. finish lists and hashes the files of each port, and gives them the mode and the time of files of results. The
//     folder of each object gets the name of its digest, inside staging/KEY. After an error or a kill in this phase the
//     key has no new result: Abort, or the next Begin, removes the output.
//  2. The staged manifest is written beside the objects, in one step. From then on all output is written, Discard
//     leaves it alone, and any process that acquires the lock of the key finishes the commit (Complete).
//  3. complete calls name: a flush of the file system, which serves all commits that wait for one; a rename of each
//     object to objects/DIGEST, unless it is there; a rename of the manifest to results/KEY.json. With the last one the
//     result begins to count. Then the pointer of the address follows, and staging/KEY is removed. Any process may
//     repeat each step, except after a failed flush: that removes the output, because files may be lost.
//
// A power cut after the flush may take names, but no contents: the result is then absent or not here (Store.Flush). A
// power cut before it may tear files whose staged manifest is whole, so Complete hashes all of them.
func (g *Staging) Commit(m Manifest, types map[string]string) (*Manifest, error) {
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
		o, err := g.finish(port, typ)
		if err != nil {
			return nil, fmt.Errorf("commit %s, port %q: %w", m.Address, port, err)
		}
		m.Outputs[port] = o
	}
	if err := g.store.writeJSON(g.dir, filepath.Join(g.dir, stagedManifest), m); err != nil {
		return nil, fmt.Errorf("commit %s: %w", m.Address, err)
	}
	return &m, g.store.complete(&m)
}

// Complete finishes the commit of a key whose output is written, whichever process has begun it, and returns the
// result; nil if there is no such output. It may be repeated after an error or a kill. A power cut may have torn files,
// so it reads all of them. The caller holds the lock of the key, or has lost it to a process that does the same.
func (s *Store) Complete(key string) (*Manifest, error) {
	m, dir := new(Manifest), s.path("staging", key)
	err := disk.ReadJSON(filepath.Join(dir, stagedManifest), MaxManifest, m)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, nil
	case err != nil || m.Key != key || m.check() != nil: // torn
		return nil, os.RemoveAll(dir)
	}
	for _, o := range m.objects() {
		from := filepath.Join(dir, o.Digest)
		if !disk.Exists(from) { // it has its name already
			from = s.objectDir(o.Digest)
		}
		if _, err := verifyFiles(from, m.Address, o.Files, time.Time{}); err != nil {
			return nil, os.RemoveAll(dir)
		}
	}
	return m, s.complete(m)
}

// complete is the part of a commit that can be repeated.
func (s *Store) complete(m *Manifest) error {
	dir := s.path("staging", m.Key)
	err := s.name(dir, stagedManifest, m, m.Ports())
	if err == nil {
		err = s.Remember(m.Experiment, m.Address, m.Key)
	}
	if err != nil {
		return fmt.Errorf("commit %s: %w", m.Address, err)
	}
	os.RemoveAll(dir) // it is empty; RemoveStale removes what remains after an error
	return nil
}

// finish lists the files of a port, whose times.* files form an object of their own, gives them the mode and the time
// of files of results, and the folders of the objects the names of their digests.
func (g *Staging) finish(port, typ string) (Output, error) {
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
	if err = g.rename(dir, o); err == nil && len(times) > 0 {
		second := newOutput("times", times)
		o.Times, err = &second, g.rename(timesDir, second)
	}
	return o, err
}

// rename gives the folder of an object the name of its digest, below which ports with the same files are one.
func (g *Staging) rename(from string, o Output) error {
	err := g.store.rename(from, filepath.Join(g.dir, o.Digest))
	if errors.Is(err, fs.ErrExist) {
		return os.RemoveAll(from)
	}
	return err
}

// newOutput describes an object.
func newOutput(typ string, files []FileInfo) Output {
	o := Output{Type: typ, Digest: treeDigest(files), Files: files}
	for _, file := range files {
		o.Bytes += file.Bytes
	}
	return o
}

// name flushes a result, moves its objects from dir, and renames the staged manifest there, unless that is "", to its
// name in the store. The objects of ports must then be here. Each step may be done already, by this process or another.
//
// The staged manifest is written before the flush, so that no manifest is ever torn. After a failed flush all is
// removed, as another flush may succeed although files are lost. gc is kept out between the first object and the
// manifest: it removes what no manifest names, and an object that is here already may be one that it has chosen.
func (s *Store) name(dir, staged string, m *Manifest, ports []string) error {
	if err := s.flushes.flush(s.sync); err != nil {
		return errors.Join(fmt.Errorf("flush the store %s: %w", s.dir, err), os.RemoveAll(dir))
	}
	release, err := s.Use()
	if err != nil {
		return err
	}
	defer release()
	for _, o := range m.objects() {
		if err := s.place(filepath.Join(dir, o.Digest), o); err != nil {
			return err
		}
	}
	for _, port := range ports {
		if !s.Has(m, port) { // gc has removed an object that was here
			return fmt.Errorf("port %s: %w", port, ErrNotHere)
		}
	}
	if staged == "" {
		return nil
	}
	err = s.rename(filepath.Join(dir, staged), s.manifestPath(m.Key))
	if errors.Is(err, fs.ErrNotExist) && disk.Exists(s.manifestPath(m.Key)) { // another process was first
		return nil
	}
	return err
}

// place renames a folder, if it exists, to its object. An object that exists and is right stays; a wrong one is
// replaced whole.
func (s *Store) place(dir string, o Output) error {
	target := s.objectDir(o.Digest)
	for range 2 {
		if !disk.Exists(dir) {
			return nil
		}
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

// remove deletes a file or folder of the store, if it exists: first its name, in one step, then the files.
func (s *Store) remove(path string) error {
	if !disk.Exists(path) {
		return nil
	}
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
	for _, port := range m.Ports() {
		wanted := slices.Contains(ports, port)
		for _, o := range m.Outputs[port].Objects() {
			dir := filepath.Join(staging.dir, o.Digest)
			_, err := s.verify("", o, Sealed)
			if err == nil || disk.Exists(dir) || !wanted && errors.Is(err, ErrNotHere) {
				continue
			}
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
		}
	}
	staged := "" // the manifest is in the store
	if have == nil {
		staged = ".fetched" // not stagedManifest: an import is not completed but repeated
		err = s.writeJSON(staging.dir, filepath.Join(staging.dir, staged), m)
	}
	if err == nil {
		err = s.name(staging.dir, staged, &m, ports)
	}
	if err != nil {
		return nil, fmt.Errorf("import %s: %w", m.Address, err)
	}
	return &m, nil
}
