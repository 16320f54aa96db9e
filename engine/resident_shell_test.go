package engine

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"rcgrpo/engine/artifact"
)

// shellJob is a job with a log file, and with a resident shell to be started when resident says so.
func shellJob(t *testing.T, resident bool) (j *Job, log string) {
	t.Helper()
	dir := t.TempDir()
	j, err := NewJob(JobSetup{Dir: dir})
	if err != nil {
		t.Fatal(err)
	}
	lock, err := artifact.LockFile(filepath.Join(dir, "lock"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { lock.Unlock() })
	files := map[string]*os.File{"log": nil, "lease": nil}
	for name := range files {
		if files[name], err = os.OpenFile(filepath.Join(dir, name), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { files[name].Close() })
	}
	j.sign = func(int) error { return nil }
	j.lock, j.share, j.log = lock, files["lease"], files["log"]
	if resident {
		j.shell = &residentShell{}
		t.Cleanup(j.shell.end)
	}
	return j, filepath.Join(dir, "log")
}

// What a text does, prints and ends with does not depend on its shell, but for two things: where the shell's own messages say that something is wrong,
// and that there is one descriptor more.
func TestResidentShellsDoWhatOthersDo(t *testing.T) {
	dir := t.TempDir()
	for _, text := range []string{
		"echo one; echo two >&2",
		"exit 3",
		"false",
		"no-such-program-anywhere",
		"echo first\necho second\nno-such-program-anywhere --here\necho last",
		"echo 'no end",
		"if true; then echo no end",
		"echo before\necho ) after",
		"echo $0 $# $-",
		"env | sort",
		"echo \"$plain|$quotes|$blank|$dollar\"",
		"cat; echo end of input",
		"pwd; pwd -P; cd ..; pwd -P; cd -",
		"umask",
		"ls /proc/self/fd",
		"cat <<E\n$plain\nE",
		"sleep 100 & echo started",
		"sh -c 'kill -9 $PPID'; echo not here",
		"kill -TERM 0; sleep 100",
		"cut -d' ' -f4 /proc/$PPID/stat",
		"# nothing but a comment",
		"",
		"set -e; false; echo not here",
		"readlink /proc/self/fd/0 /proc/self/fd/3 | sed 's|.*/||'",
		"echo '" + strings.Repeat("long ", 5_000) + "'",
		"wait; jobs; echo $!",
	} {
		p := shell(text)
		p.Dir = dir
		p.Env = append(p.Env, "PWD="+dir, "plain=x", "quotes=a'b\"c", "blank=", "dollar=$HOME `date` \\")
		var ended, printed [2]string
		for i, resident := range []bool{false, true} {
			j, log := shellJob(t, resident)
			if err := j.Execute(t.Context(), p); err != nil {
				ended[i] = err.Error()
			}
			if resident && j.shell.process == nil {
				t.Errorf("%q was not given to the resident shell", text)
			}
			b, err := os.ReadFile(log)
			if err != nil {
				t.Fatal(err)
			}
			printed[i] = string(b)
			if resident {
				printed[i] = strings.ReplaceAll(printed[i], fmt.Sprintf("\n%d\n", overFile), "\n")
			}
			printed[i] = shellMessage.ReplaceAllString(printed[i], "$1\n")
		}
		if ended[0] != ended[1] || printed[0] != printed[1] {
			t.Errorf("%.40q: by itself: %q, printed %.400q; in a resident shell: %q, printed %.400q", text, ended[0], printed[0], ended[1], printed[1])
		}
	}
}

// shellMessage is a message of a shell, with the name of what it is about, if that is what it ends with.
var shellMessage = regexp.MustCompile(`(?m)^(?:sh|/proc/self/fd/\d+): .*?(\S*: not found|\S*: command not found|)$\n`)

// whenQuick tries again what a slow disk hinders: a resident shell serves only texts that take a moment.
func whenQuick(t *testing.T, try func() (quick bool)) {
	t.Helper()
	for range 20 {
		if try() {
			return
		}
	}
	t.Fatal("the shell is gone each time")
}

// The same shell serves one text after the other, and none sees what one before it did to its shell.
func TestResidentShellBeginsEachTextAnew(t *testing.T) {
	const state = "{ set; pwd; umask; ulimit -n; alias; f; echo $-; wait; } >state 2>&1"
	for _, text := range []string{"x=1; export x", "cd /", "umask 077", "ulimit -n 64", "set -ef", "f() { echo me; }", "alias ls=true", "(exit 3); true", "unset PATH HOME", "sleep 0 &", "exit", ": >other"} {
		whenQuick(t, func() bool {
			j, log := shellJob(t, true)
			p := shell("")
			p.Dir = j.Dir
			var states [2]string
			for i, text := range []string{state, text, state} {
				p.Args[2] = text
				if err := j.Execute(t.Context(), p); err != nil {
					t.Fatal(err)
				}
				if !j.shell.waits() {
					return false
				}
				if text == state {
					b, err := os.ReadFile(filepath.Join(j.Dir, "state"))
					if err != nil {
						t.Fatal(err)
					}
					states[i/2] = string(b)
				}
			}
			if states[0] != states[1] || !strings.Contains(states[0], "PATH=") {
				t.Errorf("after %q:\n%s\nwant:\n%s", text, states[1], states[0])
			}
			if b, err := os.ReadFile(log); err != nil || len(b) > 0 {
				t.Errorf("after %q the log says %q, %v", text, b, err)
			}
			return true
		})
	}
}

// Whatever is out of the ordinary ends a resident shell, and nothing of what it has started is left.
func TestWhatEndsAResidentShell(t *testing.T) {
	for name, c := range map[string]struct {
		text, want string // error
		waits      bool
	}{
		"nothing":                               {text: ": >done", waits: true},
		"a program, quick":                      {text: "cat /dev/null", waits: true},
		"a failure":                             {text: "false", want: "sh ended with exit code 1"},
		"an end without a code":                 {text: "sh -c 'kill -9 $PPID'", want: "its process was killed (SIGKILL)"},
		"time":                                  {text: "sleep " + fmt.Sprint(2*residentFor.Seconds())},
		"something left":                        {text: "sleep 1234 &"},
		"something left, without descriptors":   {text: fmt.Sprintf("sleep 1234 %d>&- 3>&- 4>&- &", overFile)},
		"something left, and its parent is not": {text: fmt.Sprintf("sh -c 'sleep 1234 %d>&- &' &", overFile)},
	} {
		t.Run(name, func(t *testing.T) {
			var j *Job
			got := ""
			whenQuick(t, func() bool {
				j, _ = shellJob(t, true)
				p := shell(c.text)
				p.Dir = j.Dir
				if err := j.Execute(t.Context(), p); err != nil {
					got = err.Error()
				}
				return j.shell.waits() || !c.waits
			})
			if got != c.want || j.shell.waits() != c.waits {
				t.Errorf("got %q, waits %v, want %q, %v", got, j.shell.waits(), c.want, c.waits)
			}
			session := j.shell.process.Pid
			j.shell.end()
			if left := leftInSession(session); len(left) > 0 {
				t.Errorf("left: %v", left)
			}
		})
	}
	t.Run("a stop", func(t *testing.T) {
		j, _ := shellJob(t, true)
		p := shell("sleep 1234")
		p.Dir = j.Dir
		stopped := errors.New("stopped")
		ctx, cancel := context.WithCancelCause(t.Context())
		time.AfterFunc(residentFor/3, func() { cancel(stopped) })
		if err := j.Execute(ctx, p); !errors.Is(err, stopped) || j.shell.waits() {
			t.Errorf("got %v, waits %v", err, j.shell.waits())
		}
	})
}

// leftInSession lists the processes of a session, once there are none or a second has gone by: who is killed takes a moment to end.
func leftInSession(leader int) (pids []int) {
	for deadline := time.Now().Add(time.Second); ; time.Sleep(time.Millisecond) {
		if pids = inSession(leader); len(pids) == 0 || time.Now().After(deadline) {
			return pids
		}
	}
}

func TestWhatResidentShellsAreNotFor(t *testing.T) {
	dir := t.TempDir()
	with := func(change func(p *Program)) Program {
		p := shell("echo done")
		p.Dir = dir
		change(&p)
		return p
	}
	for name, p := range map[string]Program{
		"another program":         with(func(p *Program) { p.Args = []string{"echo", "done"} }),
		"further arguments":       with(func(p *Program) { p.Args = append(p.Args, "name") }),
		"a text that replaces it": with(func(p *Program) { p.Args[2] = "exec echo done" }),
		"the shell's number":      with(func(p *Program) { p.Args[2] = "test $$ && echo done" }),
		"the number of a line":    with(func(p *Program) { p.Args[2] = "test \"$LINENO\"; echo done" }),
		"what is not the same":    with(func(p *Program) { p.Args[2] = "f() { return; }; f; echo done" }),
		"a secret":                with(func(p *Program) { p.Secret = []string{"x"} }),
		"a variable of the shell": with(func(p *Program) { p.Env = append(p.Env, "IFS=,") }),
		"a value of two lines":    with(func(p *Program) { p.Env = append(p.Env, "lines=a\nb") }),
		"more than arguments may": with(func(p *Program) { p.Args[2] += strings.Repeat(" ", scriptAtMost) }),
		"no folder":               with(func(p *Program) { p.Dir = "" }),
	} {
		if script, ok := residentScript(p); ok {
			t.Errorf("%s: got %q, want a shell of its own", name, script)
		}
		j, log := shellJob(t, true)
		if err := j.Execute(t.Context(), p); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if b, _ := os.ReadFile(log); strings.TrimSpace(string(b)) != "done" {
			t.Errorf("%s: the log says %.100q, want done", name, b)
		}
	}
}

// A shell that waits is gone when nobody can write to it any more, and one that somebody has killed is replaced.
func TestResidentShellsEndWithTheirEngine(t *testing.T) {
	begin := func() (j *Job, p Program, log string) {
		t.Helper()
		whenQuick(t, func() bool {
			j, log = shellJob(t, true)
			p = shell(": >begun")
			p.Dir = j.Dir
			if err := j.Execute(t.Context(), p); err != nil {
				t.Fatal(err)
			}
			return j.shell.waits()
		})
		p.Args[2] = "echo done"
		return j, p, log
	}
	j, _, _ := begin()
	j.shell.turn.Close()
	awaitExit(j.shell.process.Pid)
	if left := leftInSession(j.shell.process.Pid); len(left) > 0 {
		t.Errorf("left without its engine: %v", left)
	}
	for name, killed := range map[string]func(pid int) int{
		"its group": func(pid int) int { return -pid },
		"it alone":  func(pid int) int { return pid },
	} {
		j, p, log := begin()
		pid := j.shell.process.Pid
		if err := syscall.Kill(killed(pid), syscall.SIGKILL); err != nil {
			t.Fatal(err)
		}
		awaitExit(pid)
		if name == "its group" {
			leftInSession(pid) // its fork ends a moment later
		}
		if err := j.Execute(t.Context(), p); err != nil {
			t.Errorf("%s killed: %v", name, err)
		}
		if b, _ := os.ReadFile(log); string(b) != "done\n" {
			t.Errorf("%s killed: the log says %q, want done", name, b)
		}
	}
}

func TestStartedSince(t *testing.T) {
	before, err := lastPID()
	if err != nil {
		t.Fatal(err)
	}
	self := os.Getpid()
	if startedSince(before, self) {
		t.Error("nothing was started")
	}
	p, err := os.StartProcess("/bin/sleep", []string{"sleep", "1234"}, &os.ProcAttr{Sys: &syscall.SysProcAttr{Setpgid: true}})
	if err != nil {
		t.Fatal(err)
	}
	if !startedSince(before, p.Pid) {
		t.Error("a process of the group was started")
	}
	if startedSince(p.Pid, p.Pid) {
		t.Error("it was before")
	}
	if !startedSince(-startedAtMost-1, p.Pid) {
		t.Error("too many to look at: they may be there")
	}
	p.Kill()
	p.Wait()
	if startedSince(before, p.Pid) {
		t.Error("it is gone")
	}
}

// Small silent stages share shells, others have their own; each log says what its stage printed; and the run leaves nothing of what it
// had ready: no process, no lock, no spare folder or log.
func TestSmallStagesShareShells(t *testing.T) {
	for name, chain := range map[string]bool{"chain": true, "fan": false} {
		t.Run(name, func(t *testing.T) {
			whenQuick(t, func() (shared bool) {
				l := newLab(t)
				const stages = 24
				sessions := filepath.Join(l.dir, "sessions")
				var file strings.Builder
				printed := map[string]string{}
				for i := range stages {
					from, say := "", ""
					if chain && i > 0 {
						from = fmt.Sprintf("from = [stage.light.s%d.out]", i-1)
					}
					address := fmt.Sprintf("stage.light.s%d", i)
					printed[address] = ""
					if i%8 == 5 {
						say, printed[address] = fmt.Sprintf("echo this is %d; ", i), fmt.Sprintf("this is %d\n", i)
					}
					fmt.Fprintf(&file, "stage \"light\" \"s%d\" {\n%s\ntext = \"%d\"\nshell = \"%scut -d' ' -f6 /proc/self/stat >>%s\"\n}\n", i, from, i, say, sessions)
				}
				l.write(file.String())
				r := l.mustRun()
				for _, e := range r.events {
					if e.Kind != EventStarted {
						continue
					}
					if b, err := os.ReadFile(e.Path); err != nil || string(b) != printed[e.Address] {
						t.Errorf("%s: its log says %q, %v, want %q", e.Address, b, err, printed[e.Address])
					}
				}
				b, err := os.ReadFile(sessions)
				if err != nil {
					t.Fatal(err)
				}
				distinct := map[string]bool{}
				for line := range strings.Lines(string(b)) {
					distinct[line] = true
				}
				if n := strings.Count(string(b), "\n"); n != stages {
					t.Errorf("%d stages ran, want %d", n, stages)
				}
				t.Logf("%d stages in %d shells", stages, len(distinct))
				for _, pattern := range []string{"locks/*", "work/*", "runs/*/*/*/.[^e]*"} { // .empty is what silent logs are links to
					left, err := filepath.Glob(filepath.Join(l.storeDir, pattern))
					if err != nil {
						t.Fatal(err)
					}
					for _, path := range left {
						if filepath.Base(path) != "store" {
							t.Errorf("left: %s", path)
						}
					}
				}
				if left := l.processes(); len(left) > 0 {
					t.Errorf("left: %v", left)
				}
				return len(distinct) < stages
			})
		})
	}
}
