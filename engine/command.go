package engine

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"rcgrpo/engine/artifact"
	"rcgrpo/engine/internal/disk"
)

// Program is a program that a stage runs as its own.
type Program struct {
	Args   []string // the program, found in the PATH of Env, and its arguments
	Env    []string // NAME=VALUE; nothing else is inherited
	Dir    string   // folder it starts in
	Secret []string // texts that the log shows as ***
}

// attended stands before the text that a shell runs for a program. Whatever ends the shell, its last act is to write the
// exit record to descriptor 3, the key's lock file, and to end what the program left in its process group: so a later
// engine finds how it ended when the first one is gone. Asked to stop, the shell waits for the command that it runs.
//
// Why a trap in the very shell: a stage's text costs no process of its own then. A subshell or a second shell around
// it, measured beside `sh -c 'echo 1 > f'` of 0.79 ms, takes 0.3 or 0.8 ms more, the trap 0.1.
var attended = sync.OnceValue(func() string {
	return traps("kill -9 0") + "; "
})

// traps has a shell write its exit record when it ends, do one thing more then, and end when it is asked to.
func traps(last string) string {
	return `trap 'command echo "` + artifact.ExitText() + `" >&3; ` + last + `' EXIT; trap 'exit 143' TERM`
}

// shellArgs are the arguments for /bin/sh to run a program attended. The text of a program `sh -c TEXT` runs in that
// shell itself, unless it may replace the shell or its traps; any other program runs below it.
func shellArgs(p Program) []string {
	if len(p.Args) >= 3 && p.Args[1] == "-c" && isShell(p) && !needsOwnShell(p.Args[2]) {
		return slices.Concat([]string{p.Args[0], "-c", attended() + p.Args[2]}, p.Args[3:])
	}
	return slices.Concat([]string{"sh", "-c", attended() + `"$@"`, "sh"}, p.Args)
}

// needsOwnShell says whether a text may replace its shell or the traps of it.
func needsOwnShell(text string) bool {
	return strings.Contains(text, "exec") || strings.Contains(text, "trap")
}

// isShell says whether a program is /bin/sh.
func isShell(p Program) bool {
	if p.Args[0] == "/bin/sh" {
		return true
	}
	if p.Args[0] != "sh" {
		return false
	}
	for _, v := range slices.Backward(p.Env) { // later ones win
		if path, found := strings.CutPrefix(v, "PATH="); found {
			is, known := shells.Load(path)
			if !known {
				is = leadsToShell(path)
				shells.Store(path, is)
			}
			return is.(bool)
		}
	}
	return false
}

// shells remembers by the value of PATH whether it leads to /bin/sh.
var shells sync.Map

// leadsToShell says whether the first sh of a search path is /bin/sh.
func leadsToShell(path string) bool {
	shell, err := os.Stat("/bin/sh")
	if err != nil {
		return false
	}
	for _, dir := range filepath.SplitList(path) {
		if info, err := os.Stat(filepath.Join(dir, "sh")); err == nil && !info.IsDir() && info.Mode()&0o111 != 0 {
			return os.SameFile(info, shell)
		}
	}
	return false
}

// Adopted says that the stage's program was started by an engine that is gone, and has ended well: Dir is as it left
// it, and Execute has nothing to do.
func (j *Job) Adopted() bool { return j.adopted }

// Execute runs a program to its end. What it prints goes to the stage's log, its standard input is empty. When ctx ends,
// the program is asked to stop and later killed; whatever it left running in its process group is killed in any case.
//
// When the engine itself is killed, the program goes on and keeps the key's lock, so nobody else can run the node.
// After it has ended, a run that takes the lock finds its exit code there and goes on behind Execute (Adopted). A
// program with secrets does not last so long: nobody would mask its output.
func (j *Job) Execute(ctx context.Context, p Program) error {
	if j.adopted {
		return j.lock.ForgetExit()
	}
	lock := j.lock
	if lock == nil { // outside a run
		var err error
		if lock, err = artifact.LockFile(filepath.Join(j.Dir, ".lock")); err != nil {
			return err
		}
		defer lock.Unlock()
	}
	empty, err := nothing()
	if err != nil {
		return err
	}
	log, finish, err := j.openLog(p.Secret)
	if err != nil {
		return err
	}
	if err := lock.AwaitExit(); err != nil {
		return errors.Join(err, finish())
	}
	files := []*os.File{empty, log, log, lock.File()}
	if j.share != nil {
		files = append(files, j.share)
	}
	shell, over := j.giveShell(p, log, lock.File())
	var process *os.Process
	if shell != nil {
		process = shell.process
	} else {
		process, err = os.StartProcess("/bin/sh", shellArgs(p), &os.ProcAttr{Dir: p.Dir, Env: p.Env, Files: files, Sys: &syscall.SysProcAttr{Setsid: true}})
	}
	if err != nil {
		return errors.Join(fmt.Errorf("start %s: %w", p.Args[0], err), finish())
	}
	attended := j.attend(ctx, process.Pid)
	goesOn := shell != nil && shell.await(over, lock)
	var state *os.ProcessState // of a shell that does not go on
	if !goesOn {
		awaitExit(process.Pid)
		syscall.Kill(-process.Pid, syscall.SIGKILL) // what it left; the number is not reaped and so not another's yet
		state, err = process.Wait()
	}
	err = errors.Join(attended(), finish(), err)
	if goesOn && ctx.Err() != nil { // it may have been asked to stop meanwhile
		shell.end()
	}
	if err != nil {
		return fmt.Errorf("attend to the program: %w", err)
	}
	code, _, recorded := lock.Exit()
	if !recorded { // the shell ends itself with its group, so a kill is all that is seen of a program without a record
		if err := lock.Unwritable(); err != nil {
			return fmt.Errorf("%s has ended, and how it did could not be written down: %w", p.Args[0], err)
		}
		code = state.ExitCode()
	}
	if state != nil {
		if usage, ok := state.SysUsage().(*syscall.Rusage); ok {
			j.peakBytes = max(j.peakBytes, usage.Maxrss<<10) // Linux counts KiB
		}
	}
	switch {
	case code == 0:
		return lock.ForgetExit()
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case code > 0:
		return codeError(p.Args[0], code, j.kills)
	}
	return exitError(&exec.ExitError{ProcessState: state}, j.kills)
}

