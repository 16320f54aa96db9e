package engine

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"

	"rcgrpo/engine/artifact"
	"rcgrpo/engine/internal/disk"
	"rcgrpo/engine/plan"
	"rcgrpo/engine/runs"
)

// A published copy has the end time of its result as modification time, so one stat shows that a file is the
// copy. A file with another time is hashed.

// publish copies the published files of a result to the experiment's folder, unless the copies exist. An
// error does not fail the stage, since its result is safe.
func (r *run) publish(t *task, m *artifact.Manifest) {
	changed := false
	for _, c := range r.plan.Copies(t.Node, m) {
		how, err := r.publishFile(t, m, c)
		to := filepath.Join(r.plan.Experiment.Dir, filepath.FromSlash(c.To))
		switch {
		case errors.Is(err, errForeign):
			r.note(m.Address, "%s is not published: the file there is no copy of a result that the store has. Move or "+
				"remove it", to)
		case err != nil:
			r.recordError(fmt.Errorf("publish %s of %s: %w", c.To, m.Address, err))
		case how != "":
			changed = true
			r.emit(runs.Event{Address: m.Address, Kind: runs.EventFile, Path: to, Text: how})
		}
	}
	if changed && t.Verb == plan.UpToDate {
		r.recordError(r.plan.Store.Remember(r.plan.Experiment.Name, t.Address, m.Key))
	}
}

// errForeign reports a file in the place of a copy that belongs to the user.
var errForeign = errors.New("the file is no copy of a result")

// publishFile publishes one file and reports how: "" if the copy existed. A copy of another result is replaced.
func (r *run) publishFile(t *task, m *artifact.Manifest, c plan.Copy) (how string, err error) {
	if err := refuseLinks(r.plan.Experiment.Dir, path.Dir(c.To)); err != nil {
		return "", err
	}
	from, err := r.source(m, &c)
	if err != nil {
		return "", err
	}
	to := filepath.Join(r.plan.Experiment.Dir, filepath.FromSlash(c.To))
	how = "published"
	info, err := os.Lstat(to)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		if t.Last != nil && t.Last.Key == m.Key {
			how = "restored"
		}
	case err != nil:
		return "", err
	default:
		if same, err := r.plan.IsCopy(to, info, c.FileInfo, m.Ended()); err != nil || same {
			if same && !info.ModTime().Equal(m.Ended()) {
				disk.Chtimes(to, m.Ended()) // otherwise it is hashed again
			}
			return "", err
		}
		if old, err := r.isOldCopy(to, info); err != nil || !old {
			return "", cmp.Or(err, errForeign)
		}
	}
	temp := string(r.folder)
	if work := r.plan.Store.Work(m.Key); t.lock != nil && disk.Exists(work) { // otherwise another run may remove it
		temp = work
	}
	return how, copyFile(from, to, temp, m.Ended())
}

// source returns the file to publish. Output that is only shown is in the run folder and in no manifest, so its size
// and digest are set.
func (r *run) source(m *artifact.Manifest, c *plan.Copy) (from string, err error) {
	if !m.ShownOnly() {
		a, err := r.plan.Store.Open(m, c.Port)
		if err != nil {
			return "", err
		}
		return a.Path(c.Name), nil
	}
	from = filepath.Join(r.folder.Shown(m.Address), c.Port, filepath.FromSlash(c.Name))
	info, err := os.Stat(from)
	if err != nil {
		return "", err
	}
	c.Bytes = info.Size()
	c.SHA256, err = artifact.FileDigest(from)
	return from, err
}

// isOldCopy reports whether a file has the content of a result of the experiment. Its time and size show nothing: a
// stranger chooses those of a result that was fetched.
func (r *run) isOldCopy(file string, info fs.FileInfo) (bool, error) {
	if !info.Mode().IsRegular() {
		return false, nil
	}
	digest, err := artifact.FileDigest(file)
	if at := r.contents()[digest]; at != "" && err == nil {
		stored, err := artifact.FileDigest(at) // a stranger's record can name the content of any file
		return err == nil && stored == digest, nil
	}
	return false, err
}

// findContents returns the files of the experiment's results by their digests, also those that runs with missing inputs
// have shown.
func (r *run) findContents() map[string]string {
	all := map[string]string{}
	manifests, _, _ := r.plan.Store.Manifests() // without a manifest a copy counts as the user's, and stays
	for _, m := range manifests {
		if m.Experiment != r.plan.Experiment.Name {
			continue
		}
		for _, output := range m.Outputs {
			for _, o := range output.Objects() {
				for _, f := range o.Files {
					path := r.plan.Store.ObjectPath(o, f)
					if info, err := os.Lstat(path); err == nil && info.Mode().IsRegular() && info.Size() == f.Bytes {
						all[f.SHA256] = path
					}
				}
			}
		}
	}
	folders, _ := runs.Folders(r.plan.Store, r.plan.Experiment.Name)
	for _, folder := range folders {
		for _, n := range r.plan.Nodes {
			if !n.Kind.AfterFailures { // it has a result or nothing
				continue
			}
			for _, pub := range r.plan.Experiment.Publishes(n.Node) {
				shown := filepath.Join(folder.Shown(n.Address), pub.Port, filepath.FromSlash(pub.File))
				if digest, err := artifact.FileDigest(shown); err == nil {
					all[digest] = shown
				}
			}
		}
	}
	return all
}

// refuseLinks returns an error if a part of a folder below dir is a symbolic link.
func refuseLinks(dir, folder string) error {
	for ; folder != "."; folder = path.Dir(folder) {
		at := filepath.Join(dir, filepath.FromSlash(folder))
		if info, err := os.Lstat(at); err == nil && info.Mode()&fs.ModeSymlink != 0 {
			return fmt.Errorf("%s is a symbolic link, and files are published into folders of the experiment only: "+
				"replace the link by a folder, or change the output's path", at)
		}
	}
	return nil
}

// copyFile makes to a copy of from with the given time; the user's umask decides who may read it. It is written in the
// folder temp, or beside to if temp is on another file system, and then renamed.
func copyFile(from, to, temp string, at time.Time) error {
	write := func(out *os.File) error {
		in, err := os.Open(from)
		if err != nil {
			return err
		}
		defer in.Close()
		if _, err := disk.Copy(out, in); err != nil { // copy_file_range
			return err
		}
		return disk.Chtimes(out.Name(), at)
	}
	if err := disk.MkdirAll(filepath.Dir(to), 0o777); err != nil {
		return err
	}
	err := disk.Replace(temp, to, 0o666, write)
	if errors.Is(err, unix.EXDEV) || errors.Is(err, fs.ErrNotExist) {
		err = disk.Replace(filepath.Dir(to), to, 0o666, write)
	}
	return err
}
