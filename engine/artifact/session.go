package artifact

import (
	"crypto/rand"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"rcgrpo/engine/internal/disk"
)

// Session is the use of a store by a run or by the process of a stage. gc does not remove the results that a
// session has pinned. The file of a session is locked (flock) while its process lives and has one key per
// line.
type Session struct {
	store *Store
	lock  *Lock

	mu     sync.Mutex
	pinned map[string]bool
}

// NewSession starts a session, to be closed.
func (s *Store) NewSession() (*Session, error) {
	for {
		lock, err := s.lock(s.path("users", rand.Text()), unix.LOCK_EX|unix.LOCK_NB)
		if err != nil {
			return nil, err
		}
		if lock == nil { // eachSession has the lock
			continue
		}
		if err := s.owned(lock.file); err != nil {
			return nil, errors.Join(err, lock.Unlock())
		}
		if s.shared { // behind the identity of the claim, which ends in no line
			if _, err := lock.file.WriteAt([]byte("\n"), exitAt); err != nil {
				return nil, errors.Join(err, lock.Unlock())
			}
			lock.file.Seek(exitAt+1, io.SeekStart)
		}
		return &Session{store: s, lock: lock, pinned: map[string]bool{}}, s.awaitGC()
	}
}

// awaitGC waits until no gc runs in a shared store, where gc runs only without sessions.
func (s *Store) awaitGC() error {
	for s.shared {
		l, err := s.lock(s.path("claims", "gc"), 0)
		if l != nil {
			return l.Unlock()
		}
		if err != nil {
			return err
		}
		time.Sleep(100 * time.Millisecond)
	}
	return nil
}

// Pin protects the results of keys from gc until the session is closed, those of the future too. A result
// that is looked up afterwards stays; one looked up before may be gone. Empty keys are ignored.
func (u *Session) Pin(keys ...string) error {
	u.mu.Lock()
	defer u.mu.Unlock()
	var lines strings.Builder
	for _, key := range keys {
		if key != "" && !u.pinned[key] {
			lines.WriteString(key + "\n")
		}
	}
	if lines.Len() == 0 {
		return nil
	}
	allowGC, err := u.store.blockGC()
	if err != nil {
		return err
	}
	defer allowGC()
	if _, err := disk.Write(u.lock.file, []byte(lines.String())); err != nil {
		return err
	}
	for _, key := range keys {
		u.pinned[key] = true
	}
	return nil
}

// Close ends the session and its pins.
func (u *Session) Close() error { return u.lock.Unlock() }

// InUse counts the results that sessions have pinned.
func (s *Store) InUse() (results int, err error) {
	pinned, err := s.pinned()
	for key := range pinned {
		if disk.Exists(s.manifestPath(key)) {
			results++
		}
	}
	return results, err
}

// pinned returns the keys that sessions have pinned.
func (s *Store) pinned() (map[string]bool, error) {
	pinned := map[string]bool{}
	err := s.eachSession(func(f *os.File) error {
		text, err := io.ReadAll(f)
		for line := range strings.Lines(string(text)) {
			pinned[strings.TrimSuffix(line, "\n")] = true
		}
		return err
	})
	return pinned, errors.Join(err, s.each("jobs", func(key, _ string) error {
		if pins, open := s.openJob(key); open {
			for _, pin := range append(pins, key) {
				pinned[pin] = true
			}
		}
		return nil
	}))
}

// eachSession calls f with the file of every open session and removes the files of killed ones.
func (s *Store) eachSession(f func(*os.File) error) error {
	return s.each("users", func(_, path string) error {
		file, err := os.Open(path)
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if err != nil {
			return err
		}
		defer file.Close()
		if s.shared {
			if _, free := released(file); !free {
				return f(file)
			}
			os.Remove(path)
			return nil
		}
		switch err := disk.Flock(file, unix.LOCK_EX|unix.LOCK_NB); {
		case errors.Is(err, unix.EWOULDBLOCK):
			return f(file)
		case err != nil:
			return err
		}
		os.Remove(path) // fails in a read-only store
		return nil
	})
}

