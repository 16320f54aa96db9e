package artifact

import (
	"crypto/rand"
	"errors"
	"io"
	"io/fs"
	"os"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"rcgrpo/engine/internal/disk"
)

// User is a run, or the process of a stage, that uses a store: gc goes on beside it and leaves alone what it keeps. Its file is
// locked (flock) as long as it lives and has a line for each key.
type User struct {
	store *Store
	lock  *Lock

	mu   sync.Mutex
	kept map[string]bool
}

// Use makes a user of the store, to be closed.
func (s *Store) Use() (*User, error) {
	for {
		lock, err := s.lock(s.path("users", rand.Text()), unix.LOCK_EX|unix.LOCK_NB)
		if err != nil {
			return nil, err
		}
		if lock != nil {
			if err := s.owned(lock.file); err != nil {
				return nil, errors.Join(err, lock.Unlock())
			}
		}
		if lock != nil { // otherwise somebody has just looked whether we live
			return &User{store: s, lock: lock, kept: map[string]bool{}}, nil
		}
	}
}

// Keep has gc leave the results of these keys where they are, whether they are there already or will be, until the user is closed. A result
// that is looked up after it stays; one that was looked up before may be gone. Empty keys count for nothing.
func (u *User) Keep(keys ...string) error {
	u.mu.Lock()
	defer u.mu.Unlock()
	var lines strings.Builder
	for _, key := range keys {
		if key != "" && !u.kept[key] {
			lines.WriteString(key + "\n")
		}
	}
	if lines.Len() == 0 {
		return nil
	}
	if err := u.store.hold(); err != nil {
		return err
	}
	defer u.store.free()
	if _, err := disk.Write(u.lock.file, []byte(lines.String())); err != nil {
		return err
	}
	for _, key := range keys {
		u.kept[key] = true
	}
	return nil
}

// Close lets gc have what the user has kept.
func (u *User) Close() error { return u.lock.Unlock() }

// InUse counts the results that users keep.
func (s *Store) InUse() (results int, err error) {
	kept, err := s.kept()
	for key := range kept {
		if _, err := os.Lstat(s.path("nodes", key+".json")); err == nil {
			results++
		}
	}
	return results, err
}

// kept lists the keys that users keep.
func (s *Store) kept() (map[string]bool, error) {
	kept := map[string]bool{}
	err := s.eachUser(func(f *os.File) error {
		text, err := io.ReadAll(f)
		for line := range strings.Lines(string(text)) {
			kept[strings.TrimSuffix(line, "\n")] = true
		}
		return err
	})
	return kept, err
}

// eachUser calls f with the file of every user that lives, and removes what those have left that were killed.
func (s *Store) eachUser(f func(*os.File) error) error {
	return s.each("users", func(_, path string) error {
		file, err := os.Open(path)
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if err != nil {
			return err
		}
		defer file.Close()
		switch err := flock(file, unix.LOCK_EX|unix.LOCK_NB); {
		case errors.Is(err, unix.EWOULDBLOCK):
			return f(file)
		case err != nil:
			return err
		}
		os.Remove(path) // a read-only store stays as it is
		return nil
	})
}

// holding is the lock that keeps gc from removing anything: from when an object is made, or found to be there already, until its manifest
// names it, and while a user says what it keeps. All who hold it in this process share one.
type holding struct {
	mu   sync.Mutex
	n    int
	file *os.File
}

// hold keeps gc from removing anything until free, and waits while it does.
func (s *Store) hold() error {
	h := &s.holding
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.n == 0 {
		if h.file == nil {
			lock, err := s.lock(s.path("locks", "store"), unix.LOCK_SH)
			if err != nil {
				return err
			}
			h.file = lock.file
		} else if err := flock(h.file, unix.LOCK_SH); err != nil {
			return err
		}
	}
	h.n++
	return nil
}

func (s *Store) free() {
	h := &s.holding
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.n--; h.n == 0 {
		flock(h.file, unix.LOCK_UN)
	}
}

// How long gc waits for a moment in which nobody holds the store, and how often it looks: a run of many small stages may have
// results on their way into it all the time.
var gapWithin = 10 * time.Second

const gapAgain = time.Millisecond

// alone waits for that moment and keeps it. It answers nil when there was none.
func (s *Store) alone() (*Lock, error) {
	for until := time.Now().Add(gapWithin); ; time.Sleep(gapAgain) {
		lock, err := s.lock(s.path("locks", "store"), unix.LOCK_EX|unix.LOCK_NB)
		if lock != nil || err != nil || time.Now().After(until) {
			return lock, err
		}
	}
}

// LastCollection says when gc removed something last; "" for never. What was looked up before, and was not kept by a user, may be
// gone since.
func (s *Store) LastCollection() string {
	b, _ := os.ReadFile(s.path("locks", "store"))
	return string(b)
}
