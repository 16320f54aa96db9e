package artifact

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"rcgrpo/engine/internal/disk"
)

// Lock is held by whoever runs a node. The kernel frees it when the last process that has its file open is gone, so
// none survives a kill; a child that inherits File keeps it until it ends too.
//
// The file says who holds it (Describe) and, from exitAt on, how a program ended that the holder had started
// (AwaitExit). When the holder was killed before it could attend to that, the next one finds it there (Exit).
type Lock struct {
	file *os.File
	path string
	used bool      // something may stand at exitAt
	left bool      // by the holder before, and it says that the program ended well
	at   time.Time // of the exit record that the holder before left

	spare *spares // where Retire puts it; nil for nowhere
}

// exitAt is where the exit record stands in a lock's file, behind any description of the holder.
const exitAt = 8192

// ExitText is what the shell that attends to a program writes into the lock's file as its last word, by `echo "TEXT"`
// to the descriptor that it inherited: $? and the boot of the machine, since what was written before a power cut proves nothing
// after it.
func ExitText() string { return "exit $? " + boot() }

// boot identifies this start of the machine.
var boot = sync.OnceValue(func() string {
	id, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return fmt.Sprint(os.Getpid(), time.Now().UnixNano()) // nobody else may believe what is written with this
	}
	return strings.TrimSpace(string(id))
})

// AwaitExit makes the file ready for the exit record of a program that is about to inherit it.
func (l *Lock) AwaitExit() error {
	var err error
	if l.used {
		err = l.erase(exitAt)
	}
	l.used, l.left, l.at = true, false, time.Time{}
	_, seekErr := l.file.Seek(exitAt, io.SeekStart) // the program shares the offset
	return errors.Join(err, seekErr)
}

// ForgetExit takes the exit record back, before what the program made is moved from where it lies: whoever came after a kill would look
// for it there in vain.
func (l *Lock) ForgetExit() error { return l.erase(exitAt) }

// erase makes what stands at an offset of the file say nothing. To cut it off would free a block, only for it to be taken
// again at once.
func (l *Lock) erase(at int64) error {
	_, err := disk.WriteAt(l.file, []byte("-"), at)
	return err
}

// Left says once whether the holder before left a program that ended well, so that what it made waits in the key's
// scratch folder. Whoever takes that up and fails begins anew.
func (l *Lock) Left() bool {
	left := l != nil && l.left
	if left {
		l.left = false
	}
	return left
}

// Exit reads the exit record: the code that the program ended with and when. ok is false while there is none.
func (l *Lock) Exit() (code int, at time.Time, ok bool) {
	text := make([]byte, 128)
	n, err := l.file.ReadAt(text, exitAt)
	if err != nil && err != io.EOF {
		return 0, at, false
	}
	line, _, whole := strings.Cut(string(text[:n]), "\n")
	words := strings.Fields(line)
	if !whole || len(words) != 3 || words[0] != "exit" || words[2] != boot() {
		return 0, at, false
	}
	if code, err = strconv.Atoi(words[1]); err != nil {
		return 0, at, false
	}
	if !l.at.IsZero() { // we may have written to the file since
		return code, l.at, true
	}
	if info, err := l.file.Stat(); err == nil {
		at = info.ModTime()
	}
	return code, at, true
}

// Unwritable says what prevents an exit record, as a full disk does: then a program ended without one for that reason.
func (l *Lock) Unwritable() error { return l.ForgetExit() }

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
	_, err := disk.WriteAt(lock, append(v, '\n'), 0) // what stands behind the first value counts for nothing
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
	return errors.Join(err, l.free())
}

// free unlocks and closes the file. To close it alone would leave the lock to a process that has inherited the file.
func (l *Lock) free() error {
	return errors.Join(unix.Flock(int(l.file.Fd()), unix.LOCK_UN), l.file.Close())
}

// TryLock takes a key's lock, or answers nil when someone else has it.
func (s *Store) TryLock(key string) (*Lock, error) {
	if err := validKey(key); err != nil {
		return nil, err
	}
	l := s.blank()
	if l != nil && !s.claim(l, key) {
		l.Retire()
		l = nil
	}
	if l == nil {
		var err error
		if l, err = s.lock(s.path("locks", key), unix.LOCK_EX|unix.LOCK_NB); l == nil {
			return nil, err
		}
		l.spare = &s.spare
	}
	return l, nil
}

