package runs

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"rcgrpo/engine/artifact"
	"rcgrpo/engine/internal/alive"
	"rcgrpo/engine/internal/disk"
	"rcgrpo/engine/proc"
)

// Holder identifies the process that executes a node. It is stored in the lock of the node's key.
type Holder struct {
	Run     Folder    `json:"run"` // that started it
	Address string    `json:"address"`
	Since   time.Time `json:"since"`
	Attempt int       `json:"attempt"`
	Host    string    `json:"host"`
	PID     int       `json:"pid,omitempty"`   // of the stage's process; 0: not known yet
	Start   uint64    `json:"start,omitempty"` // of that process, in ticks since boot
	Kills   int64     `json:"kills"`           // proc.OOMKills when it started
}

// Holder returns the holder of an attempt before its process has started.
func (a Assignment) Holder(folder Folder) Holder {
	return Holder{Run: folder, Address: a.Address, Since: a.Since, Attempt: a.Attempt,
		Host: proc.HostName(), Kills: a.Kills}
}

// Write stores the holder in a lock.
func (h Holder) Write(lock *os.File) error { return artifact.Describe(lock, h) }

// WithProcess sets the process of the holder; ok is false if that has ended.
func (h Holder) WithProcess(pid int) (with Holder, ok bool) {
	stat, ok := proc.ReadStat(pid)
	h.PID, h.Start = pid, stat.Start
	return h, ok
}

// Running returns how long the stage's process has been running. On this machine it counts from the boot, because the
// clock may have been set.
func (h Holder) Running() time.Duration {
	if h.Start > 0 && !h.remote() {
		return max(0, proc.SinceBoot()-time.Duration(h.Start)*proc.Tick)
	}
	return max(0, time.Since(h.Since))
}

// Alive reports whether the stage's process may be running. A process that is remote or not known yet counts as
// alive.
func (h Holder) Alive() bool { return h.PID == 0 || h.remote() || proc.Same(h.PID, h.Start) }

func (h Holder) remote() bool { return h.Host != proc.HostName() }

// Text names the run and the process.
func (h Holder) Text() string {
	text := "run " + h.Run.Name()
	if h.remote() {
		text += " on " + h.Host
	}
	if h.PID != 0 {
		text += fmt.Sprintf(", process %d", h.PID)
	}
	return text
}

// orphaned reports whether the process runs the stage of a key on this host, and its run has ended. A stranger's store
// may name any process of the user as its holder, and an adopted process may be killed, so it must have the mark of the
// stage.
func (h Holder) orphaned(store *artifact.Store, key string) bool {
	return h.PID != 0 && !h.remote() && !h.Run.Live() && proc.Same(h.PID, h.Start) &&
		proc.Marked(h.PID, proc.ScratchMark(store.Work(key)))
}

// Adopt makes this process responsible for the orphaned stage of a key until the file is closed; nil if the stage is
// not orphaned or another engine is responsible.
func (h Holder) Adopt(store *artifact.Store, key string) *os.File {
	if !h.orphaned(store, key) {
		return nil
	}
	f, err := os.OpenFile(h.Run.Path("nodes", FileName(h.Address)+".adopter"), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil
	}
	if held, _ := alive.Hold(f); !held {
		f.Close()
		return nil
	}
	return f
}

// LinkLog makes the log of a stage that another engine started the log of an address of this run.
func (f Folder) LinkLog(h Holder, address string) error {
	log := h.Run.Log(h.Address)
	inStore := filepath.Join("../../..", h.Run.Name(), "logs", filepath.Base(log)) // from runs/EXPERIMENT/ID/logs
	err := disk.Symlink(inStore, f.Log(address))
	if err == nil || errors.Is(err, os.ErrExist) {
		return nil
	}
	// The file system has no symbolic links.
	return disk.WriteFile(f.Log(address), []byte("another run started this stage; its log is "+log+"\n"), 0o600)
}

// Orphan is a running stage whose run has ended.
type Orphan struct {
	Holder
	Key      string
	Progress *Event // the newest; nil without any
	Taken    bool   // another run has adopted it
}

// Text describes the progress of the stage and how to stop it.
func (o Orphan) Text(now time.Time) string {
	text := fmt.Sprintf("%s of run %s is still running as process %d: %s", o.Address, o.Run.Name(), o.PID,
		PaceSince(o.Since, o.Progress).Text(now))
	if o.Taken {
		return text
	}
	return text + fmt.Sprintf("; a run that needs it adopts it, `kill -- -%d` stops it", o.PID)
}

// PaceSince is the pace of a stage of which only the newest progress is known.
func PaceSince(started time.Time, last *Event) Pace {
	p := Pace{Started: started}
	if last != nil {
		p.First, p.Last = Event{Time: started}, *last
	}
	return p
}

// Orphans lists the running stages of a store whose runs have ended. It does not wait for locks.
func Orphans(store *artifact.Store) ([]Orphan, error) {
	keys, err := store.Locked()
	if err != nil {
		return nil, err
	}
	var all []Orphan
	for _, key := range keys {
		if o := findOrphan(store, key); o != nil {
			o.Progress = ReadEvents(o.Run.Events(o.Address)).Progress
			all = append(all, *o)
		}
	}
	return all, nil
}

// findOrphan returns the running stage that holds the lock of a key, if its run has ended, without its progress.
func findOrphan(store *artifact.Store, key string) *Orphan {
	o := &Orphan{Key: key}
	if store.Holder(key, &o.Holder) != nil || !o.orphaned(store, key) {
		return nil
	}
	guard := o.Adopt(store, key)
	o.Taken = guard == nil
	guard.Close() // of a nil file too
	return o
}
