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
	"path/filepath"
	"sync"

	"rcgrpo/engine/artifact"
	"rcgrpo/engine/internal/disk"
)

// errDamaged is a missing or changed object. It is a miss, not an error of the network.
var errDamaged = errors.New("damaged")

// ErrBusy reports that another process makes or fetches a result.
var ErrBusy = errors.New("another process has the key")

// maxRecord is the size of the largest record that is read.
const maxRecord = 64 << 20

// Find returns the results of the remote store for some keys, without their bytes. A missing, damaged or untrusted
// result is absent from the map; except for a missing one the reason is reported. Answers are remembered.
func (r *Remote) Find(ctx context.Context, keys []string) map[string]*artifact.Manifest {
	found := map[string]*artifact.Manifest{}
	if r == nil || !r.Pull {
		return found
	}
	var all sync.WaitGroup
	for _, key := range keys {
		r.mu.Lock()
		_, known := r.records[key]
		r.mu.Unlock()
		if !known {
			all.Go(func() { r.find(ctx, key) })
		}
	}
	all.Wait()
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, key := range keys {
		if rec := r.records[key]; rec != nil && !r.damaged[key] {
			found[key] = rec.manifest
		}
	}
	return found
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
	case !errors.Is(err, ErrMissing):
		return
	}
	r.mu.Lock()
	r.records[key] = rec
	r.mu.Unlock()
}

// read reads the record of a key.
func (r *Remote) read(ctx context.Context, key string) (rec *record, err error) {
	err = r.small(ctx, func(ctx context.Context) error {
		b, err := r.readAll(ctx, nodeName(key))
		if err == nil {
			rec, err = parseRecord(b, key)
			if err != nil && !errors.Is(err, errNewer) {
				err = fmt.Errorf("%w: %w", errDamaged, err)
			}
		}
		return err
	})
	return rec, err
}

func (r *Remote) readAll(ctx context.Context, name string) ([]byte, error) {
	body, err := r.bucket.Get(ctx, name, 0)
	if err != nil {
		return nil, err
	}
	defer body.Close()
	return io.ReadAll(io.LimitReader(body, maxRecord))
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
	pack := r.records[key].pack
	r.mu.Unlock()
	c, err = r.store.Import(*m, ports, func(o artifact.Output, dir string) error {
		return r.fill(ctx, o, pack, dir)
	})
	if err == nil {
		return c, lock, nil
	}
	if errors.Is(err, errDamaged) {
		r.mu.Lock()
		r.damaged[key] = true
		r.mu.Unlock()
	}
	if ctx.Err() == nil && !errors.Is(err, errResting) {
		r.problem(m.Address, "not fetched: %v", err)
	}
	return nil, nil, errors.Join(err, lock.Unlock())
}

// fill writes the files of an output below dir, several objects at once.
func (r *Remote) fill(ctx context.Context, o artifact.Output, pack int64, dir string) error {
	all := blobs(o, pack)
	errs := make([]error, len(all))
	var group sync.WaitGroup
	for i, b := range all {
		group.Go(func() {
			get := r.getPack
			if b.name == "v1/files/"+b.files[0].SHA256 {
				get = r.getFile
			}
			err := get(ctx, b, dir)
			if err != nil && !lost(err) && ctx.Err() == nil { // the network may have cut it
				err = get(ctx, b, dir)
			}
			if errors.Is(err, ErrMissing) {
				err = fmt.Errorf("%w: %s is missing", errDamaged, b.name)
			}
			errs[i] = err
		})
	}
	group.Wait()
	return errors.Join(errs...)
}

// lost reports whether another attempt would fail in the same way.
func lost(err error) bool {
	return errors.Is(err, errDamaged) || errors.Is(err, ErrMissing) || errors.Is(err, ErrDenied) ||
		errors.Is(err, errResting)
}

// getPack writes the files of a pack.
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
	return r.get(ctx, b.name, 0, write)
}

// get calls read with the bytes of an object from an offset.
func (r *Remote) get(ctx context.Context, name string, from int64, read func(io.Reader) error) error {
	return r.large(ctx, func(ctx context.Context, progress func(int)) error {
		body, err := r.bucket.Get(ctx, name, from)
		if err != nil {
			return err
		}
		defer body.Close()
		return read(counted{stoppable{ctx, body}, progress})
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
		err = r.get(ctx, b.name, have, func(body io.Reader) error {
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