// blockGC prevents gc from removing anything until allow is called: from the creation of an object to the manifest that
// names it, and during Pin. It waits for a gc that runs.
func (s *Store) blockGC() (allow func(), err error) {
	if s.shared {
		u, err := s.NewSession()
		return func() { u.Close() }, err
	}
	lock, err := s.lock(s.path("locks", "store"), unix.LOCK_SH)
	if err != nil {
		return nil, err
	}
	return func() { lock.file.Close() }, nil
}

// exclusiveWithin bounds waitExclusive: a run of many small stages may commit results all the time.
var exclusiveWithin = 10 * time.Second

// waitExclusive acquires the barrier for gc alone. It returns nil if that is not possible in time.
func (s *Store) waitExclusive() (*Lock, error) {
	if s.shared {
		return s.waitUnused()
	}
	for until := time.Now().Add(exclusiveWithin); ; time.Sleep(time.Millisecond) {
		lock, err := s.lock(s.path("locks", "store"), unix.LOCK_EX|unix.LOCK_NB)
		if lock != nil || err != nil || time.Now().After(until) {
			return lock, err
		}
	}
}

// waitUnused is waitExclusive for a shared store: it waits until the sessions of killed processes count as ended, and
// returns nil while there are others.
func (s *Store) waitUnused() (*Lock, error) {
	for until := time.Now().Add(lostAfter + beatEvery); ; time.Sleep(beatEvery / 4) {
		lock, err := s.lock(s.path("claims", "gc"), 0)
		if err != nil {
			return nil, err
		}
		sessions := 0
		err = s.eachSession(func(*os.File) error { sessions++; return nil })
		if lock != nil && (sessions == 0 || err != nil) {
			return lock, err
		}
		if lock != nil {
			err = lock.Unlock()
		}
		if err != nil || time.Now().After(until) {
			return nil, err
		}
	}
}

// collectionPath is the file that gc changes.
func (s *Store) collectionPath() string {
	if s.shared {
		return s.path("collection")
	}
	return s.path("locks", "store")
}

// LastCollection identifies the last removal by gc; "" for none. A result that was looked up before it and is
// not pinned may be gone.
func (s *Store) LastCollection() string {
	b, _ := os.ReadFile(s.collectionPath())
	return string(b)
}

// Jobs is the folder of a key's jobs in the queue of a cluster (package slurm). It has a file N for each attempt, whose
// JSON lists the keys that the job needs as Pins, and N.exit once the attempt has ended. It may not exist.
func (s *Store) Jobs(key string) string { return s.path("jobs", key) }

// openJob reports whether a job of the key may be in the queue or running, and which results it needs.
func (s *Store) openJob(key string) (pins []string, open bool) {
	entries, _ := os.ReadDir(s.Jobs(key))
	for _, e := range entries {
		path := filepath.Join(s.Jobs(key), e.Name())
		if _, err := strconv.Atoi(e.Name()); err != nil || disk.Exists(path+".exit") {
			continue
		}
		var job struct{ Pins []string }
		readJSON(path, &job) // one that is damaged pins nothing
		pins, open = append(pins, job.Pins...), true
	}
	return pins, open
}

// HasJob reports whether a job of the key may be in the queue or running.
func (s *Store) HasJob(key string) bool {
	_, open := s.openJob(key)
	return open
}

// anyOpenJob reports whether HasJob is true for any key.
func (s *Store) anyOpenJob() bool {
	keys, _ := os.ReadDir(s.path("jobs"))
	return slices.ContainsFunc(keys, func(e os.DirEntry) bool { return s.HasJob(e.Name()) })
}

// Binaries is the folder of the programs that jobs start. It may not exist.
func (s *Store) Binaries() string { return s.path("bin") }
