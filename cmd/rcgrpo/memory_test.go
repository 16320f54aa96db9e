package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"

	"rcgrpo/internal/must"
	"rcgrpo/reports"
	"rcgrpo/reports/page"
)

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
