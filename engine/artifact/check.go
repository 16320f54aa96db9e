package artifact

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// Problem is one thing that Check found to be wrong.
type Problem struct {
	Address string // of the node, "" when no manifest names the thing
	Key     string
	Path    string
	What    string // "missing", "edited", "not recorded", or why it cannot be read
}

func (p Problem) String() string {
	s := p.Path + ": " + p.What
	if p.Address != "" {
		s += " (" + p.Address + ")"
	}
	return s
}

// Manifests returns every result that is recorded, by address, experiment and key. Manifests that cannot be read are
// problems, not errors.
func (s *Store) Manifests() ([]*Manifest, []Problem, error) {
	entries, err := os.ReadDir(s.path("nodes"))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, nil, err
	}
	var all []*Manifest
	var problems []Problem
	for _, e := range entries {
		key, ok := strings.CutSuffix(e.Name(), ".json")
		if !ok || strings.HasPrefix(e.Name(), ".") { // being written
			continue
		}
		m, err := s.Manifest(key)
		if errors.Is(err, ErrNotFound) { // removed since
			continue
		}
		if err != nil {
			problems = append(problems, Problem{Key: key, Path: s.path("nodes", e.Name()), What: err.Error()})
			continue
		}
		all = append(all, m)
	}
	slices.SortFunc(all, func(a, b *Manifest) int {
		return cmp.Or(cmp.Compare(a.Address, b.Address), cmp.Compare(a.Experiment, b.Experiment), cmp.Compare(a.Key, b.Key))
	})
	return all, problems, nil
}

// Check reads everything: each manifest, each object's names, sizes and hashes. It returns what differs from the
// records, in the order of Manifests; an empty result means that the store is sound. Check changes nothing but the time
// stamp of an edited file, so that the next run rebuilds it.
func (s *Store) Check() ([]Problem, error) {
	manifests, problems, err := s.Manifests()
	if err != nil {
		return nil, err
	}
	checked := map[string][]Problem{} // by digest
	for _, m := range manifests {
		if !m.Collected.IsZero() {
			continue
		}
		for _, o := range m.objects() {
			found, ok := checked[o.Digest]
			if !ok {
				found = s.checkObject(o)
				checked[o.Digest] = found
			}
			for _, p := range found {
				p.Address, p.Key = m.Address, m.Key
				problems = append(problems, p)
			}
		}
	}
	return problems, nil
}

// Verify is Lookup for those who trust no time stamp: it reads every file of a result and compares its content with the
// record. Damage is a *DamageError, and the damaged file loses its seal, so that every later look finds it.
func (s *Store) Verify(m *Manifest) error {
	for _, o := range m.objects() {
		for _, f := range o.Files {
			path := filepath.Join(s.objectDir(o.Digest), filepath.FromSlash(f.Name))
			sum, _, err := hashFile(path)
			switch {
			case errors.Is(err, fs.ErrNotExist):
				return &DamageError{m.Address, path, "missing"}
			case err != nil:
				return err
			case sum != f.SHA256:
				s.unseal(path)
				return &DamageError{m.Address, path, "edited"}
			}
		}
	}
	return nil
}

// unseal moves the time stamp of an edited file, so that every later look finds the damage. It ignores errors: a
// read-only store stays as it is.
func (s *Store) unseal(path string) {
	now := time.Now()
	os.Chtimes(path, now, now)
}

// CheckPort reads the files of one port of a result, with those that stand aside of it, and returns what differs from the
// record. A port that the record does not have is a problem, not an error.
func (s *Store) CheckPort(m *Manifest, port string) []Problem {
	o, ok := m.Outputs[port]
	if !ok {
		return []Problem{{Address: m.Address, Key: m.Key, Path: s.path("nodes", m.Key+".json"), What: fmt.Sprintf("has no port %q", port)}}
	}
	problems := s.checkObject(o)
	if o.Aside != nil {
		problems = append(problems, s.checkObject(*o.Aside)...)
	}
	if len(problems) > 0 && !m.Collected.IsZero() {
		problems = []Problem{{Path: s.objectDir(o.Digest), What: "collected: gc has removed its bytes"}}
	}
	for i := range problems {
		problems[i].Address, problems[i].Key = m.Address, m.Key
	}
	return problems
}

func (s *Store) checkObject(o Output) []Problem {
	dir := s.objectDir(o.Digest)
	var problems []Problem
	if validKey(o.Digest) != nil { // the record of a stranger's bundle may name any path
		return []Problem{{Path: o.Digest, What: "no digest"}}
	}
	if got := treeDigest(o.Files); got != o.Digest {
		problems = append(problems, Problem{Path: dir, What: "the record does not add up: its files give digest " + got})
	}
	recorded := map[string]bool{}
	for _, f := range o.Files {
		if !filepath.IsLocal(filepath.FromSlash(f.Name)) {
			problems = append(problems, Problem{Path: f.Name, What: "no name of a file in an object"})
			continue
		}
		recorded[f.Name] = true
		path := filepath.Join(dir, filepath.FromSlash(f.Name))
		sum, _, err := hashFile(path)
		switch {
		case errors.Is(err, fs.ErrNotExist):
			problems = append(problems, Problem{Path: path, What: "missing"})
		case err != nil:
			problems = append(problems, Problem{Path: path, What: err.Error()})
		case sum != f.SHA256:
			s.unseal(path)
			problems = append(problems, Problem{Path: path, What: fmt.Sprintf("edited: sha256 %s, want %s", sum, f.SHA256)})
		}
	}
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		rel, err := filepath.Rel(dir, path)
		if err == nil && !recorded[filepath.ToSlash(rel)] {
			problems = append(problems, Problem{Path: path, What: "not recorded"})
		}
		return err
	})
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		problems = append(problems, Problem{Path: dir, What: err.Error()})
	}
	return problems
}
