package engine

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"rcgrpo/engine/artifact"
)

// digests finds the content digests of the user's files and folders. Large ones are remembered by size, time stamps
// and inode, in a file of the store that may vanish at any time.
type digests struct {
	pinned map[string]string // by absolute path; believed without a look
	cache  string            // path of the cache file; "" for none
	known  map[string]seenFile
	loaded bool
	dirty  bool
}

// seenFile is what a cached digest is believed by.
type seenFile struct {
	Size   int64  `json:"size"`
	Mtime  int64  `json:"mtime"` // nanoseconds
	Ctime  int64  `json:"ctime"` // nanoseconds
	Inode  uint64 `json:"inode"`
	Digest string `json:"digest"`
}

const (
	// cacheFrom is the size from which reading a file costs more than asking the cache.
	cacheFrom = 1 << 20
	// settled is how old a file's time stamp must be before it proves anything: younger, it may change again
	// within one tick of the file system's clock.
	settled = 2 * time.Second
)

// of returns the digest of a file or folder and complains when path is not what was called for. In messages it is
// called by the name the user wrote.
func (c *digests) of(path, written string, dir bool) (string, error) {
	if d, ok := c.pinned[path]; ok {
		return d, nil
	}
	info, err := os.Stat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return "", fmt.Errorf("there is no %s %s", fileOrFolder(dir), written)
	case err != nil:
		return "", err
	case info.IsDir() && !dir:
		return "", fmt.Errorf("%s is a folder; name it with dir()", written)
	case !info.IsDir() && dir:
		return "", fmt.Errorf("%s is a file; name it with file()", written)
	case dir:
		return c.folder(path)
	}
	return c.file(path, info)
}

func fileOrFolder(dir bool) string {
	if dir {
		return "folder"
	}
	return "file"
}

func (c *digests) file(path string, info fs.FileInfo) (string, error) {
	if info.Size() < cacheFrom {
		return artifact.Digest(path)
	}
	return c.remember(path, stamp(info.Size(), info.ModTime(), info), info.ModTime(), func() (string, error) { return artifact.Digest(path) })
}

// folder is remembered as one entry whose stamp sums up those of all files in it.
func (c *digests) folder(path string) (string, error) {
	var sum seenFile
	var newest time.Time
	err := filepath.WalkDir(path, func(p string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := os.Stat(p)
		if err != nil {
			return err
		}
		if info.ModTime().After(newest) {
			newest = info.ModTime()
		}
		one := stamp(info.Size(), info.ModTime(), info)
		const prime = 1099511628211 // mixes the order in, so that two files cannot trade their stamps
		sum.Size += one.Size
		sum.Mtime = sum.Mtime*prime + one.Mtime
		sum.Ctime = sum.Ctime*prime + one.Ctime
		sum.Inode = sum.Inode*prime + one.Inode
		return nil
	})
	if err != nil {
		return "", err
	}
	if sum.Size < cacheFrom {
		return artifact.Digest(path)
	}
	return c.remember(path, sum, newest, func() (string, error) { return artifact.Digest(path) })
}

func stamp(size int64, mtime time.Time, info fs.FileInfo) seenFile {
	s := seenFile{Size: size, Mtime: mtime.UnixNano()}
	if sys, ok := info.Sys().(*syscall.Stat_t); ok {
		s.Ctime, s.Inode = sys.Ctim.Nano(), sys.Ino
	}
	return s
}

func (c *digests) remember(path string, now seenFile, mtime time.Time, read func() (string, error)) (string, error) {
	if !c.loaded {
		c.loaded = true
		c.known = map[string]seenFile{}
		if b, err := os.ReadFile(c.cache); err == nil && json.Unmarshal(b, &c.known) != nil {
			c.known = map[string]seenFile{} // torn or foreign: as if it were not there
		}
	}
	had := c.known[path]
	now.Digest = had.Digest
	if had == now && had.Digest != "" {
		return had.Digest, nil
	}
	begun := time.Now()
	digest, err := read()
	if err != nil {
		return "", err
	}
	if begun.Sub(mtime) > settled {
		now.Digest = digest
		c.known[path] = now
		c.dirty = true
	}
	return digest, nil
}

// save keeps what was learnt. A store that cannot be written only costs the next reader the hash.
func (c *digests) save() {
	if !c.dirty || c.cache == "" {
		return
	}
	b, err := json.Marshal(c.known)
	if err != nil {
		return
	}
	dir := filepath.Dir(c.cache)
	if os.MkdirAll(dir, 0o700) != nil {
		return
	}
	aside, err := os.CreateTemp(dir, ".digests-*")
	if err != nil {
		return
	}
	_, err = aside.Write(b)
	if cerr := aside.Close(); err != nil || cerr != nil || os.Rename(aside.Name(), c.cache) != nil {
		os.Remove(aside.Name())
	}
}
