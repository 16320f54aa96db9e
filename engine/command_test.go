package engine_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"rcgrpo/engine"
	"rcgrpo/engine/enginetest"
	"rcgrpo/engine/runs"
	"rcgrpo/internal/must"
)

// Without /proc every command seemed to have been killed.
func TestARunWithoutProcSaysSo(t *testing.T) {
	l := enginetest.NewLab(t)
	l.Write("stage \"light\" \"a\" {\n  text = \"A\"\n}\n")
	with := l.Engine()
	hidden := "mount -t tmpfs none /proc && exec \"$0\" \"$@\""
	cmd := exec.Command("unshare", append([]string{"-rm", "sh", "-c", hidden}, with.Args...)...)
	out, err := cmd.CombinedOutput()
	if strings.Contains(string(out), "unshare") || strings.Contains(string(out), "mount:") {
		t.Skipf("no mount namespace here: %s", out)
	}
	if err == nil || !strings.Contains(string(out), "shows no processes in /proc") {
		t.Errorf("got %v and %q, want an error that names /proc", err, out)
	}
}

// programJob returns a job and its log.
func programJob(t *testing.T) (*engine.Job, *bytes.Buffer) {
	t.Helper()
	var log bytes.Buffer
	return must.Get(engine.NewJob(engine.JobSetup{Dir: t.TempDir(), Log: &log}))(t), &log
}

func shell(text string) engine.Program {
	return engine.Program{Args: []string{"sh", "-c", text}, Env: []string{"PATH=" + os.Getenv("PATH")}}
}

func TestProgramHasOnlyItsEnvironmentAndReturnsItsExitCode(t *testing.T) {
	t.Setenv("STRANGER", "here")
	j, log := programJob(t)
	p := shell(`echo "x=$x stranger=$STRANGER"; cat; pwd; exit 3`)
	p.Env = append(p.Env, "x=1")
	p.Dir = j.Dir
	wantEqual(t, "error", fmt.Sprint(j.RunProgram(t.Context(), p)), "sh ended with exit code 3")
	wantEqual(t, "log", log.String(), "x=1 stranger=\n"+j.Dir+"\n")
	p.Args = []string{"no-such-program-anywhere"}
	must.Match(t, j.RunProgram(t.Context(), p), "not found")
}

func TestProgramLeavesNothingRunning(t *testing.T) {
	j, _ := programJob(t)
	pids := filepath.Join(j.Dir, "pids")
	must.OK(t, j.RunProgram(t.Context(), shell(`sleep 600 & echo $! >`+pids)))
	wantEnded(t, readPIDs(t, pids, 1)...)
}

func TestProgramStopsWithItsContext(t *testing.T) {
	j, _ := programJob(t)
	pids := filepath.Join(j.Dir, "pids")
	ctx, cancel := context.WithCancelCause(t.Context())
	why := errors.New("enough")
	ended := make(chan error)
	go func() { ended <- j.RunProgram(ctx, shell(`sleep 600 & echo $$ $! >`+pids+`; wait`)) }()
	all := readPIDs(t, pids, 2)
	cancel(why)
	if err := <-ended; !errors.Is(err, why) {
		t.Errorf("got %v, want the context's cause", err)
	}
	wantEnded(t, all...)
}

// A program whose engine was killed continues, and its shell holds the key's lock and commits the output; the next run
// waits for that.
func TestProgramOutlivesItsEngineAndIsAdopted(t *testing.T) {
	for name, shell := range map[string]string{
		"the shell itself":                   `echo $$ >$dir/pids; echo ran >>$dir/ran; read -r x <$dir/fifo`,
		"another program":                    `echo $$ >$dir/pids; echo ran >>$dir/ran; exec cat $dir/fifo`,
		"for a run that replaces its result": `echo $$ >$dir/pids; echo ran >>$dir/ran; read -r x <$dir/fifo`,
	} {
		replaces := strings.Contains(name, "replaces")
		t.Run(name, func(t *testing.T) {
			l := enginetest.NewLab(t)
			fifo := pipe(l)
			l.Write("stage \"light\" \"a\" {\n text = \"one\"\n shell = \"" + shell + "\"\n}\n")
			kill := startEngine(l)
			pids := readPIDs(t, filepath.Join(l.Dir, "pids"), 1)
			programOf(l)
			kill()
			if lock, err := l.Store().TryLock(l.Plan().Nodes[0].Key); err != nil || lock != nil {
				t.Fatalf("lock of the running program: got %v, %v, want it held", lock, err)
			}
			p := l.Plan()
			p.Nodes[0].Force = replaces
			done := adoptBy(t.Context(), l, p)
			os.WriteFile(fifo, []byte("go on\n"), 0)
			r := <-done
			if l.Want(r, runs.EventDone, "light.a"); strings.Contains(r.String(), "starts again") {
				t.Errorf("got %s, want no note of another start", r)
			}
			wantEnded(t, pids...)
			wantEqual(t, "starts of the program", l.Read("ran"), "ran\n")
			wantEqual(t, "output", l.Text("light.a"), "one\n")
		})
	}
}

