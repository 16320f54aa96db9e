package remote

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"

	"rcgrpo/engine/artifact"
)

// errConflict reports a result in the remote store with other digests.
var errConflict = errors.New("it has the key with other digests")

// Send pushes a result beside the caller if the site has push = "yes". Close waits for it.
func (r *Remote) Send(ctx context.Context, m *artifact.Manifest) {
	if r == nil || r.Push != "yes" {
		return
	}
	r.queue.Go(func() {
		if r.PushResult(ctx, m) != nil {
			r.unsent.Add(1)
		}
	})
}

// Unsent returns the number of results that Send could not push.
func (r *Remote) Unsent() int {
	if r == nil {
		return 0
	}
	return int(r.unsent.Load())
}

// PushResult copies a result to the remote store: its objects that are not there, then its manifest, unless there is
// one. A manifest with other digests stays, and is an error. An error is reported once.
func (r *Remote) PushResult(ctx context.Context, m *artifact.Manifest) error {
	err := r.push(ctx, m)
	switch {
	case err == nil || ctx.Err() != nil || isReported(err):
	case errors.Is(err, errConflict):
		r.problem(m.Address, "it has key %.16s with other digests than this store: the stage is not deterministic, or one "+
			"of the results was edited. Nothing was replaced", m.Key)
	default:
		r.problem(m.Address, "not pushed: %v", err)
	}
	return err
}

func (r *Remote) push(ctx context.Context, m *artifact.Manifest) error {
	if len(m.Absent) > 0 || !m.Collected.IsZero() {
		return errors.New("not all of its bytes are here")
	}
	record, err := encodeRecord(m)
	if err != nil {
		return err
	}
	other, err := r.read(ctx, m.Key)
	repair := false
	write := r.bucket.Create
	switch {
	case err == nil && !maps.Equal(other.Types(), m.Types()): // a record that this stage cannot have written
		write = r.bucket.Put
	case err == nil && !other.SameOutputs(m):
		return errConflict
	case err == nil:
		if repair = r.isDamaged(m.Key); !repair {
			return nil
		}
		write = r.bucket.Put
	case errors.Is(err, errDamaged): // it commits nothing
		write = r.bucket.Put
	case !errors.Is(err, errMissing):
		return err
	}
	if err := each(files(m), func(f file) error { return r.pushFile(ctx, f, repair) }); err != nil {
		return err
	}
	err = r.small(ctx, func(ctx context.Context) error { return write(ctx, nodeName(m.Key), text(record)) })
	if !errors.Is(err, errExists) {
		return err
	}
	if other, err = r.read(ctx, m.Key); err == nil && !other.SameOutputs(m) {
		return errConflict
	}
	return err
}

// askAbove is the size of objects that are written without a check whether they exist, which would take as long.
const askAbove = 1e6

// pushFile writes an object. Unless again is set, a large one that is there stays.
func (r *Remote) pushFile(ctx context.Context, f file, again bool) error {
	if !again && f.Bytes > askAbove {
		var bytes int64
		err := r.small(ctx, func(ctx context.Context) (err error) {
			bytes, err = r.bucket.Size(ctx, fileName(f.FileInfo))
			return err
		})
		if err == nil && bytes == f.Bytes || err != nil && !errors.Is(err, errMissing) {
			return err
		}
	}
	in, err := os.Open(r.store.ObjectPath(f.output, f.FileInfo))
	if err != nil {
		return err
	}
	defer in.Close()
	if info, err := in.Stat(); err != nil || info.Size() != f.Bytes {
		return cmp.Or(err, fmt.Errorf("%s has another size than its record", in.Name()))
	}
	return r.large(ctx, func(ctx context.Context, progress func(int)) error {
		return r.bucket.Put(ctx, fileName(f.FileInfo), io.NewSectionReader(countedAt{in, progress}, 0, f.Bytes))
	})
}

// countedAt is a file that reports its progress.
type countedAt struct {
	io.ReaderAt
	progress func(int)
}

func (c countedAt) ReadAt(b []byte, at int64) (int, error) {
	n, err := c.ReaderAt.ReadAt(b, at)
	c.progress(n)
	return n, err
}
