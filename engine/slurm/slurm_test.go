package slurm_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"rcgrpo/engine/enginetest"
	"rcgrpo/engine/lang"
	"rcgrpo/engine/slurm"
)

func TestMain(m *testing.M) {
	if len(os.Args) == 3 && os.Args[1] == "job" {
		os.Exit(slurm.Main(os.Args[2], os.Stderr))
	}
	enginetest.Main(m)
}

// box starts a cluster of 4 nodes on this machine.
func box(t *testing.T) {
	t.Helper()
	if _, err := exec.LookPath("slurmctld"); err != nil || os.Getuid() != 0 {
		t.Skip("no Slurm here: as root, run bench/slurm.sh install")
	}
	dir, err := os.MkdirTemp("", "box") // a short path for the sockets
	if err != nil {
		t.Fatal(err)
	}
	script, _ := filepath.Abs("../../bench/slurm.sh")
	up := exec.Command(script, "up", dir, "4")
	up.Env = append(os.Environ(), fmt.Sprintf("BASE_PORT=%d", 20000+os.Getpid()%20000))
	t.Cleanup(func() {
		exec.Command(script, "down", dir).Run()
		os.RemoveAll(dir)
	})
	if out, err := up.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	t.Setenv("SLURM_CONF", filepath.Join(dir, "slurm.conf"))
}

// settings are those of a test: short times, since nodes and files are on one machine.
func settings() lang.Slurm {
	return lang.Slurm{Name: "slurm", GRES: "gpu", CPUs: 1, Memory: 100e6, Time: 5 * time.Minute, Factor: 2,
		Continues: 5, FreeAttempts: 3, Jobs: 50, Poll: time.Second, Deadline: 20 * time.Second, Grace: 6 * time.Second,
		Visible: 2 * time.Second, Lost: 4 * time.Second}
}

func TestSlurmExecutor(t *testing.T) {
	box(t)
	enginetest.Executor(t, slurm.NewExecutor(settings()))
}
