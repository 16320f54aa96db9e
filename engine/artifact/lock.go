package artifact

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// Lock is held by whoever runs a node. The kernel frees it when the last process that has its file open is gone, so
// none survives a kill; a child that inherits File keeps it until it ends too.
type Lock struct {
	file *os.File
	path string
}

// File is the locked file, to be handed to a child process; nil of a nil lock.
func (l *Lock) File() *os.File {
	if l == nil {
		return nil
	}
	return l.file
}

// Describe writes down who holds the lock, for Holder to read. v is one JSON value.
func (l *Lock) Describe(v []byte) error { return Describe(l.file, v) }

// Describe is Lock.Describe for a process that inherited the lock's file.
func Describe(lock *os.File, v []byte) error {
	_, err := lock.WriteAt(append(v, '\n'), 0) // what stands behind the first value counts for nothing
	return err
}

// Holder reads into v what the holder of a key's lock wrote down, without waiting. It may be of one who is gone, and lack
// when the present one has only just come: then the error is ErrNotFound.
func (s *Store) Holder(key string, v any) error {
	f, err := os.Open(s.path("locks", key))
	if errors.Is(err, fs.ErrNotExist) {
		return ErrNotFound
	}
	if err != nil {
		return err
	}
	defer f.Close()
	if err := json.NewDecoder(f).Decode(v); err != nil { // empty, or being written
		return ErrNotFound
	}
	return nil
}

// Locked lists the keys that somebody holds, or held when he was killed.
func (s *Store) Locked() ([]string, error) {
	var keys []string
	err := s.each("locks", func(name, _ string) error {
		if validKey(name) == nil {
			keys = append(keys, name)
		}
		return nil
	})
	return keys, err
}

// Unlock frees the lock.
func (l *Lock) Unlock() error {
	// The name goes first, while the lock still keeps others out: who waits on the old file notices (see lock) and
	// takes the new one.
	err := os.Remove(l.path)
	return errors.Join(err, l.file.Close())
}

// TryLock takes a key's lock, or answers nil when someone else has it.
func (s *Store) TryLock(key string) (*Lock, error) {
	if err := validKey(key); err != nil {
		return nil, err
	}
	return s.lock(s.path("locks", key), unix.LOCK_EX|unix.LOCK_NB)
}

// Lock takes a key's lock and waits while someone else has it. When ctx ends first, so does the waiting.
func (s *Store) Lock(ctx context.Context, key string) (*Lock, error) {
	if err := validKey(key); err != nil {
		return nil, err
	}
	type answer struct {
		lock *Lock
		err  error
	}
	got := make(chan answer, 1)
	go func() {
		l, err := s.lock(s.path("locks", key), unix.LOCK_EX)
		got <- answer{l, err}
	}()
	select {
	case a := <-got:
		return a.lock, a.err
	case <-ctx.Done():
		go func() { // the kernel's wait cannot be called off: give the lock back when it comes
			if a := <-got; a.lock != nil {
				a.lock.Unlock()
			}
		}()
		return nil, context.Cause(ctx)
	}
}

// lock opens and locks path, again when the file was removed between the two steps.
func (s *Store) lock(path string, how int) (*Lock, error) {
	if err := s.makeDir(filepath.Dir(path)); err != nil {
		return nil, err
	}
	for {
		f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
		if err != nil {
			return nil, fmt.Errorf("lock: %w", err)
		}
		err = flock(f, how)
		if errors.Is(err, unix.EWOULDBLOCK) {
			f.Close()
			return nil, nil
		}
		if err != nil {
			f.Close()
			return nil, fmt.Errorf("lock %s: %w", path, err)
		}
		if sameFile(f, path) {
			return &Lock{file: f, path: path}, nil
		}
		f.Close()
	}
}

func flock(f *os.File, how int) error {
	for {
		err := unix.Flock(int(f.Fd()), how)
		if !errors.Is(err, unix.EINTR) {
			return err
		}
	}
}

func sameFile(f *os.File, path string) bool {
	opened, err := f.Stat()
	if err != nil {
		return false
	}
	named, err := os.Lstat(path)
	return err == nil && os.SameFile(opened, named)
}

// Tidy removes what killed runs left: lock files that nobody holds, and unfinished output whose lock nobody holds.
// busy says whether some key is still locked.
func (s *Store) Tidy() (busy bool, err error) {
	for _, folder := range []string{"locks", "staging"} {
		err := s.each(folder, func(key, _ string) error {
			if validKey(key) != nil { // the store's own lock
				return nil
			}
			lock, err := s.TryLock(key)
			if err != nil {
				return err
			}
			if lock == nil {
				busy = true
				return nil
			}
			return errors.Join(s.Discard(key), lock.Unlock())
		})
		if err != nil {
			return busy, err
		}
	}
	return busy, nil
}
