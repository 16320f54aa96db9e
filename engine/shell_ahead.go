package engine

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"rcgrpo/engine/artifact"
)

// shellAhead is a shell that was started for a stage that nobody knows yet, with all that cannot be handed over later: the
// descriptors of its log, of a key's lock and of a share of the machine. It reads its script from a pipe, so it waits; and when the
// engine is killed before it has written one, the shell reads the end of it and is gone.
//
// To start a shell takes as long as all that a run does between two small stages. In a chain of them, where one processor would
// have nothing to do meanwhile, the two are done at once.
type shellAhead struct {
	process *os.Process
	script  *os.File       // the end of the pipe to write to
	lock    *artifact.Lock // of no key yet
	lease   *slot
	log     *stageLog
	ran     bool // it has its script, or was ended
}

// scriptFile is the descriptor that the script comes from, behind those that every program has.
const scriptFile = leaseFile + 1

// startShellAhead starts one in dir, where it finds its script under the name by which it calls itself in messages.
func startShellAhead(dir string, lock *artifact.Lock, lease *slot, log *stageLog) (*shellAhead, error) {
	empty, err := nothing()
	if err != nil {
		return nil, err
	}
	var ends [2]int
	if err := unix.Pipe2(ends[:], unix.O_CLOEXEC); err != nil {
		return nil, os.NewSyscallError("pipe2", err)
	}
	read, script := os.NewFile(uintptr(ends[0]), "script"), os.NewFile(uintptr(ends[1]), "script")
	defer read.Close()
	process, err := os.StartProcess("/bin/sh", []string{"sh", scriptName}, &os.ProcAttr{Dir: dir, Env: []string{},
		Files: []*os.File{empty, log.file, log.file, lock.File(), lease.file, read}, Sys: &syscall.SysProcAttr{Setsid: true}})
	if err != nil {
		return nil, errors.Join(err, script.Close())
	}
	return &shellAhead{process: process, script: script, lock: lock, lease: lease, log: log}, nil
}

// scriptName is what a shell calls itself in messages, whether it was started ahead or with `sh -c`.
const scriptName = "sh"

// scriptLink makes the name scriptName in dir lead to the script of whatever shell opens it.
func scriptLink(dir string) error {
	return os.Symlink(fmt.Sprint("/proc/self/fd/", scriptFile), filepath.Join(dir, scriptName))
}

// scriptAtMost bounds a script, so that the pipe holds all of it.
const scriptAtMost = 32 << 10

// takeShell gives a program to the shell that waits for this stage. It answers nil when there is none, or the program needs a shell
// of its own.
func (j *Job) takeShell(p Program) *os.Process {
	s := j.shell
	if s == nil {
		return nil
	}
	j.shell = nil
	script, ok := aheadScript(p)
	if !ok {
		return nil
	}
	if _, err := syscall.Write(int(s.script.Fd()), []byte(script)); err != nil { // somebody has killed it
		return nil
	}
	s.ran = true
	s.script.Close()
	return s.process
}

// aheadScript is the text that makes a shell with an empty environment do what `sh -c TEXT` of a program does, on the same lines.
func aheadScript(p Program) (script string, ok bool) {
	if !Scriptable(p.Args) || p.Dir == "" || strings.Contains(p.Dir, "\n") || len(p.Secret) > 0 || !isShell(p) {
		return "", false
	}
	var b strings.Builder
	fmt.Fprintf(&b, "%scd %s || exit; unset OLDPWD; exec %d<&-", attended(), shellQuoted(p.Dir), scriptFile)
	for i, v := range p.Env {
		if i == 0 {
			b.WriteString("; export")
		}
		name, value, _ := strings.Cut(v, "=")
		if !plainToShell(name) || strings.Contains(value, "\n") { // messages count lines
			return "", false
		}
		b.WriteString(" " + name + "=" + shellQuoted(value))
	}
	b.WriteString("; " + p.Args[2])
	return b.String(), b.Len() <= scriptAtMost
}

// shellQuoted is a text as one word of the shell.
func shellQuoted(text string) string { return "'" + strings.ReplaceAll(text, "'", `'\''`) + "'" }

// Scriptable says whether a shell that was started ahead can run a command with those variables, as far as their names tell.
func Scriptable(command []string, variables ...string) bool {
	return len(command) == 3 && command[1] == "-c" && !needsOwnShell(command[2]) && !slices.ContainsFunc(variables, func(name string) bool { return !plainToShell(name) })
}

