package engine

import (
	"cmp"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"rcgrpo/engine/artifact"
)

// residentShell is a shell that runs the texts of one stage after the other, each in a fork of itself: that takes a third of the time that
// it takes to start a shell, which is most of what a small stage costs. It keeps what cannot be handed over later: the descriptors of its
// log, of a key's lock and of a share of the machine. When one stage is over, lock and share become those of the next.
//
// The next fork is made ahead. It waits for a line from a pipe, and reads then what it is to do from a file. When the engine is killed it
// reads the end of that pipe instead, and the shell is gone; a text that runs comes to its end first, for another engine to adopt.
// Only a small stage that ended well, printed nothing and left nothing running leaves its shell to others; whatever is out of the ordinary ends it.
type residentShell struct {
	process *os.Process
	before  int      // the number of the process that was started last when a text began
	turn    *os.File // the end of the pipe to write to
	script  *os.File // in memory, what the fork is to do
	over    *os.File // a FIFO that each fork opens for writing: it has no writer any more when the fork is at its end and all that it started is gone
	state   shellState

	lock  *artifact.Lock // of no key, while no stage has it
	lease *slot
	log   *stageLog
}

type shellState int

const (
	shellAbsent shellState = iota // not started yet
	shellWaits                    // or runs a text
	shellGone
)

// Descriptors of a resident shell, behind those that every program has. What it runs has overFile too.
const (
	turnFile = leaseFile + 1 + iota
	scriptFile
	overFile
)

// residentText is what such a shell runs. It ends with everything in its process group; its forks are attended as any program. It does not say in
// the log how they ended.
var residentText = sync.OnceValue(func() string {
	return fmt.Sprintf(`trap 'kill -9 0' EXIT; trap 'exit 143' TERM
while read -r turn <&%[1]d; do (
read -r turn <&%[1]d || kill -9 0
%[2]s
exec %[3]d<>/proc/self/fd/%[3]d %[1]d<&- 2>&1
. /proc/self/fd/%[4]d
) done`, turnFile, traps(fmt.Sprintf("exec %d>&-", overFile)), overFile, scriptFile)
})

// start starts the shell in a folder, with the files that it keeps: its log, the lock of a key and a share of the machine.
func (s *residentShell) start(dir string, log, lock, share *os.File) error {
	empty, err := nothing()
	if err != nil {
		return err
	}
	var ends [2]int
	memory, err := unix.MemfdCreate("script", unix.MFD_CLOEXEC)
	if err != nil {
		return os.NewSyscallError("memfd_create", err)
	}
	s.script = os.NewFile(uintptr(memory), "script")
	if s.over, err = openOver(dir); err == nil {
		err = os.NewSyscallError("pipe2", unix.Pipe2(ends[:], unix.O_CLOEXEC))
	}
	if err == nil {
		turn := os.NewFile(uintptr(ends[0]), "turn")
		defer turn.Close()
		s.turn = os.NewFile(uintptr(ends[1]), "turn")
		s.process, err = os.StartProcess("/bin/sh", []string{"sh", "-c", residentText(), "sh"}, &os.ProcAttr{Dir: dir, Env: []string{},
			Files: []*os.File{empty, log, empty, lock, share, turn, s.script, s.over}, Sys: &syscall.SysProcAttr{Setsid: true}})
	}
	if err != nil {
		s.close()
		return err
	}
	s.state = shellWaits
	return s.next()
}

// next writes a line: for the shell to fork, or for its fork to begin.
func (s *residentShell) next() error {
	_, err := syscall.Write(int(s.turn.Fd()), []byte{'\n'})
	return err
}

