package engine

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"rcgrpo/engine/internal/disk"
	"rcgrpo/engine/lang"
	"rcgrpo/engine/proc"
	"rcgrpo/engine/runs"
)

// programJob returns a job and its log.
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

func TestProgramHasOnlyItsEnvironmentAndReturnsItsExitCode(t *testing.T) {
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
			for cut := range len(tc.printed) { // at every split of the writes
				var log bytes.Buffer
				m := proc.newMask(&log, tc.secrets)
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
	m := proc.newMask(&log, []string{"geheim"})
	for range proc.maxPending {
		m.Write([]byte("x geheim "))
	}
	m.Flush()
	if strings.Contains(log.String(), "geheim") || len(log.String()) != proc.maxPending*len("x *** ") {
		t.Errorf("a line without end: %d bytes, want all secrets hidden", log.Len())
	}
}

// pidsOf waits until a program has written n PIDs to a file, and returns them.
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

// gonePids waits until processes have ended, reaped or not, and have released their locks.
func gonePids(t *testing.T, pids []int) {
	t.Helper()
	for _, pid := range pids {
		for deadline := time.Now().Add(30 * time.Second); ; time.Sleep(5 * time.Millisecond) {
			if s, ok := proc.ReadStat(pid); !ok || s.ended {
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

// A program whose engine was killed continues and holds the key's lock; the next run waits for it and commits
// its output.
func TestProgramOutlivesItsEngineAndIsAdopted(t *testing.T) {
	for name, shell := range map[string]string{
		"the shell itself": `echo $$ >$dir/pids; echo ran >>$dir/ran; read -r x <$dir/fifo`,
		"another program":  `echo $$ >$dir/pids; echo ran >>$dir/ran; exec cat $dir/fifo`,
	} {
		t.Run(name, func(t *testing.T) {
			l := newLab(t)
			fifo := filepath.Join(l.dir, "fifo")
			if err := syscall.Mkfifo(fifo, 0o600); err != nil {
				t.Fatal(err)
			}
			l.write(`
stage "light" "a" {
  text  = "one"
  shell = "` + shell + `"
}
`)
			engine := l.engine()
			if err := engine.Start(); err != nil {
				t.Fatal(err)
			}
			pids := pidsOf(t, filepath.Join(l.dir, "pids"), 1)
			if err := engine.Process.Kill(); err != nil {
				t.Fatal(err)
			}
			engine.Wait()
			if lock, err := l.store().TryLock(l.plan().Nodes[0].Key); err != nil || lock != nil {
				t.Fatalf("lock of the living program: got %v, %v, want none to be had", lock, err)
			}
			go os.WriteFile(fifo, []byte("go on\n"), 0)
			r := l.mustRun()
			gonePids(t, pids)
			l.want(r, runs.EventDone, "light.a")
			if !strings.Contains(r.text(), "adopted: its program ended successfully") {
				t.Errorf("got %s, want a note that says it was adopted", r.text())
			}
			if got, _ := os.ReadFile(filepath.Join(l.dir, "ran")); string(got) != "ran\n" {
				t.Errorf("the program ran %d times, want once", strings.Count(string(got), "ran"))
			}
			if got := l.text("light.a"); got != "one\n" {
				t.Errorf("got %q, want the whole output", got)
			}
		})
	}
}

// A process that left its program's session is killed by the run that adopts the program, running or ended, or that
// starts it again after a kill of the supervising shell.
func TestDaemonsOfAKilledEngineEndWithTheNextRun(t *testing.T) {
	for name, tc := range map[string]struct {
		ends  string // sent to the program before the next run
		kills bool   // the supervising shell is killed instead
		later string // sent once the next run has adopted the program
	}{
		"adopted after its end": {ends: "0\n"},
		"adopted alive":         {later: "0\n"},
		"adopted, then failing": {later: "3\n"},
		"started again":         {kills: true},
	} {
		t.Run(name, func(t *testing.T) {
			l := newLab(t)
			fifo := filepath.Join(l.dir, "fifo")
			if err := syscall.Mkfifo(fifo, 0o600); err != nil {
				t.Fatal(err)
			}
			l.write(`
stage "light" "a" {
  text  = "one"
  shell = "test ! -e $dir/again || exit 0; setsid sh -c 'echo $$ >$dir/daemon; exec sleep 600' & until [ -s $dir/daemon ]; do sleep 0.01; done; echo $$ $PPID >$dir/pids; read -r x <$dir/fifo; exit $x"
}
`)
			engine := l.engine()
			if err := engine.Start(); err != nil {
				t.Fatal(err)
			}
			program := pidsOf(t, filepath.Join(l.dir, "pids"), 2)
			daemon := pidsOf(t, filepath.Join(l.dir, "daemon"), 1)
			var h runs.Holder
			for deadline := time.Now().Add(30 * time.Second); h.PID == 0; time.Sleep(5 * time.Millisecond) {
				if l.store().Holder(l.plan().Nodes[0].Key, &h); time.Now().After(deadline) {
					t.Fatal("the lock never named the program")
				}
			}
			engine.Process.Kill()
			engine.Wait()
			switch {
			case tc.kills:
				l.put("again", "")
				syscall.Kill(program[1], syscall.SIGKILL)
				gonePids(t, program[1:])
				l.mustRun()
				gonePids(t, append(program, daemon...))
			case tc.ends != "":
				os.WriteFile(fifo, []byte(tc.ends), 0)
				gonePids(t, program)
				if s, ok := proc.ReadStat(daemon[0]); !ok || s.ended {
					t.Fatal("the daemon ended with the program, so this test shows nothing")
				}
				l.mustRun()
				gonePids(t, daemon)
			default:
				done := l.adopting(t.Context())
				os.WriteFile(fifo, []byte(tc.later), 0)
				if r := <-done; (r.err != nil) != (tc.later == "3\n") {
					t.Error(r.err, r.text())
				}
				gonePids(t, append(program, daemon...))
			}
		})
	}
}

func TestProgramThatFailedWithoutAnEngineRunsAgain(t *testing.T) {
	l := newLab(t)
	l.write(`
stage "light" "a" {
  text  = "one"
  shell = "test -e $dir/pids || { echo $$ >$dir/pids; while test ! -e $dir/on; do sleep 0.01; done; exit 3; }"
}
`)
	engine := l.engine()
	if err := engine.Start(); err != nil {
		t.Fatal(err)
	}
	pids := pidsOf(t, filepath.Join(l.dir, "pids"), 1)
	if err := engine.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	engine.Wait()
	l.put("on", "")
	gonePids(t, pids)
	l.want(l.mustRun(), runs.EventDone, "light.a")
}

// A program that runs for a while is stored in its key's lock: the next run supervises it and reports its failure.
func TestLongProgramIsAdoptedAlive(t *testing.T) {
	l := newLab(t)
	fifo := filepath.Join(l.dir, "fifo")
	if err := syscall.Mkfifo(fifo, 0o600); err != nil {
		t.Fatal(err)
	}
	l.write(`
stage "light" "a" {
  text  = "one"
  shell = "read -r x <$dir/fifo; exit $x"
}
`)
	engine := l.engine()
	if err := engine.Start(); err != nil {
		t.Fatal(err)
	}
	key := l.plan().Nodes[0].Key
	var h runs.Holder
	for deadline := time.Now().Add(30 * time.Second); h.PID == 0; time.Sleep(5 * time.Millisecond) {
		if l.store().Holder(key, &h); time.Now().After(deadline) {
			t.Fatal("the lock never named the program")
		}
	}
	if err := engine.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	engine.Wait()
	ctx, cancel := context.WithCancel(t.Context())
	done := l.adopting(ctx)
	os.WriteFile(fifo, []byte("3\n"), 0)
	r := <-done
	if failed, ok := r.find(runs.EventFailed, "light.a"); !ok || !strings.Contains(failed.Text, "exit code 3") {
		t.Errorf("got %s, want a failure with exit code 3", r.text())
	}

	engine = l.engine() // the same, stopped by the adopting run
	if err := engine.Start(); err != nil {
		t.Fatal(err)
	}
	for h = (runs.Holder{}); h.PID == 0 || !h.Alive(); time.Sleep(5 * time.Millisecond) {
		l.store().Holder(key, &h)
	}
	engine.Process.Kill()
	engine.Wait()
	done = l.adopting(ctx)
	cancel()
	if r := <-done; !errors.Is(r.err, ErrInterrupted) {
		t.Errorf("got %v, want ErrInterrupted", r.err)
	}
	gonePids(t, []int{h.PID})
}

// The exit code is that of plain `sh -c`, however the text ends.
func TestProgramReturnsItsOwnExitCode(t *testing.T) {
	j, log := programJob(t)
	for text, want := range map[string]string{
		"exit 4":                            "exit code 4",
		"(exit 5)":                          "exit code 5",
		"set -e; false; echo no":            "exit code 1",
		"exec sh -c 'exit 6'":               "exit code 6",
		"trap 'exit 7' EXIT":                "exit code 7",
		"echo() { :; }":                     "",
		"kill -9 $$":                        "killed",
		"sh -c 'kill -9 $$'":                "killed",
		"if then":                           "exit code 2",
		"true\nif then":                     "exit code 2",
		"printf '%s' \"$0 $#\" >&2; exit 8": "exit code 8",
	} {
		err := j.Execute(t.Context(), shell(text))
		if got := fmt.Sprint(err); want == "" && err != nil || !strings.Contains(got, want) {
			t.Errorf("%q: got %v, want %q", text, err, want)
		}
	}
	if !strings.Contains(log.String(), "sh 0") {
		t.Errorf("log: got %q, want the name and number of arguments of the shell as ever", log)
	}
}

// The words of a command name a program: builtins of the supervising shell are not found.
func TestCommandIsAProgramAndNoBuiltin(t *testing.T) {
	for _, tc := range []struct {
		want string
		args []string
	}{
		{"", []string{"true"}},
		{"exit code 1", []string{"false"}},
		{"exit code 127", []string{"exit", "0"}},
		{"exit code 127", []string{"eval", "exit 0"}},
		{"exit code 127", []string{"trap", "-", "EXIT"}},
		{"exit code 127", []string{"exec", "true"}},
	} {
		j, _ := programJob(t)
		p := shell("")
		p.Args = tc.args
		err := j.Execute(t.Context(), p)
		if got := fmt.Sprint(err); tc.want == "" && err != nil || !strings.Contains(got, tc.want) {
			t.Errorf("%q: got %v, want %q", tc.args, err, tc.want)
		}
	}
}

// On a full disk the supervising shell kills itself without a record; the error is the full disk, not a kill.
func TestMissingExitRecordOnAFullDiskIsNotAKill(t *testing.T) {
	j, _ := programJob(t)
	disk.Fail(func(op, path string) error {
		if op == "write" {
			return syscall.ENOSPC
		}
		return nil
	})
	defer disk.Fail(nil)
	err := j.Execute(t.Context(), shell("kill -9 $PPID"))
	if !errors.Is(err, syscall.ENOSPC) || causeOf(err) == lang.CauseKilled || !strings.Contains(fmt.Sprint(err),
		"could not be recorded") {
		t.Errorf("got %v, want that no space is left", err)
	}
}
