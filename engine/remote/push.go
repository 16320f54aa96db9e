package remote

import (
	"context"
	"crypto/ed25519"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
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
	if err := r.setState("pending", m.Key); err != nil {
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
			os.Remove(r.statePath("pending", key)) // collected or damaged
		}
	}
}

// Pending returns the keys of results that wait for a push.
func (r *Remote) Pending() []string { return r.state("pending") }

// Alarms returns the keys under which the remote store has other digests than this one.
func (r *Remote) Alarms() []string { return r.state("alarms") }

// AlarmPath returns the file of an alarm.
func (r *Remote) AlarmPath(key string) string { return r.statePath("alarms", key) }

func (r *Remote) statePath(name, key string) string {
	return filepath.Join(r.store.Remote(r.Name), name, key)
}

func (r *Remote) setState(name, key string) error {
	path := r.statePath(name, key)
	return errors.Join(r.store.MakeDir(filepath.Dir(path)), disk.WriteFile(path, nil, 0o600))
}

func (r *Remote) state(name string) (keys []string) {
	if r == nil {
		return nil
	}
	entries, _ := os.ReadDir(r.statePath(name, "")) // none
	for _, e := range entries {
		keys = append(keys, e.Name())
	}
	return keys
}

// PushResult copies a result to the remote store: its objects that are not there, then its manifest, unless there is
// one. Another manifest with other digests stays and is an alarm; one that this machine does not trust is replaced if
// it trusts its own key. An error is reported once, and the result stays pending.
func (r *Remote) PushResult(ctx context.Context, m *artifact.Manifest) error {
	same, err := r.push(ctx, m)
	if err != nil {
		if ctx.Err() == nil && !isReported(err) {
			r.problem(m.Address, "not pushed: %v", err)
		}
		return err
	}
	os.Remove(r.statePath("pending", m.Key))
	if same {
		os.Remove(r.statePath("alarms", m.Key))
		return nil
	}
	r.problem(m.Address, "it has key %.16s with other digests than this store: the stage is not deterministic, or one of "+
		"the results was edited", m.Key)
	return r.setState("alarms", m.Key)
}

// push reports whether the remote store then has the same outputs.
func (r *Remote) push(ctx context.Context, m *artifact.Manifest) (same bool, err error) {
	if len(m.Absent) > 0 || !m.Collected.IsZero() {
		return false, errors.New("not all of its bytes are here")
	}
	rec, err := newRecord(m, r.Pack)
	if err != nil {
		return false, err
	}
	if r.Sign != "" {
		key, err := readKey(r.Sign)
		if err != nil {
			return false, err
		}
		rec.signatures[r.Sign] = ed25519.Sign(key, rec.signed())
	}
	other, err := r.read(ctx, m.Key)
	r.mu.Lock()
	known := r.records[m.Key]
	damaged := known != nil && known.damaged
	r.mu.Unlock()
	write := r.bucket.Create
	switch {
	case err == nil && r.Trust[r.Sign] != nil && other.trustedBy(r.Trust) != nil: // readers do not accept it
		write = r.bucket.Put
	case err == nil && (!damaged || !other.manifest.SameOutputs(m)):
		return other.manifest.SameOutputs(m), nil
	case err == nil: // its objects are written again
		rec.pack = other.pack
	case errors.Is(err, errDamaged): // it commits nothing
		write = r.bucket.Put
	case !errors.Is(err, errMissing):
		return false, err
	}
	if err := r.pushBlobs(ctx, rec.blobs(), damaged); err != nil {
		return false, err
	}
	err = r.small(ctx, func(ctx context.Context) error { return write(ctx, nodeName(m.Key), text(rec.encode())) })
	if !errors.Is(err, errExists) {
		return true, err
	}
	if other, err = r.read(ctx, m.Key); err != nil {
		return false, err
	}
	return other.manifest.SameOutputs(m), nil
}

// pushBlobs writes the objects of a result that are not there, or all. If that takes longer than a quarter of the
// grace, a collection may delete an object before the manifest names it; then the objects are checked once more.
func (r *Remote) pushBlobs(ctx context.Context, blobs []blob, all bool) error {
	for range 2 {
		began := time.Now()
		err := each(blobs, func(b blob) error { return r.pushBlob(ctx, b, all) })
		if err != nil || time.Since(began) < r.Grace/4 {
			return err
		}
	}
	return nil
}

// askAbove is the size of objects that are written without a check whether they exist, which would take as long.
const askAbove = 1e6

// pushBlob writes an object. Unless again is set, a large one that is there and not due to be collected stays.
func (r *Remote) pushBlob(ctx context.Context, b blob, again bool) error {
	if b.bytes == 0 {
		return nil
	}
	if !again && b.bytes > askAbove {
		var info Info
		err := r.small(ctx, func(ctx context.Context) (err error) {
			info, err = r.bucket.Stat(ctx, b.name)
			return err
		})
		if err == nil && info.Bytes == b.bytes && time.Since(info.Time) < r.Grace/2 {
			return nil
		}
		if err != nil && !errors.Is(err, errMissing) {
			return err
		}
	}
	return r.large(ctx, func(ctx context.Context, progress func(int)) error {
		files, end := series{ends: []int64{0}, progress: progress}, int64(0)
		for _, f := range b.files {
			end += f.Bytes
			files.paths, files.ends = append(files.paths, r.store.ObjectPath(b.output, f)), append(files.ends, end)
		}
		return r.bucket.Put(ctx, b.name, io.NewSectionReader(files, 0, b.bytes))
	})
}

// series reads files one after the other.
type series struct {
	paths    []string
	ends     []int64 // 0, and the offset after each file
	progress func(int)
}

func (s series) ReadAt(b []byte, at int64) (n int, err error) {
	i, _ := slices.BinarySearch(s.ends, at+1) // the first end behind at
	for ; n < len(b) && i < len(s.ends); i++ {
		k, err := readPart(s.paths[i-1], b[n:min(int64(len(b)), int64(n)+s.ends[i]-at)], at-s.ends[i-1])
		n, at = n+k, at+int64(k)
		s.progress(k)
		if err != nil {
			return n, err
		}
	}
	if n < len(b) {
		return n, io.EOF
	}
	return n, nil
}

// readPart fills b with the bytes of a file at an offset.
func readPart(path string, b []byte, at int64) (int, error) {
	if len(b) == 0 {
		return 0, nil
	}
	file, err := os.Open(path)
	if err != nil {
		return 0, err
	}
	defer file.Close()
	n, err := io.ReadFull(io.NewSectionReader(file, at, int64(len(b))), b)
	if err != nil {
		err = io.ErrUnexpectedEOF // it is shorter than its record
	}
	return n, err
}
