package reports

import (
	"archive/tar"
	"bytes"
	"cmp"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"path/filepath"
	"strings"
	"time"

	"rcgrpo/engine/artifact"
	"rcgrpo/reports/page"
)

// BundleSuffix ends the name of a bundle.
const BundleSuffix = ".tar.gz"

// Names inside a bundle.
const (
	bundlePage       = "page.html"
	bundleExperiment = "experiment/" // its files
	bundleStore      = "store/"      // a store with the ports and manifests behind the page
	bundleManifests  = bundleStore + "results/"
	bundleObjects    = bundleStore + "objects/"
)

// WriteBundle writes a page with the artifacts that it reads, the manifests, and the experiment's files by name, which
// must be the recorded files. Equal contents give equal bytes.
func WriteBundle(w io.Writer, page []byte, store *artifact.Store, experiment map[string][]byte) error {
	ev, err := ReadEvidence(page)
	if err != nil {
		return fmt.Errorf("the page: %w", err)
	}
	if faults := ev.CheckFiles(experiment); len(faults) > 0 {
		return fmt.Errorf("the page was made from another experiment: %s", strings.Join(faults, "; "))
	}
	files, err := ev.storedFiles(store)
	if err != nil {
		return err
	}
	z := gzip.NewWriter(w)
	t := tar.NewWriter(z)
	write := func(name string, size int64, content io.Reader) error {
		h := &tar.Header{Name: name, Mode: 0o644, Size: size, ModTime: time.Unix(0, 0), Format: tar.FormatPAX}
		if err := t.WriteHeader(h); err != nil {
			return err
		}
		_, err := io.CopyN(t, content, size)
		return err
	}
	if err := write(bundlePage, int64(len(page)), bytes.NewReader(page)); err != nil {
		return err
	}
	for _, name := range sortedKeys(experiment) {
		text := experiment[name]
		if err := write(bundleExperiment+name, int64(len(text)), bytes.NewReader(text)); err != nil {
			return err
		}
	}
	for _, name := range sortedKeys(files) {
		f, err := artifact.OpenPlain(files[name])
		if err != nil {
			return err
		}
		if err := errors.Join(write(name, f.Info.Size(), f), f.Close()); err != nil {
			return fmt.Errorf("%s: %w", files[name], err)
		}
	}
	return errors.Join(t.Close(), z.Close())
}

// storedFiles returns the paths of all files behind the evidence, by their names in a bundle.
func (ev *Evidence) storedFiles(store *artifact.Store) (map[string]string, error) {
	files := map[string]string{}
	add := func(address, key string, ports ...string) error {
		found, err := store.Part(key, ports...)
		if err != nil {
			return fmt.Errorf("%s, key %s: %w", address, page.Prefix(key, 16), err)
		}
		for name, path := range found {
			files[bundleStore+name] = path
		}
		return nil
	}
	var errs []error
	for _, in := range ev.ports(store) {
		errs = append(errs, add(in.Address, in.Key, in.Ref.Port))
	}
	for _, stage := range ev.Stages {
		errs = append(errs, add(stage.Address, stage.Key))
	}
	return files, errors.Join(errs...)
}

// Bundle is an unpacked bundle.
type Bundle struct {
	Page       []byte
	Store      *artifact.Store
	Experiment string            // folder of the experiment's files
	Files      map[string][]byte // the experiment's files by name
}

// BundleBytes is the default limit of an unpacked bundle.
const BundleBytes = artifact.FewRowsBytes

// Limits of the contents of a bundle, far above those of any page that a browser can show.
const (
	maxBundleFiles    = 10_000
	maxBundleDepth    = 8 // folders below an object
	maxPageBytes      = 32 << 20
	maxSourceBytes    = 1 << 20  // all files of the experiment together
	maxManifestsBytes = 64 << 20 // all manifests together
)

