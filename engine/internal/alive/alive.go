// Package alive tells whether a process lives, by a file that the process holds: the lock of a key or of a run, a
// claim, a reservation of the ledger.
//
// On one host the lock of the file (flock) decides. The kernel releases it with the last process that has the file
// open, so it survives no kill. Other hosts may not see locks; for them the holder touches the file every beatEvery,
// and a file without a change for lostAfter has no holder. Readers compare no clocks: each measures the silence by its
// own (Ended), or the file server's clock decides (Recent).
package alive

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"rcgrpo/engine/internal/disk"
	"rcgrpo/engine/proc"
)

// beatEvery and lostAfter are the same on all hosts.
var beatEvery, lostAfter = 15 * time.Second, 2 * time.Minute

// SetTimes changes the times of files of other hosts, for the jobs of a cluster and for tests. It returns the times
// before.
func SetTimes(beat, lost time.Duration) (oldBeat, oldLost time.Duration) {
	oldBeat, oldLost = beatEvery, lostAfter
	beatEvery, lostAfter = beat, lost
	return oldBeat, oldLost
}

// Lost is the time without a heartbeat after which a process of another host has ended.
func Lost() time.Duration { return lostAfter }

// Boot identifies this start of this host; "" if it is unknown.
var Boot = sync.OnceValue(func() string {
	id, _ := os.ReadFile("/proc/sys/kernel/random/boot_id")
	return strings.TrimSpace(string(id))
})

// Hold acquires the lock of an open file. held is false if another process has it.
func Hold(f *os.File) (held bool, err error) {
	err = disk.Flock(f, unix.LOCK_EX|unix.LOCK_NB)
	if errors.Is(err, unix.EWOULDBLOCK) {
		return false, nil
	}
	return err == nil, err
}

// Held reports whether a process of this host has the lock of a file, of which f is a descriptor of its own.
func Held(f *os.File) bool {
	err := disk.Flock(f, unix.LOCK_SH|unix.LOCK_NB)
	if err == nil {
		disk.Flock(f, unix.LOCK_UN)
	}
	return errors.Is(err, unix.EWOULDBLOCK)
}

// Without reports whether the file system of a lock has none.
func Without(err error) bool {
	return errors.Is(err, unix.ENOLCK) || errors.Is(err, unix.ENOSYS) || errors.Is(err, unix.EOPNOTSUPP)
}

// Ended reports whether the holders of a file have ended, of which f is a descriptor of its own and id a name that no
// other holder has: at once for those on this boot of this host, by the lock, for others after lostAfter.
func Ended(f *os.File, id, boot string) bool {
	switch err := disk.Flock(f, unix.LOCK_EX|unix.LOCK_NB); {
	case errors.Is(err, unix.EWOULDBLOCK):
		return false
	case err == nil && boot == Boot() && boot != "":
		return true
	}
	info, err := f.Stat()
	return err == nil && silent(id, info.ModTime())
}

// Silent reports whether a file has not been touched for lostAfter, as far as this process has seen. One that is
// missing is not touched.
func Silent(path string) bool {
	var changed time.Time
	if info, err := os.Stat(path); err == nil {
		changed = info.ModTime()
	}
	return silent(path, changed)
}

// sight is what this process has seen of a file.
type sight struct {
	changed time.Time // the file's time
	since   time.Time // when it was first seen with that time, by the clock of this process
}

// sights has a sight for each id.
var sights sync.Map

// silent reports whether a file has not changed for lostAfter, as far as this process has seen.
func silent(id string, changed time.Time) bool {
	last, _ := sights.Load(id)
	if seen, known := last.(sight); known && seen.changed.Equal(changed) {
		return time.Since(seen.since) >= lostAfter
	}
	sights.Store(id, sight{changed, time.Now()})
	return false
}

// Recent reports whether the holder of a file, which may be on another host, has touched it within half of lostAfter,
// by the clock of the file system. It is for a process that looks once.
func Recent(path string) bool {
	held, err := os.Stat(path)
	if err != nil {
		return false
	}
	now := time.Now() // on a file system that cannot be written
	if probe, err := os.CreateTemp(filepath.Dir(path), ".now-*"); err == nil {
		if info, err := probe.Stat(); err == nil {
			now = info.ModTime()
		}
		probe.Close()
		os.Remove(probe.Name())
	}
	return now.Sub(held.ModTime()) < lostAfter/2
}

// Beat touches a file until stop is called, which waits for it. An error shows in the end of the stage.
func Beat(f *os.File) (stop func()) { return proc.Every(beatEvery, func() { Touch(f) }) }

// Touch is one beat.
func Touch(f *os.File) error {
	now := unix.Timespec{Nsec: unix.UTIME_NOW} // of the file server
	return unix.UtimesNanoAt(unix.AT_FDCWD, fmt.Sprintf("/proc/self/fd/%d", f.Fd()), []unix.Timespec{now, now}, 0)
}

// BeatText is Beat for sh, in the background until the shell's process group is killed, of the file of a descriptor.
func BeatText(descriptor int) string {
	const loop = "(while sleep %g; do touch /proc/self/fd/%d; done) 2>/dev/null &\n"
	return fmt.Sprintf(loop, beatEvery.Seconds(), descriptor)
}
