package artifact

import (
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"rcgrpo/engine/internal/disk"
)

// spread makes the folder of the store that dir lies in where the file system has room of its own for it: ext4 keeps what
// is made in a folder near that folder, and to find a free inode there it passes over all that were freed a short while ago.
// Where stages are small and the store before was removed, that is most of what a stage costs. It is a hint: whatever
// hinders it, the folder is made the plain way afterwards.
func (s *Store) spread(dir string) {
	rel, err := filepath.Rel(s.dir, dir)
	if err != nil {
		return
	}
	top, _, _ := strings.Cut(rel, string(filepath.Separator))
	place := s.path(top)
	if _, err := os.Lstat(place); err == nil || disk.MkdirAll(s.dir, 0o700) != nil {
		return
	}
	markTop(s.dir)
	s.makeApart(place)
}

// makeApart makes a folder of the store, which must not be there, far from all others and, if one more try leads there, where room is quickly
// found. To try more costs more than it saves.
func (s *Store) makeApart(place string) error {
	aside, err := os.MkdirTemp(s.dir, asidePattern) // the place follows from the name, and the same name would lead to the same place
	if err != nil {
		return err
	}
	if s.crowded(aside) {
		if other, err := os.MkdirTemp(s.dir, asidePattern); err == nil {
			os.Remove(aside)
			aside = other
		}
	}
	if err := disk.RenameNew(aside, place); err != nil {
		os.Remove(aside)
		return err
	}
	return nil
}

// FS_IOC_GETFLAGS and FS_TOPDIR_FL, which package unix lacks.
const getFlags, topFlag = 0x80086601, 0x00020000

// markTop says to the file system that the folders in dir have nothing to do with each other (chattr +T).
func markTop(dir string) {
	d, err := os.Open(dir)
	if err != nil {
		return
	}
	defer d.Close()
	flags, err := unix.IoctlGetUint32(int(d.Fd()), getFlags)
	if err == nil && flags&topFlag == 0 {
		unix.IoctlSetPointerInt(int(d.Fd()), unix.FS_IOC_SETFLAGS, int(flags|topFlag))
	}
}

// room remembers how long it takes to make a file where nothing is in the way.
type room struct {
	mu   sync.Mutex
	best time.Duration
}

// Where a file takes longer than crowdedFrom and crowdedTimes as long as at its best, the file system has to look far for room.
const (
	crowdedFrom  = 35 * time.Microsecond
	crowdedTimes = 3
)

// crowded says whether a file took so long that it was made in a bad place. What is slow everywhere is not.
func (r *room) crowded(took time.Duration) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.best == 0 || took < r.best {
		r.best = took
	}
	return took > max(crowdedFrom, crowdedTimes*r.best)
}

// crowded makes a file in a folder, for nothing but the time that it takes.
func (s *Store) crowded(dir string) bool {
	started := time.Now()
	f, err := disk.NewDraft(dir, dir, asidePattern)
	took := time.Since(started)
	if err != nil {
		return false // whoever needs a file there will hear of it
	}
	f.Close()
	return s.room.crowded(took)
}
