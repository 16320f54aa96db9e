package remote

import (
	"bytes"
	"context"
	"crypto/ed25519"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"rcgrpo/engine/artifact"
	"rcgrpo/engine/internal/disk"
)

// Send pushes a result beside the caller if the site has push = "yes". Until it has been pushed the result is pending,
// also after the end of this process. Close waits for it.
func (r *Remote) Send(ctx context.Context, m *artifact.Manifest) {
	if r == nil || r.Push != "yes" {
		return
	}
	dir := r.stateDir("pending")
	if err := errors.Join(r.store.MakeDir(dir), disk.WriteFile(filepath.Join(dir, m.Key), nil, 0o600)); err != nil {
		r.problem("", "%v", err)
	}
	r.queue.Go(func() { r.PushResult(ctx, m) })
}

// SendPending sends the results that earlier runs could not push.
func (r *Remote) SendPending(ctx context.Context) {
	if r == nil || r.Push != "yes" {
		return
	}
	for _, key := range r.Pending() {
		if m, err := r.store.Lookup(key); err == nil && len(m.Absent) == 0 {
			r.Send(ctx, m)
		} else {
			os.Remove(filepath.Join(r.stateDir("pending"), key)) // collected or damaged
		}
	}
}

func (r *Remote) stateDir(name string) string { return filepath.Join(r.store.Remote(r.Name), name) }

// Pending returns the keys of results that wait for a push.
func (r *Remote) Pending() []string { return r.state("pending") }

// Alarms returns the keys under which the remote store has other digests than this one.
func (r *Remote) Alarms() []string { return r.state("alarms") }

func (r *Remote) state(name string) (keys []string) {
	if r == nil {
		return nil
	}
	entries, _ := os.ReadDir(r.stateDir(name)) // none
	for _, e := range entries {
		keys = append(keys, e.Name())
	}
	return keys
}

// PushResult copies a result to the remote store: its objects that are not there, then its manifest, unless there is
// one. Another manifest with other digests stays and is an alarm. An error is reported once, and the result stays
// pending.
func (r *Remote) PushResult(ctx context.Context, m *artifact.Manifest) error {
	err := r.push(ctx, m)
	if err == nil {
		if err := os.Remove(filepath.Join(r.stateDir("pending"), m.Key)); err != nil && !errors.Is(err, os.ErrNotExist) {
			return err
		}
		return nil
	}
	if ctx.Err() == nil && !errors.Is(err, errResting) {
		r.problem(m.Address, "not pushed: %v", err)
	}
	return err
}

func (r *Remote) push(ctx context.Context, m *artifact.Manifest) error {
	if len(m.Absent) > 0 || !m.Collected.IsZero() {
		return errors.New("not all of its bytes are here")
	}
	rec, err := newRecord(m, r.Pack)
	if err != nil {
		return err
	}
	if r.Sign != "" {
		key, err := readKey(r.Sign)
		if err != nil {
			return err
		}
		rec.signatures[r.Sign] = ed25519.Sign(key, rec.signed())
	}
	other, err := r.read(ctx, m.Key)
	r.mu.Lock()
	damaged := r.damaged[m.Key]
	r.mu.Unlock()
	switch {
	case err == nil && !other.manifest.SameOutputs(m):
		return r.alarm(m)
	case err == nil && !damaged:
		return nil
	case err == nil: // its objects are written again
		rec.pack = other.pack
	case !errors.Is(err, ErrMissing) && !errors.Is(err, errDamaged):
		return err
	}
	if err := r.pushObjects(ctx, m, rec.pack, damaged); err != nil {
		return err
	}
	text := rec.encode()
	write := r.bucket.Create
	if errors.Is(err, errDamaged) { // a damaged record commits nothing
		write = r.bucket.Put
	}
	err = r.small(ctx, func(ctx context.Context) error { return write(ctx, nodeName(m.Key), bytes.NewReader(text)) })
	if !errors.Is(err, ErrExists) {
		return err
	}
	if other, err = r.read(ctx, m.Key); err == nil && !other.manifest.SameOutputs(m) {
		return r.alarm(m)
	}
	return err
}

