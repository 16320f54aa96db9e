package artifact

import (
	"fmt"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// Has reports whether this store has the bytes of a port. It does not look at the files.
func (m *Manifest) Has(port string) bool {
	_, ok := m.Outputs[port]
	return ok && m.Collected.IsZero() && !slices.Contains(m.Absent, port)
}

// SameOutputs reports whether two results have the same ports with the same digests.
func (m *Manifest) SameOutputs(other *Manifest) bool {
	for port, o := range m.Outputs {
		if other.Outputs[port].Digest != o.Digest {
			return false
		}
	}
	return len(m.Outputs) == len(other.Outputs)
}

// Import commits a result of another store with the bytes of some ports, beside those that this store already has. fill
// writes the files of an object below dir and returns an error unless each has its recorded size and hash. Without
// ports only the manifest is committed, and Lookup returns ErrCollected. A manifest with a name that is not local, or
// with other digests than the result that this store has for the key, is an error. The caller holds the lock of the
// key.
func (s *Store) Import(m Manifest, ports []string, fill func(o Output, dir string) error) (*Committed, error) {
	if err := m.check(); err != nil {
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
	m.Absent, m.Collected = nil, time.Time{}
	for _, port := range m.Ports() {
		wanted := slices.Contains(ports, port)
		if !wanted && (have == nil || !have.Has(port)) {
			m.Absent = append(m.Absent, port)
			continue
		}
		for _, o := range m.Outputs[port].Objects() {
			if _, err := s.verify("", o, Sealed, unvisited); err == nil || filled[o.Digest] != "" {
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
	return s.commitImport(&m, filled)
}

// commitImport places the filled objects and names the manifest.
func (s *Store) commitImport(m *Manifest, filled map[string]string) (*Committed, error) {
	allowGC, err := s.blockGC()
	if err != nil {
		return nil, err
	}
	defer allowGC()
	c := &Committed{Manifest: m}
	for _, o := range m.objects() {
		dir := filled[o.Digest]
		if dir == "" { // gc may have removed it since
			if _, err := s.verify(m.Address, o, Sealed, unvisited); err != nil {
				return nil, err
			}
			continue
		}
		if _, err := s.placeObject(c, dir, o.Type, o.Files); err != nil {
			return nil, fmt.Errorf("import %s: %w", m.Address, err)
		}
		delete(filled, o.Digest)
	}
	if len(m.Absent) == len(m.Outputs) {
		m.Absent, m.Collected = nil, time.Now().UTC()
	}
	return c, s.writeJSON(s.Work(m.Key), s.manifestPath(m.Key), m)
}

// check returns an error unless the names in a manifest of another store are local and its digests follow from its
// files.
func (m *Manifest) check() error {
	if err := validKey(m.Key); err != nil {
		return err
	}
	if len(m.Outputs) == 0 {
		return fmt.Errorf("%s has no outputs", m.Address)
	}
	for port, o := range m.Outputs {
		if path.Base(port) != port || !filepath.IsLocal(port) {
			return fmt.Errorf("%q is not a port name", port)
		}
		for _, object := range o.Objects() {
			if err := object.check(); err != nil {
				return fmt.Errorf("port %s: %w", port, err)
			}
		}
		if o.Times != nil && o.Times.Times != nil {
			return fmt.Errorf("port %s: its times have times", port)
		}
	}
	for _, p := range m.Published {
		if !filepath.IsLocal(filepath.FromSlash(p.Name)) || !filepath.IsLocal(filepath.FromSlash(p.File)) {
			return fmt.Errorf("published file %q is not below the folder of the experiment", p.Name)
		}
	}
	return nil
}

// check returns an error unless the names in the record of an object are local and its digest follows from its files.
func (o Output) check() error {
	var sum int64
	before := ""
	for _, f := range o.Files {
		local := filepath.IsLocal(filepath.FromSlash(f.Name)) && path.Clean(f.Name) == f.Name
		if !local || strings.ContainsAny(f.Name, "\n\r") || f.Name <= before {
			return fmt.Errorf("%q is not a file name of an object, or not in order", f.Name)
		}
		if validKey(f.SHA256) != nil || f.Bytes < 0 {
			return fmt.Errorf("%s has no hash or a negative size", f.Name)
		}
		before, sum = f.Name, sum+f.Bytes
	}
	if got := treeDigest(o.Files); got != o.Digest || sum != o.Bytes || sum < 0 {
		return fmt.Errorf("its record does not add up: its files give digest %.16s and %d bytes", got, sum)
	}
	return nil
}
