package engine

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"rcgrpo/engine/artifact"
	"rcgrpo/engine/proc"
)

// Program is a program that a stage executes.
type Program struct {
	Args   []string // the program, found in the PATH of Env, and its arguments
	Env    []string // NAME=VALUE; nothing else is inherited
	Dir    string   // folder in which it starts
	Secret []string // replaced by *** in the log
}

// superviseText is the text of the shell that supervises a program. The shell starts the program in a process of
// its own without the engine's descriptors, so the program can neither change the shell nor write into the lock.
// A command that is a shell text also runs in its own shell, where $$, traps and exec have their usual meaning.
//
// However the program ends, the shell writes the exit record into the key's lock file and kills the process
// group, so a later engine finds the exit code if the first engine is gone. A request to stop reaches the whole
// group; the shell waits for the program and exits with 143. It ignores other signals to the group, because only
// the end of the program counts.
func superviseText() string {
	return fmt.Sprintf(`trap 'command echo "%[1]s" >&%[2]d; kill -9 0' EXIT; trap 'exit 143' TERM
trap : HUP INT QUIT ALRM USR1 USR2
(exec "$@") %[2]d>&- %[3]d>&-
exit $?`, artifact.ExitText(), lockFile, leaseFile)
}

// scratchMark is a variable in the environment of a stage's program and of the processes that it starts. The
// engine finds those that have left the program's session by it.
func scratchMark(dir string) string { return "RCGRPO_SCRATCH=" + dir }

// signAfter is the run time after which a program is stored in the lock. Other runs only wait for shorter programs.
const signAfter = 100 * time.Millisecond

// Adopted reports that an earlier engine started the stage's program and the program has ended successfully. Dir
// contains its files, and Execute does nothing.
func (j *Job) Adopted() bool { return j.start != nil && j.start.adopted }

// Execute runs a program. Its output goes to the stage's log, its standard input is empty. When ctx ends, the
// program gets a request to stop and is killed later. Processes that it leaves running are killed.
//
// If the engine is killed, the program continues and holds the key's lock. After its end, a run that acquires
// the lock reads the exit code and resumes behind Execute (Adopted). A program with secrets ends with its
// engine, which masks its output.
func (j *Job) Execute(ctx context.Context, p Program) error {
	s, mark := j.start, scratchMark(j.Dir)
	if s == nil {
		s = new(start)
	}
	if s.adopted || s.resumes { // processes of the adopted program, or of one whose supervising shell was killed
		j.note(proc.Leftovers{Mark: mark}.Kill())
	}
	if s.adopted {
		return s.lock.ClearExit()
	}
	lock := s.lock
	if lock == nil { // outside a run
		var err error
		if lock, err = artifact.LockFile(filepath.Join(j.Dir, ".lock")); err != nil {
			return err
		}
		defer lock.Unlock()
	}
	stdin, err := devNull()
	if err != nil {
		return err
	}
	log, finish, err := proc.OpenOutput(j.log, p.Secret)
	if err != nil {
		return err
	}
	if err := lock.PrepareExit(); err != nil {
		return errors.Join(err, finish())
	}
	files := []*os.File{stdin, log, log, lock.File()}
	if s.lease != nil {
		files = append(files, s.lease)
	}
	process, err := proc.Start(proc.Command{Args: slices.Concat([]string{"/bin/sh", "-c", superviseText(), "sh"}, p.Args),
		Dir: p.Dir, Env: p.Env, Files: files, Group: true, Mark: mark})
	if err != nil {
		return errors.Join(fmt.Errorf("start %s: %w", p.Args[0], err), finish())
	}
	signed := make(chan error, 1)
	sign := time.AfterFunc(signAfter, func() { signed <- s.sign(process.PID) })
	exit, err := process.Wait(ctx, gracePeriod, s.Kill)
	if !sign.Stop() {
		err = errors.Join(err, <-signed)
	}
	if err = errors.Join(err, finish()); err != nil {
		return fmt.Errorf("supervise the program: %w", err)
	}
	j.note(exit.Left)
	s.peakBytes = max(s.peakBytes, exit.PeakBytes)
	return programError(ctx, p.Args[0], lock, exit, s.Kills)
}

// sign records the program as the holder of the key's lock, so that another engine can adopt it.
func (s *start) sign(pid int) error {
	if s.lock == nil {
		return nil
	}
	h, err := s.Holder(s.folder).WithProcess(pid)
	if err != nil { // it has ended
		return nil
	}
	h.Group = true
	return errors.Join(s.folder.Assign(s.Assignment), h.Write(s.lock.File()))
}

// programError returns the error of a program that has ended, by its exit record. The supervising shell is
// killed with its group, so without a record its own exit status counts.
func programError(ctx context.Context, name string, lock *artifact.Lock, exit proc.Exit, kills int64) error {
	code, _, recorded := lock.Exit()
	if !recorded {
		if err := lock.ClearExit(); err != nil {
			return fmt.Errorf("%s has ended, but its exit code could not be recorded: %w", name, err)
		}
		code = exit.Code
	}
	switch {
	case code == 0 && (recorded || exit.Signal == 0):
		return lock.ClearExit()
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case code > 0:
		return codeError(name, code, kills)
	}
	return exitError(exit, kills)
}

// devNull is the standard input of programs. It stays open.
var devNull = sync.OnceValues(func() (*os.File, error) { return os.Open(os.DevNull) })
