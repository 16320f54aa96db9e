package engine

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"
)

// procStat are the fields of /proc/PID/stat that tell one process from another.
type procStat struct {
	ended   bool   // and nobody has asked how
	group   int    // its process group
	session int    // process that leads its session
	start   uint64 // moment of its start, in ticks since boot
}

// processStat reads them; ok is false when there is no such process.
func processStat(pid int) (s procStat, ok bool) {
	b, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "stat"))
	if err != nil {
		return s, false
	}
	// The second field is the program's name in parentheses, which may hold anything.
	fields := strings.Fields(string(b[bytes.LastIndexByte(b, ')')+1:]))
	if len(fields) < 20 {
		return s, false
	}
	// While other threads live, or are still about to let go of its files, only the first one has ended.
	alone := fields[17] == "1" || fields[17] == "0" // when it is about to be gone
	s.ended = fields[0] == "Z" && alone
	s.group, _ = strconv.Atoi(fields[2])
	s.session, _ = strconv.Atoi(fields[3])
	s.start, err = strconv.ParseUint(fields[19], 10, 64)
	return s, err == nil
}

// sameProcess says whether pid is still the process that started at that tick, and has not ended.
func sameProcess(pid int, start uint64) bool {
	s, ok := processStat(pid)
	return ok && s.start == start && !s.ended
}

// inSession lists the processes of a session that have not ended.
func inSession(leader int) (pids []int) {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil
	}
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil {
			continue
		}
		if s, ok := processStat(pid); ok && s.session == leader && !s.ended {
			pids = append(pids, pid)
		}
	}
	return pids
}

// killSession kills every process of a session. As long as one is left, the kernel gives the session's number to no
// other process.
func killSession(leader int) {
	for range 10 { // what is being killed may just have started something
		killed := false
		for _, pid := range inSession(leader) {
			killed = syscall.Kill(pid, syscall.SIGKILL) == nil || killed
		}
		if !killed {
			return
		}
	}
}

// lastPID is the number of the process or thread that was started last; 0 where the kernel does not say.
func lastPID() int {
	f, err := loadAverage()
	if err != nil {
		return 0
	}
	text := make([]byte, 128)
	n, _ := f.ReadAt(text, 0)
	fields := bytes.Fields(text[:n])
	if len(fields) != 5 {
		return 0
	}
	pid, _ := strconv.Atoi(string(fields[4]))
	return pid
}

// loadAverage is the file in which the kernel says that. It stays open, since every small stage reads it.
var loadAverage = sync.OnceValues(func() (*os.File, error) { return os.Open("/proc/loadavg") })

// startedAfter lists the numbers that were given to processes after lastPID was before. Numbers go up until they begin
// anew; then, and where before is 0, it lists all processes.
func startedAfter(before int) (pids []int) {
	const atMost = 10_000 // numbers to try one by one
	if last := lastPID(); before > 0 && last >= before && last-before <= atMost {
		for pid := before + 1; pid <= last; pid++ {
			pids = append(pids, pid)
		}
		return pids
	}
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil
	}
	for _, e := range entries {
		if pid, err := strconv.Atoi(e.Name()); err == nil {
			pids = append(pids, pid)
		}
	}
	return pids
}

// leftovers are the processes that a program may leave running outside its process group: those in the session that it
// led, and those that left the session but have the stage's scratch folder in their environment.
type leftovers struct {
	session int    // 0: not known
	before  int    // lastPID before the program started; 0: not known, or too long ago
	scratch string // folder
}

// list returns their numbers.
func (l leftovers) list() (pids []int) {
	mark := []byte(scratchVariable + "=" + l.scratch + "\x00")
	for _, pid := range startedAfter(l.before) {
		s, ok := processStat(pid)
		if !ok || s.ended || s.session == 0 || l.session != 0 && s.group == l.session { // session 0 is the kernel's
			continue
		}
		found := l.session != 0 && s.session == l.session || bytes.Contains(environment(pid), mark)
		if found && pid == processOfThread(pid) {
			pids = append(pids, pid)
		}
	}
	return pids
}