// awaitEvery is how often someone who waits for a lock looks again. To sleep in the kernel would mean to wait for the file,
// which its holder may rename and go on to use for another key.
const awaitEvery = 20 * time.Millisecond

// Lock takes a key's lock and waits while someone else has it. When ctx ends first, so does the waiting.
func (s *Store) Lock(ctx context.Context, key string) (*Lock, error) {
	again := time.NewTicker(awaitEvery)
	defer again.Stop()
	for {
		if l, err := s.TryLock(key); l != nil || err != nil {
			return l, err
		}
		select {
		case <-again.C:
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
}

// LockFile takes the lock of a file outside any store, which nobody else has.
func LockFile(path string) (*Lock, error) {
	l, err := lockFile(path, unix.LOCK_EX|unix.LOCK_NB)
	if err == nil && l == nil {
		return nil, fmt.Errorf("lock %s: another process has it", path)
	}
	return l, err
}

// lock is lockFile in a folder that is made when it is not there.
func (s *Store) lock(path string, how int) (*Lock, error) {
	l, err := lockFile(path, how)
	if errors.Is(err, fs.ErrNotExist) {
		if err = s.MakeDir(filepath.Dir(path)); err == nil {
			l, err = lockFile(path, how)
		}
	}
	return l, s.explained(err)
}

// explained makes a sentence of an error of a store that cannot be written. Whatever writes takes a lock first.
func (s *Store) explained(err error) error {
	var why string
	switch {
	case errors.Is(err, unix.EROFS):
		why = "its file system is read-only: mount it for writing"
	case errors.Is(err, fs.ErrPermission):
		why = "its permissions forbid it: change them"
	default:
		return err
	}
	return fmt.Errorf("the store %s cannot be written, since %s, or name another folder in the site file (store.path); %w", s.dir, why, err)
}

// lockFile opens and locks path, again when the file was removed between the two steps. It answers nil when someone
// else has it and how says not to wait.
func lockFile(path string, how int) (*Lock, error) {
	for {
		f, err := disk.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
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
			if errors.Is(err, unix.ENOLCK) || errors.Is(err, unix.ENOSYS) || errors.Is(err, unix.EOPNOTSUPP) {
				err = fmt.Errorf("the store needs locks on files, and its file system has none (name a folder on another file system, store { path } in the site file): %w", err)
			}
			return nil, err
		}
		if opened, same := sameFile(f, path); same {
			l := &Lock{file: f, path: path, used: opened.Size() > exitAt}
			if l.used {
				code, at, ok := l.Exit()
				l.left, l.at = ok && code == 0, at
			}
			return l, nil
		}
		f.Close()
	}
}

func flock(f *os.File, how int) error { return disk.Flock(f, how) }

func sameFile(f *os.File, path string) (opened fs.FileInfo, same bool) {
	opened, err := f.Stat()
	if err != nil {
		return nil, false
	}
	named, err := os.Lstat(path)
	return opened, err == nil && os.SameFile(opened, named)
}

// Tidy removes what killed runs left: files of users, lock files that nobody holds, and unfinished output whose lock nobody holds. The
// lock file of a program that has ended well stays: its output waits in the scratch folder for a run that wants it.
// A scratch folder goes when its key has a result: its stage was killed between the two.
// busy lists the keys that are still locked.
func (s *Store) Tidy() (busy []string, err error) {
	asides, _ := filepath.Glob(s.path(asidePattern))
	for _, aside := range asides {
		os.Remove(aside)
	}
	if err := s.eachUser(func(*os.File) error { return nil }); err != nil {
		return nil, err
	}
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
				busy = append(busy, key)
				return nil
			}
			if _, err := os.Lstat(s.path("nodes", key+".json")); lock.left && err != nil { // not taken yet
				return errors.Join(s.Discard(key), lock.file.Close())
			}
			return errors.Join(s.Discard(key), lock.Unlock())
		})
		if err != nil {
			return busy, err
		}
	}
	err = s.each("work", func(key, path string) error {
		if validKey(key) != nil {
			return nil
		}
		if _, err := os.Lstat(s.path("nodes", key+".json")); err != nil {
			return nil
		}
		lock, err := s.TryLock(key)
		if err != nil || lock == nil {
			return err
		}
		// A run may be taking the folder over for another node (MakeWork), with folders in it: by a rename one of the two has it.
		err = s.rename(path, s.path("staging", key))
		if errors.Is(err, fs.ErrNotExist) {
			err = nil
		}
		return errors.Join(err, s.Discard(key), lock.Unlock())
	})
	return busy, err
}
