package engine

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"strings"
	"syscall"
	"time"
)

// Program is a program that a stage runs as its own.
type Program struct {
	Args   []string // the program, found in the PATH of Env, and its arguments
	Env    []string // NAME=VALUE; nothing else is inherited
	Dir    string   // folder it starts in
	Secret []string // texts that the log shows as ***
}

// wrapper is the shell text that becomes the program. Before that it leaves a guard in the same process group, which
// kills the group once the other end of descriptor 3 is closed: then the engine is gone.
const wrapper = `(trap "" HUP INT TERM; read -r _ <&3; kill -9 0) >/dev/null 2>&1 & exec 3<&-; exec "$@"`

// Execute runs a program to its end. What it prints goes to the stage's log, its standard input is empty. When ctx ends,
// the program is asked to stop and later killed; whatever it left running in its process group is killed in any case,
// also when the engine itself is killed. While one of these processes lives, nobody else can run the node.
func (j *Job) Execute(ctx context.Context, p Program) error {
	lifeline, hold, err := os.Pipe()
	if err != nil {
		return err
	}
	defer hold.Close() // open as long as this process lives
	defer lifeline.Close()
	cmd := exec.Command("/bin/sh", append([]string{"-c", wrapper, "sh"}, p.Args...)...)
	cmd.Env, cmd.Dir = p.Env, p.Dir
	cmd.ExtraFiles = []*os.File{lifeline}
	if j.inherit != nil {
		cmd.ExtraFiles = append(cmd.ExtraFiles, j.inherit)
	}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	log, finish, err := j.openLog(p.Secret)
	if err != nil {
		return err
	}
	cmd.Stdout, cmd.Stderr = log, log
	kills := oomKills()
	if err := cmd.Start(); err != nil {
		return errors.Join(fmt.Errorf("start %s: %w", p.Args[0], err), finish())
	}
	group := cmd.Process.Pid
	ended, stopped := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(stopped)
		stopChild(ctx, group, ended)
	}()
	waitErr := cmd.Wait()
	close(ended)
	<-stopped
	syscall.Kill(-group, syscall.SIGKILL) // the guard keeps the group's number taken until now
	if err := finish(); err != nil {
		return fmt.Errorf("write its log: %w", err)
	}
	if usage, ok := cmd.ProcessState.SysUsage().(*syscall.Rusage); ok {
		j.peakBytes = max(j.peakBytes, usage.Maxrss<<10) // Linux counts KiB
	}
	switch code := cmd.ProcessState.ExitCode(); {
	case waitErr == nil:
		return nil
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case code == 127:
		return fmt.Errorf("%s ended with exit code 127, as when a program is not found", p.Args[0])
	case code >= 0:
		return fmt.Errorf("%s ended with exit code %d", p.Args[0], code)
	}
	return exitError(waitErr, kills)
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
	m.held = append(m.held, text...)
	end := bytes.LastIndexAny(m.held, "\r\n") + 1
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
