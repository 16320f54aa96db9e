package artifact

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"rcgrpo/engine/internal/disk"
)

// Staging is a result being written. Only the holder of the key's lock may have one.
type Staging struct {
	store *Store
	key   string
	dir   string            // made when something is put there
	ports map[string]string // folder of each
}

// Begin starts a result for key and removes what a killed run may have left of an earlier one. The caller holds the
// key's lock.
func (s *Store) Begin(key string) (*Staging, error) {
	if err := validKey(key); err != nil {
		return nil, err
	}
	if err := s.Discard(key); err != nil {
		return nil, fmt.Errorf("begin %s: %w", key, err)
	}
	return &Staging{store: s, key: key, dir: s.path("staging", key), ports: map[string]string{}}, nil
}

// Discard removes what a killed stage left of an unfinished result. The caller holds the key's lock.
func (s *Store) Discard(key string) error {
	if err := validKey(key); err != nil {
		return err
	}
	return removeFolder(s.path("staging", key))
}

// removeFolder is os.RemoveAll that expects nothing there, or an empty folder.
func removeFolder(dir string) error {
	err := unix.Rmdir(dir)
	if err == nil || errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return os.RemoveAll(dir)
}

// Dir returns the folder to fill for a port and creates it when it is not there yet.
func (g *Staging) Dir(port string) (string, error) {
	dir := filepath.Join(g.dir, port)
	if filepath.Dir(dir) != g.dir {
		return "", fmt.Errorf("%q is no port name", port)
	}
	if have := g.ports[port]; have != "" {
		return have, nil
	}
	g.ports[port] = dir
	return dir, g.store.MakeDir(dir)
}

// Take makes a folder of the store's file system that of a port, with what is in it: every folder that a result need not make
// and remove again counts where results are small. It moves with the commit.
func (g *Staging) Take(port, dir string) error {
	if g.ports[port] != "" {
		return fmt.Errorf("port %q has its folder already", port)
	}
	g.ports[port] = dir
	return nil
}

// Abort throws the result away.
func (g *Staging) Abort() error { return removeFolder(g.dir) }

// Commit makes the result appear under its key, whole and durable, and returns its manifest: m with key and outputs
// filled in. types gives the artifact type of each port; a port that is declared and not written, or written and not
// declared, is an error. After an error nothing stands under the key and the staging can still be aborted.
func (g *Staging) Commit(m Manifest, types map[string]string) (*Manifest, error) {
	f, err := g.Finish(m, types)
	if err != nil {
		return nil, err
	}
	defer f.Drop()
	if _, err := g.store.record([]*Finished{f}, true); err != nil {
		return nil, err
	}
	return f.Manifest, nil
}

// Finish is the first half of Commit: the objects stand in their places, for whoever has the manifest to read, and
// nothing is durable or recorded yet. A Committer does the rest; who does not hand it to one drops it.
func (g *Staging) Finish(m Manifest, types map[string]string) (_ *Finished, err error) {
	if err := g.store.hold(); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			g.store.free()
		}
	}()
	m.Key = g.key
	m.Outputs = make(map[string]Output, len(types))
	for port := range g.ports {
		if _, ok := types[port]; !ok {
			return nil, fmt.Errorf("commit %s: port %q was written but is not declared", m.Address, port)
		}
	}
	f := &Finished{Manifest: &m, staging: g}
	for port, typ := range types {
		if g.ports[port] == "" {
			return nil, fmt.Errorf("commit %s: port %q was declared but never created", m.Address, port)
		}
		o, err := g.adopt(f, port, typ)
		if err != nil {
			return nil, fmt.Errorf("commit %s, port %q: %w", m.Address, port, err)
		}
		m.Outputs[port] = o
	}
	return f, nil
}

// adopt turns a port's folder into an object, and its times.* files into another one beside it.
func (g *Staging) adopt(f *Finished, port, typ string) (Output, error) {
	dir := g.ports[port]
	all, err := list(dir, refuseLinks)
	if err != nil {
		return Output{}, err
	}
	var files, times []FileInfo
	for _, file := range all {
		if aside(file.Name) {
			times = append(times, file)
		} else {
			files = append(files, file)
		}
	}
	if len(files) == 0 {
		return Output{}, errors.New("nothing was written")
	}
	var apart *Output
	if len(times) > 0 {
		timesDir := filepath.Join(g.dir, ".times-"+port)
		for _, file := range times {
			to := filepath.Join(timesDir, filepath.FromSlash(file.Name))
			if err := disk.MkdirAll(filepath.Dir(to), 0o700); err != nil {
				return Output{}, err
			}
			if err := disk.Rename(filepath.Join(dir, filepath.FromSlash(file.Name)), to); err != nil {
				return Output{}, err
			}
		}
		o, err := g.store.keep(f, timesDir, "times", times)
		if err != nil {
			return Output{}, err
		}
		apart = &o
	}
	o, err := g.store.keep(f, dir, typ, files)
	o.Aside = apart
	return o, err
}

// keep renames a folder of files to its object. When the object is there already and intact, dir is dropped; when it was
// edited, it is moved to edited/ and replaced. What is not known to be durable is noted in f.
func (s *Store) keep(f *Finished, dir, typ string, files []FileInfo) (Output, error) {
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
			f.objects = append(f.objects, o)
			return o, err
		}
		// The same bytes have been made before, perhaps by another node at this moment.
		sealed, err := s.verify("", o, nobody)
		if err == nil {
			if !sealed {
				f.objects = append(f.objects, o)
			}
			return o, os.RemoveAll(dir)
		}
		if _, err := s.setAside(o.Digest); err != nil {
			return o, err
		}
	}
	return o, fmt.Errorf("%s comes back as often as it is moved aside", target)
}

// setAside moves an object that is not what its record says to edited/ and returns where it went.
func (s *Store) setAside(digest string) (string, error) {
	if err := s.MakeDir(s.path("edited")); err != nil {
		return "", err
	}
	for n := 1; ; n++ {
		to := s.path("edited", fmt.Sprintf("%s.%d", digest, n))
		if _, err := os.Lstat(to); err == nil {
			continue
		}
		return to, disk.Rename(s.objectDir(digest), to)
	}
}
