package engine

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
	"time"

	"rcgrpo/engine/artifact"
)

// digests finds the content digests of the user's files and folders, each once. Large ones are remembered by their
// stamps, in a file of the store that may vanish at any time.
type digests struct {
	pinned map[string]string // by absolute path; believed without a look
	cache  string            // path of the cache file; "" for none

	mu     sync.Mutex           // guards what follows; stages are decoded several at once
	seen   map[string]*sighting // by absolute path
	known  map[string]seenFile
	loaded bool
	dirty  bool
}

// sighting is what was found at a path.
type sighting struct {
	sync.Mutex // held while it is read, so that it is read once
	fileState  // without a digest before that
}

// seenFile is what a cached digest is believed by.
type seenFile struct {
	stamp
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
	s := c.at(path)
	s.Lock()
	defer s.Unlock()
	if s.digest != "" && s.folder == dir {
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
	s.fileState = w
	return w.digest, nil
}

// at is where that is kept which is found at a path.
func (c *digests) at(path string) *sighting {
	c.mu.Lock()
	defer c.mu.Unlock()
	s := c.seen[path]
	if s == nil {
		if c.seen == nil {
			c.seen = map[string]*sighting{}
		}
		s = new(sighting)
		c.seen[path] = s
	}
	return s
}

// fileStates lists what was found, once nothing is being read any more.
func (c *digests) witnesses() []fileState {
	var all []fileState
	for _, s := range c.seen {
		if s.digest != "" {
			all = append(all, s.fileState)
		}
	}
	return all
}

func fileOrFolder(dir bool) string {
	if dir {
		return "folder"
	}
	return "file"
}

// content reads a file or folder, unless it is large and known. mtime is its newest.
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
		c.mu.Lock()
		defer c.mu.Unlock()
		c.known[w.path] = seenFile{w.stamp, digest}
		c.dirty = true
	}
	return digest, nil
}

// remembered is what the cache file says of a path.
func (c *digests) remembered(path string) seenFile {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.loaded {
		c.loaded = true
		c.known = map[string]seenFile{}
		if b, err := os.ReadFile(c.cache); err == nil && json.Unmarshal(b, &c.known) != nil {
			c.known = map[string]seenFile{} // torn or foreign: as if it were not there
		}
	}
	return c.known[path]
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
