package plan

import (
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"rcgrpo/engine/artifact"
)

// Published returns the files that the node publishes from a result: none if it is a stage of a module.
func (d *Planned) Published(m *artifact.Manifest) []artifact.Published {
	if d.InModule() {
		return nil
	}
	return m.Published
}

// published stats a published file. intact reports whether it is the copy of its output.
func (p *Plan) published(m *artifact.Manifest, pub artifact.Published) (path string, info fs.FileInfo, intact bool) {
	path = filepath.Join(p.Experiment.Dir, filepath.FromSlash(pub.Name))
	info, err := os.Lstat(path)
	f, ok := m.File(pub)
	if err == nil && ok {
		intact, err = p.IsCopy(path, info, f, m.Ended())
	}
	return path, info, intact && err == nil
}

// IsCopy reports whether a file is the copy of f, by its size and time or by its content. A paranoid plan
// always reads it.
func (p *Plan) IsCopy(path string, info fs.FileInfo, f artifact.FileInfo, ended time.Time) (bool, error) {
	if !info.Mode().IsRegular() || info.Size() != f.Bytes {
		return false, nil
	}
	if !p.Paranoid && info.ModTime().Equal(ended) {
		return true, nil
	}
	digest, err := artifact.FileDigest(path)
	return digest == f.SHA256, err
}

// Unlike returns the names of the published files that are missing, edited, or copies of another result, although their
// result is up to date. A run publishes them again.
func (p *Plan) Unlike() []string {
	var names []string
	for _, n := range p.Nodes {
		if n.Verb != UpToDate || n.Manifest == nil {
			continue
		}
		for _, pub := range n.Published(n.Manifest) {
			if _, _, intact := p.published(n.Manifest, pub); !intact {
				names = append(names, pub.Name)
			}
		}
	}
	return names
}

// Idle reports whether a run would change nothing: no node runs, and every published file is its copy.
func (p *Plan) Idle() bool { return !p.Changes() && len(p.Unlike()) == 0 }
