package engine

import (
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
	for _, pub := range t.Published(m) {
		how, err := r.publishFile(t, m, pub)
		if err != nil {
			r.recordError(fmt.Errorf("publish %s of %s: %w", pub.Name, m.Address, err))
		} else if how != "" {
			changed = true
			to := filepath.Join(r.Experiment.Dir, filepath.FromSlash(pub.Name))
			r.emit(runs.Event{Address: m.Address, Kind: runs.EventFile, Path: to, Text: how})
		}
	}
	if changed && t.Verb == plan.UpToDate {
		r.recordError(r.Store.Remember(r.Experiment.Name, t.Address, m.Key))
	}
}

// publishFile publishes one file and reports how: "" if the copy existed. A file that is no copy of any
// result belongs to the user and is moved to NAME.edited.
func (r *run) publishFile(t *task, m *artifact.Manifest, pub artifact.Published) (how string, err error) {
	if err := refuseLinks(r.Experiment.Dir, path.Dir(pub.Name)); err != nil {
		return "", err
	}
	from, f, err := r.source(m, pub)
	if err != nil {
		return "", err
	}
	to := filepath.Join(r.Experiment.Dir, filepath.FromSlash(pub.Name))
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
		if same, err := r.IsCopy(to, info, f, m.Ended()); err != nil || same {
			if same && !info.ModTime().Equal(m.Ended()) {
				disk.Chtimes(to, m.Ended()) // otherwise it is hashed again
			}
			return "", err
		}
		old, err := r.isOldCopy(t, pub, to, info)
		if err != nil {
			return "", err
		}
		if !old { // it belongs to the user
			edited := to + ".edited"
			for n := 2; disk.Exists(edited); n++ {
				edited = fmt.Sprintf("%s.edited.%d", to, n)
			}
			if err := disk.Rename(to, edited); err != nil {
				return "", err
			}
			how = "restored; the edited one is now " + filepath.Base(edited)
		}
	}
	temp := string(r.folder)
	if work := r.Store.Work(m.Key); m.Key != "" && disk.Exists(work) {
		temp = work
	}
	return how, copyFile(from, to, temp, m.Ended())
}

// source returns the file to publish. The output of a result without a key is in the run folder and has no record.
func (r *run) source(m *artifact.Manifest, pub artifact.Published) (from string, f artifact.FileInfo, err error) {
	if m.Key != "" {
		a, err := r.Store.Open(m, pub.Port)
		if err != nil {
			return "", f, err
		}
		f, _ = m.File(pub)
		return a.Path(pub.File), f, nil
	}
	from = filepath.Join(r.folder.Shown(m.Address), pub.Port, filepath.FromSlash(pub.File))
	info, err := os.Stat(from)
	if err != nil {
		return "", f, err
	}
	f.Bytes = info.Size()
	f.SHA256, err = artifact.FileDigest(from)
	return from, f, err
}

// isOldCopy reports whether a file is the copy of another result: of the last one of the address, by size and
// time, or of any earlier one, by content.
func (r *run) isOldCopy(t *task, pub artifact.Published, file string, info fs.FileInfo) (bool, error) {
	if !info.Mode().IsRegular() {
		return false, nil
	}
	last := t.Last
	if t.Verb == plan.UpToDate { // then t.Last is the result to publish
		last, _ = r.Store.Last(r.Experiment.Name, t.Address)
	}
	if last != nil && !r.Paranoid && info.ModTime().Equal(last.Ended()) {
		for _, other := range last.Published {
			if f, ok := last.File(other); ok && other.Name == pub.Name && f.Bytes == info.Size() {
				return true, nil
			}
		}
	}
	digest, err := artifact.FileDigest(file)
	return r.editions()[edition{pub.Name, digest}], err
}

// edition is a content of a published file.
type edition struct{ name, digest string }

// findEditions returns the contents of the experiment's published files in all results of the store, also in
// those of runs with missing inputs.
func (r *run) findEditions() map[edition]bool {
	all := map[edition]bool{}
	manifests, _, _ := r.Store.Manifests() // without a manifest a copy counts as edited, and is not lost
	for _, m := range manifests {
		for _, pub := range m.Published {
			if f, ok := m.File(pub); ok && m.Experiment == r.Experiment.Name {
				all[edition{pub.Name, f.SHA256}] = true
			}
		}
	}
	folders, _ := runs.Folders(r.Store, r.Experiment.Name)
	for _, folder := range folders {
		shown, _ := filepath.Glob(folder.Path("shown", "*", "manifest.json"))
		for _, file := range shown {
			var m artifact.Manifest
			if runs.ReadJSON(file, &m) != nil {
				continue
			}
			for _, pub := range m.Published {
				from := filepath.Join(filepath.Dir(file), pub.Port, filepath.FromSlash(pub.File))
				if digest, err := artifact.FileDigest(from); err == nil {
					all[edition{pub.Name, digest}] = true
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

// copyFile makes to a copy of from with the given time. It is written in the folder temp, or beside to if
// temp is on another file system, and then renamed.
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
		return errors.Join(out.Chmod(0o644), disk.Chtimes(out.Name(), at))
	}
	if err := disk.MkdirAll(filepath.Dir(to), 0o755); err != nil {
		return err
	}
	err := disk.Replace(temp, to, write)
	if errors.Is(err, unix.EXDEV) || errors.Is(err, fs.ErrNotExist) {
		err = disk.Replace(filepath.Dir(to), to, write)
	}
	return err
}
