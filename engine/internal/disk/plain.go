package disk

import (
	"fmt"
	"io"
	"io/fs"

	"golang.org/x/sys/unix"
)

// MaxPlain is the size in bytes of the largest file that OpenPlain opens.
const MaxPlain = 1 << 40

// Plain reads a regular file named by a user. Reading always ends: devices, pipes and endless files of /proc
// are errors.
type Plain struct {
	path string
	fd   int
	stat unix.Stat_t
	left int64 // bytes to read
}

// OpenPlain opens a regular file of at most limit bytes for reading; symbolic links are followed.
func OpenPlain(path string, limit int64) (*Plain, error) {
	var before unix.Stat_t // to open a device may have effects
	if err := ignoreSignals(func() error { return unix.Stat(path, &before) }); err != nil {
		return nil, &fs.PathError{Op: "stat", Path: path, Err: err}
	}
	if before.Mode&unix.S_IFMT != unix.S_IFREG {
		return nil, fmt.Errorf("%s is no plain file", path)
	}
	p := &Plain{path: path}
	err := ignoreSignals(func() (err error) {
		p.fd, err = unix.Open(path, unix.O_RDONLY|unix.O_CLOEXEC|unix.O_NONBLOCK|unix.O_NOCTTY, 0)
		return err
	})
	if err != nil {
		return nil, &fs.PathError{Op: "open", Path: path, Err: err}
	}
	if err := unix.Fstat(p.fd, &p.stat); err != nil {
		p.Close()
		return nil, &fs.PathError{Op: "stat", Path: path, Err: err}
	}
	switch p.left = p.stat.Size; {
	case p.stat.Mode&unix.S_IFMT != unix.S_IFREG: // replaced meanwhile
		p.Close()
		return nil, fmt.Errorf("%s is no plain file", path)
	case p.left > limit:
		p.Close()
		return nil, fmt.Errorf("%s has %d bytes; at most %d are read", path, p.left, limit)
	}
	return p, nil
}

// Stat is the state of the file when it was opened.
func (p *Plain) Stat() *unix.Stat_t { return &p.stat }

// Read is io.Reader. A file with more content than its size is an error: it grows, or is not on a disk.
func (p *Plain) Read(b []byte) (n int, err error) {
	if len(b) == 0 {
		return 0, nil
	}
	b = b[:min(int64(len(b)), p.left+1)]
	err = ignoreSignals(func() (err error) {
		n, err = unix.Read(p.fd, b)
		return err
	})
	switch {
	case err != nil:
		return 0, &fs.PathError{Op: "read", Path: p.path, Err: err}
	case n == 0:
		return 0, io.EOF
	case int64(n) > p.left:
		return 0, fmt.Errorf("%s has more than the %d bytes of its size: it is being written, or is no file on a disk; "+
			"copy it and name the copy", p.path, p.stat.Size)
	}
	p.left -= int64(n)
	return n, nil
}

// Close is io.Closer.
func (p *Plain) Close() error { return unix.Close(p.fd) }

// ignoreSignals repeats f while signals interrupt it.
func ignoreSignals(f func() error) error {
	for {
		if err := f(); err != unix.EINTR {
			return err
		}
	}
}
