package remote

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"

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

// PushResult copies a result to the remote store: its objects that are not there, then its manifest, unless there is
// one. An error is reported once.
//
// Two machines may have different bytes under one key, such as those of a stage that is not deterministic. Objects have
// their digests as names, so neither overwrites those of the other; the manifest decides, and the first one stays. The
// second machine finds it before its push, or when it creates its own, which is a conditional write. Its push is an
// error that names the stage: a run counts it as not pushed and ends as without it, `store push` exits with 1. Each
// machine keeps its own result in its own store; machines without one fetch the first. A damaged manifest, and
// one with other ports or types, which this stage cannot have written, are replaced. A storage without conditional
// writes keeps the last of two that are created at once; `store verify --remote` reports such a storage.
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
	manifest, err := artifact.EncodeManifest(*m)
	if err != nil {
		return err
	}
	other, err := r.read(ctx, m.Key)
	repair := false
	write := r.bucket.Create
	switch {
	case err == nil && !maps.Equal(other.Types(), m.Types()): // a manifest that this stage cannot have written
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
	if absent := r.store.Absent(m); len(absent) > 0 {
		return fmt.Errorf("its ports %v are not here", absent)
	}
	for _, output := range m.Outputs {
		for _, o := range output.Objects() {
			if err := r.pushObject(ctx, o, repair); err != nil {
				return err
			}
		}
	}
	err = r.small(ctx, func(ctx context.Context) error { return write(ctx, manifestName(m.Key), text(manifest)) })
	if !errors.Is(err, errExists) {
		return err
	}
	if other, err = r.read(ctx, m.Key); err == nil && !other.SameOutputs(m) {
		return errConflict
	}
	return err
}

// pushObject writes the files of an object that are absent or have another size; with again all of them. So a push that
// was cut continues.
func (r *Remote) pushObject(ctx context.Context, o artifact.Output, again bool) error {
	there := map[string]int64{}
	if !again {
		all, err := r.list(ctx, objectPrefix(o))
		if err != nil {
			return err
		}
		for _, b := range all {
			there[b.name] = b.bytes
		}
	}
	return each(o.Files, func(f artifact.FileInfo) error {
		if n, ok := there[objectPrefix(o)+f.Name]; ok && n == f.Bytes {
			return nil
		}
		return r.pushFile(ctx, o, f)
	})
}

func (r *Remote) pushFile(ctx context.Context, o artifact.Output, f artifact.FileInfo) error {
	path := r.store.ObjectPath(o, f)
	in, err := artifact.OpenPlain(path)
	if err != nil {
		return err
	}
	defer in.Close()
	if in.Info.Size() != f.Bytes {
		return fmt.Errorf("%s has another size than its manifest", path)
	}
	return r.call(ctx, r.transfers, r.Deadline, func(ctx context.Context, progress func()) error {
		return r.bucket.Put(ctx, objectPrefix(o)+f.Name, io.NewSectionReader(countedAt{in, progress}, 0, f.Bytes))
	})
}

// countedAt is a file that reports its progress.
type countedAt struct {
	io.ReaderAt
	progress func()
}

func (c countedAt) ReadAt(b []byte, at int64) (int, error) {
	n, err := c.ReaderAt.ReadAt(b, at)
	c.progress()
	return n, err
}
