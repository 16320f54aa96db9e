package proc

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"
	"unicode"

	"golang.org/x/sys/unix"

	"rcgrpo/engine/internal/disk"
)

// Command describes a program to start.
type Command struct {
	Args  []string   // path of the program, and its arguments
	Env   []string   // NAME=VALUE; nothing else is inherited
	Dir   string     // "": the current folder
	Files []*os.File // descriptors 0, 1, 2, …; nil: /dev/null
	Mark  string     // NAME=VALUE added to Env; of processes that leave the session; "": none
	Dies  bool       // the kernel kills the program when the thread that started it ends
}

// Process is a program that leads a session of its own, so that ^C and the end of the terminal do not reach it.
type Process struct {
	PID   int
	Ended <-chan struct{} // closed when the program has ended; Wait may still kill processes that it left running

	command Command
	process *os.Process
}

// Start starts a program.
func Start(c Command) (*Process, error) {
	env := c.Env
	if c.Mark != "" {
		env = append(slices.Clip(env), c.Mark)
	}
	null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	if err != nil {
		return nil, err
	}
	defer null.Close()
	files := slices.Clone(c.Files)
	for i, f := range files {
		files[i] = cmp.Or(f, null)
	}
	sys := &syscall.SysProcAttr{Setsid: true}
	if c.Dies {
		sys.Pdeathsig = syscall.SIGKILL
	}
	process, err := os.StartProcess(c.Args[0], c.Args,
		&os.ProcAttr{Dir: c.Dir, Env: env, Files: files, Sys: sys})
	if err != nil {
		return nil, err
	}
	ended := make(chan struct{})
	p := &Process{PID: process.Pid, Ended: ended, command: c, process: process}
	go func() {
		defer close(ended)
		for unix.Waitid(unix.P_PID, p.PID, nil, unix.WEXITED|unix.WNOWAIT, nil) == unix.EINTR { // does not reap
		}
	}()
	return p, nil
}

// Exit is the end of a program.
type Exit struct {
	Code   int            // 0 if a signal ended it
	Signal syscall.Signal // 0 if it exited
	Usage  Usage          // of the program and its children
	Left   string         // a sentence that names the processes it left running, which were killed; "": none
}

// Wait returns after the program has ended, with its process group, its session and all processes that have its mark.
// A process that has left the session, cleared its environment and set its limit again continues. When ctx ends, the
// process group gets SIGTERM, and SIGKILL after the grace period for ctx's cause or when kill is closed.
func (p *Process) Wait(ctx context.Context, grace func(error) time.Duration, kill <-chan struct{}) (Exit, error) {
	select {
	case <-p.Ended:
	case <-ctx.Done():
		p.stop(grace(context.Cause(ctx)), kill)
	}
	syscall.Kill(-p.PID, syscall.SIGKILL) // before it is reaped no other process can have this PID
	self, _ := ReadStat(p.PID)
	left := killLeftovers(p.PID, self.Start, p.command.Mark)
	state, err := p.process.Wait()
	if err != nil {
		return Exit{Left: left}, err
	}
	exit := ExitOf(state)
	exit.Left = left
	return exit, nil
}

// ExitOf returns how a process has ended.
func ExitOf(state *os.ProcessState) Exit {
	exit := Exit{Usage: usageOf(state.SysUsage().(*syscall.Rusage))}
	if status := state.Sys().(syscall.WaitStatus); status.Signaled() {
		exit.Signal = status.Signal()
	} else {
		exit.Code = status.ExitStatus()
	}
	return exit
}

// Usage is what processes have used of the machine.
type Usage struct {
	PeakBytes  int64   `json:"peak_bytes,omitempty"`  // largest resident size; 0: unknown
	CPUSeconds float64 `json:"cpu_seconds,omitempty"` // time of all processors; 0: unknown
}

