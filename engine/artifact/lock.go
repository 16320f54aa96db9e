package artifact

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"

	"golang.org/x/sys/unix"

	"rcgrpo/engine/internal/alive"
	"rcgrpo/engine/internal/disk"
)

// Lock is the lock (flock) of a key, held while its node runs. The kernel releases it when the last process
// that has the file open ends, so no lock survives a kill; a child that inherits File holds it too.
//
// The file describes the holder (Describe).
type Lock struct {
	file *os.File
	path string
	// Of a claim (claim.go): its id, the claims that it succeeds, and the end of its beat.
	id     string
	before []string
	stop   func()
}

// File is the locked file, for a child process to inherit; nil for a nil lock.
func (l *Lock) File() *os.File {
	if l == nil {
		return nil
	}
	return l.file
}

// Describe records the holder of a lock for Holder, as JSON.
func Describe(lock *os.File, v any) error {
	b, err := json.Marshal(v)
	if err != nil {
		return err
	}
	_, err = disk.WriteAt(lock, append(b, '\n'), 0) // Holder ignores anything behind the first value
	return err
}

// holderPath is the path of the lock of a key, or of the last of its claims.
func (s *Store) holderPath(key string) string {
	path := s.path(s.lockFolder(), key)
	if s.shared {
		return cmp.Or(lastOf(path), path)
	}
	return path
}

// openHolder opens the file of a lock or a claim for reading. It does not wait for the writer of a pipe.
func openHolder(path string) (*os.File, error) { return os.OpenFile(path, unix.O_NONBLOCK, 0) }

// Holder reads the description of a key's holder into v. It may be that of an earlier holder; without one the
// error is ErrNotFound.
func (s *Store) Holder(key string, v any) error {
	f, err := disk.OpenPlain(s.holderPath(key), disk.MaxRecord)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return ErrNotFound
	case err != nil:
		return err
	}
	defer f.Close()
	if json.NewDecoder(f).Decode(v) != nil { // empty, or being written
		return ErrNotFound
	}
	return nil
}

// Locked lists the keys that are locked, or were when their holder was killed.
func (s *Store) Locked() ([]string, error) {
	var keys []string
	err := s.each(s.lockFolder(), func(name, _ string) error {
		if validKey(name) == nil {
			keys = append(keys, name)
		}
		return nil
	})
	return keys, err
}

// Unlock releases the lock and removes its file, also while a process that inherited the file still runs.
func (l *Lock) Unlock() error {
	if l.stop != nil {
		return l.release()
	}
	// The file is removed first, under the lock. A process that has opened it finds that the name is gone and
	// retries.
	err := os.Remove(l.path)
	return errors.Join(err, unix.Flock(int(l.file.Fd()), unix.LOCK_UN), l.file.Close())
}

// TryLock acquires the lock of a key and completes a commit that an earlier holder has begun. It returns nil if another
// process or goroutine holds the lock.
func (s *Store) TryLock(key string) (*Lock, error) {
	if err := validKey(key); err != nil {
		return nil, err
	}
	l, err := s.lock(s.path(s.lockFolder(), key), unix.LOCK_EX|unix.LOCK_NB)
	if l == nil || err != nil {
		return nil, err
	}
	if _, err := s.Complete(key); err != nil {
		return nil, errors.Join(err, l.Unlock())
	}
	return l, nil
}

// lock is lockFile in the store. Every write to the store starts with a lock, so its errors explain a store
// that cannot be written.
func (s *Store) lock(path string, how int) (l *Lock, err error) {
	err = s.inFolder(path, func() error {
		if s.shared {
			l, err = claim(path)
		} else {
			l, err = lockFile(path, how)
		}
		return err
	})
	var why string
	switch {
	case errors.Is(err, unix.EROFS):
		why = "its file system is read-only: mount it for writing"
	case errors.Is(err, fs.ErrPermission):
		why = "its permissions forbid it: change them"
	default:
		return l, err
	}
	return l, fmt.Errorf("the store %s cannot be written, since %s, "+
		"or name another folder in the site file (store.path); %w", s.dir, why, err)
}

// lockFile opens and locks path, and retries if the file was removed in between. It returns nil if the lock
// is held and how contains LOCK_NB.
func lockFile(path string, how int) (*Lock, error) {
	for {
		f, err := disk.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
		if err != nil {
			return nil, fmt.Errorf("lock: %w", err)
		}
		if err := disk.Flock(f, how); err != nil {
			f.Close()
			if errors.Is(err, unix.EWOULDBLOCK) {
				return nil, nil
			}
			if alive.Without(err) {
				err = fmt.Errorf("the store needs locks on files, and its file system has none "+
					"(name a folder on another file system, store { path } in the site file): %w", err)
			}
			return nil, err
		}
		opened, err := f.Stat()
		named, namedErr := os.Stat(path)
		if err != nil || namedErr != nil || !os.SameFile(opened, named) {
			f.Close()
			continue
		}
		return &Lock{file: f, path: path}, nil
	}
}

// RemoveStale completes the commits of killed runs and removes their leftovers: free lock files, unfinished output, and
// scratch folders of keys that have a result. busy lists the keys whose locks are held.
func (s *Store) RemoveStale() (busy []string, err error) {
	for _, folder := range []string{s.lockFolder(), "staging", "work", "jobs"} {
		err := s.each(folder, func(key, _ string) error {
			if validKey(key) != nil { // the lock of gc, in a shared store
				return nil
			}
			committed := func() bool { return disk.Exists(s.manifestPath(key)) }
			_, open := s.openJob(key)
			if folder == "work" && !committed() || open { // to resume from, or in use by a job
				return nil
			}
			lock, err := s.TryLock(key)
			if err != nil {
				return err
			}
			if lock == nil {
				busy = append(busy, key)
				return nil
			}
			errs := []error{s.Discard(key), s.RemoveJobs(key)}
			if committed() {
				errs = append(errs, s.RemoveWork(key))
			}
			return errors.Join(append(errs, lock.Unlock())...)
		})
		if err != nil {
			return busy, err
		}
	}
	return busy, nil
}
