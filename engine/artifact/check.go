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

// Problem is a difference between the store and its manifests. Lookup returns the first one as an error.
type Problem struct {
	Address string // of the node; "" if no manifest names the file
	Key     string
	Path    string
	What    string // "missing", "edited", "not in the manifest", or why it cannot be read
}

const missing = "missing"

func (p Problem) Error() string {
	s := p.Path + ": " + p.What
	if p.Address != "" {
		s += " (" + p.Address + ")"
	}
	return s
}

// Manifests returns the manifests of all results by address, experiment and key. Manifests that cannot be read are
// problems, not errors.
func (s *Store) Manifests() ([]*Manifest, []Problem, error) {
	entries, err := os.ReadDir(s.path("results"))
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
			problems = append(problems, Problem{Key: key, Path: s.path("results", e.Name()), What: err.Error()})
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

// Check reads every manifest and the names, sizes and hashes of every object that is here. It returns the differences
// in the order of Manifests, none for a sound store. It changes only the time of an edited file, so that the
// next run replaces it.
func (s *Store) Check() ([]Problem, error) {
	manifests, problems, err := s.Manifests()
	if err != nil {
		return nil, err
	}
	checked := map[string][]Problem{} // by digest
	for _, m := range manifests {
		for _, o := range m.objects() {
			found, ok := checked[o.Digest]
			if !ok && s.has(o) {
				found = s.checkObject(o)
				checked[o.Digest] = found
			}
			problems = append(problems, m.name(found)...)
		}
	}
	return problems, nil
}

// name returns problems of a result with its address and key.
func (m *Manifest) name(problems []Problem) []Problem {
	problems = slices.Clone(problems)
	for i := range problems {
		problems[i].Address, problems[i].Key = m.Address, m.Key
	}
	return problems
}

// CheckPort compares the files of one port of a result, times.* included, with the manifest. A port without an
// entry is a problem, not an error.
func (s *Store) CheckPort(m *Manifest, port string) []Problem {
	o, err := m.output(port)
	if err != nil {
		return m.name([]Problem{{Path: s.manifestPath(m.Key), What: err.Error()}})
	}
	var problems []Problem
	for _, object := range o.Objects() {
		problems = append(problems, s.checkObject(object)...)
	}
	return m.name(problems)
}

func (s *Store) checkObject(o Output) []Problem {
	if err := o.check(); err != nil { // a foreign bundle may name any path
		return []Problem{{Path: o.Digest, What: err.Error()}}
	}
	dir := s.objectDir(o.Digest)
	if !s.has(o) {
		return []Problem{{Path: dir, What: ErrNotHere.Error()}}
	}
	var problems []Problem
	add := func(path, what string) { problems = append(problems, Problem{Path: path, What: what}) }
	recorded := map[string]bool{}
	for _, f := range o.Files {
		path := s.ObjectPath(o, f)
		recorded[path] = true
		sum, _, err := hashFile(path)
		switch {
		case errors.Is(err, fs.ErrNotExist):
			add(path, missing)
		case err != nil:
			add(path, err.Error())
		case sum != f.SHA256:
			unseal(path)
			add(path, fmt.Sprintf("edited: sha256 %s, want %s", sum, f.SHA256))
		}
	}
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err == nil && !d.IsDir() && !recorded[path] {
			add(path, "not in the manifest")
		}
		return err
	})
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		add(dir, err.Error())
	}
	return problems
}
