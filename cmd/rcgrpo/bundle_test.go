package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math/rand/v2"
	"os"
	"os/exec"
	ossignal "os/signal"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"

	"rcgrpo/engine/artifact"
	"rcgrpo/internal/must"
	"rcgrpo/reports"
	"rcgrpo/reports/page"
)

// rebundle forges a bundle in a script. rebundle IN OUT NAME PATTERN TEXT replaces a regular expression in a file,
// or adds the file. The name "evidence" is the evidence inside page.html.
func rebundle(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 5 {
		ts.Fatalf("usage: rebundle IN OUT NAME PATTERN TEXT")
	}
	in, err := os.Open(ts.MkAbs(args[0]))
	ts.Check(err)
	defer in.Close()
	z, err := gzip.NewReader(in)
	ts.Check(err)
	var out bytes.Buffer
	packer := gzip.NewWriter(&out)
	w := tar.NewWriter(packer)
	write := func(name string, content []byte) {
		ts.Check(w.WriteHeader(&tar.Header{Name: name, Mode: 0o644, Size: int64(len(content)), Format: tar.FormatPAX}))
		_, err := w.Write(content)
		ts.Check(err)
	}
	pattern, found, changed := regexp.MustCompile(args[3]), false, false
	for r := tar.NewReader(z); ; {
		h, err := r.Next()
		if err == io.EOF {
			break
		}
		ts.Check(err)
		content, err := io.ReadAll(r)
		ts.Check(err)
		replaced := content
		switch {
		case h.Name == args[2]:
			found, replaced = true, pattern.ReplaceAll(content, []byte(args[4]))
		case h.Name == "page.html" && args[2] == "evidence":
			found, replaced = true, forgeEvidence(ts, content, pattern, args[4])
		}
		changed = changed || !bytes.Equal(content, replaced)
		write(h.Name, replaced)
	}
	if !found {
		write(args[2], []byte(args[4]))
	} else if !changed {
		ts.Fatalf("%s of %s has no %q", args[2], args[0], args[3])
	}
	ts.Check(w.Close())
	ts.Check(packer.Close())
	ts.Check(os.WriteFile(ts.MkAbs(args[1]), out.Bytes(), 0o644))
}

// forgeEvidence replaces a pattern in the evidence of a page and packs it as the program does.
func forgeEvidence(ts *testscript.TestScript, page []byte, pattern *regexp.Regexp, text string) []byte {
	place := regexp.MustCompile(`(id="evidence-of-this-page">)([A-Za-z0-9_-]*)`)
	m := place.FindSubmatch(page)
	if m == nil {
		ts.Fatalf("the page has no evidence")
	}
	packed, err := base64.RawURLEncoding.DecodeString(string(m[2]))
	ts.Check(err)
	z, err := gzip.NewReader(bytes.NewReader(packed))
	ts.Check(err)
	evidence, err := io.ReadAll(z)
	ts.Check(err)
	var b bytes.Buffer
	w, err := gzip.NewWriterLevel(&b, gzip.BestCompression)
	ts.Check(err)
	_, err = w.Write(pattern.ReplaceAll(evidence, []byte(text)))
	ts.Check(err)
	ts.Check(w.Close())
	return place.ReplaceAll(page, []byte("${1}"+base64.RawURLEncoding.EncodeToString(b.Bytes())))
}

// The process ends by the same signal, so that its parent sees it.
func TestASignalRemovesTheUnpackedBundle(t *testing.T) {
	binary := commandBinary(t, t.TempDir())
	bundle := filepath.Join(t.TempDir(), "slow.tar.gz")
	must.OK(t, os.WriteFile(bundle, slowBundle(t), 0o600))
	for _, signal := range []syscall.Signal{syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP} {
		if ossignal.Ignored(signal) { // as SIGHUP below nohup; the command then ignores it too
			continue
		}
		dir := t.TempDir()
		c := exec.Command(binary, "verify", bundle)
		c.Env = append(os.Environ(), "TMPDIR="+dir)
		must.OK(t, c.Start())
		ended := make(chan error, 1)
		go func() { ended <- c.Wait() }()
		var unpacked []string // the command handles signals once it has made the folder
		for deadline := time.Now().Add(time.Minute); len(unpacked) == 0 && time.Now().Before(deadline); {
			unpacked, _ = filepath.Glob(filepath.Join(dir, "rcgrpo-bundle-*", "*"))
			time.Sleep(time.Millisecond)
		}
		must.OK(t, c.Process.Signal(signal))
		<-ended
		if len(unpacked) == 0 {
			t.Fatal("the command has unpacked nothing within a minute")
		}
		if got := c.ProcessState.Sys().(syscall.WaitStatus); !got.Signaled() || got.Signal() != signal {
			t.Errorf("got the end %v, want %v", c.ProcessState, signal)
		}
		if left, _ := filepath.Glob(filepath.Join(dir, "*")); len(left) > 0 {
			t.Errorf("%v: got the folders %s, want none", signal, left)
		}
	}
}