// pushObjects writes the objects of a result. It starts over when the marks of a collection may have changed meanwhile.
func (r *Remote) pushObjects(ctx context.Context, m *artifact.Manifest, pack int64, all bool) error {
	for {
		marked, read, err := r.marked(ctx)
		if err != nil {
			return err
		}
		for _, port := range m.Ports() {
			for _, o := range m.Outputs[port].Objects() {
				for _, b := range blobs(o, pack) {
					if err := r.pushBlob(ctx, o, b, all || marked[b.name]); err != nil {
						return err
					}
				}
			}
		}
		if time.Since(read) < r.Grace/2 {
			return nil
		}
	}
}

// pushBlob writes an object unless it is there. With again it is written in any case.
func (r *Remote) pushBlob(ctx context.Context, o artifact.Output, b blob, again bool) error {
	if b.bytes == 0 {
		return nil
	}
	if !again {
		var info Info
		err := r.small(ctx, func(ctx context.Context) (err error) {
			info, err = r.bucket.Stat(ctx, b.name)
			return err
		})
		if err == nil && info.Bytes == b.bytes {
			return nil
		}
		if err != nil && !errors.Is(err, ErrMissing) {
			return err
		}
	}
	files := &fileSeries{bytes: b.bytes}
	for _, f := range b.files {
		files.paths, files.sizes = append(files.paths, r.store.ObjectPath(o, f)), append(files.sizes, f.Bytes)
	}
	defer files.close()
	return r.large(ctx, func(ctx context.Context, progress func(int)) error {
		files.progress = progress
		return r.bucket.Put(ctx, b.name, files)
	})
}

// alarm records that the remote store has a result of the same key with other digests.
func (r *Remote) alarm(m *artifact.Manifest) error {
	dir := r.stateDir("alarms")
	r.problem(m.Address, "it has key %.16s with other digests than this store: the stage is not deterministic, or one of "+
		"the results was edited", m.Key)
	return errors.Join(r.store.MakeDir(dir), disk.WriteFile(filepath.Join(dir, m.Key), nil, 0o600))
}

// fileSeries reads files one after the other. It can be rewound, for another attempt of an upload.
type fileSeries struct {
	paths    []string
	sizes    []int64
	bytes    int64
	progress func(int)

	at   int64 // offset in the series
	next int   // index of the file after the open one
	file *os.File
}

func (s *fileSeries) Read(b []byte) (int, error) {
	for {
		if s.file == nil {
			if s.next == len(s.paths) {
				return 0, io.EOF
			}
			file, err := os.Open(s.paths[s.next])
			if err != nil {
				return 0, err
			}
			s.file, s.next = file, s.next+1
		}
		n, err := s.file.Read(b)
		s.at += int64(n)
		s.progress(n)
		if err != io.EOF {
			return n, err
		}
		s.close()
		if n > 0 {
			return n, nil
		}
	}
}

// Seek supports offsets from the start, and the end of the series.
func (s *fileSeries) Seek(offset int64, whence int) (int64, error) {
	switch whence {
	case io.SeekCurrent:
		offset += s.at
	case io.SeekEnd:
		offset += s.bytes
	}
	s.close()
	s.next, s.at = len(s.paths), offset
	var sum int64
	for i, size := range s.sizes {
		if offset < sum+size {
			file, err := os.Open(s.paths[i])
			if err != nil {
				return 0, err
			}
			_, err = file.Seek(offset-sum, io.SeekStart)
			s.file, s.next = file, i+1
			return offset, err
		}
		sum += size
	}
	if offset > s.bytes {
		return 0, fmt.Errorf("seek to %d of %d bytes", offset, s.bytes)
	}
	return offset, nil
}

func (s *fileSeries) close() {
	if s.file != nil {
		s.file.Close()
		s.file = nil
	}
}
