package remote

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
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
	maxRecord = 64 << 20 // bytes of the largest record that is read
	listAbove = 1000     // keys; for more of them all names are listed, which takes a request per 1,000
	attempts  = 3        // to read an object that the network cuts
)

// Find returns the results of the remote store for some keys, without their bytes. A missing, damaged or untrusted
// result is absent from the map; except for a missing one the reason is reported. Answers are cached.
func (r *Remote) Find(ctx context.Context, keys []string) map[string]*artifact.Manifest {
	found := map[string]*artifact.Manifest{}
	if r == nil || !r.Pull {
		return found
	}
	r.mu.Lock()
	open := slices.DeleteFunc(slices.Clone(keys), func(key string) bool {
		_, known := r.records[key]
		return known
	})
	r.mu.Unlock()
	if len(open) > listAbove {
		open = r.listed(ctx, open)
	}
	each(open, func(key string) error {
		r.find(ctx, key)
		return nil
	})
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, key := range keys {
		if rec := r.records[key]; rec != nil && !rec.damaged {
			found[key] = rec.manifest
		}
	}
	return found
}

// listed returns those keys that have a record, and remembers that the others have none.
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
			r.records[key] = nil
		}
	}
	return present
}

// Keys returns the keys of all records of the remote store.
func (r *Remote) Keys(ctx context.Context) (keys []string, err error) {
	infos, err := r.list(ctx, "v1/nodes/")
	for _, info := range infos {
		keys = append(keys, strings.TrimSuffix(path.Base(info.Name), ".json"))
	}
	return keys, err
}

// list returns the objects below a prefix.
func (r *Remote) list(ctx context.Context, prefix string) (all []Info, err error) {
	err = r.call(ctx, min(smallLimit, r.Deadline), func(ctx context.Context, progress func(int)) error {
		all = nil
		for info, err := range r.bucket.List(ctx, prefix) {
			if err != nil {
				return err
			}
			progress(0)
			all = append(all, info)
		}
		return nil
	})
	return all, err
}

// find remembers the record of a key. It remembers no answer after an error of the network.
func (r *Remote) find(ctx context.Context, key string) {
	rec, err := r.read(ctx, key)
	switch {
	case err == nil:
		if err = rec.trustedBy(r.Trust); err != nil {
			r.problem(rec.manifest.Address, "result %.16s: %v", key, err)
			rec = nil
		}
	case errors.Is(err, errDamaged), errors.Is(err, errNewer):
		r.problem("", "result %.16s: %v", key, err)
	case !errors.Is(err, errMissing):
		return
	}
	r.mu.Lock()
	r.records[key] = rec
	r.mu.Unlock()
}

// read reads the record of a key.
func (r *Remote) read(ctx context.Context, key string) (rec *record, err error) {
	err = r.small(ctx, func(ctx context.Context) error {
		body, err := r.bucket.Get(ctx, nodeName(key), 0)
		if err != nil {
			return err
		}
		defer body.Close()
		b, err := io.ReadAll(io.LimitReader(body, maxRecord))
		if err != nil {
			return err
		}
		rec, err = parseRecord(b, key)
		if err != nil && !errors.Is(err, errNewer) {
			err = fmt.Errorf("%w: %w", errDamaged, err)
		}
		return err
	})
	return rec, err
}

// Fetch commits a result of the remote store to the local one with the bytes of ports, beside those that are there; see
// Store.Import. The lock of the key is held until the caller has flushed the result. ErrBusy means that another process
// has the lock. A missing or damaged object is an error and reported.
func (r *Remote) Fetch(ctx context.Context, key string, ports []string) (
	c *artifact.Committed, lock *artifact.Lock, err error) {
	m := r.Find(ctx, []string{key})[key]
	if m == nil {
		return nil, nil, artifact.ErrNotFound
	}
	if lock, err = r.store.TryLock(key); err != nil || lock == nil {
		return nil, nil, errors.Join(err, ErrBusy)
	}
	r.mu.Lock()
	rec := r.records[key]
	r.mu.Unlock()
	c, err = r.store.Import(*m, ports, func(o artifact.Output, dir string) error {
		return each(blobs(o, rec.pack), func(b blob) error { return r.getBlob(ctx, b, dir) })
	})
	if err == nil {
		return c, lock, nil
	}
	if errors.Is(err, errDamaged) {
		r.mu.Lock()
		rec.damaged = true
		r.mu.Unlock()
	}
	if ctx.Err() == nil && !isReported(err) {
		r.problem(m.Address, "not fetched: %v", err)
	}
	return nil, nil, errors.Join(err, lock.Unlock())
}

// getBlob writes the files of an object below dir.
func (r *Remote) getBlob(ctx context.Context, b blob, dir string) error {
	get := r.getPack
	if b.name == fileName(b.files[0]) {
		get = r.getFile
	}
	err := get(ctx, b, dir)
	if errors.Is(err, errMissing) {
		return fmt.Errorf("%w: %s is missing", errDamaged, b.name)
	}
	return err
}

