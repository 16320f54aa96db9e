package artifact

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"

	"golang.org/x/sys/unix"

	"rcgrpo/engine/internal/disk"
)

// spares are what finished nodes of this process have no use for any more, for the next ones to take over under another
// name. A file system takes much longer to give an inode away and hand out another than to rename one: where stages are small
// and many that is most of their cost. A spare keeps its old name until it is taken; one that is left is for Tidy.
type spares struct {
	mu      sync.Mutex
	folders []spareFolder
	locks   []string     // lock files that nobody holds
	taken   atomic.Int64 // folders, so far
}

// lookForRoom is among how many folders that are taken over one is left when its place is crowded: in the place of a store that was
// removed a short while ago, making a file may take ten times as long.
const lookForRoom = 8

// spareFolder is a scratch folder with nothing in it but some folders.
type spareFolder struct {
	path    string
	folders []string // below it
}

func (p *spares) putLock(path string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.locks = append(p.locks, path)
}

func (p *spares) takeLock() (path string, ok bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.locks) == 0 {
		return "", false
	}
	last := len(p.locks) - 1
	path, p.locks = p.locks[last], p.locks[:last]
	return path, true
}

func (p *spares) putFolder(f spareFolder) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.folders = append(p.folders, f)
}

// takeFolder takes one that fits.
func (p *spares) takeFolder(fits func(spareFolder) bool) (path string, ok bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for i, f := range slices.Backward(p.folders) {
		if fits(f) {
			p.folders = slices.Delete(p.folders, i, i+1)
			return f.path, true
		}
	}
	return "", false
}

// MakeWork makes the scratch folder of a key, with folders below it, unless it is there. fresh says that it was not.
func (s *Store) MakeWork(key string, folders ...string) (fresh bool, err error) {
	dir := s.Work(key)
	if spare, ok := s.spare.takeFolder(func(f spareFolder) bool { return slices.Equal(f.folders, folders) }); ok {
		if s.spare.taken.Add(1)%lookForRoom == 0 && s.crowded(spare) {
			os.RemoveAll(spare)
		} else {
			err := disk.RenameNew(spare, dir)
			if err == nil {
				return true, nil
			}
			if !errors.Is(err, fs.ErrNotExist) { // mostly because the key has one; otherwise another run's Tidy has removed the spare
				s.spare.putFolder(spareFolder{spare, folders})
			}
		}
	}
	if _, err := os.Lstat(dir); err == nil {
		return false, nil
	}
	if s.makeApart(dir) != nil { // what stages make lies in their scratch folders
		err = s.into(dir, func(to string) error { return disk.Mkdir(to, 0o700) })
		if errors.Is(err, fs.ErrExist) {
			return false, nil
		}
	}
	if err == nil {
		err = MakeFolders(dir, folders)
	}
	return err == nil, err
}

// MakeFolders makes folders, which have slashes in their names, in a scratch folder that has none yet.
func MakeFolders(dir string, folders []string) error {
	for _, name := range folders {
		to := filepath.Join(dir, filepath.FromSlash(name))
		err := disk.Mkdir(to, 0o700)
		if errors.Is(err, fs.ErrNotExist) || errors.Is(err, fs.ErrExist) { // of a/b and a
			err = disk.MkdirAll(to, 0o700)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// RemoveWork removes the scratch folder of a node that has its result. When nothing is left in it, it gets the folders again and is kept
// for another node that wants the same.
func (s *Store) RemoveWork(key string, folders ...string) error {
	dir := s.Work(key)
	d, err := disk.Open(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	_, err = d.Readdirnames(1)
	d.Close()
	if err == nil { // it is not empty
		return os.RemoveAll(dir)
	}
	if err := MakeFolders(dir, folders); err != nil {
		return errors.Join(err, os.RemoveAll(dir))
	}
	s.spare.putFolder(spareFolder{dir, folders})
	return nil
}

// removers is how many spares are removed at a time: a disk that is told of each freed block lets one wait for its answer.
const removers = 8

// RemoveSpares removes what nobody has taken over. A run does so at its end.
func (s *Store) RemoveSpares() error {
	errs := make([]error, removers)
	var all sync.WaitGroup
	for i := range errs {
		all.Go(func() { errs[i] = s.removeSpares() })
	}
	all.Wait()
	return errors.Join(errs...)
}

// removeSpares removes one spare after the other while there are any.
func (s *Store) removeSpares() error {
	var errs []error
	for {
		dir, ok := s.spare.takeFolder(func(spareFolder) bool { return true })
		if !ok {
			break
		}
		errs = append(errs, os.RemoveAll(dir))
	}
	var left []string
	for {
		path, ok := s.spare.takeLock()
		if !ok {
			break
		}
		l, busy := lockSpare(path)
		if l != nil {
			errs = append(errs, l.Unlock())
		}
		if busy { // see blank; for the next time
			left = append(left, path)
		}
	}
	for _, path := range left {
		s.spare.putLock(path)
	}
	return errors.Join(errs...)
}

// claim makes a spare lock that of a key. It answers false when somebody has that already, or left something there.
func (s *Store) claim(l *Lock, key string) bool {
	path := s.path("locks", key)
	if validKey(key) != nil || disk.RenameNew(l.path, path) != nil {
		return false
	}
	l.path = path
	return true
}

// blank locks a spare and makes it say nothing. It answers nil when there is none.
func (s *Store) blank() *Lock {
	spare, ok := s.spare.takeLock()
	if !ok {
		return nil
	}
	l, busy := lockSpare(spare)
	if busy { // mostly by a process that is just being started and will have closed what it does not inherit
		s.spare.putLock(spare)
	}
	if l == nil {
		return nil
	}
	err := l.erase(0)
	if l.used {
		err = errors.Join(err, l.erase(exitAt))
		l.used = false
	}
	if err != nil {
		l.Unlock()
		return nil
	}
	l.spare = &s.spare
	return l
}

// lockSpare locks a file that is there, or answers nil; busy says that somebody else has it. It is opened anew: a process that the earlier
// holder left behind may still have the old descriptor.
func lockSpare(path string) (l *Lock, busy bool) {
	f, err := disk.Reopen(path)
	if err != nil {
		return nil, false
	}
	err = flock(f, unix.LOCK_EX|unix.LOCK_NB)
	if err == nil {
		if opened, same := sameFile(f, path); same {
			return &Lock{file: f, path: path, used: opened.Size() > exitAt}, false
		}
	}
	f.Close()
	return nil, errors.Is(err, unix.EWOULDBLOCK)
}

// Retire frees the lock of a node that has its result and keeps its file for another one.
func (l *Lock) Retire() error {
	if l.spare == nil {
		return l.Unlock()
	}
	l.spare.putLock(l.path)
	return l.free()
}
