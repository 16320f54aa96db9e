//go:build libtorch

package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"rcgrpo/bench/fixtures"
)

// slurmBox starts a Slurm cluster on this machine, which ends with the test.
func slurmBox(t *testing.T) (folder string) {
	t.Helper()
	if _, err := exec.LookPath("slurmctld"); err != nil || os.Getuid() != 0 {
		t.Skip("no Slurm here: as root, run bench/slurm.sh install")
	}
	box, err := os.MkdirTemp("", "box") // a short path for the sockets
	if err != nil {
		t.Fatal(err)
	}
	script := filepath.Join(fixtures.Root(t), "bench", "slurm.sh")
	up := exec.Command(script, "up", box, "4")
	up.Env = append(os.Environ(), fmt.Sprintf("BASE_PORT=%d", 16000+os.Getpid()%2000*8),
		fmt.Sprintf("UNTIL=%d", os.Getpid()))
	if out, err := up.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	t.Cleanup(func() { exec.Command(script, "down", box).Run() })
	return box
}
