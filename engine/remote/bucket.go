package remote

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"iter"
	"os"
	"path/filepath"
	"strings"
	"time"

	"rcgrpo/engine/internal/disk"
)

// bucket stores objects by slash-separated names. Its errors are errMissing, errExists, errDenied, or those of a
// network or disk.
type bucket interface {
	Get(ctx context.Context, name string, from int64) (io.ReadCloser, error) // from an offset to the end
	Put(ctx context.Context, name string, body *io.SectionReader) error      // replaces an object atomically
	Create(ctx context.Context, name string, body *io.SectionReader) error   // errExists if there is one
	Stat(ctx context.Context, name string) (Info, error)
	List(ctx context.Context, prefix string) iter.Seq2[Info, error] // all below a prefix that ends with a slash
	Delete(ctx context.Context, name string) error                  // no error if there is none
	Unfinished(ctx context.Context) ([]Upload, error)               // uploads in parts that may have been abandoned
	Abort(ctx context.Context, u Upload) error                      // no error if it has ended
}

// Info describes an object.
type Info struct {
	Name  string
	Bytes int64
	Time  time.Time // of the last write, by the storage's clock
}

// Upload is an upload in parts that was not completed. Its time is that of the newest part.
type Upload struct {
	Info
	id string
}

var (
	errMissing = errors.New("no such object")
	errExists  = errors.New("the object exists")
	errDenied  = errors.New("access denied")
)

// folder is a bucket in a folder, for example on a network file system. The user's umask decides who reads it.
type folder struct{ dir string }

func (f folder) path(name string) string { return filepath.Join(f.dir, filepath.FromSlash(name)) }

// translate replaces errors of the file system by those of a bucket. A folder that is not mounted is not empty.
func (f folder) translate(err error) error {
	switch {
	case errors.Is(err, fs.ErrNotExist):
		if _, statErr := os.Stat(f.dir); statErr != nil {
			return fmt.Errorf("%w: create or mount the folder", statErr)
		}
		return errMissing
	case errors.Is(err, fs.ErrPermission):
		return fmt.Errorf("%w: %w", errDenied, err)
	}
	return err
}

func (f folder) Get(_ context.Context, name string, from int64) (io.ReadCloser, error) {
	file, err := os.Open(f.path(name))
	if err == nil && from > 0 {
		_, err = file.Seek(from, io.SeekStart)
	}
	return file, f.translate(err)
}

func (f folder) Put(ctx context.Context, name string, body *io.SectionReader) error {
	return f.write(ctx, name, body, disk.Rename)
}

func (f folder) Create(ctx context.Context, name string, body *io.SectionReader) error {
	err := f.write(ctx, name, body, os.Link)
	if errors.Is(err, fs.ErrExist) {
		return errExists
	}
	return err
}

// write writes a temporary file, flushes it and gives it its name with place.
func (f folder) write(ctx context.Context, name string, body io.Reader, place func(from, to string) error) error {
	if _, err := os.Stat(f.dir); err != nil {
		return f.translate(err)
	}
	to, temp := f.path(name), f.path("v1/tmp/"+rand.Text())
	for _, dir := range []string{filepath.Dir(temp), filepath.Dir(to)} {
		if err := disk.MkdirAll(dir, 0o777); err != nil {
			return f.translate(err)
		}
	}
	file, err := disk.OpenFile(temp, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o666)
	if err != nil {
		return f.translate(err)
	}
	defer os.Remove(temp)
	_, err = disk.Copy(file, stoppable{ctx, body})
	if err = errors.Join(err, disk.Sync(file), file.Close()); err == nil {
		err = place(temp, to)
	}
	return f.translate(err)
}

func (f folder) Stat(_ context.Context, name string) (Info, error) {
	info, err := os.Stat(f.path(name))
	if err != nil {
		return Info{}, f.translate(err)
	}
	return Info{name, info.Size(), info.ModTime()}, nil
}

func (f folder) List(_ context.Context, prefix string) iter.Seq2[Info, error] {
	return func(yield func(Info, error) bool) {
		entries, err := os.ReadDir(f.path(prefix))
		if err = f.translate(err); err != nil && !errors.Is(err, errMissing) {
			yield(Info{}, err)
			return
		}
		for _, e := range entries {
			info, err := e.Info()
			if err != nil || !info.Mode().IsRegular() { // deleted meanwhile, or of another program
				continue
			}
			if !yield(Info{prefix + e.Name(), info.Size(), info.ModTime()}, nil) {
				return
			}
		}
	}
}

func (f folder) Delete(_ context.Context, name string) error {
	err := f.translate(os.Remove(f.path(name)))
	if errors.Is(err, errMissing) {
		return nil
	}
	return err
}

// Unfinished returns nil: a file that was not completed is an object below v1/tmp.
func (f folder) Unfinished(context.Context) ([]Upload, error) { return nil, nil }

func (f folder) Abort(context.Context, Upload) error { return nil }

// stoppable is a reader that ends with its context.
type stoppable struct {
	ctx context.Context
	io.Reader
}

func (s stoppable) Read(b []byte) (int, error) {
	if s.ctx.Err() != nil {
		return 0, context.Cause(s.ctx)
	}
	return s.Reader.Read(b)
}

// text returns a body with the bytes of a string.
func text[T string | []byte](s T) *io.SectionReader {
	return io.NewSectionReader(strings.NewReader(string(s)), 0, int64(len(s)))
}
