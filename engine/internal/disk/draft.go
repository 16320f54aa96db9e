package disk

import (
	"cmp"
	"errors"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"sync/atomic"

	"golang.org/x/sys/unix"
)

// Draft is a file that gets its name once it is whole. Where the file system can, it has none before: nothing is to be renamed,
// and it goes with whoever is killed while he writes it. Elsewhere it has one for the time being.
type Draft struct {
	*os.File
	temporary string // "" when it has none, or has it no more
}

// NewDraft makes one, near the folder near where it can be without a name, otherwise in dir. Both are of the file system that the
// names it can get are on. pattern is for CreateTemp.
func NewDraft(near, dir, pattern string) (*Draft, error) {
	if err := check("create", dir); err != nil {
		return nil, err
	}
	if have("tmpfile", near) == nil {
		if f, err := open(near, unix.O_TMPFILE|os.O_RDWR, 0o600); err == nil {
			return &Draft{File: f}, nil
		}
	}
	f, err := createTemp(dir, pattern)
	if err != nil {
		return nil, err
	}
	return &Draft{File: f, temporary: f.Name()}, nil
}

// Link gives the draft one more name, which nothing may have.
func (d *Draft) Link(to string) error {
	if d.temporary != "" {
		return Link(d.temporary, to)
	}
	if err := cmp.Or(check("link", to), have("link", to)); err != nil {
		return err
	}
	if !noEmptyPath.Load() && unix.Linkat(int(d.Fd()), "", unix.AT_FDCWD, to, unix.AT_EMPTY_PATH) == nil {
		return nil
	}
	from := "/proc/self/fd/" + strconv.Itoa(int(d.Fd()))
	if err := unix.Linkat(unix.AT_FDCWD, from, unix.AT_FDCWD, to, unix.AT_SYMLINK_FOLLOW); err != nil {
		return &os.LinkError{Op: "link", Old: from, New: to, Err: err}
	}
	noEmptyPath.Store(true)
	return nil
}

// noEmptyPath is set where a file is linked by way of /proc only: Linux before 6.10 lets no user but root link a descriptor.
var noEmptyPath atomic.Bool

// Place gives the draft its name, from which on it may not be written any more, in place of what has it.
func (d *Draft) Place(to string) error {
	if d.temporary == "" {
		return LinkOver(d.Link, to)
	}
	if err := d.File.Close(); err != nil && !errors.Is(err, os.ErrClosed) { // some file systems say only now what they could not write
		return err
	}
	err := Rename(d.temporary, to)
	if err == nil {
		d.temporary = ""
	}
	return err
}

// Close ends the writing. A draft without a name is gone.
func (d *Draft) Close() error {
	if d.temporary != "" {
		os.Remove(d.temporary)
	}
	if err := d.File.Close(); !errors.Is(err, os.ErrClosed) {
		return err
	}
	return nil
}

// LinkOver has link make the name to, in place of what has it: a reader sees one or the other.
func LinkOver(link func(to string) error, to string) error {
	err := link(to)
	if !errors.Is(err, fs.ErrExist) {
		return err
	}
	next := filepath.Join(filepath.Dir(to), ".new-"+strconv.FormatUint(rand.Uint64(), 36))
	if err := link(next); err != nil {
		return err
	}
	if err := Rename(next, to); err != nil {
		os.Remove(next)
		return err
	}
	return nil
}
