package reports

import (
	"archive/tar"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	"rcgrpo/engine/artifact"
)

// BundleSuffix ends the name of a bundle.
const BundleSuffix = ".tar.gz"

// Names inside a bundle.
const (
	bundlePage       = "page.html"
	bundleExperiment = "experiment/" // its files
	bundleStore      = "store/"      // a store with the ports and manifests behind the page
)

// WriteBundle writes a page with everything its numbers come from: the artifacts it read (all transcripts among them), the
// manifests, and the experiment's files by name. Equal contents give equal bytes.
func WriteBundle(w io.Writer, page []byte, store *artifact.Store, experiment map[string][]byte) error {
	ev, err := ReadEvidence(page)
	if err != nil {
		return fmt.Errorf("the page: %w", err)
	}
	files := map[string]string{}
	part := func(address, key string, ports ...string) error {
		found, err := store.Part(key, ports...)
		if err != nil {
			return fmt.Errorf("%s, key %s: %w", address, prefix(key, 16), err)
		}
		for name, path := range found {
			files[bundleStore+name] = path
		}
		return nil
	}
	for i := range ev.Inputs {
		in := &ev.Inputs[i]
		if err := part(in.Address, in.Key, in.Ref.Port); err != nil {
			return err
		}
	}
	for _, stage := range ev.Records {
		if stage.Key == "" {
			continue
		}
		m, err := store.Manifest(stage.Key)
		if err != nil {
			return fmt.Errorf("%s, key %s: %w", stage.Address, prefix(stage.Key, 16), err)
		}
		var ports []string
		if m.Outputs["metrics"].Aside != nil {
			ports = append(ports, "metrics") // the seconds by phase
		}
		if err := part(stage.Address, stage.Key, ports...); err != nil {
			return err
		}
	}
	z := gzip.NewWriter(w)
	t := tar.NewWriter(z)
	write := func(name string, content []byte) error {
		h := &tar.Header{Name: name, Mode: 0o644, Size: int64(len(content)), ModTime: time.Unix(0, 0), Format: tar.FormatPAX}
		if err := t.WriteHeader(h); err != nil {
			return err
		}
		_, err := t.Write(content)
		return err
	}
	if err := write(bundlePage, page); err != nil {
		return err
	}
	for _, name := range sortedKeys(experiment) {
		if err := write(bundleExperiment+name, experiment[name]); err != nil {
			return err
		}
	}
	for _, name := range sortedKeys(files) {
		content, err := os.ReadFile(files[name])
		if err != nil {
			return err
		}
		if err := write(name, content); err != nil {
			return err
		}
	}
	return errors.Join(t.Close(), z.Close())
}

// OpenBundle unpacks a bundle into a folder and returns its page and its store.
func OpenBundle(file, dir string) (page []byte, store *artifact.Store, err error) {
	f, err := os.Open(file)
	if err != nil {
		return nil, nil, err
	}
	defer f.Close()
	z, err := gzip.NewReader(f)
	if err != nil {
		return nil, nil, fmt.Errorf("%s is no bundle: %w", file, err)
	}
	t := tar.NewReader(z)
	for {
		h, err := t.Next()
		if err == io.EOF {
			break
		}
		if err != nil {
			return nil, nil, fmt.Errorf("%s is no bundle: %w", file, err)
		}
		if h.Typeflag != tar.TypeReg || !filepath.IsLocal(filepath.FromSlash(h.Name)) {
			return nil, nil, fmt.Errorf("%s holds %q, which is no plain file below it", file, h.Name)
		}
		path := filepath.Join(dir, filepath.FromSlash(h.Name))
		if err := unpackFile(t, path, strings.HasPrefix(h.Name, bundleStore+"objects/")); err != nil {
			return nil, nil, err
		}
	}
	page, err = os.ReadFile(filepath.Join(dir, bundlePage))
	if err != nil {
		return nil, nil, fmt.Errorf("%s holds no %s", file, bundlePage)
	}
	store, err = artifact.Open(filepath.Join(dir, bundleStore))
	return page, store, err
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
	return os.ReadFile(a.Path(HTMLFile))
}