// And returns the usage of processes that ran one after the other.
func (u Usage) And(o Usage) Usage {
	return Usage{max(u.PeakBytes, o.PeakBytes), u.CPUSeconds + o.CPUSeconds}
}

// OwnUsage returns what this process has used so far, without its children.
func OwnUsage() Usage { return usageSoFar(syscall.RUSAGE_SELF) }

// ChildrenUsage returns what the children of this process that have ended have used.
func ChildrenUsage() Usage { return usageSoFar(syscall.RUSAGE_CHILDREN) }

func usageSoFar(who int) Usage {
	var r syscall.Rusage
	syscall.Getrusage(who, &r)
	return usageOf(&r)
}

func usageOf(r *syscall.Rusage) Usage {
	seconds := time.Duration(r.Utime.Nano() + r.Stime.Nano()).Seconds()
	return Usage{PeakBytes: r.Maxrss << 10, CPUSeconds: seconds} // Linux reports KiB
}

// Failed reports whether a signal or an exit code other than 0 ended the program.
func (e Exit) Failed() bool { return e.Code != 0 || e.Signal != 0 }

func (p *Process) stop(grace time.Duration, kill <-chan struct{}) {
	syscall.Kill(-p.PID, syscall.SIGTERM)
	timer := time.NewTimer(grace)
	defer timer.Stop()
	select {
	case <-p.Ended:
		return
	case <-timer.C:
	case <-kill:
	}
	syscall.Kill(p.PID, syscall.SIGKILL) // Wait kills the others
	<-p.Ended
}

// Every calls f in a goroutine at each interval until stop is called, which waits for it.
func Every(interval time.Duration, f func()) (stop func()) {
	end, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		tick := time.NewTicker(interval)
		defer tick.Stop()
		for {
			select {
			case <-tick.C:
				f()
			case <-end:
				return
			}
		}
	}()
	return sync.OnceFunc(func() {
		close(end)
		<-ended
	})
}

// HostName is the name of this machine, or "".
var HostName = sync.OnceValue(func() string {
	name, _ := os.Hostname()
	return name
})

// SinceBoot returns the time since the machine booted, including sleep. This clock cannot be set.
func SinceBoot() time.Duration {
	var now unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &now); err != nil {
		return 0
	}
	return time.Duration(now.Nano())
}

// Tick is the unit of Stat.start.
const Tick = time.Second / 100

// Stat contains fields of /proc/PID/stat.
type Stat struct {
	ended   bool // but not reaped
	stopped bool // by SIGSTOP or ^Z
	group   int
	session int
	Start   uint64 // in ticks since boot
}

// ReadStat reads the fields of a process; ok is false if there is no such process.
func ReadStat(pid int) (s Stat, ok bool) {
	b, err := os.ReadFile(File(pid, "stat"))
	if err != nil {
		return s, false
	}
	// The second field is the program's name in parentheses and may contain any character.
	fields := strings.Fields(string(b[bytes.LastIndexByte(b, ')')+1:]))
	if len(fields) < 20 {
		return s, false
	}
	// The first thread of a process may end before the others, which may still hold its files open.
	lastThread := fields[17] == "1" || fields[17] == "0"
	s.ended, s.stopped = fields[0] == "Z" && lastThread, fields[0] == "T"
	s.group, _ = strconv.Atoi(fields[2])
	s.session, _ = strconv.Atoi(fields[3])
	s.Start, err = strconv.ParseUint(fields[19], 10, 64)
	return s, err == nil
}

// File returns the path of a file in /proc/PID.
func File(pid int, name string) string { return filepath.Join("/proc", strconv.Itoa(pid), name) }

// Same reports whether the process with this PID started at that tick and has not ended.
func Same(pid int, start uint64) bool {
	s, ok := ReadStat(pid)
	return ok && s.Start == start && !s.ended
}

// Stopped reports whether a process is stopped, by SIGSTOP or ^Z.
func Stopped(pid int) bool {
	s, _ := ReadStat(pid)
	return s.stopped
}

