package engine

import (
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// stamp tells without reading a file that it is still the same one with the same content: whatever writes to it moves
// its ctime, which no program can set back.
type stamp struct {
	Size  int64  `json:"size"`
	Mtime int64  `json:"mtime"` // nanoseconds
	Ctime int64  `json:"ctime"` // nanoseconds
	Inode uint64 `json:"inode"`
}

func stampOf(info fs.FileInfo) stamp {
	s := stamp{Size: info.Size(), Mtime: info.ModTime().UnixNano()}
	if sys, ok := info.Sys().(*syscall.Stat_t); ok {
		s.Ctime, s.Inode = sys.Ctim.Nano(), sys.Ino
	}
	return s
}

// stampAt stamps a file by its name below the folder that is open as dir, or by its absolute path. flags are those of
// fstatat.
func stampAt(dir int, name string, flags int) (stamp, error) {
	var st unix.Stat_t
	if err := unix.Fstatat(dir, name, &st, flags); err != nil {
		return stamp{}, err
	}
	return stampOfStat(&st), nil
}

func stampOfStat(st *unix.Stat_t) stamp {
	return stamp{st.Size, st.Mtim.Nano(), st.Ctim.Nano(), st.Ino}
}

// changed is the time of the last change that a stamp knows of, in nanoseconds. Some file systems count whole seconds.
func (s stamp) changed() int64 {
	at := max(s.Mtime, s.Ctime)
	if at%int64(time.Second) == 0 {
		at += int64(2 * time.Second)
	}
	return at
}

// young says of a stamp taken when clock said now that it proves nothing: within the same tick of the clock the file
// could change once more and keep it.
func (s stamp) tooRecent(now int64) bool { return s.changed() >= now }

// clock is the time that the kernel gives to a file that is written now. It advances by ticks of a few milliseconds.
func clock() int64 {
	var now unix.Timespec
	if unix.ClockGettime(unix.CLOCK_REALTIME_COARSE, &now) != nil {
		return 0 // then every stamp is young
	}
	return now.Nano()
}

// awaitTick returns when clock is past the present moment, so that files written before it have stamps that are not
// young any more. It waits at most 20 ms, two of the longest ticks that Linux can be built for.
func awaitTick() {
	const longest, step = 20 * time.Millisecond, time.Millisecond / 2
	begun := time.Now() // newer kernels give finer times than clock to some files
	for clock() <= begun.UnixNano() && time.Since(begun) < longest {
		time.Sleep(step)
	}
}

// folderStamp sums up the stamps of everything in a folder; newest has the latest times of them.
func folderStamp(path string) (sum, newest stamp, err error) {
	err = filepath.WalkDir(path, func(p string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := os.Stat(p)
		if err != nil {
			return err
		}
		one := stampOf(info)
		const prime = 1099511628211 // mixes the order in, so that two files cannot trade their stamps
		sum.Size += one.Size
		sum.Mtime = sum.Mtime*prime + one.Mtime
		sum.Ctime = sum.Ctime*prime + one.Ctime
		sum.Inode = sum.Inode*prime + one.Inode
		newest.Mtime, newest.Ctime = max(newest.Mtime, one.Mtime), max(newest.Ctime, one.Ctime)
		return nil
	})
	return sum, newest, err
}
