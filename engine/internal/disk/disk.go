// Package disk writes the files of the store and of run folders. Its functions are those of package os; Fail
// lets a test make any of them fail, as a full or broken disk would.
package disk

import (
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"rcgrpo/internal/nesting"
)

// ErrShort, returned by the function of Fail, makes a write stop in the middle.
var ErrShort = errors.New("short write")

// Optional are the operations that a file system may lack. Only flock has no replacement.
var Optional = []string{"symlink", "flock"}

// hook is called before an operation, whose error it may set.
var hook atomic.Pointer[func(op, path string) error]

// Lack makes every operation call f first and return its error instead, to imitate a file system without the
// operations of Optional; nil ends that. It is for tests and affects the whole process.
func Lack(f func(op, path string) error) { hook.Store(&f) }

// Fail is Lack for the operations that write: all but flock. It replaces the function of Lack.
func Fail(f func(op, path string) error) {
	if f == nil {
		Lack(nil)
		return
	}
	Lack(func(op, path string) error {
		if op == "flock" {
			return nil
		}
		return f(op, path)
	})
}

// check returns the error that the hook sets for an operation.
func check(op, path string) error {
	f := hook.Load()
	if f == nil || *f == nil {
		return nil
	}
	if err := (*f)(op, path); err != nil {
		return &fs.PathError{Op: op, Path: path, Err: err}
	}
	return nil
}

// do executes an operation unless the hook makes it fail.
func do(op, path string, f func() error) error {
	if err := check(op, path); err != nil {
		return err
	}
	return f()
}

// Exists reports whether a path has a file, which may be a dangling symbolic link.
func Exists(path string) bool {
	_, err := os.Lstat(path)
	return err == nil
}

// MkdirAll is os.MkdirAll.
func MkdirAll(path string, perm fs.FileMode) error {
	return do("mkdir", path, func() error { return os.MkdirAll(path, perm) })
}

// OpenFile is os.OpenFile of a file to be written.
func OpenFile(path string, flag int, perm fs.FileMode) (f *os.File, err error) {
	err = do("open", path, func() error { f, err = os.OpenFile(path, flag, perm); return err })
	return f, err
}

// WriteFile is os.WriteFile.
func WriteFile(path string, b []byte, perm fs.FileMode) error {
	f, err := OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, perm)
	if err != nil {
		return err
	}
	_, err = Write(f, b)
	return errors.Join(err, f.Close())
}

// Replace writes a file with a mode, before the umask, under a temporary name in dir and renames it to path. Nothing is
// flushed: a power cut may tear the file.
func Replace(dir, path string, mode fs.FileMode, write func(*os.File) error) error {
	if err := check("create", dir); err != nil {
		return err
	}
	name := strings.Replace(TempPattern, "*", rand.Text(), 1)
	f, err := os.OpenFile(filepath.Join(dir, name), os.O_CREATE|os.O_EXCL|os.O_RDWR, mode)
	if err != nil {
		return err
	}
	if err = errors.Join(write(f), f.Close()); err == nil {
		err = Rename(f.Name(), path)
	}
	if err != nil {
		os.Remove(f.Name())
	}
	return err
}

// Overwrite is Replace with the content b, for this user only.
func Overwrite(dir, path string, b []byte) error {
	return Replace(dir, path, 0o600, func(f *os.File) error {
		_, err := Write(f, b)
		return err
	})
}

// CopyFile replaces the file to by a copy of from with a mode, before the umask. Nothing is flushed.
func CopyFile(from, to string, mode fs.FileMode) error {
	in, err := os.Open(from)
	if err != nil {
		return err
	}
	defer in.Close()
	return Replace(filepath.Dir(to), to, mode, func(out *os.File) error {
		_, err := Copy(out, in) // copy_file_range: file systems with reflinks share the blocks
		return err
	})
}

