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
	"path"
	"path/filepath"
	"strings"

	"rcgrpo/engine/artifact"
	"rcgrpo/engine/internal/disk"
)

// bucket stores objects by slash-separated names. Its errors are errMissing, errExists, errDenied, errDamaged, or those
// of a network or disk.
type bucket interface {
	Get(ctx context.Context, name string) (io.ReadCloser, error)
	Put(ctx context.Context, name string, body *io.SectionReader) error    // whole or not at all; replaces
	Create(ctx context.Context, name string, body *io.SectionReader) error // errExists if there is one: the first wins
	List(ctx context.Context, prefix string) iter.Seq2[blob, error]        // all below a prefix that ends with a slash
}

// blob is a manifest or a file of an object.
type blob struct {
	name  string
	bytes int64
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
	case errors.Is(err, disk.ErrNotPlain):
		return fmt.Errorf("%w: %w", errDamaged, err)
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

// Get opens plain files only: another user of the folder may have put a pipe or a link to a device there.
func (f folder) Get(_ context.Context, name string) (io.ReadCloser, error) {
	file, err := disk.OpenPlain(f.path(name), disk.MaxPlain)
	if err != nil {
		return nil, f.translate(err)
	}
	return file, nil
}

func (f folder) Put(ctx context.Context, name string, body *io.SectionReader) error {
	err := f.write(ctx, name, body, (*os.Root).Rename)
	if errors.Is(err, fs.ErrExist) { // a folder, which a rename does not replace
		return fmt.Errorf("%w: %s %w: remove it", errDamaged, f.path(name), disk.ErrNotPlain)
	}
	return err
}

func (f folder) Create(ctx context.Context, name string, body *io.SectionReader) error {
	err := f.write(ctx, name, body, (*os.Root).Link)
	if errors.Is(err, fs.ErrExist) {
		return errExists
	}
	return err
}

// write writes a temporary file, flushes it and gives it its name with place. A file of an object gets the mode and the
// time that it has in a store. Another user of the folder may put a link in the place of a folder at any time, so all
// names are those of a Root.
func (f folder) write(ctx context.Context, name string, body io.Reader,
	place func(r *os.Root, from, to string) error) error {
	root, err := os.OpenRoot(f.dir)
	if err != nil {
		return f.translate(err)
	}
	defer root.Close()
	temp := manifests + strings.Replace(disk.TempPattern, "*", rand.Text(), 1)
	for _, dir := range []string{path.Dir(temp), path.Dir(name)} {
		if behindLink(f.path("-"), f.path(dir)) {
			return fmt.Errorf("%w: %s is behind a link: remove the link", errDamaged, f.path(dir))
		}
		if err := root.MkdirAll(dir, 0o777); err != nil {
			return f.translate(err)
		}
	}
	object, mode := !strings.HasPrefix(name, manifests), fs.FileMode(0o666)
	if object {
		mode = 0o444
	}
	file, err := root.OpenFile(temp, os.O_CREATE|os.O_EXCL|os.O_WRONLY, mode)
	if err != nil {
		return f.translate(err)
	}
	defer root.Remove(temp)
	_, err = disk.Copy(file, stoppable{ctx, body})
	if object {
		err = errors.Join(err, root.Chtimes(temp, artifact.Sealed, artifact.Sealed))
	}
	err = errors.Join(err, disk.Sync(file), file.Close())
	if err == nil {
		err = place(root, temp, name)
	}
	return f.translate(err)
}

// behindLink reports whether a path below dir, a folder on the way to it, or dir is a link.
func behindLink(dir, path string) bool {
	for at := path; len(at) >= len(dir); at = filepath.Dir(at) {
		if info, err := os.Lstat(at); err == nil && info.Mode()&fs.ModeSymlink != 0 {
			return true
		}
	}
	return false
}

// List leaves out what is no plain file and what write has not finished.
func (f folder) List(_ context.Context, prefix string) iter.Seq2[blob, error] {
	return func(yield func(blob, error) bool) {
		err := filepath.WalkDir(f.path(prefix), func(at string, e fs.DirEntry, err error) error {
			unfinished, _ := filepath.Match(disk.TempPattern, filepath.Base(at))
			if err != nil || !e.Type().IsRegular() || unfinished && prefix == manifests {
				return err
			}
			info, err := e.Info()
			if errors.Is(err, fs.ErrNotExist) { // removed meanwhile
				return nil
			}
			name, relErr := filepath.Rel(f.dir, at)
			if err = errors.Join(err, relErr); err == nil && !yield(blob{filepath.ToSlash(name), info.Size()}, nil) {
				return fs.SkipAll
			}
			return err
		})
		if err = f.translate(err); err != nil && !errors.Is(err, errMissing) {
			yield(blob{}, err)
		}
	}
}

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
