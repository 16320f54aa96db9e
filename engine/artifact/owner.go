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
		if err := unix.Access(dir, unix.R_OK|unix.X_OK); errors.Is(err, fs.ErrPermission) {
			return fmt.Errorf("open store: %s is private to %s. Name a folder of your own (store { path } in the site file)",
				s.dir, ownerOf(dir))
		}
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
	if err != nil {
		return err
	}
	if uidOf(file) == uidOf(folder) {
		return nil
	}
	return fmt.Errorf("the store %s belongs to %s, who could not read the files of %s. "+
		"Run as that user, or name a folder of your own (store { path } in the site file)",
		s.dir, userName(uidOf(folder)), userName(uidOf(file)))
}

// ownerOf names the owner of a folder, or of the folder around one that this user may not stat.
func ownerOf(dir string) string {
	info, err := os.Stat(dir)
	if err != nil {
		if info, err = os.Stat(filepath.Dir(dir)); err != nil {
			return "another user"
		}
	}
	return userName(uidOf(info))
}

func uidOf(info fs.FileInfo) int {
	if sys, ok := info.Sys().(*syscall.Stat_t); ok {
		return int(sys.Uid)
	}
	return -1
}

func userName(uid int) string {
	if u, err := user.LookupId(strconv.Itoa(uid)); err == nil {
		return "user " + u.Username
	}
	return fmt.Sprintf("user %d", uid)
}
