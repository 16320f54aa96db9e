package engine

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"rcgrpo/engine/artifact"
)

// holder says who makes a node, written into the lock of its key for everybody else to read.
type holder struct {
	Run     string    `json:"run"` // folder of the run that started it
	Address string    `json:"address"`
	Since   time.Time `json:"since"`
	Attempt int       `json:"attempt"`
	Host    string    `json:"host"`
	PID     int       `json:"pid,omitempty"`   // of the stage's process; 0 until it has said so itself
	Start   uint64    `json:"start,omitempty"` // of that process
	Group   bool      `json:"group,omitempty"` // to stop it, ask its whole process group
	Kills   int64     `json:"kills"`           // what oomKills said when it started
}

// hostName is what processes on this machine call it.
var hostName = sync.OnceValue(func() string {
	name, _ := os.Hostname()
	return name
})

// holder is what this assignment's lock says before the process that runs it has come to life.
func (a assignment) holder(folder runFolder) holder {
	return holder{Run: string(folder), Address: a.Address, Since: a.Since, Attempt: a.Attempt, Host: hostName(), Kills: a.Kills}
}

// write describes the holder in the lock.
func (h holder) write(lock *os.File) error {
	b, err := json.Marshal(h)
	if err != nil {
		return err
	}
	return artifact.Describe(lock, b)
}

// sign describes this process as the holder, in the lock that it inherited as a descriptor.
func (h holder) sign(descriptor int) error {
	self, ok := processStat(os.Getpid())
	if !ok {
		return fmt.Errorf("read /proc/self/stat")
	}
	h.PID, h.Start = os.Getpid(), self.start
	own, err := syscall.Dup(descriptor) // closing this one leaves the lock alone
	if err != nil {
		return err
	}
	lock := os.NewFile(uintptr(own), "lock")
	defer lock.Close()
	return h.write(lock)
}

// name makes a program, which leads its session, the holder's process.
func (h holder) name(pid int) holder {
	if stat, ok := processStat(pid); ok {
		h.PID, h.Start, h.Group = pid, stat.start, true
	}
	return h
}

// running is how long the stage's process has been running. The clock of this machine may have been set since its start,
// so where that can be known it counts from the boot.
func (h holder) running() time.Duration {
	if h.Start > 0 && !h.elsewhere() {
		return max(0, sinceBoot()-time.Duration(h.Start)*processTick)
	}
	return max(0, time.Since(h.Since))
}

// processTick is the unit in which the kernel tells when a process was started.
const processTick = time.Second / 100

// alive says whether the stage's process is there. One that has not signed yet counts as alive.
func (h holder) alive() bool { return h.PID == 0 || h.elsewhere() || sameProcess(h.PID, h.Start) }

// elsewhere says that it runs on another machine, whose processes nobody here can see.
func (h holder) elsewhere() bool { return h.Host != hostName() }

func (h holder) folder() runFolder { return runFolder(h.Run) }

// text names the run and the process.
func (h holder) text() string {
	text := "run " + RunName(h.Run)
	if h.elsewhere() {
		text += " on " + h.Host
	}
	if h.PID != 0 {
		text += fmt.Sprintf(", process %d", h.PID)
	}
	return text
}

// adopt makes this process the one that looks after the stage, until the file is closed; nil when another engine does.
func (h holder) adopt() *os.File {
	if h.elsewhere() || h.folder().live() {
		return nil
	}
	f, err := os.OpenFile(h.folder().path("nodes", fileName(h.Address)+".adopter"), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil
	}
	if unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB) != nil {
		f.Close()
		return nil
	}
	return f
}

// Survivor is a stage that goes on although the run that started it is gone.
type Survivor struct {
	Key        string
	Address    string
	Experiment string
	Run        string // folder
	PID        int
	Since      time.Time
	Progress   *Event // the last; nil without any
	Adopted    bool   // another run looks after it
	Group      bool   // a program: asked to stop through its process group
}

// Text says how the stage stands and what ends it.
func (s Survivor) Text(now time.Time) string {
	live := Pace{Started: s.Since}
	if s.Progress != nil {
		live.First, live.Last = Event{Time: s.Since}, *s.Progress
	}
	text := fmt.Sprintf("%s of run %s goes on as process %d: %s", s.Address, RunName(s.Run), s.PID, live.Text(now))
	if !s.Adopted {
		kill := fmt.Sprint("kill ", s.PID)
		if s.Group {
			kill = fmt.Sprint("kill -- -", s.PID)
		}
		text += fmt.Sprintf("; a run that needs it adopts it, `%s` stops it", kill)
	}
	return text
}

// Survivors lists the stages that have outlived their runs. It waits for nobody.
func Survivors(store *artifact.Store) ([]Survivor, error) {
	keys, err := store.Locked()
	if err != nil {
		return nil, err
	}
	var all []Survivor
	for _, key := range keys {
		var h holder
		if store.Holder(key, &h) != nil || h.PID == 0 || h.elsewhere() || h.folder().live() || !sameProcess(h.PID, h.Start) {
			continue
		}
		s := Survivor{Key: key, Address: h.Address, Experiment: filepath.Base(filepath.Dir(h.Run)), Run: h.Run, PID: h.PID, Since: h.Since, Group: h.Group,
			Progress: lastProgress(h.folder().events(h.Address))}
		if adopted := h.adopt(); adopted != nil {
			adopted.Close()
		} else {
			s.Adopted = true
		}
		all = append(all, s)
	}
	return all, nil
}