// OpenBundle unpacks a bundle into a folder as a stream. It writes at most limit bytes and refuses everything that
// WriteBundle does not write: other names, links and devices, more or larger files than any page requires.
func OpenBundle(file, dir string, limit int64) (*Bundle, error) {
	f, err := artifact.OpenPlain(file)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	z, err := gzip.NewReader(f)
	if err != nil {
		return nil, fmt.Errorf("%s is not a bundle: %w", file, err)
	}
	b := &Bundle{Experiment: filepath.Join(dir, bundleExperiment), Files: map[string][]byte{}}
	left := map[string]int64{bundlePage: maxPageBytes, bundleExperiment: maxSourceBytes,
		bundleManifests: maxManifestsBytes, bundleObjects: limit}
	t := tar.NewReader(z)
	for n, unpacked := 0, int64(0); ; n++ {
		h, err := t.Next()
		if err == io.EOF {
			break
		}
		if err != nil {
			return nil, fmt.Errorf("%s is not a bundle: %w", file, err)
		}
		part := bundlePart(h.Name)
		if h.Typeflag != tar.TypeReg || part == "" {
			return nil, fmt.Errorf("%s contains %q, which is not a file of a bundle", file, h.Name)
		}
		if n == maxBundleFiles {
			return nil, fmt.Errorf("%s contains more than %d files, which no bundle requires", file, maxBundleFiles)
		}
		if unpacked += h.Size; unpacked > limit {
			return nil, fmt.Errorf("%s unpacks to more than %s: allow more with --limit if you trust it", file, megabytes(limit))
		}
		if left[part] -= h.Size; left[part] < 0 {
			return nil, fmt.Errorf("%s: with %q the part %s of the bundle is larger than any page requires", file, h.Name, part)
		}
		path := filepath.Join(dir, filepath.FromSlash(h.Name))
		if err := unpackFile(t, path, part == bundleObjects); err != nil {
			return nil, fmt.Errorf("%s: unpack %q: %w", file, h.Name, err)
		}
		if name, ok := strings.CutPrefix(h.Name, bundleExperiment); ok {
			if b.Files[name], err = os.ReadFile(path); err != nil {
				return nil, err
			}
		}
	}
	if b.Page, err = os.ReadFile(filepath.Join(dir, bundlePage)); err != nil {
		return nil, fmt.Errorf("%s contains no %s", file, bundlePage)
	}
	b.Store, err = artifact.Open(filepath.Join(dir, bundleStore))
	return b, err
}

// bundlePart returns the part of a bundle with a file; "" for a name that WriteBundle does not write.
func bundlePart(name string) string {
	folder, file := path.Split(name)
	below, object := strings.CutPrefix(folder, bundleObjects)
	depth := strings.Count(below, "/")
	switch {
	case !filepath.IsLocal(filepath.FromSlash(name)) || path.Clean(name) != name:
		return ""
	case name == bundlePage, folder == bundleManifests && path.Ext(file) == ".json":
		return cmp.Or(folder, name)
	case strings.HasPrefix(folder, bundleExperiment) && strings.Count(folder, "/") <= maxBundleDepth:
		return bundleExperiment
	case object && 1 <= depth && depth <= maxBundleDepth:
		return bundleObjects
	}
	return ""
}

// ReadPage reads a page. A file above the maximal size of a page is an error.
func ReadPage(file string) ([]byte, error) {
	f, err := artifact.OpenPlain(file)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	page, err := io.ReadAll(io.LimitReader(f, maxPageBytes+1))
	if err == nil && len(page) > maxPageBytes {
		err = fmt.Errorf("%s has more than %s, the maximum of a page", file, megabytes(maxPageBytes))
	}
	return page, err
}

func unpackFile(r io.Reader, path string, object bool) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return err
	}
	f, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	if _, err := io.Copy(f, r); err != nil {
		return errors.Join(err, f.Close())
	}
	if err := f.Close(); err != nil || !object {
		return err
	}
	return os.Chtimes(path, artifact.Sealed, artifact.Sealed)
}

// PageOf reads the page of a report's result.
func PageOf(m *artifact.Manifest, store *artifact.Store) ([]byte, error) {
	a, err := store.Open(m, "page")
	if err != nil {
		return nil, err
	}
	return a.Read(HTMLFile)
}
