package artifact

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
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
	folders []string     // empty scratch folders
	locks   []string     // lock files that nobody holds
	taken   atomic.Int64 // folders, so far
}

// lookForRoom is among how many folders that are taken over one is left when its place is crowded: in the place of a store that was
// removed a short while ago, making a file may take ten times as long.
const lookForRoom = 8

func (p *spares) put(list *[]string, path string) {
	p.mu.Lock()
	*list = append(*list, path)
	p.mu.Unlock()
}

func (p *spares) take(list *[]string) (path string, ok bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(*list) == 0 {
		return "", false
	}
	last := len(*list) - 1
	path, *list = (*list)[last], (*list)[:last]
	return path, true
}

// MakeWork makes the scratch folder of a key, unless it is there. fresh says that it was not.
func (s *Store) MakeWork(key string) (fresh bool, err error) {
	dir := s.Work(key)
	if spare, ok := s.spare.take(&s.spare.folders); ok {
		if s.spare.taken.Add(1)%lookForRoom == 0 && s.crowded(spare) {
			os.Remove(spare)
		} else if disk.RenameNew(spare, dir) == nil {
			return true, nil
		}
	}
	if _, err := os.Lstat(dir); err == nil {
		return false, nil
	}
	if s.makeApart(dir) == nil { // what stages make lies in their scratch folders
		return true, nil
	}
	err = disk.Mkdir(dir, 0o700)
	if errors.Is(err, fs.ErrNotExist) {
		err = s.MakeDir(filepath.Dir(dir))
		if err == nil {
			err = disk.Mkdir(dir, 0o700)
		}
	}
	if errors.Is(err, fs.ErrExist) {
		return false, nil
	}
	return err == nil, err
}

// RemoveWork removes the scratch folder of a node that has its result, or keeps it for another one.
func (s *Store) RemoveWork(key string) error {
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
	s.spare.put(&s.spare.folders, dir)
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
		dir, ok := s.spare.take(&s.spare.folders)
		if !ok {
			break
		}
		if err := os.Remove(dir); !errors.Is(err, fs.ErrNotExist) {
			errs = append(errs, err)
		}
	}
	for {
		path, ok := s.spare.take(&s.spare.locks)
		if !ok {
			return errors.Join(errs...)
		}
		if l := lockSpare(path); l != nil {
			errs = append(errs, l.Unlock())
		}
	}
}

// lockAnew locks a spare and gives it the name path. It answers nil when there is none, or when path is taken.
func (s *Store) lockAnew(path string) *Lock {
	spare, ok := s.spare.take(&s.spare.locks)
	if !ok {
		return nil
	}
	l := lockSpare(spare)
	if l == nil { // somebody waits for the key that it was made for, or has removed it
		return nil
	}
	err := l.erase(0)
	if l.used {
		err = errors.Join(err, l.erase(exitAt))
		l.used = false
	}
	if err != nil || disk.RenameNew(spare, path) != nil {
		l.Unlock()
		return nil
	}
	l.path = path
	return l
}

// lockSpare locks a file that is there and that nobody has, or answers nil. It is opened anew: a process that the earlier
// holder left behind may still have the old descriptor.
func lockSpare(path string) *Lock {
	f, err := disk.Reopen(path)
	if err != nil {
		return nil
	}
	if flock(f, unix.LOCK_EX|unix.LOCK_NB) == nil {
		if opened, same := sameFile(f, path); same {
			return &Lock{file: f, path: path, used: opened.Size() > exitAt}
		}
	}
	f.Close()
	return nil
}

// Retire frees the lock of a node that has its result and keeps its file for another one.
func (l *Lock) Retire() error {
	if l.spare == nil {
		return l.Unlock()
	}
	l.spare.put(&l.spare.locks, l.path)
	return l.file.Close()
}