func (r *Remote) getPack(ctx context.Context, b blob, dir string) error {
	write := func(body io.Reader) error {
		for _, f := range b.files {
			if err := writeFile(filepath.Join(dir, filepath.FromSlash(f.Name)), body, f); err != nil {
				return err
			}
		}
		return nil
	}
	if b.bytes == 0 { // it has no object
		return write(bytes.NewReader(nil))
	}
	return r.get(ctx, b.name, new(int64), write)
}

// get calls read with the bytes of an object from an offset; again from the offset that read has set, when the network
// cuts them.
func (r *Remote) get(ctx context.Context, name string, from *int64, read func(io.Reader) error) error {
	return r.large(ctx, func(ctx context.Context, progress func(int)) (err error) {
		for range attempts {
			var body io.ReadCloser
			if body, err = r.bucket.Get(ctx, name, *from); err != nil {
				return err
			}
			err = read(counted{stoppable{ctx, body}, progress})
			body.Close()
			if err == nil || ctx.Err() != nil || errors.Is(err, errDamaged) {
				return err
			}
		}
		return err
	})
}

// counted is a reader that reports its progress.
type counted struct {
	io.Reader
	progress func(int)
}

func (c counted) Read(b []byte) (int, error) {
	n, err := c.Reader.Read(b)
	c.progress(n)
	return n, err
}

// writeFile writes the next bytes of body to a new file and compares their hash with the record.
func writeFile(path string, body io.Reader, f artifact.FileInfo) error {
	if err := disk.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return err
	}
	file, err := disk.OpenFile(path, os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	h := sha256.New()
	n, err := io.Copy(file, io.TeeReader(io.LimitReader(body, f.Bytes), h))
	if err = errors.Join(err, file.Close()); err != nil {
		return err
	}
	return compare(n, h.Sum(nil), f)
}

// compare returns an error unless the bytes of a file have the recorded number and hash.
func compare(n int64, sum []byte, f artifact.FileInfo) error {
	switch {
	case n != f.Bytes:
		return fmt.Errorf("%w: %s has %d bytes, want %d", errDamaged, f.Name, n, f.Bytes)
	case hex.EncodeToString(sum) != f.SHA256:
		return fmt.Errorf("%w: %s has another hash than its record", errDamaged, f.Name)
	}
	return nil
}

// getFile writes a large file. After an interruption the next call continues with the bytes of the first.
func (r *Remote) getFile(ctx context.Context, b blob, dir string) error {
	f := b.files[0]
	parts := filepath.Join(r.store.Remote(r.Name), "parts")
	part, to := filepath.Join(parts, f.SHA256), filepath.Join(dir, filepath.FromSlash(f.Name))
	if err := errors.Join(r.store.MakeDir(parts), disk.MkdirAll(filepath.Dir(to), 0o700)); err != nil {
		return err
	}
	lock, err := artifact.LockFile(part + ".lock") // two results may contain the file
	if err != nil {
		part = to // from the start
	} else {
		defer lock.Unlock()
	}
	file, err := disk.OpenFile(part, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return err
	}
	h := sha256.New()
	have, err := io.Copy(h, io.LimitReader(file, f.Bytes))
	if err == nil && have < f.Bytes {
		err = r.get(ctx, b.name, &have, func(body io.Reader) error {
			n, err := io.Copy(file, io.TeeReader(io.LimitReader(body, f.Bytes-have), h))
			have += n
			return err
		})
	}
	if err = errors.Join(err, file.Close()); err != nil {
		return err // the bytes stay
	}
	if err = compare(have, h.Sum(nil), f); err == nil && part != to {
		err = disk.Rename(part, to)
	}
	if err != nil {
		os.Remove(part)
	}
	return err
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
		if err != nil || slices.ContainsFunc(of, func(port string) bool { return !m.Has(port) }) {
			keys = append(keys, key)
		}
	}
	flusher := r.store.Flusher()
	var errs []error
	for key, m := range r.Find(ctx, keys) {
		result, lock, err := r.Fetch(ctx, key, ports[key])
		for until := time.Now().Add(busyWait); errors.Is(err, ErrBusy) && time.Now().Before(until) && ctx.Err() == nil; {
			time.Sleep(20 * time.Millisecond)
			result, lock, err = r.Fetch(ctx, key, ports[key])
		}
		if err == nil {
			flusher.Add(result, lock)
		} else if errors.Is(err, ErrBusy) {
			errs = append(errs, fmt.Errorf("%s: %w", m.Address, err))
		}
	}
	return errors.Join(append(errs, flusher.Close())...)
}

// busyWait is longer than the flush of a result that a run has just fetched.
const busyWait = 5 * time.Second
