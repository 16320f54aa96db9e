package artifact

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sync"

	"rcgrpo/engine/internal/disk"
)

// writeJSON replaces path atomically by the JSON of v. The temporary file is in scratch if that folder exists, else
// beside path. Nothing is flushed: a power cut may tear the file.
func (s *Store) writeJSON(scratch, path string, v any) error {
	err := disk.WriteJSON(scratch, path, MaxManifest, v)
	if !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return s.inFolder(path, func() error { return disk.WriteJSON(filepath.Dir(path), path, MaxManifest, v) })
}

// rename creates the parent folder of the new name if it is missing.
func (s *Store) rename(from, to string) error {
	return s.inFolder(to, func() error { return disk.Rename(from, to) })
}

// inFolder calls create, and once more with the parent folder of path if that was missing.
func (s *Store) inFolder(path string, create func() error) error {
	err := create()
	if !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if err := s.MakeDir(filepath.Dir(path)); err != nil {
		return err
	}
	return create()
}

// MakeDir creates a folder of the store, private to the user.
func (s *Store) MakeDir(dir string) error {
	if err := disk.MkdirAll(dir, 0o700); err != nil {
		return fmt.Errorf("write to the store: %w", err)
	}
	s.settled.Do(func() { s.settle() }) // a new store is no copy
	return nil
}

// sync flushes the file system of the store.
func (s *Store) sync() error {
	d, err := os.Open(s.dir)
	if err != nil {
		return err
	}
	defer d.Close()
	return disk.SyncSystem(d)
}

// Flush makes the names of committed results durable; their files are. Without it a power cut may take the results of
// the last seconds, whose stages then run again.
func (s *Store) Flush() error {
	if err := s.flushes.flush(s.sync); err != nil && !errors.Is(err, fs.ErrNotExist) { // no result, no store
		return fmt.Errorf("flush the store %s: %w", s.dir, err)
	}
	return nil
}

// flushes lets one flush serve all callers that wait for it. While it runs, the callers of the next one gather.
type flushes struct {
	running sync.Mutex
	mu      sync.Mutex
	next    func() error // has not begun; nil if no caller waits
}

// flush returns after a call of write that began after the call of flush.
func (all *flushes) flush(write func() error) error {
	all.mu.Lock()
	if all.next == nil {
		all.next = sync.OnceValue(func() error {
			all.running.Lock()
			defer all.running.Unlock()
			all.mu.Lock()
			all.next = nil // from here on a caller may have written something that this flush misses
			all.mu.Unlock()
			return write()
		})
	}
	next := all.next
	all.mu.Unlock()
	return next()
}

// syncTree flushes a folder with everything below it.
func syncTree(dir string) error {
	return filepath.WalkDir(dir, func(path string, _ fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		return syncFile(path)
	})
}

// syncFile flushes a file, or the names in a folder.
func syncFile(path string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	return disk.Sync(f)
}
