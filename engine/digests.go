package engine

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"rcgrpo/engine/artifact"
	"rcgrpo/engine/internal/disk"
)

// digests computes the content digest of each file and folder once. Digests of large files are cached by their
// stamps in a file of the store, which may be deleted at any time.
type digests struct {
	pinned map[string]string // by absolute path; used without reading the file
	cache  string            // path of the cache; "" for none

	seen   map[string]fileState // by absolute path
	known  map[string]seenFile
	loaded bool
	dirty  bool
}

// seenFile is a cached digest.
type seenFile struct {
	stamp
	Digest string `json:"digest"`
}

const (
	// cacheFrom is the size at which reading a file costs more than reading the cache.
	cacheFrom = 1 << 20
	// settled is the minimum age of a file's time stamp; a younger file may change again within one tick of the
	// file system's clock.
	settled = 2 * time.Second
)

// of returns the digest of a file or folder. It is an error if path is a folder instead of a file or vice versa.
// written is the path in error messages.
func (c *digests) of(path, written string, dir bool) (string, error) {
	if d, ok := c.pinned[path]; ok {
		return d, nil
	}
	if s, ok := c.seen[path]; ok && s.folder == dir {
		return s.digest, nil
	}
	w := fileState{path: path, folder: dir}
	now := clock()
	info, err := os.Stat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return "", fmt.Errorf("there is no %s %s", fileOrFolder(dir), written)
	case err != nil:
		return "", err
	case info.IsDir() && !dir:
		return "", fmt.Errorf("%s is a folder; name it with dir()", written)
	case info.Mode().IsRegular() && dir:
		return "", fmt.Errorf("%s is a file; name it with file()", written)
	case !info.Mode().IsRegular() && !info.IsDir():
		return "", fmt.Errorf("%s is %s; only plain files and folders have a content that a key can hold", written, artifact.Form(info.Mode()))
	}
	w.stamp = stampOf(info)
	newest := w.stamp
	if dir {
		if w.stamp, newest, err = folderStamp(path); err != nil {
			return "", err
		}
	}
	w.tooRecent = newest.tooRecent(now)
	if w.digest, err = c.content(w, newest.Mtime); err != nil {
		return "", err
	}
	if c.seen == nil {
		c.seen = map[string]fileState{}
	}
	c.seen[path] = w
	return w.digest, nil
}

func fileOrFolder(dir bool) string {
	if dir {
		return "folder"
	}
	return "file"
}

// content computes the digest of a file or folder, unless it is large and cached. mtime is the newest in it.
func (c *digests) content(w fileState, mtime int64) (string, error) {
	read := artifact.FileDigest
	if w.folder {
		read = artifact.Digest
	}
	if w.stamp.Size < cacheFrom {
		return read(w.path)
	}
	if had := c.remembered(w.path); had.stamp == w.stamp && had.Digest != "" {
		return had.Digest, nil
	}
	begun := time.Now()
	digest, err := read(w.path)
	if err != nil {
		return "", err
	}
	if begun.Sub(time.Unix(0, mtime)) > settled {
		c.known[w.path] = seenFile{w.stamp, digest}
		c.dirty = true
	}
	return digest, nil
}

// remembered returns the cached digest of a path.
func (c *digests) remembered(path string) seenFile {
	if !c.loaded {
		c.loaded = true
		c.known = map[string]seenFile{}
		if b, err := os.ReadFile(c.cache); err == nil && json.Unmarshal(b, &c.known) != nil {
			c.known = map[string]seenFile{} // torn or foreign: start with an empty cache
		}
	}
	return c.known[path]
}

// save writes the cache. If the store is not writable, the next Load reads the files again.
func (c *digests) save() {
	if !c.dirty || c.cache == "" {
		return
	}
	b, err := json.Marshal(c.known)
	if err != nil {
		return
	}
	if os.MkdirAll(filepath.Dir(c.cache), 0o700) == nil {
		_ = writeTemporary(c.cache, b)
	}
}

// maxSource is the size in bytes of the largest HCL file.
const maxSource = 64 << 20

// ReadSource reads an HCL file: a regular file of at most 64 MiB.
func ReadSource(path string) ([]byte, error) {
	text, _, err := readSource(path)
	return text, err
}

// readSource is ReadSource that also returns the state of the file before it was read.
func readSource(path string) ([]byte, fileState, error) {
	now := clock()
	file, err := disk.OpenPlain(path, maxSource)
	if err != nil {
		return nil, fileState{}, err
	}
	defer file.Close()
	text, err := io.ReadAll(file)
	if err != nil {
		return nil, fileState{}, err
	}
	sum := sha256.Sum256(text)
	f := fileState{path: absolute(path), stamp: stampOfStat(file.Stat()), digest: hex.EncodeToString(sum[:])}
	f.tooRecent = f.stamp.tooRecent(now)
	return text, f, nil
}

// writeTemporary writes a file under a temporary name and renames it. Unlike disk.WriteFile it does not flush.
func writeTemporary(path string, content []byte) error {
	file, err := os.CreateTemp(filepath.Dir(path), ".new-*")
	if err != nil {
		return err
	}
	_, err = file.Write(content)
	if err = cmp.Or(err, file.Close()); err == nil {
		err = os.Rename(file.Name(), path)
	}
	if err != nil {
		os.Remove(file.Name())
	}
	return err
}
