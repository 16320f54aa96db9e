package remote

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"rcgrpo/engine/artifact"
	"rcgrpo/engine/internal/disk"
)

// errDamaged is a missing or changed object. It is a miss, not an error of the network.
var errDamaged = errors.New("damaged")

// ErrBusy reports that another process makes or fetches a result.
var ErrBusy = errors.New("another process has the key")

const (
	smallManifest = 1 << 20 // bytes; larger ones are read one at a time, because decoding may take much memory
	listAbove     = 1000    // keys; for more of them all names are listed, which takes a request per 1,000
	attempts      = 3       // to read an object that the network cuts
)

// findLimit limits the time of Find: stages wait for it, and a server may answer each request just before smallLimit.
// Tests lower it.
var findLimit = 50 * time.Second

// maxListed limits the objects below a prefix, and maxNames the bytes of their names: a list may have pages without
// end. Tests lower them.
var maxListed, maxNames = 5_000_000, 512 << 20

// Find returns the results of the remote store for some keys, without their bytes. A missing or damaged
// result is absent from the map, and one about which the storage does not answer within findLimit; except for a missing
// one the reason is reported. Answers are cached.
func (r *Remote) Find(ctx context.Context, keys []string) map[string]*artifact.Manifest {
	found := map[string]*artifact.Manifest{}
	if r == nil || !r.Pull {
		return found
	}
	r.mu.Lock()
	open := slices.DeleteFunc(slices.Clone(keys), func(key string) bool {
		_, known := r.manifests[key]
		return known
	})
	r.mu.Unlock()
	limited, stop := context.WithTimeout(ctx, findLimit)
	defer stop()
	if len(open) > listAbove {
		open = r.listed(limited, open)
	}
	each(open, func(key string) error {
		r.find(limited, key)
		return nil
	})
	if limited.Err() != nil && ctx.Err() == nil {
		r.problem("", "%v about all results for %v", errSilent, findLimit)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, key := range keys {
		if m := r.manifests[key]; m != nil && !r.damaged[key] {
			found[key] = m
		}
	}
	return found
}

// FindFor is Find for stages: outputs has the ports of a stage and their types by its key. A manifest with others is
// damaged.
func (r *Remote) FindFor(ctx context.Context, outputs map[string]map[string]string) map[string]*artifact.Manifest {
	found := r.Find(ctx, slices.Sorted(maps.Keys(outputs)))
	for key, m := range found {
		if types := m.Types(); !maps.Equal(types, outputs[key]) {
			r.problem("", "result %.16s: %v: its manifest has the outputs %v, want %v", key, errDamaged, types, outputs[key])
			delete(found, key)
		}
	}
	return found
}

// listed returns those keys that have a manifest, and remembers that the others have none.
func (r *Remote) listed(ctx context.Context, keys []string) (present []string) {
	all, err := r.Keys(ctx)
	if err != nil { // reported
		return nil
	}
	there := make(map[string]bool, len(all))
	for _, key := range all {
		there[key] = true
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, key := range keys {
		if there[key] {
			present = append(present, key)
		} else {
			r.manifests[key] = nil
		}
	}
	return present
}

// Keys returns the keys of all manifests of the remote store.
func (r *Remote) Keys(ctx context.Context) (keys []string, err error) {
	all, err := r.list(ctx, manifests)
	for _, b := range all {
		if key, ok := strings.CutSuffix(path.Base(b.name), ".json"); ok {
			keys = append(keys, key)
		}
	}
	return keys, err
}

// list returns the blobs below a prefix. It takes a slot of the transfers, because a list may take hours, too.
func (r *Remote) list(ctx context.Context, prefix string) (all []blob, err error) {
	err = r.call(ctx, r.transfers, min(smallLimit, r.Deadline), func(ctx context.Context, progress func()) error {
		all = nil
		text := 0
		for b, err := range r.bucket.List(ctx, prefix) {
			if err != nil {
				return err
			}
			progress()
			text += len(b.name)
			if all = append(all, b); len(all) > maxListed || text > maxNames {
				return fmt.Errorf("it lists more than %d objects, or %d bytes of names", maxListed, maxNames)
			}
		}
		return nil
	})
	return all, err
}

// find remembers the manifest of a key. It remembers no answer after an error of the network.
func (r *Remote) find(ctx context.Context, key string) {
	m, err := r.read(ctx, key)
	if errors.Is(err, errDamaged) {
		r.problem("", "result %.16s: %v", key, err)
	} else if err != nil && !errors.Is(err, errMissing) {
		return
	}
	r.mu.Lock()
	r.manifests[key] = m
	r.mu.Unlock()
}

// isDamaged reports whether Fetch has found a missing or damaged object of a result.
func (r *Remote) isDamaged(key string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.damaged[key]
}

// read reads the manifest of a key.
func (r *Remote) read(ctx context.Context, key string) (m *artifact.Manifest, err error) {
	err = r.small(ctx, func(ctx context.Context) error {
		body, err := r.bucket.Get(ctx, manifestName(key))
		if err != nil {
			return err
		}
		defer body.Close()
		b, err := io.ReadAll(io.LimitReader(body, smallManifest))
		if len(b) == smallManifest && err == nil {
			r.large.Lock()
			defer r.large.Unlock()
			var rest []byte
			rest, err = io.ReadAll(io.LimitReader(body, artifact.MaxManifest))
			b = append(b, rest...)
		}
		if err != nil {
			return err
		}
		if len(b) > artifact.MaxManifest {
			return fmt.Errorf("%w: its manifest has more than %d bytes", errDamaged, artifact.MaxManifest)
		}
		if m, err = artifact.ParseManifest(b, key); err != nil {
			err = fmt.Errorf("%w: %w", errDamaged, err)
		}
		return err
	})
	return m, err
}

// Fetch commits a result of the remote store to the local one with the bytes of ports, beside those that are there; see
// Store.Import. ErrBusy means that another process has the lock of the key. A missing or damaged object is an error and
// reported.
func (r *Remote) Fetch(ctx context.Context, key string, ports []string) (*artifact.Manifest, error) {
	m := r.Find(ctx, []string{key})[key]
	if m == nil || slices.ContainsFunc(ports, func(port string) bool { _, has := m.Outputs[port]; return !has }) {
		return nil, artifact.ErrNotFound
	}
	lock, err := r.store.TryLock(key)
	if err != nil || lock == nil {
		return nil, errors.Join(err, ErrBusy)
	}
	fetched, err := r.store.Import(*m, ports, func(o artifact.Output, dir string) error {
		return each(o.Files, func(f artifact.FileInfo) error {
			return r.getFile(ctx, objectPrefix(o)+f.Name, f, filepath.Join(dir, filepath.FromSlash(f.Name)))
		})
	})
	err = errors.Join(err, lock.Unlock())
	if errors.Is(err, errDamaged) {
		r.mu.Lock()
		r.damaged[key] = true
		r.mu.Unlock()
	}
	if err != nil && ctx.Err() == nil && !isReported(err) {
		r.problem(m.Address, "not fetched: %v", err)
	}
	return fetched, err
}

// getFile writes the file of a blob; again from its start when the network cuts it.
func (r *Remote) getFile(ctx context.Context, name string, f artifact.FileInfo, to string) error {
	if err := disk.MkdirAll(filepath.Dir(to), 0o700); err != nil {
		return err
	}
	if f.Bytes == 0 { // nothing is left to ask for
		return writeFile(to, strings.NewReader(""), f)
	}
	err := r.call(ctx, r.transfers, r.Deadline, func(ctx context.Context, progress func()) (err error) {
		for range attempts {
			var body io.ReadCloser
			if body, err = r.bucket.Get(ctx, name); err != nil {
				return err
			}
			err = writeFile(to, counted{stoppable{ctx, body}, progress}, f)
			body.Close()
			if err == nil || ctx.Err() != nil || errors.Is(err, errDamaged) {
				return err
			}
		}
		return err
	})
	if errors.Is(err, errMissing) {
		return fmt.Errorf("%w: %s is missing", errDamaged, name)
	}
	return err
}

// counted is a reader that reports its progress.
type counted struct {
	io.Reader
	progress func()
}

func (c counted) Read(b []byte) (int, error) {
	n, err := c.Reader.Read(b)
	c.progress()
	return n, err
}

// writeFile writes a file and compares its size and hash with the manifest. It writes at most one byte more than the
// manifest says.
func writeFile(path string, body io.Reader, f artifact.FileInfo) error {
	file, err := disk.OpenFile(path, os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	h := sha256.New()
	n, err := io.Copy(file, io.TeeReader(io.LimitReader(body, f.Bytes+1), h))
	if err = errors.Join(err, file.Close()); err != nil {
		return err
	}
	if n > f.Bytes {
		return fmt.Errorf("%w: %s has more than %d bytes", errDamaged, f.Name, f.Bytes)
	}
	if n < f.Bytes {
		return fmt.Errorf("%w: %s has %d bytes, want %d", errDamaged, f.Name, n, f.Bytes)
	}
	if hex.EncodeToString(h.Sum(nil)) != f.SHA256 {
		return fmt.Errorf("%w: %s has another hash than its manifest", errDamaged, f.Name)
	}
	return nil
}

// Complete fetches ports of results, by key, that the local store lacks; without ports it fetches the manifest only.
// What cannot be fetched is reported and stays absent. The error names results that another process makes or fetches.
func (r *Remote) Complete(ctx context.Context, ports map[string][]string) error {
	if r == nil {
		return nil
	}
	var keys []string
	for key, of := range ports {
		m, err := r.store.Lookup(key)
		if err != nil || slices.ContainsFunc(of, func(port string) bool { return !r.store.Has(m, port) }) {
			keys = append(keys, key)
		}
	}
	found := r.Find(ctx, keys)
	return each(slices.Sorted(maps.Keys(found)), func(key string) error {
		_, err := r.Fetch(ctx, key, ports[key])
		for until := time.Now().Add(busyWait); errors.Is(err, ErrBusy) && time.Now().Before(until) && ctx.Err() == nil; {
			time.Sleep(20 * time.Millisecond)
			_, err = r.Fetch(ctx, key, ports[key])
		}
		if errors.Is(err, ErrBusy) {
			return fmt.Errorf("%s: %w", found[key].Address, err)
		}
		return nil // of others a report was made
	})
}

// busyWait is longer than the commit of a result that a run has just fetched.
const busyWait = 5 * time.Second
