package engine

import (
	"bytes"
	"fmt"
	"io"
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
	ending  bool   // or has ended: it starts nothing any more
	session int    // process that leads its session
	start   uint64 // moment of its start, in ticks since boot
	parent  int
}

// exitingFlag is PF_EXITING among the kernel's flags of a process.
const exitingFlag = 0x4

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
	flags, _ := strconv.ParseUint(fields[6], 10, 64)
	s.ending = flags&exitingFlag != 0 && alone
	s.parent, _ = strconv.Atoi(fields[1])
	s.session, _ = strconv.Atoi(fields[3])
	s.start, err = strconv.ParseUint(fields[19], 10, 64)
	return s, err == nil
}

// sameProcess says whether pid is still the process that started at that tick, and has not ended.
func sameProcess(pid int, start uint64) bool {
	s, ok := processStat(pid)
	return ok && s.start == start && !s.ended
}

// lastPID is the number of the process, or thread, that was started last. The numbers go up until they begin anew.
func lastPID() (int, error) {
	f, err := loadAverage()
	if err != nil {
		return 0, err
	}
	text := make([]byte, 128)
	n, err := f.ReadAt(text, 0)
	if err != nil && err != io.EOF {
		return 0, err
	}
	fields := bytes.Fields(text[:n])
	if len(fields) != 5 {
		return 0, fmt.Errorf("/proc/loadavg says %q", text[:n])
	}
	return strconv.Atoi(string(fields[4]))
}

// loadAverage is where the kernel says that. It stays open.
var loadAverage = sync.OnceValues(func() (*os.File, error) { return os.Open("/proc/loadavg") })

// startedAtMost bounds how many numbers startedSince looks at.
const startedAtMost = 10_000

// startedSince says whether a process group may have processes, but for children of its leader, that were started after lastPID was before.
func startedSince(before, group int) bool {
	for {
		last, err := lastPID()
		if err != nil || last < before || last-before > startedAtMost {
			return true
		}
		if last == before {
			return false
		}
		for pid := before + 1; pid <= last; pid++ {
			if of, err := syscall.Getpgid(pid); err == nil && of == group {
				if s, ok := processStat(pid); ok && !s.ending && s.parent != group {
					return true
				}
			}
		}
		before = last // what was looked at may have started more
	}
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
