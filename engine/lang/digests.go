package lang

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"rcgrpo/engine/artifact"
	"rcgrpo/engine/internal/disk"
)

// digests computes the content digest of each file and folder once. Digests of large files are cached by their
// stamps in a file of the store, which may be deleted at any time.
type digests struct {
	pinned map[string]string // by digestName; used without reading the file
	cache  string            // path of the cache; "" for none
	unread bool              // every digest is empty

	seen  map[string]seenData     // by digestName
	known map[string]cachedDigest // the cache; nil before it is read
	dirty bool                    // known has changed
}

// seenData is a file or folder with the digest of its content.
type seenData struct {
	path   string
	folder bool
	digest string
}

type cachedDigest struct {
	stamp
	Digest string `json:"digest"`
}

// stamp identifies the content of a file without reading it: every write changes the ctime, which no program can set.
type stamp struct {
	Size  int64  `json:"size"`
	Mtime int64  `json:"mtime"` // nanoseconds
	Ctime int64  `json:"ctime"` // nanoseconds
	Inode uint64 `json:"inode"`
}

func stampOf(info fs.FileInfo) stamp {
	s := stamp{Size: info.Size(), Mtime: info.ModTime().UnixNano()}
	if sys, ok := info.Sys().(*syscall.Stat_t); ok {
		s.Ctime, s.Inode = sys.Ctim.Nano(), sys.Ino
	}
	return s
}

// folderStamp combines the stamps of all files in a folder; newest is the latest of their modification times.
func folderStamp(path string) (sum stamp, newest int64, err error) {
	err = filepath.WalkDir(path, func(p string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := os.Stat(p)
		if err != nil {
			return err
		}
		one := stampOf(info)
		const prime = 1099511628211 // makes the order count, so that two files cannot swap their stamps
		sum.Size += one.Size
		sum.Mtime = sum.Mtime*prime + one.Mtime
		sum.Ctime = sum.Ctime*prime + one.Ctime
		sum.Inode = sum.Inode*prime + one.Inode
		newest = max(newest, one.Mtime)
		return nil
	})
	return sum, newest, err
}

const (
	// cacheFrom is the size at which reading a file costs more than reading the cache.
	cacheFrom = 1 << 20
	// settled is the minimum age of a file's time stamp; a younger file may change again within one tick of the
	// file system's clock.
	settled = 2 * time.Second
)

// of returns the digest of a file or folder. It is an error if path is a folder instead of a file or vice versa.
// written is the path in error messages. Names left out of a folder do not count.
func (c *digests) of(path, written string, dir bool, left ...string) (string, error) {
	name := digestName(path, left)
	if d, ok := c.pinned[name]; ok {
		return d, nil
	}
	if s, ok := c.seen[name]; ok && s.folder == dir {
		return s.digest, nil
	}
	info, err := os.Stat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist) && dir:
		return "", fmt.Errorf("there is no folder %s", written)
	case errors.Is(err, fs.ErrNotExist):
		return "", fmt.Errorf("there is no file %s", written)
	case err != nil:
		return "", err
	case info.IsDir() && !dir:
		return "", fmt.Errorf("%s is a folder; use dir()", written)
	case info.Mode().IsRegular() && dir:
		return "", fmt.Errorf("%s is a file; use file()", written)
	case !info.Mode().IsRegular() && !info.IsDir():
		return "", fmt.Errorf("%s is %s; only regular files and folders have content for a key", written,
			artifact.Form(info.Mode()))
	}
	w := seenData{path: path, folder: dir}
	if !c.unread {
		if w.digest, err = c.content(w, info, left); err != nil {
			return "", err
		}
	}
	c.seen[name] = w
	return w.digest, nil
}

// digestName identifies a folder without some names: its path, and these names behind it.
func digestName(path string, left []string) string {
	return strings.Join(append([]string{path}, left...), "\x00")
}

// content computes the digest of a file or folder, unless it is large and cached.
func (c *digests) content(w seenData, info fs.FileInfo, left []string) (digest string, err error) {
	name, read, at := digestName(w.path, left), artifact.FileDigest, stampOf(info)
	newest := at.Mtime
	if w.folder {
		read = func(path string) (string, error) { return artifact.Digest(path, left...) }
		if at, newest, err = folderStamp(w.path); err != nil {
			return "", err
		}
	}
	if at.Size < cacheFrom {
		return read(w.path)
	}
	if c.known == nil && (disk.ReadJSON(c.cache, disk.MaxRecord, &c.known) != nil || c.known == nil) {
		c.known = map[string]cachedDigest{} // missing, torn or foreign: start with an empty cache
	}
	if had := c.known[name]; had.stamp == at && had.Digest != "" {
		return had.Digest, nil
	}
	begun := time.Now()
	if digest, err = read(w.path); err != nil {
		return "", err
	}
	if begun.Sub(time.Unix(0, newest)) > settled {
		c.known[name] = cachedDigest{at, digest}
		c.dirty = true
	}
	return digest, nil
}

// save writes the cache. If the store is not writable, the next Load reads the files again.
func (c *digests) save() {
	if !c.dirty || c.cache == "" {
		return
	}
	dir := filepath.Dir(c.cache)
	b, err := json.Marshal(c.known)
	if err == nil && os.MkdirAll(dir, 0o700) == nil {
		_ = disk.Overwrite(dir, c.cache, b)
	}
}

// MaxSource is the size in bytes of the largest HCL text, about 10,000 stages. The parser needs up to 1,000 times as
// much memory.
const MaxSource = 1 << 20

// maxSources is the size in bytes of all files of an experiment.
const maxSources = 4 << 20

// ReadSource reads an HCL file: a regular file of at most 1 MiB.
func ReadSource(path string) ([]byte, error) { return disk.ReadPlain(path, MaxSource) }

// readSource is ReadSource, or the text of an editor in place of the file.
func readSource(path string, unsaved map[string][]byte) ([]byte, error) {
	if text, ok := unsaved[absolute(path)]; ok {
		return text, nil
	}
	return ReadSource(path)
}

// absolute returns the absolute path, or the path itself if the current folder is deleted.
func absolute(path string) string {
	if abs, err := filepath.Abs(path); err == nil {
		return abs
	}
	return path
}
