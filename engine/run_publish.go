package engine

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"rcgrpo/engine/artifact"
	"rcgrpo/engine/internal/disk"
)

// publishedFiles returns the published files of a result, if every one is the copy that was made of it.
func (p *Plan) publishedFiles(m *artifact.Manifest) (files []fileState, intact bool) {
	for _, pub := range m.Published {
		w, intact := p.publishedFile(m, pub)
		if !intact {
			return nil, false
		}
		files = append(files, w)
	}
	return files, true
}

// publishedFile is publishedFiles of one of them.
func (p *Plan) publishedFile(m *artifact.Manifest, pub artifact.Published) (w fileState, intact bool) {
	path := filepath.Join(p.Experiment.Dir, filepath.FromSlash(pub.Name))
	record, recorded := p.copies.of(path)
	if !recorded {
		return w, false
	}
	now := clock()
	info, err := os.Lstat(path)
	if err != nil || record.SHA256 != fileDigest(m, pub) || info.Size() != record.Bytes || !info.ModTime().Equal(record.Time) {
		return w, false
	}
	w = fileState{path: path, stamp: stampOf(info), digest: record.SHA256}
	w.tooRecent = w.stamp.tooRecent(now)
	return w, true
}

// Unlike lists the published files of what is up to date that are not the copies that were made, by their names beside the
// experiment: missing, edited, or of another result. A run makes them again.
func (p *Plan) Unlike() []string {
	var names []string
	for _, n := range p.Nodes {
		if n.Verb != UpToDate || n.Manifest == nil {
			continue
		}
		for _, pub := range n.Manifest.Published {
			if _, intact := p.publishedFile(n.Manifest, pub); !intact {
				names = append(names, pub.Name)
			}
		}
	}
	return names
}