// LinkOnce gives a temporary file a further name. It returns fs.ErrExist if another file has the name. On network file
// systems a link that was made may be reported as existing, because the answer was lost, so the files are compared.
func LinkOnce(temporary, path string) error {
	err := os.Link(temporary, path)
	if !errors.Is(err, fs.ErrExist) {
		return err
	}
	mine, mineErr := os.Stat(temporary)
	named, namedErr := os.Stat(path)
	if mineErr == nil && namedErr == nil && os.SameFile(mine, named) {
		return nil
	}
	return err
}

// StateFolder is the folder for what the commands of this user remember; it survives logouts, unlike $XDG_RUNTIME_DIR,
// and is not cleaned by age, unlike /tmp. It is "" for users without a home folder of their own: sudo may keep the HOME
// of another user.
func StateFolder() string {
	home, state := os.Getenv("HOME"), os.Getenv("XDG_STATE_HOME")
	if !filepath.IsAbs(state) {
		state = filepath.Join(home, ".local", "state")
	}
	info, err := os.Stat(home)
	if err != nil || !filepath.IsAbs(home) || int(info.Sys().(*syscall.Stat_t).Uid) != os.Geteuid() {
		return ""
	}
	return filepath.Join(state, "rcgrpo")
}

// TempPattern matches the temporary names of Replace.
const TempPattern = ".new-*"

// Write is f.Write.
func Write(f *os.File, b []byte) (int, error) { return write(f, b, f.Write) }

// WriteAt is f.WriteAt.
func WriteAt(f *os.File, b []byte, at int64) (int, error) {
	return write(f, b, func(b []byte) (int, error) { return f.WriteAt(b, at) })
}

// write writes half of b if the fault is ErrShort.
func write(f *os.File, b []byte, to func([]byte) (int, error)) (int, error) {
	fault := check("write", f.Name())
	switch {
	case fault == nil:
		return to(b)
	case !errors.Is(fault, ErrShort):
		return 0, fault
	}
	n, err := to(b[:len(b)/2])
	if err == nil {
		err = &fs.PathError{Op: "write", Path: f.Name(), Err: unix.ENOSPC}
	}
	return n, err
}

// Copy is io.Copy into a file.
func Copy(to *os.File, from io.Reader) (n int64, err error) {
	err = do("write", to.Name(), func() error { n, err = io.Copy(to, from); return err })
	return n, err
}

// Rename is os.Rename.
func Rename(from, to string) error {
	return do("rename", to, func() error { return os.Rename(from, to) })
}

// Symlink is os.Symlink.
func Symlink(to, path string) error {
	return do("symlink", path, func() error { return os.Symlink(to, path) })
}

// Chmod is os.Chmod.
func Chmod(path string, mode fs.FileMode) error {
	return do("chmod", path, func() error { return os.Chmod(path, mode) })
}

// Chtimes is os.Chtimes with one time.
func Chtimes(path string, at time.Time) error {
	return do("chtimes", path, func() error { return os.Chtimes(path, at, at) })
}

// Flock acquires or releases the lock of an open file, as flock(2) does. A release never fails.
func Flock(f *os.File, how int) error {
	lock := func() error {
		err := unix.EINTR
		for err == unix.EINTR {
			err, _ = unix.Flock(int(f.Fd()), how).(unix.Errno)
		}
		if err != 0 {
			return &fs.PathError{Op: "flock", Path: f.Name(), Err: err}
		}
		return nil
	}
	if how == unix.LOCK_UN {
		return lock()
	}
	return do("flock", f.Name(), lock)
}

// Sync is f.Sync.
func Sync(f *os.File) error { return do("sync", f.Name(), f.Sync) }

// SyncSystem flushes the file system of an open file.
func SyncSystem(f *os.File) error {
	return do("syncfs", f.Name(), func() error {
		if err := unix.Syncfs(int(f.Fd())); err != nil {
			return &fs.PathError{Op: "syncfs", Path: f.Name(), Err: err}
		}
		return nil
	})
}

// MaxPlain is the size in bytes of the largest file that OpenPlain opens.
const MaxPlain = 1 << 40

