package artifact

import (
	"crypto/rand"
	"crypto/sha256"
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

// The file `folder` of a store identifies the folder in which the store was made or checked. A copy is in another one.
// It may be someone else's, and is checked before its first use: behind a link that leads out of the store, a run, gc
// or verify could write and delete the user's own files. From then on the store belongs to one user, and no
// other code looks for such links.

// settle checks a store that is a copy, and makes its folder the store's own. A store that cannot be written, or whose
// folder has no identity, is checked each time.
func (s *Store) settle() error {
	if !disk.Exists(s.dir) {
		return nil
	}
	var x unix.Statx_t
	id, path := "", s.path("folder")
	if unix.Statx(unix.AT_FDCWD, s.dir, 0, unix.STATX_INO|unix.STATX_BTIME, &x) == nil { // old containers refuse it
		id = folderID(fmt.Sprint(x.Ino, x.Btime.Sec, x.Btime.Nsec))
	}
	own, _ := disk.ReadPlain(path, 1<<10) // a line for each kind of host
	if id != "" && slices.Contains(strings.SplitAfter(string(own), "\n"), id) {
		return nil
	}
	why := "the store has come here from elsewhere"
	if id == "" {
		why = "without a home folder and statx it is not known whether the store is yours"
	}
	err := s.checkEntries(why)
	if err == nil && id != "" {
		disk.Overwrite(s.dir, path, append(own, id...))
	}
	return err
}

// folderID identifies the folder of a store by its inode and its time of creation, which a copy does not have, and by a
// secret of the user, because inodes may be small numbers (sshfs) and a file system may come with the store (an image).
// Without a home folder the id is "".
func folderID(numbers string) string {
	dir := disk.StateFolder()
	if dir == "" {
		return ""
	}
	path := filepath.Join(dir, "folders")
	secret, err := disk.ReadPlain(path, 1<<10)
	if err == nil && len(secret) == 0 { // after a power cut
		err = errors.Join(os.Remove(path), fs.ErrNotExist)
	}
	if errors.Is(err, fs.ErrNotExist) {
		mine := path + "." + rand.Text()
		if os.MkdirAll(dir, 0o700) == nil && disk.WriteFile(mine, []byte(rand.Text()), 0o600) == nil {
			disk.LinkOnce(mine, path) // another process may be first
			os.Remove(mine)
		}
		secret, err = disk.ReadPlain(path, 1<<10)
	}
	if err != nil || len(secret) == 0 {
		return ""
	}
	return fmt.Sprintf("%x\n", sha256.Sum256(append(secret, numbers...)))
}

// checkEntries returns an error for the first entry of the store that is no plain file, no folder, and no link from the
// log of a stage to another log: a run has such a link for a stage that it has adopted. No link leads to a folder, so
// the target of each link stays the same.
func (s *Store) checkEntries(why string) error {
	root, err := filepath.EvalSymlinks(s.dir) // the user may have a link to the whole store
	if err != nil {
		return err
	}
	isLog := func(path string) bool {
		name, inside := strings.CutPrefix(path, root+"/")
		log, _ := filepath.Match("runs/*/*/logs/*", name)
		return inside && log
	}
	return filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if errors.Is(err, fs.ErrNotExist) { // removed meanwhile
			return nil
		}
		if err != nil || d.IsDir() || d.Type().IsRegular() {
			return err
		}
		if to, err := filepath.EvalSymlinks(path); err == nil && to != path && isLog(path) && isLog(to) {
			if info, err := os.Lstat(to); err == nil && info.Mode().IsRegular() {
				return nil
			}
		}
		return fmt.Errorf("%s is no plain file, and %s: remove it, or name another folder (store { path } in the site file)",
			path, why)
	})
}
