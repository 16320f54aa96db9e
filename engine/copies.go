package engine

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"rcgrpo/engine/artifact"
	"rcgrpo/engine/internal/disk"
)

// copyRecord is what the store remembers about a file it published: enough to tell an edit with one stat.
type copyRecord struct {
	Path   string    `json:"path"`
	SHA256 string    `json:"sha256"` // "": forget what was said of it
	Bytes  int64     `json:"bytes"`
	Time   time.Time `json:"time"`
}

// copies are the published files by their paths: STORE/published.jsonl, to which every run appends. The last line about a
// path counts; one that is torn says nothing. A file that is not in it is the user's.
type copies struct {
	path  string
	apart atomic.Bool // the store is known to lie on another file system than the copies

	mu    sync.Mutex
	known map[string]copyRecord
	file  *os.File // as far as it was read
	next  int64    // first byte that was not
	lines int
}

func openCopies(store *artifact.Store) *copies {
	return &copies{path: filepath.Join(store.Dir(), "published.jsonl"), known: map[string]copyRecord{}}
}

// of returns what is recorded of a path, without a look at what others may have recorded since refresh.
func (c *copies) of(path string) (record copyRecord, ok bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	record, ok = c.known[path]
	return record, ok
}

// refresh reads what was appended since the last time, or all when the file is another one.
func (c *copies) refresh() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.refreshLocked()
}

func (c *copies) refreshLocked() error {
	named, err := os.Stat(c.path)
	if errors.Is(err, fs.ErrNotExist) {
		c.forgetAll()
		return nil
	}
	if err != nil {
		return err
	}
	if c.file != nil {
		if opened, err := c.file.Stat(); err != nil || !os.SameFile(opened, named) || opened.Size() < c.next {
			c.forgetAll()
		}
	}
	if c.file == nil {
		if c.file, err = os.Open(c.path); err != nil {
			return err
		}
	}
	if named.Size() == c.next {
		return nil
	}
	lines := bufio.NewReader(io.NewSectionReader(c.file, c.next, named.Size()-c.next))
	for {
		line, err := lines.ReadBytes('\n')
		if err != nil { // at the end, or torn: whoever writes next begins a new line
			return nil
		}
		c.next += int64(len(line))
		var r copyRecord
		if len(bytes.TrimSpace(line)) == 0 || json.Unmarshal(line, &r) != nil {
			continue
		}
		c.lines++
		if r.SHA256 == "" {
			delete(c.known, r.Path)
		} else {
			c.known[r.Path] = r
		}
	}
}

func (c *copies) forgetAll() {
	if c.file != nil {
		c.file.Close()
	}
	c.known, c.file, c.next, c.lines = map[string]copyRecord{}, nil, 0, 0
}

// record appends one record.
func (c *copies) record(r copyRecord) error {
	b, err := json.Marshal(r)
	if err != nil {
		return err
	}
	f, err := c.open(unix.LOCK_SH)
	if err != nil {
		return err
	}
	written, err := disk.Write(f, append(append([]byte{'\n'}, b...), '\n')) // behind a torn line too
	end, seekErr := f.Seek(0, io.SeekCurrent)
	if err = errors.Join(err, seekErr, f.Close()); err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.file != nil && c.next == end-int64(written) { // nobody wrote between what was read and this
		c.next = end
		c.lines++
	}
	if r.SHA256 == "" {
		delete(c.known, r.Path)
	} else {
		c.known[r.Path] = r
	}
	return nil
}

// open opens the file for appending under a lock, which keeps it from being replaced by a shorter one meanwhile.
func (c *copies) open(how int) (*os.File, error) {
	for {
		f, err := disk.OpenFile(c.path, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
		if errors.Is(err, fs.ErrNotExist) {
			if err = disk.MkdirAll(filepath.Dir(c.path), 0o700); err == nil {
				continue
			}
		}
		if err != nil {
			return nil, err
		}
		if err := unix.Flock(int(f.Fd()), how); err != nil {
			f.Close()
			if errors.Is(err, unix.EINTR) {
				continue
			}
			return nil, err
		}
		opened, err := f.Stat()
		named, namedErr := os.Stat(c.path)
		if err == nil && namedErr == nil && os.SameFile(opened, named) {
			return f, nil
		}
		f.Close()
	}
}

// compactFrom is how many lines without effect the file may have before a run writes it anew.
const compactFrom = 10000

// compact writes the file anew when most of its lines have been overtaken and nobody writes to it.
func (c *copies) compact() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.lines-len(c.known) < compactFrom+len(c.known) {
		return nil
	}
	f, err := c.open(unix.LOCK_EX | unix.LOCK_NB)
	if errors.Is(err, unix.EWOULDBLOCK) {
		return nil
	}
	if err != nil {
		return err
	}
	defer f.Close()
	if err := c.refreshLocked(); err != nil {
		return err
	}
	var all bytes.Buffer
	for _, r := range c.known {
		b, err := json.Marshal(r)
		if err != nil {
			return err
		}
		all.Write(append(b, '\n'))
	}
	next := c.path + ".new"
	if err := disk.WriteFile(next, all.Bytes(), 0o600); err != nil {
		return err
	}
	return disk.Rename(next, c.path)
}
