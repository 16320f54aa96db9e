package artifact

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"unicode/utf8"

	"rcgrpo/engine/internal/disk"
)

// Digest returns the content digest of a file or folder: the value of file() and dir() in keys. The digest of
// a folder covers the relative names and contents of its files, not empty folders, permissions and times.
// Symbolic links are followed. Files and folders with one of the names left out, at any depth, do not count.
func Digest(path string, left ...string) (string, error) {
	info, err := os.Stat(path)
	if err != nil {
		return "", err
	}
	if !info.IsDir() {
		return FileDigest(path)
	}
	files, err := list(path, followLinks, left...)
	if err != nil {
		return "", err
	}
	return treeDigest(files), nil
}

// FileDigest is Digest of a file.
func FileDigest(path string) (string, error) {
	sum, _, err := hashFile(path)
	return sum, err
}

// OpenPlain opens a file of another user for reading, which always ends: devices, pipes and endless files are errors.
func OpenPlain(path string) (*disk.Plain, error) { return disk.OpenPlain(path, disk.MaxPlain) }

// treeDigest hashes names and contents: one line per file, sorted by name, of the file's sha256 and its name.
func treeDigest(files []FileInfo) string {
	h := sha256.New()
	for _, f := range files {
		fmt.Fprintf(h, "%s  %s\n", f.SHA256, f.Name)
	}
	return hex.EncodeToString(h.Sum(nil))
}

type linkRule int

const (
	refuseLinks linkRule = iota // for results: plain files only, each with one name
	followLinks                 // for the user's data
)

// list hashes the plain files below dir and returns them sorted by name, without those below the names left out.
func list(dir string, links linkRule, left ...string) ([]FileInfo, error) {
	var files []FileInfo
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err == nil && path != dir && slices.Contains(left, d.Name()) {
			if d.IsDir() {
				return fs.SkipDir
			}
			return nil
		}
		if err != nil || d.IsDir() {
			return err
		}
		rel, err := filepath.Rel(dir, path)
		if err != nil {
			return err
		}
		name := filepath.ToSlash(rel)
		if strings.ContainsAny(name, "\n\r") {
			return fmt.Errorf("%q: a file name may not contain a line break", path)
		}
		if links == refuseLinks && !utf8.ValidString(name) { // manifests are JSON
			return fmt.Errorf("%q: the name of a file in a result must be valid UTF-8", name)
		}
		mode := d.Type()
		if mode&fs.ModeSymlink != 0 && links == followLinks {
			target, err := os.Stat(path)
			if err != nil {
				return err
			}
			if mode = target.Mode(); mode.IsDir() {
				return fmt.Errorf("%s links to a folder; name that folder itself", path)
			}
		}
		if !mode.IsRegular() {
			return fmt.Errorf("%s is no plain file but %s", path, Form(mode))
		}
		if links == refuseLinks {
			if err := ownInode(path, d); err != nil {
				return err
			}
		}
		sum, size, err := hashFile(path)
		if err != nil {
			return err
		}
		files = append(files, FileInfo{Name: name, Bytes: size, SHA256: sum})
		return nil
	})
	slices.SortFunc(files, func(a, b FileInfo) int { return cmp.Compare(a.Name, b.Name) })
	return files, err
}

// ownInode refuses a file with several names (hard links): sealing it would change the mode and time of the other
// names, and a write through one of them would damage the result.
func ownInode(path string, d fs.DirEntry) error {
	info, err := d.Info()
	if err != nil {
		return err
	}
	if sys, ok := info.Sys().(*syscall.Stat_t); ok && sys.Nlink > 1 {
		return fmt.Errorf("%s has %d names (hard links), and a result needs files of its own: copy it instead", path,
			sys.Nlink)
	}
	return nil
}

// Form names a file mode that is neither a plain file nor a folder: "a symbolic link".
func Form(t fs.FileMode) string {
	switch {
	case t&fs.ModeSymlink != 0:
		return "a symbolic link"
	case t&fs.ModeNamedPipe != 0:
		return "a named pipe"
	case t&fs.ModeSocket != 0:
		return "a socket"
	}
	return "a device"
}

// hashFile returns the SHA-256 and the size of a file.
func hashFile(path string) (sum string, size int64, err error) {
	f, err := disk.OpenPlain(path, disk.MaxPlain)
	if err != nil {
		return "", 0, err
	}
	defer f.Close()
	h := sha256.New()
	size, err = io.CopyBuffer(h, f, make([]byte, min(64<<10, f.Info.Size()+1)))
	return hex.EncodeToString(h.Sum(nil)), size, err
}
