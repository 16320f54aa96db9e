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
)

// Problem is one finding of Check.
type Problem struct {
	Address string // of the node; "" if no manifest names the file
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

// Manifests returns the manifests of all results by address, experiment and key. Manifests that cannot be read are
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
		if !ok || strings.HasPrefix(e.Name(), ".") { // temporary
			continue
		}
		m, err := s.Manifest(key)
		if errors.Is(err, ErrNotFound) { // removed meanwhile
			continue
		}
		if err != nil {
			problems = append(problems, Problem{Key: key, Path: s.path("nodes", e.Name()), What: err.Error()})
			continue
		}
		all = append(all, m)
	}
	slices.SortFunc(all, func(a, b *Manifest) int {
		return cmp.Or(cmp.Compare(a.Address, b.Address), cmp.Compare(a.Experiment, b.Experiment),
			cmp.Compare(a.Key, b.Key))
	})
	return all, problems, nil
}

// Check reads every manifest and the names, sizes and hashes of every object. It returns the differences in
// the order of Manifests, none for a sound store. It changes only the time of an edited file, so that the
// next run replaces it.
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

// CheckPort compares the files of one port of a result, times.* included, with the record. A port without a
// record is a problem, not an error.
func (s *Store) CheckPort(m *Manifest, port string) []Problem {
	o, ok := m.Outputs[port]
	if !ok {
		return []Problem{{Address: m.Address, Key: m.Key, Path: s.path("nodes", m.Key+".json"),
			What: fmt.Sprintf("has no port %q", port)}}
	}
	problems := s.checkObject(o)
	if o.Times != nil {
		problems = append(problems, s.checkObject(*o.Times)...)
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
	if validKey(o.Digest) != nil { // a foreign bundle may name any path
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
		path := s.filePath(o, f)
		sum, _, err := hashFile(path)
		switch {
		case errors.Is(err, fs.ErrNotExist):
			problems = append(problems, Problem{Path: path, What: "missing"})
		case err != nil:
			problems = append(problems, Problem{Path: path, What: err.Error()})
		case sum != f.SHA256:
			unseal(path)
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
