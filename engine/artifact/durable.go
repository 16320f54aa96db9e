package artifact

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"rcgrpo/engine/internal/disk"
)

// asidePattern names what is made beside its place, to be renamed.
const asidePattern = ".new-*"

// writeJSON puts v under path as a whole, so that readers see the old content or the new one.
// When it is to be durable, it is flushed to the disk before and after; otherwise a power cut may tear it.
func (s *Store) writeJSON(path string, v any, durable bool) error {
	next, err := s.draft(filepath.Dir(path), filepath.Dir(path))
	if err != nil {
		return err
	}
	defer next.Close()
	if err := writeInto(next.File, v, durable); err != nil {
		return err
	}
	if err := next.Place(path); err != nil {
		return err
	}
	if durable {
		return syncDir(filepath.Dir(path))
	}
	return nil
}

// draft is disk.NewDraft that makes the folder dir when it is not there.
func (s *Store) draft(near, dir string) (*disk.Draft, error) {
	d, err := disk.NewDraft(near, dir, asidePattern)
	if !errors.Is(err, fs.ErrNotExist) {
		return d, err
	}
	if err := s.MakeDir(dir); err != nil {
		return nil, err
	}
	return disk.NewDraft(near, dir, asidePattern)
}

// rename is disk.Rename that makes the folder for the new name when it is not there.
func (s *Store) rename(from, to string) error {
	return s.into(to, func(to string) error { return disk.Rename(from, to) })
}

// into has place make the name to, and the folder for it when that is not there.
func (s *Store) into(to string, place func(to string) error) error {
	err := place(to)
	if !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if err := s.MakeDir(filepath.Dir(to)); err != nil {
		return err
	}
	return place(to)
}

// writeInto writes v into an empty file.
func writeInto(f *os.File, v any, durable bool) error {
	b, err := json.MarshalIndent(v, "", "  ")
	if err != nil {
		return fmt.Errorf("write %s: %w", f.Name(), err)
	}
	_, err = disk.Write(f, append(b, '\n'))
	if err == nil && durable {
		err = disk.Sync(f)
	}
	return err
}

// MakeDir creates a folder of the store, private to the user.
func (s *Store) MakeDir(dir string) error {
	s.spread(dir)
	if err := disk.MkdirAll(dir, 0o700); err != nil {
		return fmt.Errorf("write to the store: %w", err)
	}
	return nil
}

// sync makes everything durable that has been written to the store's file system.
func (s *Store) sync() error {
	d, err := disk.Open(s.dir)
	if err != nil {
		return err
	}
	defer d.Close()
	return disk.SyncSystem(d)
}

// syncObject makes the files of an object durable, and the folders that name them.
func (s *Store) syncObject(o Output) error {
	dir := s.objectDir(o.Digest)
	for _, f := range o.Files {
		if err := syncFile(filepath.Join(dir, filepath.FromSlash(f.Name))); err != nil {
			return err
		}
	}
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || !d.IsDir() {
			return err
		}
		return syncDir(path)
	})
	return errors.Join(err, syncDir(filepath.Dir(dir)))
}

// syncDir makes the names in dir durable.
func syncDir(dir string) error { return syncFile(dir) }

func syncFile(path string) error {
	f, err := disk.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	return disk.Sync(f)
}