// StoppedText reports that the engine of a run is stopped and how to continue it.
func StoppedText(pid int) string {
	return fmt.Sprintf("its engine is stopped (process %[1]d; `fg` in its terminal or `kill -CONT %[1]d` continues it)",
		pid)
}

// Name returns the name of a program without control characters; "?" if there is no such process.
func Name(pid int) string {
	b, err := os.ReadFile(File(pid, "comm"))
	if err != nil {
		return "?"
	}
	return strings.Join(strings.FieldsFunc(string(b), unicode.IsControl), "")
}

// FlockOwner returns the process that holds the flock of a file; 0 if this machine does not show it.
func FlockOwner(f *os.File) (pid int) {
	info, err := f.Stat()
	if err != nil {
		return 0
	}
	// 1: FLOCK ADVISORY WRITE PID MAJOR:MINOR:INODE 0 EOF; a line of a waiting process has "->" behind the number
	pattern := fmt.Sprintf(`(?m)^\d+: FLOCK +\w+ +\w+ +(\d+) +\w+:\w+:%d `, info.Sys().(*syscall.Stat_t).Ino)
	all, _ := os.ReadFile("/proc/locks")
	if m := regexp.MustCompile(pattern).FindSubmatch(all); m != nil {
		pid, _ = strconv.Atoi(string(m[1]))
	}
	return pid
}

// killAll kills the processes that match until none is left. It returns the names of all and the PIDs of those that
// could not be killed.
func killAll(match func(pid int, s Stat) bool) (names []string, left []int) {
	seen := map[int]bool{}
	for range 200 { // a killed process takes time to end, and may have started another
		left = nil
		entries, _ := os.ReadDir("/proc")
		for _, e := range entries {
			pid, err := strconv.Atoi(e.Name())
			if s, ok := ReadStat(pid); err == nil && ok && !s.ended && match(pid, s) {
				left = append(left, pid)
			}
		}
		if len(left) == 0 {
			break
		}
		for _, pid := range left {
			if !seen[pid] {
				seen[pid] = true
				names = append(names, fmt.Sprintf("%s (process %d)", Name(pid), pid))
			}
			syscall.Kill(pid, syscall.SIGKILL)
		}
		time.Sleep(5 * time.Millisecond)
	}
	return names, left
}

// KillSession kills every process of a session, except for this one. While one of them lives, the kernel does not reuse
// the session's id.
func KillSession(leader int) {
	killAll(func(pid int, s Stat) bool { return s.session == leader && pid != os.Getpid() })
}

// KillMarked kills the processes with a mark, except for this one. It returns a sentence that names them as leftovers
// of a program; "" if there were none.
func KillMarked(mark string) string { return killLeftovers(0, 0, mark) }

// ScratchMark is a variable in the environment of a stage's process or program and of the processes that it starts. The
// engine finds those that have left its session by it or by LimitOf it, and adopts no process without it.
func ScratchMark(dir string) string { return "RCGRPO_SCRATCH=" + dir }

// Marked reports whether a process has a mark, in its environment or its limits.
func Marked(pid int, mark string) bool { return hasMark(mark)(pid) }

func hasMark(mark string) func(pid int) bool {
	limit := regexp.MustCompile(fmt.Sprintf(`(?m)^Max file locks +%d `, limitOf(mark)))
	return func(pid int) bool {
		limits, _ := os.ReadFile(File(pid, "limits"))
		return limit.Match(limits) || bytes.Contains(environment(pid), []byte(mark+"\x00"))
	}
}

// limitOf returns the number that marks processes which have cleared their environment: Linux counts no locks of files,
// but a process inherits the limit of their number, and /proc/PID/limits shows it.
func limitOf(mark string) uint64 {
	sum := sha256.Sum256([]byte(mark))
	return binary.LittleEndian.Uint64(sum[:]) >> 11 // shells and Linux read 53 bits alike
}