// plainToShell says whether a variable means nothing to the shell itself: those that do, as IFS or PS4, are in capitals, and a shell
// that is told of one later is not one that finds it at its start.
func plainToShell(name string) bool {
	switch name {
	case "PATH", "HOME", "TMPDIR", "PWD", "OMP_NUM_THREADS", "CUDA_VISIBLE_DEVICES", "RCGRPO_SEED":
		return true
	}
	return name != strings.ToUpper(name)
}

// end ends a shell that has no script.
func (s *shellAhead) end() {
	if s == nil || s.ran {
		return
	}
	s.ran = true
	s.script.Close()
	s.process.Kill()
	s.process.Wait()
}

// shellsAhead has at most one shell for a run.
type shellsAhead struct {
	waiting atomic.Pointer[shellAhead]
	busy    atomic.Bool // one is going to be
	broken  atomic.Bool // none can be
	linked  bool        // scriptLink
	short   bool        // the stages of this run are
}

// shortStage is how long the stage before took at most when a shell is started for the next: it would wait for nothing all the while
// that a long one runs.
const shortStage = time.Second

// nextShell returns what starts a shell for the next stage: whoever waits for the program of this one does that meanwhile, since to have
// another goroutine do it takes as long as a small program. It is nil when none is to be started.
func (r *run) nextShell() (start func()) {
	s := &r.shells
	if !s.short || s.busy.Load() || s.broken.Load() || s.waiting.Load() != nil || r.schedule.free.minus(r.schedule.taken).cpus < 1 {
		return nil
	}
	dir := r.folder.path("nodes")
	var err error
	if !s.linked {
		err = scriptLink(dir)
		s.linked = err == nil
	}
	var lease *slot
	if err == nil {
		lease, err = r.ledger.reserveAlone()
	}
	if err != nil {
		s.broken.Store(true)
		return nil
	}
	s.busy.Store(true)
	return sync.OnceFunc(func() {
		shell, err := r.shellAhead(dir, lease)
		s.waiting.Store(shell)
		s.broken.Store(err != nil)
		s.busy.Store(false)
	})
}

// shellAhead starts a shell with a lock and a log of no stage.
func (r *run) shellAhead(dir string, lease *slot) (*shellAhead, error) {
	lock, err := r.Store.LockAhead()
	if err != nil {
		return nil, err
	}
	log, err := r.logs.take()
	if err != nil {
		return nil, errors.Join(err, lock.Retire())
	}
	shell, err := startShellAhead(dir, lock, lease, log)
	if err != nil {
		r.logs.giveBack(log)
		return nil, errors.Join(err, lock.Retire())
	}
	return shell, nil
}

// scripted says whether a shell that was started ahead can serve a task.
func (r *run) scripted(t *task) bool {
	return t.Kind.Scripted != nil && t.Kind.Scripted(t.Stage) && t.lock == nil && t.attempts == 0 && r.inPlace(t.Node)
}

// nextScripted says that a task can run in a shell started ahead and waits for one stage only.
func (r *run) nextScripted(t *task) bool { return t.state == waiting && t.waits == 1 && r.scripted(t) }

// takeShell returns the shell that waits, if one does and a task is for it.
func (r *run) takeShell(t *task) *shellAhead {
	if t.Key == "" || !r.scripted(t) {
		return nil
	}
	return r.shells.waiting.Swap(nil)
}

// bindShell makes the lock and the log of a task's shell those of the task. It says whether that has the lock of its key now.
func (r *run) bindShell(t *task) bool {
	if t.shell == nil {
		return false
	}
	if !r.Store.Claim(t.shell.lock, t.Key) {
		r.dropShell(t)
		return false
	}
	t.lock, t.shell.lock = t.shell.lock, nil
	t.shell.log.begin(r.folder.log(t.Address))
	return true
}

// dropShell ends a task's shell, which has no script, and gives back what else it had.
func (r *run) dropShell(t *task) {
	if t.shell != nil {
		r.giveBack(t.shell)
		t.shell = nil
	}
}

func (r *run) giveBack(s *shellAhead) {
	s.end()
	r.logs.giveBack(s.log)
	if s.lock != nil {
		r.note(s.lock.Retire())
	}
}

// closeShells ends the one that waits.
func (r *run) closeShells() {
	if s := r.shells.waiting.Swap(nil); s != nil {
		r.giveBack(s)
	}
	if r.shells.linked {
		r.note(os.Remove(r.folder.path("nodes", scriptName)))
	}
}
