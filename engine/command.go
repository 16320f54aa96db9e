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
)

// Program is a program that a stage runs as its own.
type Program struct {
	Args   []string // the program, found in the PATH of Env, and its arguments
	Env    []string // NAME=VALUE; nothing else is inherited
	Dir    string   // folder it starts in
	Secret []string // texts that the log shows as ***
}

// superviseText is the text of the shell that supervises a program. The shell starts the program in a process of its
// own, without the descriptors of the engine, so the program can neither change the shell nor write into the lock. A
// command that is a shell text runs in its own shell too: only there do $$, traps and exec mean what they mean elsewhere.
// Whatever ends the program, the last act of the supervising shell is to write the exit record to the key's lock file
// and to end the program's process group, so a later engine finds how the program ended when the first one is gone.
// A request to stop reaches the whole group; the shell waits for the program and then ends with 143. Other signals to
// the group leave the shell alone, since only the program's own end counts.
var superviseText = sync.OnceValue(func() string {
	return fmt.Sprintf(`trap 'command echo "%[1]s" >&%[2]d; kill -9 0' EXIT; trap 'exit 143' TERM
trap : HUP INT QUIT ALRM USR1 USR2
(exec "$@") %[2]d>&- %[3]d>&-
exit $?`, artifact.ExitText(), lockFile, leaseFile)
})

// scratchVariable holds the stage's scratch folder in the environment of its program. What the program starts inherits
// it, so the engine finds processes that have left the program's session.
const scratchVariable = "RCGRPO_SCRATCH"

// Adopted says that the stage's program was started by an engine that is gone, and has ended well: Dir is as it left
// it, and Execute has nothing to do.
func (j *Job) Adopted() bool { return j.adopted }

// Execute runs a program to its end. What it prints goes to the stage's log, its standard input is empty. When ctx ends,
// the program is asked to stop and later killed. Processes that it leaves running are killed in any case (leftovers).
//
// When the engine itself is killed, the program goes on and keeps the key's lock, so nobody else can run the node.
// After it has ended, a run that takes the lock finds its exit code there and goes on behind Execute (Adopted). A
// program with secrets does not last so long: nobody would mask its output.
func (j *Job) Execute(ctx context.Context, p Program) error {
	left := leftovers{scratch: j.Dir}
	if j.adopted || j.resumes { // of this program, or of one whose supervising shell was killed
		j.report(left.kill())
	}
	if j.adopted {
		return j.lock.ClearExit()
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
	if err := lock.PrepareExit(); err != nil {
		return errors.Join(err, finish())
	}
	files := []*os.File{empty, log, log, lock.File()}
	if j.share != nil {
		files = append(files, j.share)
	}
	started := time.Now()
	left.before = lastPID()
	process, err := os.StartProcess("/bin/sh", slices.Concat([]string{"sh", "-c", superviseText(), "sh"}, p.Args),
		&os.ProcAttr{Dir: p.Dir, Env: append(slices.Clip(p.Env), scratchVariable+"="+j.Dir), Files: files, Sys: &syscall.SysProcAttr{Setsid: true}})
	if err != nil {
		return errors.Join(fmt.Errorf("start %s: %w", p.Args[0], err), finish())
	}
	attended := j.attend(ctx, process.Pid)
	awaitExit(process.Pid)
	syscall.Kill(-process.Pid, syscall.SIGKILL) // its number is not reaped and so not another process's yet
	left.session = process.Pid
	if time.Since(started) > time.Minute { // process numbers may have begun anew
		left.before = 0
	}
	j.report(left.kill())
	state, err := process.Wait()
	if err = errors.Join(attended(), finish(), err); err != nil {
		return fmt.Errorf("attend to the program: %w", err)
	}
	code, _, recorded := lock.Exit()
	if !recorded { // the shell ends itself with its group, so a kill is all that is seen of a program without a record
		if err := lock.ClearExit(); err != nil {
			return fmt.Errorf("%s has ended, and how it did could not be written down: %w", p.Args[0], err)
		}
		code = state.ExitCode()
	}
	if usage, ok := state.SysUsage().(*syscall.Rusage); ok {
		j.peakBytes = max(j.peakBytes, usage.Maxrss<<10) // Linux counts KiB
	}
	switch {
	case code == 0:
		return lock.ClearExit()
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case code > 0:
		return codeError(p.Args[0], code, j.kills)
	}
	return exitError(&exec.ExitError{ProcessState: state}, j.kills)
}

// report passes on a note about the stage, unless it is empty.
func (j *Job) report(text string) {
	if text != "" && j.observe != nil {
		j.observe(Event{Time: time.Now(), Address: j.Address, Kind: EventNote, Text: text})
	}
}

// nothing is the standard input of programs. It stays open.
var nothing = sync.OnceValues(func() (*os.File, error) { return os.Open(os.DevNull) })

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

// SecretLines returns the lines of a secret that are not empty. Each of them is secret by itself.
func SecretLines(secret string) (lines []string) {
	for line := range strings.Lines(secret) {
		if line = strings.Trim(line, "\r\n"); line != "" {
			lines = append(lines, line)
		}
	}
	return lines
}

// newMask hides the secrets and, where one has several lines, each of them.
func newMask(to io.Writer, secrets []string) *mask {
	m := &mask{to: to}
	for _, s := range secrets {
		for _, line := range SecretLines(s) {
			m.secrets = append(m.secrets, []byte(line))
			m.longest = max(m.longest, len(line))
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
