package artifact

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"unicode/utf8"

	"rcgrpo/engine/internal/disk"
)

// Digest is the content digest of a file, or of a folder with everything below it: the value that file() and dir()
// put into keys. A folder's digest covers the relative names and contents of its files; empty folders, permissions and
// times count for nothing. Symbolic links are followed.
func Digest(path string) (string, error) {
	info, err := os.Stat(path)
	if err != nil {
		return "", err
	}
	if !info.IsDir() {
		return FileDigest(path)
	}
	files, err := list(path, followLinks)
	if err != nil {
		return "", err
	}
	return treeDigest(files), nil
}

// FileDigest is Digest of what is known to be a file.
func FileDigest(path string) (string, error) {
	sum, _, err := hashFile(path)
	return sum, err
}

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
	refuseLinks linkRule = iota // artifacts hold plain files only, each with one name
	followLinks                 // data of the user's may be linked
)

// list hashes the plain files below dir and returns them sorted by name.
func list(dir string, links linkRule) ([]FileInfo, error) {
	var files []FileInfo
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
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
		if links == refuseLinks && !utf8.ValidString(name) { // a manifest, which is JSON, could not name it
			return fmt.Errorf("%q: the name of a file in a result must be valid UTF-8", name)
		}
		if d.Type()&fs.ModeSymlink != 0 && links == followLinks {
			target, err := os.Stat(path)
			if err != nil {
				return err
			}
			if target.IsDir() {
				return fmt.Errorf("%s links to a folder; name that folder itself", path)
			}
			if !target.Mode().IsRegular() {
				return fmt.Errorf("%s links to %s, which is no plain file", path, Form(target.Mode()))
			}
		} else if !d.Type().IsRegular() {
			return fmt.Errorf("%s is no plain file but %s", path, Form(d.Type()))
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

// ownInode replaces a file that has other names (hard links) by a copy. The store seals the files it keeps, which would
// change mode and time of the file under its other names too, and a write through one of them would damage the result.
func ownInode(path string, d fs.DirEntry) error {
	info, err := d.Info()
	if err != nil {
		return err
	}
	if sys, ok := info.Sys().(*syscall.Stat_t); !ok || sys.Nlink < 2 {
		return nil
	}
	in, err := disk.Open(path)
	if err != nil {
		return err
	}
	defer in.Close()
	out, err := disk.CreateTemp(filepath.Dir(path), asidePattern)
	if err != nil {
		return err
	}
	_, err = disk.Copy(out, in) // copy_file_range, so a file system with reflinks shares the blocks
	if err = errors.Join(err, out.Close()); err == nil {
		err = disk.Rename(out.Name(), path)
	}
	if err != nil {
		os.Remove(out.Name())
	}
	return err
}

// Form names what is neither a file nor a folder: "a symbolic link".
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

// hashFile reads a file and returns its SHA-256 and how many bytes that is of.
func hashFile(path string) (sum string, size int64, err error) {
	f, err := disk.OpenPlain(path, disk.MaxPlain)
	if err != nil {
		return "", 0, err
	}
	defer f.Close()
	buffer := buffers.Get().(*[]byte)
	defer buffers.Put(buffer)
	h := sha256.New()
	size, err = io.CopyBuffer(h, f, *buffer)
	if err != nil {
		return "", 0, err
	}
	return hex.EncodeToString(h.Sum(nil)), size, nil
}

// buffers are for reading many files, most of them small.
var buffers = sync.Pool{New: func() any { b := make([]byte, 64<<10); return &b }}