// A program whose engine was killed commits its output itself. A run that adopted it before receives its failure. The
// processes that left the program's session end, too. One of them has cleared its environment.
func TestProgramOfAKilledEngineAndItsDaemonEndTogether(t *testing.T) {
	for name, tc := range map[string]struct {
		adopted bool
		ends    string // sent to the program; "": its shell is killed, so it starts again
	}{
		"it ends before the next run, which finds its output": {ends: "0\n"},
		"it fails before the next run, which starts it again": {ends: "3\n"},
		"it ends after its adoption":                          {adopted: true, ends: "0\n"},
		"it fails after its adoption":                         {adopted: true, ends: "3\n"},
		"its shell is killed":                                 {},
		"its shell is killed after its adoption":              {adopted: true},
	} {
		t.Run(name, func(t *testing.T) {
			l := newLab(t, `
stage "light" "a" {
  text  = "one"
  shell = <<-EOT
    test ! -e $dir/again || exit 0
    setsid sh -c 'echo $$ >$dir/daemon; exec sleep 600' &
    env -i setsid sh -c 'echo $$ >$dir/unmarked; exec sleep 600' &
    until [ -s $dir/daemon -a -s $dir/unmarked ]; do sleep 0.01; done
    echo $$ $PPID >$dir/pids
    read -r x <$dir/fifo
    exit $x
  EOT
}
`)
			fifo := pipe(l)
			kill := startEngine(l)
			program := readPIDs(t, filepath.Join(l.Dir, "pids"), 2)
			all := append(program, readPIDs(t, filepath.Join(l.Dir, "daemon"), 1)...)
			all = append(all, readPIDs(t, filepath.Join(l.Dir, "unmarked"), 1)...)
			programOf(l)
			kill()
			l.Put("again", "")
			end := func() {
				if tc.ends == "" {
					syscall.Kill(program[1], syscall.SIGKILL)
				} else {
					os.WriteFile(fifo, []byte(tc.ends), 0)
				}
			}
			if tc.adopted {
				done := adopt(t.Context(), l)
				end()
				if r := <-done; tc.ends == "3\n" {
					wantFailure(t, r, "light.a", "", "sh ended with exit code 3")
				} else {
					l.Want(r, runs.EventDone, "light.a")
				}
				wantEnded(t, all...)
				return
			}
			if end(); tc.ends != "" {
				wantEnded(t, all...)
			}
			wantEqual(t, "state of the killed run", l.Runs()[0].Nodes[0].State, map[string]runs.EventKind{
				"0\n": runs.EventDone, "3\n": runs.EventFailed, "": runs.EventStarted}[tc.ends])
			r := l.MustRun()
			wantEnded(t, all...)
			if tc.ends != "0\n" {
				l.Want(r, runs.EventDone, "light.a")
				return
			}
			l.Want(r, runs.EventDone)
			m, _, err := l.Store().Manifests()
			if err != nil || len(m) != 1 || m[0].PeakBytes <= 0 || m[0].Seconds <= 0 {
				t.Errorf("got %+v, %v, want the memory and the seconds of the program", m, err)
			}
		})
	}
}

func TestInterruptOfTheAdoptingRunStopsTheProgram(t *testing.T) {
	l := newLab(t, "stage \"light\" \"a\" {\n shell = \"sleep 600\"\n}\n")
	kill := startEngine(l)
	_, h := programOf(l)
	kill()
	ctx, cancel := context.WithCancel(t.Context())
	done := adopt(ctx, l)
	cancel()
	must.Match(t, (<-done).Err, engine.ErrInterrupted.Error())
	wantEnded(t, h.PID)
}

// The exit code is that of plain `sh -c`, however the text ends. The words of a command name a program: builtins of the
// shell are not found.
func TestProgramReturnsItsOwnExitCode(t *testing.T) {
	j, log := programJob(t)
	want := func(args []string, want string) {
		t.Helper()
		p := shell("")
		p.Args = args
		if err := j.RunProgram(t.Context(), p); !strings.Contains(fmt.Sprint(err), want) {
			t.Errorf("%q: got %v, want %s", args, err, want)
		}
	}
	for text, code := range map[string]string{
		"exit 4":                            "exit code 4",
		"(exit 5)":                          "exit code 5",
		"set -e; false; echo no":            "exit code 1",
		"exec sh -c 'exit 6'":               "exit code 6",
		"trap 'exit 7' EXIT":                "exit code 7",
		"echo() { :; }":                     "<nil>",
		"kill -9 $$":                        "killed",
		"sh -c 'kill -9 $$'":                "killed",
		"if then":                           "exit code 2",
		"true\nif then":                     "exit code 2",
		"printf '%s' \"$0 $#\" >&2; exit 8": "exit code 8",
	} {
		want([]string{"sh", "-c", text}, code)
	}
	must.Contain(t, log.String(), "sh 0") // the shell's name, and no arguments
	for command, code := range map[string]string{"true": "<nil>", "false": "exit code 1", "exit 0": "exit code 127",
		"eval exit": "exit code 127", "trap - EXIT": "exit code 127", "exec true": "exit code 127"} {
		want(strings.Fields(command), code)
	}
}
