package engine

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// programJob is a job whose log the test reads.
func programJob(t *testing.T) (*Job, *bytes.Buffer) {
	t.Helper()
	var log bytes.Buffer
	j, err := NewJob(JobSetup{Dir: t.TempDir(), Log: &log})
	if err != nil {
		t.Fatal(err)
	}
	return j, &log
}

func shell(text string) Program {
	return Program{Args: []string{"sh", "-c", text}, Env: []string{"PATH=" + os.Getenv("PATH")}}
}

func TestProgramSeesItsEnvironmentOnlyAndEndsWithItsCode(t *testing.T) {
	t.Setenv("STRANGER", "here")
	j, log := programJob(t)
	p := shell(`echo "x=$x stranger=$STRANGER"; cat; pwd; exit 3`)
	p.Env = append(p.Env, "x=1")
	p.Dir = j.Dir
	err := j.Execute(t.Context(), p)
	if err == nil || err.Error() != "sh ended with exit code 3" {
		t.Errorf("got %v, want exit code 3", err)
	}
	if got, want := log.String(), "x=1 stranger=\n"+j.Dir+"\n"; got != want {
		t.Errorf("log: got %q, want %q", got, want)
	}
	p.Args = []string{"no-such-program-anywhere"}
	if err := j.Execute(t.Context(), p); err == nil || !strings.Contains(err.Error(), "not found") {
		t.Errorf("got %v, want a program that is not found", err)
	}
}

func TestSecretsAreMaskedInTheLog(t *testing.T) {
	for name, tc := range map[string]struct {
		secrets       []string
		printed, want string
	}{
		"whole":                {[]string{"geheim"}, "a geheim b geheim\n", "a *** b ***\n"},
		"one within another":   {[]string{"abc", "abcdef"}, "abcdef abc\n", "*** ***\n"},
		"several lines":        {[]string{"first\nsecond\n"}, "second\nfirst\n", "***\n***\n"},
		"no end of line":       {[]string{"geheim"}, "geheim", "***"},
		"empty hides nothing":  {[]string{""}, "text\n", "text\n"},
		"carriage returns too": {[]string{"geheim"}, "1 geheim\r2 geheim\r", "1 ***\r2 ***\r"},
	} {
		t.Run(name, func(t *testing.T) {
			for cut := range len(tc.printed) { // however the writes fall
				var log bytes.Buffer
				m := newMask(&log, tc.secrets)
				m.Write([]byte(tc.printed[:cut]))
				m.Write([]byte(tc.printed[cut:]))
				m.Flush()
				if log.String() != tc.want {
					t.Errorf("cut at %d: got %q, want %q", cut, log.String(), tc.want)
				}
			}
		})
	}
	var log bytes.Buffer
	m := newMask(&log, []string{"geheim"})
	for range heldAtMost {
		m.Write([]byte("x geheim "))
	}
	m.Flush()
	if strings.Contains(log.String(), "geheim") || len(log.String()) != heldAtMost*len("x *** ") {
		t.Errorf("a line without end: %d bytes, want all secrets hidden", log.Len())
	}
}

// pidsOf reads the numbers of processes that a program wrote to a file, as soon as they are there.
func pidsOf(t *testing.T, path string, n int) []int {
	t.Helper()
	for deadline := time.Now().Add(30 * time.Second); time.Now().Before(deadline); time.Sleep(5 * time.Millisecond) {
		b, _ := os.ReadFile(path)
		var pids []int
		for _, word := range strings.Fields(string(b)) {
			pid, err := strconv.Atoi(word)
			if err != nil {
				t.Fatal(err)
			}
			pids = append(pids, pid)
		}
		if len(pids) == n {
			return pids
		}
	}
	t.Fatalf("%s never held %d numbers", path, n)
	return nil
}

// gonePids waits for processes to end; a zombie counts as ended.
func gonePids(t *testing.T, pids []int) {
	t.Helper()
	for _, pid := range pids {
		for deadline := time.Now().Add(30 * time.Second); ; time.Sleep(5 * time.Millisecond) {
			stat, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
			if err != nil || strings.Contains(string(stat), ") Z ") {
				break
			}
			if time.Now().After(deadline) {
				syscall.Kill(pid, syscall.SIGKILL)
				t.Fatalf("process %d still runs", pid)
			}
		}
	}
}

func TestProgramLeavesNothingRunning(t *testing.T) {
	j, _ := programJob(t)
	pids := filepath.Join(j.Dir, "pids")
	if err := j.Execute(t.Context(), shell(`sleep 600 & echo $! >`+pids)); err != nil {
		t.Fatal(err)
	}
	gonePids(t, pidsOf(t, pids, 1))
}

func TestProgramStopsWithItsContext(t *testing.T) {
	j, _ := programJob(t)
	pids := filepath.Join(j.Dir, "pids")
	ctx, cancel := context.WithCancelCause(t.Context())
	why := errors.New("enough")
	ended := make(chan error)
	go func() { ended <- j.Execute(ctx, shell(`sleep 600 & echo $$ $! >`+pids+`; wait`)) }()
	all := pidsOf(t, pids, 2)
	cancel(why)
	if err := <-ended; !errors.Is(err, why) {
		t.Errorf("got %v, want the context's cause", err)
	}
	gonePids(t, all)
}

// A program of a light stage runs beside its engine, not below a process of the stage: it must not outlive it.
func TestProgramDiesWithItsEngine(t *testing.T) {
	l := newLab(t)
	l.write(`
stage "light" "a" {
  text  = "one"
  shell = "test -e $dir/pids || { sleep 600 & echo $$ $! >$dir/pids; wait; }"
}
`)
	engine := l.engine()
	if err := engine.Start(); err != nil {
		t.Fatal(err)
	}
	all := pidsOf(t, filepath.Join(l.dir, "pids"), 2)
	if err := engine.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	engine.Wait()
	r := l.mustRun() // waits for the lock, which the program may hold for another instant
	gonePids(t, all)
	l.want(r, EventDone, "light.a")
	if got := l.text("light.a"); got != "one\n" {
		t.Errorf("got %q, want the whole output", got)
	}
}