// readCopies reads the published copies of what is up to date. Of one that is not what was published, the record is
// forgotten, so that it counts as edited whatever its time stamp says.
func (p *Plan) readCopies() error {
	for _, n := range p.Nodes {
		if n.Manifest == nil {
			continue
		}
		for _, pub := range n.Manifest.Published {
			path := filepath.Join(p.Experiment.Dir, filepath.FromSlash(pub.Name))
			info, err := os.Lstat(path)
			if err != nil {
				continue // it is noticed anyway
			}
			digest := ""
			if info.Mode().IsRegular() {
				digest, err = artifact.Digest(path)
			}
			if err != nil || digest == fileDigest(n.Manifest, pub) {
				continue
			}
			if _, recorded := p.copies.of(path); recorded {
				if err := p.copies.record(copyRecord{Path: path}); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

func fileDigest(m *artifact.Manifest, pub artifact.Published) string {
	o := m.Outputs[pub.Port]
	for _, f := range o.Files {
		if f.Name == pub.File {
			return f.SHA256
		}
	}
	return ""
}

// publish copies the files that a result publishes to beside the experiment, where they are not so already.
// With a nil store the output is one that is not kept and lies in the run folder. A file that cannot be
// written is told and does not fail the stage, whose result is safe.
func (r *run) publish(m *artifact.Manifest, store *artifact.Store) {
	for _, pub := range m.Published {
		from := filepath.Join(r.folder.shown(m.Address), pub.Port, filepath.FromSlash(pub.File))
		if store != nil {
			a, err := store.Open(m, pub.Port)
			if err != nil {
				r.note(fmt.Errorf("publish %s of %s: %w", pub.Name, m.Address, err))
				continue
			}
			from = a.Path(pub.File)
		}
		to := filepath.Join(r.Experiment.Dir, filepath.FromSlash(pub.Name))
		if link := linkedFolder(r.Experiment.Dir, pub.Name); link != "" {
			r.note(fmt.Errorf("publish %s of %s: %s is a symbolic link, and files are published into folders of the experiment only: replace the link by a folder, or change the output's path",
				pub.Name, m.Address, link))
			continue
		}
		how, err := publishFile(r.copies, from, to, string(r.folder), fileDigest(m, pub))
		if err != nil {
			r.note(fmt.Errorf("publish %s of %s: %w", pub.Name, m.Address, err))
		} else if how != "" {
			r.emit(Event{Address: m.Address, Kind: EventFile, Path: to, Text: how})
		}
	}
}

// linkedFolder returns the first folder on the way from dir to the file of a published name that is a symbolic link; ""
// when there is none.
func linkedFolder(dir, name string) string {
	words := strings.Split(name, "/")
	for i := 1; i < len(words); i++ {
		path := filepath.Join(dir, filepath.Join(words[:i]...))
		if info, err := os.Lstat(path); err == nil && info.Mode()&fs.ModeSymlink != 0 {
			return path
		}
	}
	return ""
}

// publishFile makes to a copy of from, whose digest is want, and says how: "" when it was one already. A file at to that
// is not what was published there last is the user's: it is moved to NAME.edited. by is where the copy lies until it is
// whole.
func publishFile(copies *copies, from, to, by, want string) (how string, err error) {
	if err := copies.refresh(); err != nil {
		return "", err
	}
	record, recorded := copies.of(to)
	how = "published"
	info, err := os.Lstat(to)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		if recorded && record.SHA256 == want {
			how = "restored"
		}
	case err != nil:
		return "", err
	case recorded && info.Size() == record.Bytes && info.ModTime().Equal(record.Time):
		if record.SHA256 == want {
			return "", nil
		}
	default:
		have := ""
		if info.Mode().IsRegular() { // a link is not followed, and a named pipe would never end
			if have, err = artifact.Digest(to); err != nil {
				return "", err
			}
		}
		if have == want {
			return "", copies.record(copyRecord{to, want, info.Size(), info.ModTime()})
		}
		if !recorded || have != record.SHA256 {
			aside, err := moveAside(to)
			if err != nil {
				return "", err
			}
			how = "restored; the edited one is now " + filepath.Base(aside)
		}
	}
	copied, err := copies.copyTo(from, to, by)
	if err != nil {
		return "", err
	}
	return how, copies.record(copyRecord{to, want, copied.Size(), copied.ModTime()})
}

// moveAside renames path to the first free of path.edited, path.edited.2, …
func moveAside(path string) (string, error) {
	to := path + ".edited"
	for n := 2; ; n++ {
		if _, err := os.Lstat(to); errors.Is(err, fs.ErrNotExist) {
			return to, disk.Rename(path, to)
		}
		to = fmt.Sprintf("%s.edited.%d", path, n)
	}
}

// copyTo makes to a copy of from, sharing the blocks where the file system can, and returns what a stat of it gives. It is
// written aside: in by, or beside to when that is another file system.
func (c *copies) copyTo(from, to, by string) (fs.FileInfo, error) {
	if !c.apart.Load() {
		info, err := copyThrough(filepath.Dir(from), by, from, to) // near it: where the file system has room
		switch {
		case errors.Is(err, unix.EXDEV):
			c.apart.Store(true)
		case !errors.Is(err, fs.ErrNotExist): // a stage may have removed its scratch folder, and that of to may not be there yet
			return info, err
		}
	}
	if err := disk.MkdirAll(filepath.Dir(to), 0o755); err != nil {
		return nil, err
	}
	return copyThrough(filepath.Dir(to), filepath.Dir(to), from, to)
}

// copyThrough copies from into a draft near near, or in dir, and names that.
func copyThrough(near, dir, from, to string) (fs.FileInfo, error) {
	in, err := disk.Open(from)
	if err != nil {
		return nil, err
	}
	defer in.Close()
	out, err := disk.NewDraft(near, dir, ".publishing-*")
	if err != nil {
		return nil, err
	}
	defer out.Close()
	_, err = disk.Copy(out.File, in) // copy_file_range
	err = errors.Join(err, out.Chmod(0o644))
	info, statErr := out.Stat()
	if err = errors.Join(err, statErr); err != nil {
		return nil, err
	}
	return info, out.Place(to)
}