// environment returns the variables that a process got when its program started. A process that is just replacing its
// program has none for a moment, so environment reads again.
func environment(pid int) []byte {
	for try := 0; ; try++ {
		env, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "environ"))
		if err != nil || len(env) > 0 || try == 20 {
			return env
		}
		time.Sleep(time.Millisecond)
	}
}

// kill kills them until there are none, and returns a sentence that names them; "" when there were none.
func (l leftovers) kill() string {
	var names []string
	var left []int
	seen := map[int]bool{}
	for range 200 { // what is being killed takes a moment to end, and may just have started something
		if left = l.list(); len(left) == 0 {
			break
		}
		for _, pid := range left {
			if !seen[pid] {
				seen[pid] = true
				names = append(names, fmt.Sprintf("%s (process %d)", processName(pid), pid))
			}
			syscall.Kill(pid, syscall.SIGKILL)
		}
		time.Sleep(5 * time.Millisecond)
	}
	switch {
	case len(names) == 0:
		return ""
	case len(left) > 0:
		return fmt.Sprintf("its program left %s running, and process %v could not be killed", strings.Join(names, ", "), left)
	}
	return fmt.Sprintf("its program left %s running; killed", strings.Join(names, ", "))
}

// processOfThread is the number of the process that a thread belongs to; 0 when there is no such thread.
func processOfThread(tid int) int {
	b, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(tid), "status"))
	if err != nil {
		return 0
	}
	_, rest, _ := strings.Cut(string(b), "\nTgid:")
	line, _, _ := strings.Cut(rest, "\n")
	pid, _ := strconv.Atoi(strings.TrimSpace(line))
	return pid
}

// processName is the name of a program, as the kernel knows it.
func processName(pid int) string {
	b, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "comm"))
	if err != nil {
		return "?"
	}
	return strings.TrimSpace(string(b))
}

// oomFile is where the kernel counts what it killed for want of memory: for this control group when it has one,
// otherwise for the machine. "" when it counts nowhere.
var oomFile = sync.OnceValue(func() string {
	if b, err := os.ReadFile("/proc/self/cgroup"); err == nil {
		for line := range strings.Lines(string(b)) {
			id, group, _ := strings.Cut(strings.TrimSpace(line), ":")
			if group, ok := strings.CutPrefix(group, ":"); ok && id == "0" {
				for _, path := range []string{filepath.Join("/sys/fs/cgroup", group, "memory.events"), "/sys/fs/cgroup/memory.events"} {
					if _, err := os.Stat(path); err == nil {
						return path
					}
				}
			}
			if controllers, group, ok := strings.Cut(group, ":"); ok && controllers == "memory" {
				for _, path := range []string{filepath.Join("/sys/fs/cgroup/memory", group, "memory.oom_control"), "/sys/fs/cgroup/memory/memory.oom_control"} {
					if _, err := os.Stat(path); err == nil {
						return path
					}
				}
			}
		}
	}
	if _, err := os.Stat("/proc/vmstat"); err == nil {
		return "/proc/vmstat"
	}
	return ""
})

// recentOOMKills is oomKills of at most a second ago.
func recentOOMKills() int64 {
	oomSeen.Lock()
	defer oomSeen.Unlock()
	if now := time.Now(); now.Sub(oomSeen.at) > time.Second {
		oomSeen.kills, oomSeen.at = oomKills(), now
	}
	return oomSeen.kills
}

var oomSeen struct {
	sync.Mutex
	at    time.Time
	kills int64
}

// oomKills is how many processes the kernel has killed for want of memory so far; -1 when it does not say.
func oomKills() int64 {
	path := oomFile()
	if path == "" {
		return -1
	}
	b, err := os.ReadFile(path)
	if err != nil {
		return -1
	}
	for line := range strings.Lines(string(b)) {
		if count, ok := strings.CutPrefix(line, "oom_kill "); ok {
			n, err := strconv.ParseInt(strings.TrimSpace(count), 10, 64)
			if err != nil {
				return -1
			}
			return n
		}
	}
	return -1
}
