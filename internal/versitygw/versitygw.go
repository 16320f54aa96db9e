// Package versitygw starts a real S3 server for tests.
package versitygw

import (
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"rcgrpo/internal/must"
)

// Start starts the server with a bucket, and the credentials "key" and "secret". It returns its URL and the folder with
// the bucket's objects. The test is skipped where the program is not installed.
func Start(t *testing.T, bucket string) (url, dir string) {
	t.Helper()
	program, err := exec.LookPath("versitygw")
	if err != nil {
		t.Skip("versitygw is not installed: .ci/run builds it in .deps/bin")
	}
	dir = filepath.Join(t.TempDir(), bucket)
	must.OK(t, os.Mkdir(dir, 0o700))
	listener := must.Get(net.Listen("tcp", "127.0.0.1:0"))(t)
	address := listener.Addr().String()
	must.OK(t, listener.Close())
	server := exec.Command(program, "--port", address, "--access", "key", "--secret", "secret", "--quiet",
		"posix", filepath.Dir(dir))
	var output strings.Builder
	server.Stdout, server.Stderr = &output, &output
	must.OK(t, server.Start())
	t.Cleanup(func() {
		server.Process.Kill()
		server.Wait()
		if t.Failed() {
			t.Log(output.String())
		}
	})
	for range 100 {
		if c, err := net.Dial("tcp", address); err == nil {
			c.Close()
			return "http://" + address, dir
		}
		time.Sleep(50 * time.Millisecond)
	}
	t.Fatalf("versitygw does not answer: %s", output.String())
	return "", ""
}