// nothing is the standard input of programs. It stays open.
var nothing = sync.OnceValues(func() (*os.File, error) { return disk.Open(os.DevNull) })

// codeError says what an exit code of a program means, nil for 0. A shell reports a signal as a code above 128.
func codeError(name string, code int, kills int64) error {
	switch signal := syscall.Signal(code - 128); {
	case code == 0:
		return nil
	case code == 127:
		return fmt.Errorf("%s ended with exit code 127, as when a program is not found", name)
	case signal == syscall.SIGKILL, signal == syscall.SIGTERM, signal == syscall.SIGHUP, signal == syscall.SIGINT:
		return signalError(signal, kills)
	}
	return fmt.Errorf("%s ended with exit code %d", name, code)
}

// awaitExit returns when a child has ended, which stays to be reaped.
func awaitExit(pid int) {
	for unix.Waitid(unix.P_PID, pid, nil, unix.WEXITED|unix.WNOWAIT, nil) == unix.EINTR {
	}
}

// signAfter is how long a program runs before the lock's file names it. Another run only waits for a shorter one.
const signAfter = 100 * time.Millisecond

// attend names a program in the lock's file when it has run for a while, and stops it when ctx ends. The function that it
// returns ends that, once the program has.
func (j *Job) attend(ctx context.Context, session int) (end func() error) {
	var signErr error
	signed, stopped, gone := make(chan struct{}), make(chan struct{}), make(chan struct{})
	sign := time.AfterFunc(signAfter, func() {
		defer close(signed)
		if j.lock != nil {
			signErr = j.sign(session)
		}
	})
	unstop := context.AfterFunc(ctx, func() {
		defer close(stopped)
		stopSession(ctx, session, -session, j.kill, gone)
	})
	return func() error {
		close(gone)
		if !unstop() {
			<-stopped
		}
		if !sign.Stop() {
			<-signed
		}
		return signErr
	}
}

// openLog returns a file for the output of a program: the log itself, or, where secrets must be hidden, a pipe to it.
// finish waits until all of it has arrived; a process that has left the group may hold the pipe and is not waited for.
func (j *Job) openLog(secrets []string) (log *os.File, finish func() error, err error) {
	if f, ok := j.log.(*os.File); ok && len(secrets) == 0 {
		return f, func() error { return nil }, nil
	}
	out, in, err := os.Pipe()
	if err != nil {
		return nil, nil, err
	}
	masked := newMask(j.log, secrets)
	copied := make(chan error, 1)
	go func() {
		_, err := io.Copy(masked, out)
		masked.Flush()
		copied <- err
	}()
	return in, func() error {
		in.Close()
		out.SetReadDeadline(time.Now().Add(time.Second))
		err := <-copied
		out.Close()
		if errors.Is(err, os.ErrDeadlineExceeded) {
			return nil
		}
		return err
	}, nil
}

// mask passes text on with every secret replaced. It works line by line, and by pieces where a line has no end.
type mask struct {
	to      io.Writer
	secrets [][]byte
	longest int
	held    []byte // the unfinished line
	err     error
}

// newMask hides the secrets and, where one has several lines, each of them.
func newMask(to io.Writer, secrets []string) *mask {
	m := &mask{to: to}
	for _, s := range secrets {
		for line := range strings.Lines(s) {
			if line = strings.Trim(line, "\r\n"); line != "" {
				m.secrets = append(m.secrets, []byte(line))
				m.longest = max(m.longest, len(line))
			}
		}
	}
	slices.SortFunc(m.secrets, func(a, b []byte) int { return len(b) - len(a) }) // one may be part of another
	return m
}

// heldAtMost bounds a line without end.
const heldAtMost = 64 << 10

func (m *mask) Write(text []byte) (int, error) {
	end := bytes.LastIndexAny(text, "\r\n") + 1
	if end > 0 {
		end += len(m.held) // what is held has no end of line in it
	}
	m.held = append(m.held, text...)
	if end == 0 && len(m.held) > heldAtMost { // what is whole is hidden, so that only the tail can be part of a secret
		m.held = m.hide(m.held)
		end = len(m.held) - m.longest
	}
	m.pass(end)
	return len(text), m.err
}

// Flush passes the last line on, which may lack its end.
func (m *mask) Flush() { m.pass(len(m.held)) }

func (m *mask) pass(end int) {
	if end <= 0 {
		return
	}
	_, err := m.to.Write(m.hide(m.held[:end]))
	m.err = errors.Join(m.err, err)
	m.held = append(m.held[:0], m.held[end:]...)
}

func (m *mask) hide(text []byte) []byte {
	for _, s := range m.secrets {
		text = bytes.ReplaceAll(text, s, []byte("***"))
	}
	return text
}