// LimitLocks marks this process and those that it will start with limitOf(mark).
func LimitLocks(mark string) {
	const locks = 10 // RLIMIT_LOCKS, which package unix does not name
	// An error means that the limit is smaller already; then the environment is the only mark.
	unix.Setrlimit(locks, &unix.Rlimit{Cur: limitOf(mark), Max: unix.RLIM_INFINITY})
}

// LimitText returns the text of a shell that does the same. Dash and bash name that limit differently.
func LimitText(mark string) string {
	return fmt.Sprintf(`{ ulimit -S -w %[1]d || ulimit -S -x %[1]d; } 2>/dev/null`, limitOf(mark))
}

// killLeftovers kills the processes of a program that has ended: those of the session that it led (0: unknown), and
// those that have left the session with its mark ("": none) in their environment or limits. They started since that
// tick.
func killLeftovers(session int, since uint64, mark string) string {
	marked := hasMark(mark)
	names, left := killAll(func(pid int, s Stat) bool {
		if s.session == 0 || s.group == session || s.Start < since || pid == os.Getpid() { // session 0 is the kernel's
			return false
		}
		return s.session == session || mark != "" && marked(pid)
	})
	switch {
	case len(names) == 0:
		return ""
	case len(left) > 0:
		return fmt.Sprintf("its program left %s running, and process %v could not be killed", strings.Join(names, ", "), left)
	}
	return fmt.Sprintf("its program left %s running; killed", strings.Join(names, ", "))
}

// environment returns the variables with which a program was started. While a process executes a new program they are
// empty for a moment, so environment tries again.
func environment(pid int) []byte {
	for try := 0; ; try++ {
		env, err := os.ReadFile(File(pid, "environ"))
		if err != nil || len(env) > 0 || try == 20 {
			return env
		}
		time.Sleep(time.Millisecond)
	}
}

// ControlGroups calls f with the folder of this process's control group for a controller, and with the folders of its
// parents. root is the file system of the machine; v2 means that the files have the names of cgroup v2.
func ControlGroups(root fs.FS, controller string, f func(folder string, v2 bool)) {
	groups, _ := fs.ReadFile(root, "proc/self/cgroup")
	for line := range strings.Lines(string(groups)) {
		id, rest, _ := strings.Cut(strings.TrimSpace(line), ":")
		controllers, group, _ := strings.Cut(rest, ":")
		folder, v2 := "sys/fs/cgroup", id == "0"
		if !v2 {
			if !slices.Contains(strings.Split(controllers, ","), controller) {
				continue
			}
			folder = path.Join(folder, controller)
		}
		for g := path.Clean("/" + group); ; g = path.Dir(g) {
			f(path.Join(folder, g), v2)
			if g == "/" {
				break
			}
		}
	}
}

// oomFile is the file that counts processes killed because memory ran out: of this process's control group, or
// else of the machine.
var oomFile = sync.OnceValue(func() (file string) {
	ControlGroups(os.DirFS("/"), "memory", func(folder string, v2 bool) {
		name := "memory.oom_control"
		if v2 {
			name = "memory.events"
		}
		if path := filepath.Join("/", folder, name); file == "" && disk.Exists(path) {
			file = path
		}
	})
	return cmp.Or(file, "/proc/vmstat")
})

// OOMKills returns the number of processes killed so far because memory ran out; -1: unknown.
func OOMKills() int64 {
	b, _ := os.ReadFile(oomFile())
	for line := range strings.Lines(string(b)) {
		if count, ok := strings.CutPrefix(line, "oom_kill "); ok {
			n, _ := strconv.ParseInt(strings.TrimSpace(count), 10, 64)
			return n
		}
	}
	return -1
}

// Quote returns a word of a command for sh.
func Quote(word string) string { return "'" + strings.ReplaceAll(word, "'", `'\''`) + "'" }
