package stat

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"rcgrpo/engine/artifact"
	"rcgrpo/engine/internal/disk"
)

// Digests computes the content digest of each file and folder once. Digests of large files are cached by their
// stamps in a file of the store, which may be deleted at any time.
type Digests struct {
	Pinned map[string]string // by Name; used without reading the file
	Cache  string            // path of the cache; "" for none

	Seen  map[string]File     // by Name
	known map[string]seenFile // the cache; nil before it is read
	dirty bool                // known has changed
}

type seenFile struct {
	Stamp
	Digest string `json:"digest"`
}

const (
	// cacheFrom is the size at which reading a file costs more than reading the cache.
	cacheFrom = 1 << 20
	// settled is the minimum age of a file's time stamp; a younger file may change again within one tick of the
	// file system's clock.
	settled = 2 * time.Second
)

// Of returns the digest of a file or folder. It is an error if path is a folder instead of a file or vice versa.
// written is the path in error messages. Names left out of a folder do not count.
func (c *Digests) Of(path, written string, dir bool, left ...string) (string, error) {
	name := Name(path, left)
	if d, ok := c.Pinned[name]; ok {
		return d, nil
	}
	if s, ok := c.Seen[name]; ok && s.Folder == dir {
		return s.Digest, nil
	}
	w := File{Path: path, Folder: dir}
	now := Clock()
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
	w.Stamp = StampOf(info)
	newest := w.Stamp
	if dir {
		if w.Stamp, newest, err = FolderStamp(path); err != nil {
			return "", err
		}
	}
	w.TooRecent = newest.TooRecent(now)
	if w.Digest, err = c.content(w, newest.Mtime, left); err != nil {
		return "", err
	}
	if c.Seen == nil {
		c.Seen = map[string]File{}
	}
	c.Seen[name] = w
	return w.Digest, nil
}

// Name identifies a folder without some names: its path, and these names behind it.
func Name(path string, left []string) string {
	return strings.Join(append([]string{path}, left...), "\x00")
}

// content computes the digest of a file or folder, unless it is large and cached. mtime is the newest in it.
func (c *Digests) content(w File, mtime int64, left []string) (string, error) {
	name, read := Name(w.Path, left), artifact.FileDigest
	if w.Folder {
		read = func(path string) (string, error) { return artifact.Digest(path, left...) }
	}
	if w.Stamp.Size < cacheFrom {
		return read(w.Path)
	}
	if had := c.remembered(name); had.Stamp == w.Stamp && had.Digest != "" {
		return had.Digest, nil
	}
	begun := time.Now()
	digest, err := read(w.Path)
	if err != nil {
		return "", err
	}
	if begun.Sub(time.Unix(0, mtime)) > settled {
		c.known[name] = seenFile{w.Stamp, digest}
		c.dirty = true
	}
	return digest, nil
}

// remembered returns the cached digest of a Name.
func (c *Digests) remembered(name string) seenFile {
	if c.known == nil {
		b, _ := os.ReadFile(c.Cache)
		if json.Unmarshal(b, &c.known) != nil || c.known == nil {
			c.known = map[string]seenFile{} // missing, torn or foreign: start with an empty cache
		}
	}
	return c.known[name]
}

// Save writes the cache. If the store is not writable, the next Load reads the files again.
func (c *Digests) Save() {
	if !c.dirty || c.Cache == "" {
		return
	}
	dir := filepath.Dir(c.Cache)
	b, err := json.Marshal(c.known)
	if err == nil && os.MkdirAll(dir, 0o700) == nil {
		_ = disk.Overwrite(dir, c.Cache, b)
	}
}

// maxSource is the size in bytes of the largest HCL file.
const maxSource = 64 << 20

// ReadSource reads an HCL file: a regular file of at most 64 MiB. It also returns the file as it was before it was
// read, without its digest.
func ReadSource(path string) ([]byte, File, error) {
	now := Clock()
	file, err := disk.OpenPlain(path, maxSource)
	if err != nil {
		return nil, File{}, err
	}
	defer file.Close()
	stamp := StampOf(file.Info)
	text, err := io.ReadAll(file)
	return overridden(path, text), File{Path: Absolute(path), Stamp: stamp, TooRecent: stamp.TooRecent(now)}, err
}

var (
	overriding sync.Mutex
	overrides  atomic.Pointer[map[string][]byte]
)

// Override makes ReadSource return the given texts, by absolute path, until the caller calls end.
// A second caller waits. The files must exist.
func Override(texts map[string][]byte) (end func()) {
	overriding.Lock()
	overrides.Store(&texts)
	return func() {
		overrides.Store(nil)
		overriding.Unlock()
	}
}

// overridden returns text, or the text that overrides the file.
func overridden(path string, text []byte) []byte {
	if texts := overrides.Load(); texts != nil {
		if other, ok := (*texts)[Absolute(path)]; ok {
			return other
		}
	}
	return text
}
