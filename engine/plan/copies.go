package plan

import (
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"rcgrpo/engine/artifact"
	"rcgrpo/engine/lang"
)

// Copy is a file of an output that a run copies to the experiment's folder.
type Copy struct {
	Port string
	artifact.FileInfo
	To string // below the experiment's folder
}

// Copies returns the published files of a result. Their paths follow from the settings of the stage; of an output that
// is a folder, the manifest names the files below it. For output that is only shown, no sizes and digests are known.
func (p *Plan) Copies(n *lang.Node, m *artifact.Manifest) (all []Copy) {
	for _, pub := range p.Experiment.Publishes(n) {
		if m.ShownOnly() {
			all = append(all, Copy{pub.Port, artifact.FileInfo{Name: pub.File}, pub.Name})
		}
		for _, o := range m.Outputs[pub.Port].Objects() {
			for _, f := range o.Files {
				rest, ok := strings.CutPrefix(f.Name, pub.File)
				if ok && (rest == "" || rest[0] == '/') && path.Clean(f.Name) == f.Name { // so it stays below the folder
					all = append(all, Copy{pub.Port, f, pub.Name + rest})
				}
			}
		}
	}
	return all
}

// isPublished reports whether the copy of a file exists.
func (p *Plan) isPublished(m *artifact.Manifest, c Copy) bool {
	to := filepath.Join(p.Experiment.Dir, filepath.FromSlash(c.To))
	info, err := os.Lstat(to)
	if err != nil {
		return false
	}
	same, err := p.IsCopy(to, info, c.FileInfo, m.Ended())
	return same && err == nil
}

// isCopied reports whether the copies of all published files of a port exist.
func (p *Plan) isCopied(d *Planned, port string) bool {
	return !slices.ContainsFunc(p.Copies(d.Node, d.Manifest), func(c Copy) bool {
		return c.Port == port && !p.isPublished(d.Manifest, c)
	})
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
// result is up to date. A run publishes them again, except for edited ones.
func (p *Plan) Unlike() []string {
	var names []string
	for _, n := range p.Nodes {
		if n.Verb != UpToDate || n.Manifest == nil {
			continue
		}
		for _, c := range p.Copies(n.Node, n.Manifest) {
			if !p.isPublished(n.Manifest, c) {
				names = append(names, c.To)
			}
		}
	}
	return names
}

// Idle reports whether a run would change nothing: no node runs, and every published file is its copy.
func (p *Plan) Idle() bool { return !p.Changes() && len(p.Unlike()) == 0 }