// openOver makes a FIFO without a name and opens it for reading.
func openOver(dir string) (*os.File, error) {
	path := filepath.Join(dir, ".over-"+rand.Text())
	if err := unix.Mkfifo(path, 0o600); err != nil {
		return nil, &os.PathError{Op: "mkfifo", Path: path, Err: err}
	}
	defer os.Remove(path)
	fd, err := unix.Open(path, unix.O_RDONLY|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err == nil {
		err = unix.SetNonblock(fd, false) // or the runtime would watch it
	}
	if err != nil {
		return nil, &os.PathError{Op: "open", Path: path, Err: err}
	}
	return os.NewFile(uintptr(fd), path), nil
}

// giveShell has the job's resident shell run a program. Without one, or when the program needs a shell of its own, it answers nil;
// otherwise, await wants the number.
func (j *Job) giveShell(p Program, log, lock *os.File) (s *residentShell, over int) {
	s = j.shell
	if s == nil || s.state == shellGone {
		return nil, 0
	}
	script, ok := residentScript(p)
	if !ok {
		return nil, 0
	}
	var err error
	if s.state == shellAbsent {
		err = s.start(filepath.Dir(log.Name()), log, lock, j.share)
	}
	if err == nil {
		over, err = s.give(script)
	}
	if err != nil { // mostly since somebody has killed it
		s.end()
		return nil, 0
	}
	return s, over
}

// give has the shell run a script. The number that it returns is for await.
func (s *residentShell) give(script string) (over int, err error) {
	if s.before, err = lastPID(); err != nil {
		return 0, err
	}
	file := int(s.script.Fd())
	if err := unix.Ftruncate(file, int64(len(script))); err != nil {
		return 0, err
	}
	if n, err := unix.Pwrite(file, []byte(script), 0); err != nil || n < len(script) {
		return 0, cmp.Or(err, io.ErrShortWrite)
	}
	if over, err = unix.Open(fmt.Sprint("/proc/self/fd/", s.over.Fd()), unix.O_RDONLY|unix.O_NONBLOCK|unix.O_CLOEXEC, 0); err != nil {
		return 0, err
	}
	if err = s.next(); err != nil {
		unix.Close(over)
	}
	return over, err
}

// residentFor says how long a stage runs at most when its shell is to serve another one: until its log would have its name.
const residentFor = nameAfter

// await waits, but not for long, for the end of what a script has started, and says whether all of it is gone and it ended well, as the lock of
// its key says, so that the shell waits for another one. Otherwise there will be none, and the shell ends when what it runs does.
func (s *residentShell) await(over int, lock *artifact.Lock) (goesOn bool) {
	if hangsUp(over) {
		code, _, recorded := lock.Exit()
		goesOn = recorded && code == 0 && !startedSince(s.before, s.process.Pid) && s.next() == nil
	}
	if !goesOn {
		s.close()
	}
	return goesOn
}

// hangsUp waits until nobody has a FIFO open for writing any more who has opened it since it was opened here. It closes that.
func hangsUp(over int) bool {
	defer unix.Close(over)
	files := []unix.PollFd{{Fd: int32(over)}} // its hanging up is always told
	until := time.Now().Add(residentFor)
	for {
		n, err := unix.Poll(files, max(0, int(time.Until(until)/time.Millisecond)))
		if !errors.Is(err, unix.EINTR) {
			return err == nil && n > 0
		}
	}
}

// scriptAtMost bounds a script: a text that is too long for the arguments of a program is so for a resident shell.
const scriptAtMost = 64 << 10

// residentScript is the text that makes a resident shell do what `sh -c TEXT` of a program does, on the same lines.
func residentScript(p Program) (script string, ok bool) {
	if !Scriptable(p.Args) || p.Dir == "" || strings.Contains(p.Dir, "\n") || len(p.Secret) > 0 || !isShell(p) {
		return "", false
	}
	var b strings.Builder
	fmt.Fprintf(&b, "exec %d<&-; cd %s || exit; unset OLDPWD turn", scriptFile, shellQuoted(p.Dir))
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
	b.WriteString("; eval " + shellQuoted(p.Args[2]) + "\n")
	return b.String(), b.Len() <= scriptAtMost
}

// shellQuoted is a text as one word of the shell.
func shellQuoted(text string) string { return "'" + strings.ReplaceAll(text, "'", `'\''`) + "'" }

// Scriptable says whether a resident shell can run a command with those variables, as far as their names tell.
func Scriptable(command []string, variables ...string) bool {
	return len(command) == 3 && command[1] == "-c" && !needsOwnShell(command[2]) && !asksForShell(command[2]) &&
		!slices.ContainsFunc(variables, func(name string) bool { return !plainToShell(name) })
}

// asksForShell says whether a text may ask for what is another in a fork: the number of its shell, or of a line, or whether it is all that its shell reads.
func asksForShell(text string) bool {
	return strings.Contains(text, "$$") || strings.Contains(text, "LINENO") || strings.Contains(text, "return")
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

// end ends a shell, unless it is gone.
func (s *residentShell) end() {
	if s == nil {
		return
	}
	if s.state == shellWaits {
		syscall.Kill(-s.process.Pid, syscall.SIGKILL)
		s.process.Wait()
		// The fork that waited has the lock's file too, until nobody can read from the pipe any more.
		unix.Poll([]unix.PollFd{{Fd: int32(s.turn.Fd())}}, int(signAfter/time.Millisecond))
		s.close()
	}
	s.state = shellGone
}

// close leaves the process to whoever waits for it.
func (s *residentShell) close() {
	for _, f := range []*os.File{s.turn, s.script, s.over} {
		f.Close() // or nil
	}
	s.state = shellGone
}

// waits says whether the shell waits for a text.
func (s *residentShell) waits() bool { return s != nil && s.state == shellWaits }

// residentShells are those of a run. All belongs to the goroutine of loop.
type residentShells struct {
	free  []*residentShell
	small bool // as the stage before was, so that one of them may serve the next
}

// scripted says whether a resident shell can serve a task.
func (r *run) scripted(t *task) bool {
	return t.Key != "" && t.Kind.Scripted != nil && t.Kind.Scripted(t.Stage) && t.lock == nil && t.attempts == 0 && r.inPlace(t.Node)
}

// takeShell returns a shell for a task that can do with one: one that waits, or one to be started.
func (r *run) takeShell(t *task) *residentShell {
	s := &r.shells
	if !r.scripted(t) {
		return nil
	}
	if last := len(s.free) - 1; last >= 0 {
		shell := s.free[last]
		s.free = s.free[:last]
		return shell
	}
	if !s.small {
		return nil
	}
	return &residentShell{}
}

// bindShell makes the lock and the log of a task's shell those of the task. It says whether that has the lock of its key now.
func (r *run) bindShell(t *task) bool {
	if !t.shell.waits() {
		return false
	}
	written, err := sizeOf(t.shell.log.file) // by somebody who has left his stage's session
	if err != nil || written > 0 || !r.Store.Claim(t.shell.lock, t.Key) {
		r.dropShell(t)
		return false
	}
	t.lock, t.shell.lock = t.shell.lock, nil
	t.shell.log.begin(r.folder.log(t.Address))
	return true
}

// dropShell ends a task's shell, which has no text, and gives back what else it had.
func (r *run) dropShell(t *task) {
	if t.shell != nil {
		r.giveBack(t.shell)
		t.shell = nil
	}
}

func (r *run) giveBack(s *residentShell) {
	s.end()
	if s.log != nil {
		r.logs.giveBack(s.log)
	}
	if s.lock != nil {
		r.note(s.lock.Unlock()) // what was killed just now may still have it
	}
}

// passOn makes ready a shell that has served a stage well for another one, and returns the lock that the stage's key has instead of that of
// the shell. It answers nil when the shell serves no more. It runs beside loop.
func (r *run) passOn(s *residentShell, lock *artifact.Lock) *artifact.Lock {
	heir, err := r.Store.PassOn(lock)
	if err != nil {
		s.end()
		r.logs.giveBack(s.log)
		return nil
	}
	s.lock = lock
	return heir
}

// keepShell takes a shell for the next task, with the share of the machine that the one before had, and has given back.
func (r *run) keepShell(s *residentShell, lease *slot) {
	s.lease, lease.used = lease, true
	r.shells.free = append(r.shells.free, s)
}

// closeShells ends those that wait.
func (r *run) closeShells() {
	for _, s := range r.shells.free {
		r.giveBack(s)
		s.lease.used = false
	}
	r.shells.free = nil
}
