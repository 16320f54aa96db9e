package proc

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"rcgrpo/engine/internal/disk"
	"rcgrpo/internal/must"
)

func init() {
	if len(os.Args) == 2 && os.Args[1] == "headless" {
		runtime.LockOSThread() // keeps main on the thread that the process began with
		headlessMain()
	}
}

// headlessMain is a process whose first thread ends, so that it looks like an ended process, while another thread
// continues.
func headlessMain() {
	go func() {
		for stat := ""; !strings.Contains(stat, ") Z "); time.Sleep(time.Millisecond) {
			b, _ := os.ReadFile("/proc/self/stat")
			stat = string(b)
		}
		fmt.Println("headless")
		time.Sleep(time.Minute)
		os.Exit(3)
	}()
	syscall.Syscall(syscall.SYS_EXIT, 0, 0, 0)
}

func TestProcessEndsWithItsLastThread(t *testing.T) {
	cmd := exec.Command("/proc/self/exe", "headless")
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	out := must.Get(cmd.StdoutPipe())(t)
	must.OK(t, cmd.Start())
	defer cmd.Process.Kill()
	if line, err := bufio.NewReader(out).ReadString('\n'); err != nil || line != "headless\n" {
		t.Fatalf("got %q, %v, want the end of the first thread", line, err)
	}
	pid := cmd.Process.Pid
	s, ok := ReadStat(pid)
	if !ok || s.ended || !Same(pid, s.Start) {
		t.Errorf("got %+v, %v, want a running process", s, ok)
	}
	KillSession(pid)
	for deadline := time.Now().Add(10 * time.Second); !s.ended && time.Now().Before(deadline); {
		time.Sleep(time.Millisecond)
		s, ok = ReadStat(pid)
	}
	if !ok || !s.ended || Same(pid, s.Start) {
		t.Errorf("killed: got %+v, %v, want one that has ended and is not reaped", s, ok)
	}
}

func TestKillsForLackOfMemoryAreCounted(t *testing.T) {
	if !disk.Exists(oomFile()) {
		t.Skip("this kernel counts no kills")
	}
	if n := OOMKills(); n < 0 {
		t.Errorf("%s: got %d, want a count", oomFile(), n)
	}
}