// slowBundle is a bundle of a few megabytes that takes seconds to unpack.
func slowBundle(t *testing.T) []byte {
	var b bytes.Buffer
	z := must.Get(gzip.NewWriterLevel(&b, gzip.BestSpeed))(t)
	w := tar.NewWriter(z)
	zeros := make([]byte, 1<<20)
	for i := range 1000 {
		must.OK(t, w.WriteHeader(&tar.Header{Name: fmt.Sprintf("store/objects/aa/%d", i), Mode: 0o644, Size: 1 << 20}))
		must.Get(w.Write(zeros))(t)
	}
	must.OK(t, w.Close())
	must.OK(t, z.Close())
	return b.Bytes()
}

// bomb writes a small bundle that exceeds the limits when it is unpacked: bomb file OUT has one file of 3 GB, bomb many
// OUT has many files.
func bomb(ts *testscript.TestScript, neg bool, args []string) {
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	w := tar.NewWriter(z)
	switch args[0] {
	case "file":
		ts.Check(w.WriteHeader(&tar.Header{Name: "store/objects/aa/rows.jsonl", Mode: 0o644, Size: 3 << 30}))
		_, err := w.Write(make([]byte, 1<<20)) // the rest is never read
		ts.Check(err)
	case "many":
		for i := range 10_001 {
			ts.Check(w.WriteHeader(&tar.Header{Name: fmt.Sprintf("store/objects/aa/%d", i), Mode: 0o644}))
		}
		ts.Check(w.Close())
	default:
		ts.Fatalf("no bomb %s", args[0])
	}
	ts.Check(z.Close())
	ts.Check(os.WriteFile(ts.MkAbs(args[1]), b.Bytes(), 0o644))
}

// A page of a few kilobytes unpacks to many values. The command ends before it takes the memory of the machine, and
// the folder of the bundle is removed.
func TestAPageThatNeedsMuchMemoryEndsItsCommand(t *testing.T) {
	t.Chdir(t.TempDir())
	p := (&reports.Study{Name: "hostile"}).Page()
	p.Evidence = page.Packed(fmt.Appendf(nil, `{"format":%d,"inputs":[{}%s]}`, reports.EvidenceFormat,
		strings.Repeat(",{}", 4_000_000)))
	var html, bundle bytes.Buffer
	must.OK(t, p.HTML(&html))
	z := gzip.NewWriter(&bundle)
	w := tar.NewWriter(z)
	must.OK(t, w.WriteHeader(&tar.Header{Name: "page.html", Mode: 0o644, Size: int64(html.Len())}))
	must.Get(w.Write(html.Bytes()))(t)
	must.OK(t, w.Close())
	must.OK(t, z.Close())
	must.OK(t, os.WriteFile("hostile.tar.gz", bundle.Bytes(), 0o600))
	must.OK(t, os.Mkdir("tmp", 0o700))

	c := exec.Command(commandBinary(t, "."), "verify", "hostile.tar.gz")
	c.Env = append(os.Environ(), "GOMEMLIMIT=200MiB", "HOME=.", "TMPDIR=tmp")
	shown, err := c.CombinedOutput()
	if err == nil {
		t.Error("got success, want an exit code")
	}
	must.Contain(t, string(shown), "needs more than 200 MiB of memory", "set GOMEMLIMIT=8GiB")
	if left := must.Get(os.ReadDir("tmp"))(t); len(left) > 0 {
		t.Errorf("%s is left in the temporary folder", left[0].Name())
	}
}

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
