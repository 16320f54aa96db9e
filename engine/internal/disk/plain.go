package disk

import (
	"fmt"
	"io/fs"
	"os"

	"golang.org/x/sys/unix"
)

// MaxPlain is the size in bytes of the largest file that OpenPlain opens.
const MaxPlain = 1 << 40

// Plain reads a regular file named by a user. Reading always ends: devices, pipes and endless files of /proc
// are errors.
type Plain struct {
	Info fs.FileInfo // when it was opened
	file *os.File
	left int64 // bytes to read
}

// OpenPlain opens a regular file of at most limit bytes for reading; symbolic links are followed.
func OpenPlain(path string, limit int64) (*Plain, error) {
	if info, err := os.Stat(path); err != nil {
		return nil, err
	} else if !info.Mode().IsRegular() { // to open a device may have effects
		return nil, fmt.Errorf("%s is no plain file", path)
	}
	file, err := os.OpenFile(path, os.O_RDONLY|unix.O_NONBLOCK|unix.O_NOCTTY, 0)
	if err != nil {
		return nil, err
	}
	info, err := file.Stat()
	switch {
	case err != nil:
	case !info.Mode().IsRegular(): // replaced meanwhile
		err = fmt.Errorf("%s is no plain file", path)
	case info.Size() > limit:
		err = fmt.Errorf("%s has %d bytes; at most %d are read", path, info.Size(), limit)
	default:
		return &Plain{info, file, info.Size()}, nil
	}
	file.Close()
	return nil, err
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

// Close is io.Closer.
func (p *Plain) Close() error { return p.file.Close() }
