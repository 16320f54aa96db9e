// Package disk writes the files of the store and of run folders. Its functions are those of package os; Fail lets a test
// make any of them fail, as a full or broken disk would.
package disk

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
)

// ErrShort, returned by the function of Fail, makes a write stop in the middle.
var ErrShort = errors.New("short write")

// Optional are the operations that a file system may lack. Only flock has no replacement.
var Optional = []string{"link", "symlink", "flock"}

// hook is called with each operation before it is executed; its error is returned instead.
type hook struct {
	f atomic.Pointer[func(op, path string) error]
}

var fail, lack hook

// Fail makes every write call f first and return its error instead of writing; nil ends that. It is for tests and affects
// the whole process.
func Fail(f func(op, path string) error) { fail.set(f) }

// Lack is Fail for the operations of Optional alone, to imitate a file system without them.
func Lack(f func(op, path string) error) { lack.set(f) }

func (h *hook) set(f func(op, path string) error) {
	if f == nil {
		h.f.Store(nil)
		return
	}
	h.f.Store(&f)
}

func (h *hook) check(op, path string) error {
	f := h.f.Load()
	if f == nil {
		return nil
	}
	if err := (*f)(op, path); err != nil {
		return &fs.PathError{Op: op, Path: path, Err: err}
	}
	return nil
}

// Mkdir is os.Mkdir.
func Mkdir(path string, perm fs.FileMode) error {
	if err := fail.check("mkdir", path); err != nil {
		return err
	}
	return os.Mkdir(path, perm)
}

// MkdirAll is os.MkdirAll.
func MkdirAll(path string, perm fs.FileMode) error {
	if err := fail.check("mkdir", path); err != nil {
		return err
	}
	return os.MkdirAll(path, perm)
}

// OpenFile is os.OpenFile of a file to be written.
func OpenFile(path string, flag int, perm fs.FileMode) (*os.File, error) {
	if err := fail.check("open", path); err != nil {
		return nil, err
	}
	return os.OpenFile(path, flag, perm)
}

// CreateTemp is os.CreateTemp.
func CreateTemp(dir, pattern string) (*os.File, error) {
	if err := fail.check("create", dir); err != nil {
		return nil, err
	}
	return os.CreateTemp(dir, pattern)
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

// Write is f.Write.
func Write(f *os.File, b []byte) (int, error) {
	if err := fail.check("write", f.Name()); err != nil {
		return half(f.Write, b, f.Name(), err)
	}
	return f.Write(b)
}

// WriteAt is f.WriteAt.
func WriteAt(f *os.File, b []byte, at int64) (int, error) {
	if err := fail.check("write", f.Name()); err != nil {
		return half(func(b []byte) (int, error) { return f.WriteAt(b, at) }, b, f.Name(), err)
	}
	return f.WriteAt(b, at)
}

// half writes half of b if the fault is a short write.
func half(write func([]byte) (int, error), b []byte, path string, fault error) (int, error) {
	if !errors.Is(fault, ErrShort) {
		return 0, fault
	}
	n, err := write(b[:len(b)/2])
	if err == nil {
		err = &fs.PathError{Op: "write", Path: path, Err: unix.ENOSPC}
	}
	return n, err
}

// Copy is io.Copy into a file.
func Copy(to *os.File, from io.Reader) (int64, error) {
	if err := fail.check("write", to.Name()); err != nil {
		return 0, err
	}
	return io.Copy(to, from)
}

// Rename is os.Rename.
func Rename(from, to string) error {
	if err := fail.check("rename", to); err != nil {
		return err
	}
	return os.Rename(from, to)
}

// Symlink is os.Symlink.
func Symlink(to, path string) error {
	if err := errors.Join(fail.check("symlink", path), lack.check("symlink", path)); err != nil {
		return err
	}
	return os.Symlink(to, path)
}

// Link is os.Link.
func Link(from, to string) error {
	if err := errors.Join(fail.check("link", to), lack.check("link", to)); err != nil {
		return err
	}
	return os.Link(from, to)
}

// Chmod is os.Chmod.
func Chmod(path string, mode fs.FileMode) error {
	if err := fail.check("chmod", path); err != nil {
		return err
	}
	return os.Chmod(path, mode)
}

// Chtimes is os.Chtimes with one time.
func Chtimes(path string, at time.Time) error {
	if err := fail.check("chtimes", path); err != nil {
		return err
	}
	return os.Chtimes(path, at, at)
}

// Flock acquires or releases the lock of an open file, as flock(2) does. A release never fails.
func Flock(f *os.File, how int) error {
	if how != unix.LOCK_UN {
		if err := lack.check("flock", f.Name()); err != nil {
			return err
		}
	}
	err := ignoreSignals(func() error { return unix.Flock(int(f.Fd()), how) })
	if err != nil {
		return &fs.PathError{Op: "flock", Path: f.Name(), Err: err}
	}
	return nil
}

// Sync is f.Sync.
func Sync(f *os.File) error {
	if err := fail.check("sync", f.Name()); err != nil {
		return err
	}
	return f.Sync()
}

// SyncSystem flushes the file system of an open file.
func SyncSystem(f *os.File) error {
	if err := fail.check("syncfs", f.Name()); err != nil {
		return err
	}
	if err := unix.Syncfs(int(f.Fd())); err != nil {
		return &fs.PathError{Op: "syncfs", Path: f.Name(), Err: err}
	}
	return nil
}
