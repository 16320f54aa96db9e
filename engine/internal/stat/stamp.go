package stat

import (
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// Stamp identifies the content of a file without reading it: every write changes the ctime, which no program can set.
type Stamp struct {
	Size  int64  `json:"size"`
	Mtime int64  `json:"mtime"` // nanoseconds
	Ctime int64  `json:"ctime"` // nanoseconds
	Inode uint64 `json:"inode"`
}

// Append appends the stamp as text to b.
func (s Stamp) Append(b []byte) []byte {
	for _, n := range [...]int64{s.Size, s.Mtime, s.Ctime} {
		b = append(strconv.AppendInt(b, n, 10), '.')
	}
	return strconv.AppendUint(b, s.Inode, 10)
}

// StampOf returns the stamp of a file.
func StampOf(info fs.FileInfo) Stamp {
	s := Stamp{Size: info.Size(), Mtime: info.ModTime().UnixNano()}
	if sys, ok := info.Sys().(*syscall.Stat_t); ok {
		s.Ctime, s.Inode = sys.Ctim.Nano(), sys.Ino
	}
	return s
}

// StampAt returns the stamp of a file relative to the open folder dir, or by absolute path. flags are those of
// fstatat.
func StampAt(dir int, name string, flags int) (Stamp, error) {
	var st unix.Stat_t
	if err := unix.Fstatat(dir, name, &st, flags); err != nil {
		return Stamp{}, err
	}
	return Stamp{st.Size, st.Mtim.Nano(), st.Ctim.Nano(), st.Ino}, nil
}

// changed returns the time of the last change, in nanoseconds. Some file systems have a resolution of a second.
func (s Stamp) changed() int64 {
	at := max(s.Mtime, s.Ctime)
	if at%int64(time.Second) == 0 {
		at += int64(2 * time.Second)
	}
	return at
}

// TooRecent reports whether a stamp taken at time now proves nothing: within the same clock tick the file may
// change again and keep its stamp.
func (s Stamp) TooRecent(now int64) bool { return s.changed() >= now }

// Clock returns the time that the kernel would assign to a file written now. Its resolution is a few milliseconds.
func Clock() int64 {
	var now unix.Timespec
	if unix.ClockGettime(unix.CLOCK_REALTIME_COARSE, &now) != nil {
		return 0 // then every stamp is too recent
	}
	return now.Nano()
}

// AwaitTick returns after the next clock tick, so that the stamps of files written before are not too recent. It
// waits at most 20 ms, two of the longest ticks of Linux.
func AwaitTick() {
	const longest, step = 20 * time.Millisecond, time.Millisecond / 2
	begun := time.Now() // recent kernels assign finer times than clock to some files
	for Clock() <= begun.UnixNano() && time.Since(begun) < longest {
		time.Sleep(step)
	}
}

// FolderStamp combines the stamps of all files in a folder; newest has their latest times.
func FolderStamp(path string) (sum, newest Stamp, err error) {
	err = filepath.WalkDir(path, func(p string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := os.Stat(p)
		if err != nil {
			return err
		}
		one := StampOf(info)
		const prime = 1099511628211 // makes the order count, so that two files cannot swap their stamps
		sum.Size += one.Size
		sum.Mtime = sum.Mtime*prime + one.Mtime
		sum.Ctime = sum.Ctime*prime + one.Ctime
		sum.Inode = sum.Inode*prime + one.Inode
		newest.Mtime, newest.Ctime = max(newest.Mtime, one.Mtime), max(newest.Ctime, one.Ctime)
		return nil
	})
	return sum, newest, err
}

// File is a file or folder as it was found.
type File struct {
	Path      string
	Folder    bool
	TooRecent bool // the stamp proves nothing, so that only the content counts
	Stamp     Stamp
	Digest    string // of the content; "" for an HCL file
}

// Absolute returns the absolute path, or the path itself if the current folder is deleted.
func Absolute(path string) string {
	if abs, err := filepath.Abs(path); err == nil {
		return abs
	}
	return path
}
