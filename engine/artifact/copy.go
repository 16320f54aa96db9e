package artifact

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"rcgrpo/engine/internal/disk"
)

// The file `folder` of a store identifies the folder in which the store was made or checked. A copy is in another folder.
// It may be someone else's, and is checked before its first use: behind a link a run, gc or verify could write and delete
// the user's own files. So all other code relies on plain files and folders in a store. From then on it belongs to one
// user.

// checkCopy checks a store that is a copy, which is none afterwards.
func (s *Store) checkCopy() error {
	if _, copied := s.folders(); !copied || !disk.Exists(s.dir) {
		return nil
	}
	if err := s.checkEntries(); err != nil {
		return err
	}
	s.settle()
	return nil
}

// settle makes the folder of the store its own. In a store that cannot be written it does nothing; each Open checks
// such a store.
func (s *Store) settle() {
	if own, copied := s.folders(); copied {
		disk.Overwrite(s.dir, s.path("folder"), append(own, s.folderID()...))
	}
}

// folders returns the lines that identify the folder of the store, one for each kind of host, and reports whether the
// store is a copy: without a line for this host.
func (s *Store) folders() (own []byte, copied bool) {
	own, _ = disk.ReadPlain(s.path("folder"), 1<<10)
	id := s.folderID()
	return own, id == "" || !slices.Contains(strings.SplitAfter(string(own), "\n"), id)
}

// folderID identifies the folder of the store by its inode, which is the same on all hosts, and by the time of its
// creation, which nobody can choose; that is 0 where the file system, or the host's kernel, does not tell it. "" is
// unknown.
func (s *Store) folderID() string {
	var x unix.Statx_t
	if unix.Statx(unix.AT_FDCWD, s.dir, 0, unix.STATX_INO|unix.STATX_BTIME, &x) != nil {
		return ""
	}
	return fmt.Sprintf("%d %d.%09d\n", x.Ino, x.Btime.Sec, x.Btime.Nsec)
}

// checkEntries returns an error for the first entry of the store that is neither a plain file nor a folder. The log of
// an adopted stage may be a link to that of the run that has started it.
func (s *Store) checkEntries() error {
	root, err := filepath.EvalSymlinks(s.dir) // the folder itself may be behind a link of the user's
	if err != nil {
		return err
	}
	return filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		switch {
		case errors.Is(err, fs.ErrNotExist): // removed meanwhile
			return nil
		case err != nil:
			return err
		case d.IsDir() || d.Type().IsRegular() || isLogLink(root, path):
			return nil
		}
		return fmt.Errorf("%s is neither a plain file nor a folder, and the store has come here from elsewhere: a link in "+
			"it could lead to your own files. Remove that entry, or name another folder (store { path } in the site file)",
			path)
	})
}

// isLogLink reports whether a path of the store with the folder root is a link from the log of a run to another one.
func isLogLink(root, path string) bool {
	target, err := os.Readlink(path)
	if err != nil || filepath.IsAbs(target) {
		return false
	}
	for _, path := range []string{path, filepath.Join(filepath.Dir(path), target)} {
		name, err := filepath.Rel(root, path)
		if ok, _ := filepath.Match("runs/*/*/logs/*.log", name); err != nil || !ok {
			return false
		}
	}
	return true
}
