package artifact

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/user"
	"path/filepath"
	"strconv"
	"syscall"

	"golang.org/x/sys/unix"
)

// A store belongs to one user: its folders have mode 0700, its files 0600.

// readable returns an error that names the owner if the store exists and this user may not read it.
func (s *Store) readable() error {
	for _, dir := range []string{s.dir, s.path("nodes")} {
		if err := unix.Access(dir, unix.R_OK|unix.X_OK); !errors.Is(err, fs.ErrPermission) {
			continue
		}
		owner := "another user"
		if info, err := os.Stat(dir); err == nil {
			owner = ownerOf(info)
		}
		return fmt.Errorf("open store: %s is private to %s. Name a folder of your own (store { path } in the site file)",
			s.dir, owner)
	}
	return nil
}

// owned returns an error if a new file in the store has another owner than its folder, as when root writes to
// the store of a user: the owner could not read the files.
func (s *Store) owned(made *os.File) error {
	file, err := made.Stat()
	if err != nil {
		return err
	}
	folder, err := os.Stat(filepath.Dir(made.Name()))
	if err != nil || ownerOf(file) == ownerOf(folder) {
		return err
	}
	return fmt.Errorf("the store %s belongs to %s, who could not read the files of %s. "+
		"Run as that user, or name a folder of your own (store { path } in the site file)",
		s.dir, ownerOf(folder), ownerOf(file))
}

// ownerOf names the owner of a file.
func ownerOf(info fs.FileInfo) string {
	uid := strconv.Itoa(int(info.Sys().(*syscall.Stat_t).Uid))
	if u, err := user.LookupId(uid); err == nil {
		return "user " + u.Username
	}
	return "user " + uid
}
