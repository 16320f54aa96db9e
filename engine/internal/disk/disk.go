// Package disk is how the store and the run folders write. Its functions are those of package os; Fail lets a test
// make any of them fail, as a full or broken disk would.
//
// Package os asks the kernel five more times when it opens a file, to learn that nobody can wait for a plain one. Where stages are
// small that is felt, so Open and what makes files here leave it out.
package disk

import (
	"cmp"
	"errors"
	"io"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
)

// ErrShort, from the function given to Fail, makes a write stop in the middle for want of room.
var ErrShort = errors.New("short write")

var fault atomic.Pointer[func(op, path string) error]

// Fail has every write ask f first, whose error it returns instead of writing; nil for none. It is for tests, and holds for the
// whole process.
func Fail(f func(op, path string) error) {
	if f == nil {
		fault.Store(nil)
		return
	}
	fault.Store(&f)
}

// Optional are the operations that a file system may lack. Their callers have another way, but for flock.
var Optional = []string{"link", "symlink", "tmpfile", "renamenew", "flock"}

// Lack has every operation of Optional ask f first, whose error it returns, as on a file system that lacks it; nil for
// none. It is for tests, and holds for the whole process.
func Lack(f func(op, path string) error) {
	if f == nil {
		lacking.Store(nil)
		return
	}
	lacking.Store(&f)
}

var lacking atomic.Pointer[func(op, path string) error]

func have(op, path string) error { return ask(lacking.Load(), op, path) }

func check(op, path string) error { return ask(fault.Load(), op, path) }

func ask(f *func(op, path string) error, op, path string) error {
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
	if err := check("mkdir", path); err != nil {
		return err
	}
	return os.Mkdir(path, perm)
}

// MkdirAll is os.MkdirAll.
func MkdirAll(path string, perm fs.FileMode) error {
	if err := check("mkdir", path); err != nil {
		return err
	}
	return os.MkdirAll(path, perm)
}

// Open is os.Open, of a plain file or a folder.
func Open(path string) (*os.File, error) { return open(path, os.O_RDONLY, 0) }

// Reopen opens a plain file that is there to read and write. A full disk does not hinder that, so Fail has no part in it.
func Reopen(path string) (*os.File, error) { return open(path, os.O_RDWR, 0) }

// OpenFile is os.OpenFile, of a plain file to be written.
func OpenFile(path string, flag int, perm fs.FileMode) (*os.File, error) {
	if err := check("open", path); err != nil {
		return nil, err
	}
	return open(path, flag, perm)
}

func open(path string, flag int, perm fs.FileMode) (*os.File, error) {
	for {
		fd, err := unix.Open(path, flag|unix.O_CLOEXEC, uint32(perm.Perm()))
		switch err {
		case nil:
			return os.NewFile(uintptr(fd), path), nil
		case unix.EINTR:
		default:
			return nil, &fs.PathError{Op: "open", Path: path, Err: err}
		}
	}
}

// CreateTemp is os.CreateTemp.
func CreateTemp(dir, pattern string) (*os.File, error) {
	if err := check("create", dir); err != nil {
		return nil, err
	}
	return createTemp(dir, pattern)
}

func createTemp(dir, pattern string) (*os.File, error) {
	before, after, _ := strings.Cut(pattern, "*")
	for {
		name := before + strconv.FormatUint(rand.Uint64(), 36) + after
		f, err := open(filepath.Join(dir, name), os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
		if !errors.Is(err, fs.ErrExist) {
			return f, err
		}
	}
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
	if err := check("write", f.Name()); err != nil {
		return half(f.Write, b, f.Name(), err)
	}
	return f.Write(b)
}

// WriteAt is f.WriteAt.
func WriteAt(f *os.File, b []byte, at int64) (int, error) {
	if err := check("write", f.Name()); err != nil {
		return half(func(b []byte) (int, error) { return f.WriteAt(b, at) }, b, f.Name(), err)
	}
	return f.WriteAt(b, at)
}

// half writes half of b when the fault is a short write.
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
	if err := check("write", to.Name()); err != nil {
		return 0, err
	}
	return io.Copy(to, from)
}

// Rename is os.Rename, without its look at what has the new name: a folder takes the place of an empty one.
func Rename(from, to string) error {
	if err := check("rename", to); err != nil {
		return err
	}
	for {
		switch err := unix.Rename(from, to); err {
		case nil:
			return nil
		case unix.EINTR:
		default:
			return &os.LinkError{Op: "rename", Old: from, New: to, Err: err}
		}
	}
}

// RenameNew is Rename where nothing has the new name; otherwise, and where the system cannot promise that, it is an error.
func RenameNew(from, to string) error {
	if err := cmp.Or(check("rename", to), have("renamenew", to)); err != nil {
		return err
	}
	return unix.Renameat2(unix.AT_FDCWD, from, unix.AT_FDCWD, to, unix.RENAME_NOREPLACE)
}

// Symlink is os.Symlink.
func Symlink(to, path string) error {
	if err := cmp.Or(check("symlink", path), have("symlink", path)); err != nil {
		return err
	}
	return os.Symlink(to, path)
}

// Link is os.Link.
func Link(from, to string) error {
	if err := cmp.Or(check("link", to), have("link", to)); err != nil {
		return err
	}
	return os.Link(from, to)
}

// Chmod is os.Chmod.
func Chmod(path string, mode fs.FileMode) error {
	if err := check("chmod", path); err != nil {
		return err
	}
	return os.Chmod(path, mode)
}

// Chtimes is os.Chtimes with one time.
func Chtimes(path string, at time.Time) error {
	if err := check("chtimes", path); err != nil {
		return err
	}
	return os.Chtimes(path, at, at)
}

// Flock acquires or releases the lock of an open file, as flock(2) does. To release one cannot fail here.
func Flock(f *os.File, how int) error {
	if how != unix.LOCK_UN {
		if err := have("flock", f.Name()); err != nil {
			return err
		}
	}
	for {
		switch err := unix.Flock(int(f.Fd()), how); err {
		case nil:
			return nil
		case unix.EINTR:
		default:
			return &fs.PathError{Op: "flock", Path: f.Name(), Err: err}
		}
	}
}

// Sync is f.Sync.
func Sync(f *os.File) error {
	if err := check("sync", f.Name()); err != nil {
		return err
	}
	return f.Sync()
}

// SyncSystem makes everything durable that has been written to the file system of an open file.
func SyncSystem(f *os.File) error {
	if err := check("syncfs", f.Name()); err != nil {
		return err
	}
	if err := unix.Syncfs(int(f.Fd())); err != nil {
		return &fs.PathError{Op: "syncfs", Path: f.Name(), Err: err}
	}
	return nil
}
