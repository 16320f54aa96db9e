package main

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"rcgrpo/engine/artifact"
	"rcgrpo/reports"
)

// changeBytes verifies the page of a bundle, then changes a random byte of its artifacts n times. Verify must report
// each change and name the file, although its time stamp is unchanged.
func changeBytes(file, dir string, n int, logf func(string, ...any)) error {
	b, err := reports.OpenBundle(file, dir, reports.BundleBytes)
	if err != nil {
		return err
	}
	page, store := b.Page, b.Store
	whole, err := reports.Verify(page, store, nil, nil)
	if err != nil {
		return err
	}
	if !whole.OK() {
		return fmt.Errorf("the untouched page: %d faults, %d differences", len(whole.Faults), len(whole.Differences))
	}
	var files []string
	err = filepath.WalkDir(filepath.Join(dir, "store", "objects"), func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		info, err := d.Info()
		if err == nil && info.Size() > 0 {
			files = append(files, path)
		}
		return err
	})
	if err != nil {
		return err
	}
	random, touched := rand.New(rand.NewPCG(5, 6)), map[string]bool{}
	write := func(path string, content []byte) error {
		return errors.Join(os.WriteFile(path, content, 0o600), os.Chtimes(path, artifact.Sealed, artifact.Sealed))
	}
	for i := range n {
		path := files[random.IntN(len(files))]
		content, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		changed := bytes.Clone(content)
		at := random.IntN(len(content))
		changed[at] ^= byte(1 + random.IntN(255))
		if err := write(path, changed); err != nil {
			return err
		}
		v, err := reports.Verify(page, store, nil, nil)
		if err != nil {
			return err
		}
		if v.OK() || !slices.ContainsFunc(v.Faults, func(fault string) bool { return strings.Contains(fault, path) }) {
			return fmt.Errorf("change %d: byte %d of %s was not found: %d faults, %d differences", i, at, path, len(v.Faults),
				len(v.Differences))
		}
		touched[path] = true
		if err := write(path, content); err != nil {
			return err
		}
	}
	logf("%d cells and %d values of figures recomputed equal; %d changes of a byte found, in %d of %d files",
		whole.Cells, whole.Values, n, len(touched), len(files))
	return nil
}

// TestChangesOfABundle tests the bundle in $RCGRPO_BUNDLE (make changes).
func TestChangesOfABundle(t *testing.T) {
	file := os.Getenv("RCGRPO_BUNDLE")
	if file == "" {
		t.Skip("set RCGRPO_BUNDLE=FILE to change bytes behind a page of your own")
	}
	if err := changeBytes(file, t.TempDir(), 200, t.Logf); err != nil {
		t.Error(err)
	}
}
