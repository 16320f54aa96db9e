package plan

import (
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"rcgrpo/engine/artifact"
	"rcgrpo/engine/internal/stat"
)

// Published returns the files that the node publishes from a result: none if it is a stage of a module.
func (d *Planned) Published(m *artifact.Manifest) []artifact.Published {
	if d.InModule() {
		return nil
	}
	return m.Published
}

// publishedFiles returns the files that a node published from a result. intact reports whether each is the copy of its
// output.
func (p *Plan) publishedFiles(d *Planned, m *artifact.Manifest) (files []stat.File, intact bool) {
	for _, pub := range d.Published(m) {
		w, intact := p.publishedFile(m, pub)
		if !intact {
			return nil, false
		}
		files = append(files, w)
	}
	return files, true
}

func (p *Plan) publishedFile(m *artifact.Manifest, pub artifact.Published) (w stat.File, intact bool) {
	path := filepath.Join(p.Experiment.Dir, filepath.FromSlash(pub.Name))
	now := stat.Clock()
	info, err := os.Lstat(path)
	f, ok := m.File(pub)
	if err != nil || !ok {
		return w, false
	}
	if same, err := p.IsCopy(path, info, f, m.Ended()); err != nil || !same {
		return w, false
	}
	w = stat.File{Path: path, Stamp: stat.StampOf(info), Digest: f.SHA256}
	w.TooRecent = w.Stamp.TooRecent(now)
	return w, true
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
			if _, intact := p.publishedFile(n.Manifest, pub); !intact {
				names = append(names, pub.Name)
			}
		}
	}
	return names
}