// Plain reads a regular file named by a user. Reading always ends: devices, pipes and endless files of /proc
// are errors.
type Plain struct {
	Info fs.FileInfo // when it was opened
	file *os.File
	left int64 // bytes to read
}

// ErrNotPlain reports a path that is no regular file: a device, a pipe, a folder or a loop of links.
var ErrNotPlain = errors.New("is no plain file")

// OpenPlain opens a regular file of at most limit bytes for reading; symbolic links are followed. The error for any
// other kind of file is ErrNotPlain, without an access to it.
func OpenPlain(path string, limit int64) (*Plain, error) {
	if info, err := os.Stat(path); errors.Is(err, unix.ELOOP) || err == nil && !info.Mode().IsRegular() {
		return nil, fmt.Errorf("%s %w", path, ErrNotPlain) // to open a device may have effects
	} else if err != nil {
		return nil, err
	}
	file, err := os.OpenFile(path, os.O_RDONLY|unix.O_NONBLOCK|unix.O_NOCTTY, 0)
	if err != nil {
		return nil, err
	}
	info, err := file.Stat()
	switch {
	case err != nil:
	case !info.Mode().IsRegular(): // replaced meanwhile
		err = fmt.Errorf("%s %w", path, ErrNotPlain)
	case info.Size() > limit:
		err = fmt.Errorf("%s has %d bytes; at most %d are read", path, info.Size(), limit)
	default:
		return &Plain{info, file, info.Size()}, nil
	}
	file.Close()
	return nil, err
}

// MaxRecord is the size in bytes of the largest record of a store or run.
const MaxRecord = 256 << 20

// ReadPlain reads a regular file of at most limit bytes: the folder may be a copy of someone else's.
func ReadPlain(path string, limit int64) ([]byte, error) {
	f, err := OpenPlain(path, limit)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return io.ReadAll(f)
}

// WriteJSON is Overwrite with the JSON of v, which has at most limit bytes, because no more are read.
func WriteJSON(dir, path string, limit int, v any) error {
	b, err := json.MarshalIndent(v, "", "  ")
	switch {
	case err != nil:
		return fmt.Errorf("write %s: %w", path, err)
	case len(b) >= limit:
		return fmt.Errorf("write %s: it has %d bytes, and at most %d are read", path, len(b), limit)
	}
	return Overwrite(dir, path, append(b, '\n'))
}

// ErrDamaged reports a record that a power cut or an edit has left unreadable.
var ErrDamaged = errors.New("is damaged")

// MaxValues limits the values of a record: an empty stage of a plan may take 400 bytes. A manifest has 600,000.
const MaxValues = 2_000_000

// ReadJSON reads a record of at most limit bytes. Text that is no JSON of v is ErrDamaged.
func ReadJSON(path string, limit int64, v any) error {
	b, err := ReadPlain(path, limit)
	if err != nil {
		return err
	}
	if _, n := nesting.JSON(b); n > MaxValues {
		return fmt.Errorf("%s %w: it has more than %d values", path, ErrDamaged, MaxValues)
	}
	if err := json.Unmarshal(b, v); err != nil {
		return fmt.Errorf("%s %w: %.300v", path, ErrDamaged, err) // it may quote the value
	}
	return nil
}

// Read is io.Reader. A file with more content than its size is an error: it grows, or is not on a disk.
func (p *Plain) Read(b []byte) (int, error) {
	n, err := p.file.Read(b[:min(int64(len(b)), p.left+1)])
	if p.left -= int64(n); p.left < 0 {
		return 0, fmt.Errorf("%s has more than the %d bytes of its size: it is being written, or is no file on a disk; "+
			"copy it and name the copy", p.file.Name(), p.Info.Size())
	}
	return n, err
}

// ReadAt is io.ReaderAt, also behind the size that the file had.
func (p *Plain) ReadAt(b []byte, at int64) (int, error) { return p.file.ReadAt(b, at) }

// Close is io.Closer.
func (p *Plain) Close() error { return p.file.Close() }
