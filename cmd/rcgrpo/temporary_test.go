package main

import (
	"bufio"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// holdTemporaryFolder is a program that makes a temporary folder, prints its name, and never ends.
func holdTemporaryFolder() {
	dir, _, err := temporaryFolder("held-")
	if err != nil {
		panic(err)
	}
	fmt.Println(dir)
	select {}
}

func TestSignalsLeaveNoTemporaryFolder(t *testing.T) {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range []syscall.Signal{syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP} {
		t.Run(s.String(), func(t *testing.T) {
			parent := t.TempDir()
			cmd := exec.Command(self)
			cmd.Args = []string{"holds-temporary"}
			cmd.Env = append(os.Environ(), "TMPDIR="+parent)
			out, err := cmd.StdoutPipe()
			if err == nil {
				err = cmd.Start()
			}
			if err != nil {
				t.Fatal(err)
			}
			defer cmd.Process.Kill()
			line, err := bufio.NewReader(out).ReadString('\n')
			dir := strings.TrimSpace(line)
			if err != nil || filepath.Dir(dir) != parent {
				t.Fatalf("got %q, %v, want a folder in %s", line, err, parent)
			}
			if err := os.WriteFile(filepath.Join(dir, "file"), []byte("half"), 0o600); err != nil {
				t.Fatal(err)
			}
			cmd.Process.Signal(s)
			var exit *exec.ExitError
			if err := cmd.Wait(); !errors.As(err, &exit) {
				t.Fatalf("got %v, want an end by the signal", err)
			}
			if got := exit.Sys().(syscall.WaitStatus); !got.Signaled() || got.Signal() != s {
				t.Errorf("ended by %v, want %v", got, s)
			}
			if _, err := os.Stat(dir); !errors.Is(err, fs.ErrNotExist) {
				t.Errorf("the folder is still there: %v", err)
			}
		})
	}
}
