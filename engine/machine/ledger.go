package machine

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"rcgrpo/engine/internal/alive"
	"rcgrpo/engine/internal/disk"
	"rcgrpo/engine/proc"
	"rcgrpo/engine/sched"
)

// Ledger records the reservations of all runs of one user on one machine, whatever their stores. It is a private
// folder with one file per reservation, which counts while the file is locked. The stage's process inherits the
// open file, so the kernel releases the lock when the last process of the stage ends.
//
// A run decides while it holds the lock of the file "mutex". Until it releases that lock it writes only files of
// this folder, because all other runs of the user wait.
type Ledger struct {
	Dir     string
	mutex   *os.File // nil before the first lock
	run     string   // folder of the run
	Store   string
	files   []*LeaseFile // the leases, and the request
	request *LeaseFile   // for the share that the run waits for, or nil
}

// Lease is the reservation of one stage, or the request of a run that waits. Its times count from the boot of the
// machine, because that clock cannot be set.
type Lease struct {
	Run     string        `json:"run,omitempty"` // folder
	Store   string        `json:"store,omitempty"`
	Address string        `json:"address,omitempty"`
	Key     string        `json:"key,omitempty"`
	PID     int           `json:"pid,omitempty"` // of the engine
	CPUs    int           `json:"cpus,omitempty"`
	Memory  int64         `json:"memory,omitempty"` // bytes
	GPUs    []string      `json:"gpus,omitempty"`   // ids
	Devices int           `json:"devices,omitempty"`
	Since   time.Duration `json:"since,omitempty"`
	Waits   bool          `json:"wish,omitempty"` // it is a request
	Written time.Duration `json:"written,omitempty"`
}

// LeaseFile is a file of the ledger that this run has locked.
type LeaseFile struct {
	ledger *Ledger
	file   *os.File
	lease  Lease
}

// File returns the file, for the stage's process to inherit.
func (f *LeaseFile) File() *os.File { return f.file }

// leasesVariable names the environment variable that overrides the folder of the ledger.
const leasesVariable = "RCGRPO_LEASES"

// ledgerFolders returns the candidate folders of the ledger; the first usable one is the ledger. The user's state
// folder is best. Machines may share it, so the folder's name contains the host name. $TMPDIR may differ between
// shells. /tmp serves users without a home folder, or with one on a file system without locks.
func ledgerFolders() []string {
	if dir := os.Getenv(leasesVariable); dir != "" {
		return []string{dir}
	}
	var folders []string
	if state := disk.StateFolder(); state != "" {
		folders = append(folders, filepath.Join(state, "leases-"+url.PathEscape(proc.HostName())))
	}
	return append(folders, filepath.Join("/tmp", fmt.Sprintf("rcgrpo-%d", os.Getuid())))
}

func ownFile(info fs.FileInfo) bool {
	return int(info.Sys().(*syscall.Stat_t).Uid) == os.Geteuid()
}

// OpenLedger opens the ledger of this user on this machine for a run, given the folders of the run and of its store.
func OpenLedger(run, store string) (*Ledger, error) {
	var errs []error
	for _, dir := range ledgerFolders() {
		l := &Ledger{Dir: dir, run: run, Store: store}
		locked, err := l.tryLock()
		if locked {
			l.Unlock()
		}
		if err == nil {
			return l, nil
		}
		errs = append(errs, err)
	}
	return nil, fmt.Errorf("runs share the machine through locked files in a folder, "+
		"but no folder is usable (name another in $%s): %w", leasesVariable, errors.Join(errs...))
}

// makeFolder creates the folder or checks the existing one.
func (l *Ledger) makeFolder() error {
	if err := os.MkdirAll(l.Dir, 0o700); err != nil {
		return err
	}
	info, err := os.Lstat(l.Dir)
	if err != nil {
		return err
	}
	if !info.IsDir() || !ownFile(info) || info.Mode().Perm()&0o077 != 0 {
		return fmt.Errorf("%s must be a folder of yours that other users cannot read (mode 0700): remove it", l.Dir)
	}
	return nil
}

// tryLock tries to acquire the mutex.
func (l *Ledger) tryLock() (locked bool, err error) {
	if l.mutex == nil {
		if err := l.makeFolder(); err != nil {
			return false, err
		}
		if l.mutex, err = os.OpenFile(filepath.Join(l.Dir, "mutex"), os.O_CREATE|os.O_RDWR, 0o600); err != nil {
			return false, err
		}
	}
	return alive.Hold(l.mutex)
}

// ledgerTimeout limits the wait for the mutex, which a run holds for less than a millisecond. Tests shorten it.
var ledgerTimeout = 30 * time.Second

// Lock acquires the mutex. It returns the context's cause, or an error that names the process that holds the mutex.
func (l *Ledger) Lock(ctx context.Context) error {
	end := time.NewTimer(ledgerTimeout)
	defer end.Stop()
	for wait := 100 * time.Microsecond; ; wait = min(2*wait, 10*time.Millisecond) {
		locked, err := l.tryLock()
		if locked || err != nil {
			return err
		}
		select {
		case <-time.After(wait):
		case <-end.C:
			return l.busyError()
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// Unlock releases the mutex.
func (l *Ledger) Unlock() { disk.Flock(l.mutex, unix.LOCK_UN) }

// busyError names the process that holds the mutex, and its state.
func (l *Ledger) busyError() error {
	holder := "a process that this machine does not show"
	if pid := proc.FlockOwner(l.mutex); pid > 0 {
		if holder = fmt.Sprintf("process %d", pid); proc.Stopped(pid) {
			holder += fmt.Sprintf(", which is stopped (`kill -CONT %d` continues it, `kill -9 %d` ends it)", pid, pid)
		}
	}
	return fmt.Errorf("%s has been locked for %v by %s: runs share the machine through this file "+
		"and cannot start stages until it is unlocked", l.mutex.Name(), ledgerTimeout, holder)
}

// requestTimeout is how long a request counts after it was written. A waiting run rewrites its request at each
// poll; a run whose engine is stopped must not reserve resources that it does not use.
const requestTimeout = 10 * time.Second

// Others returns the reservations and requests of other runs, and removes the files of runs that have ended. The
// caller holds the mutex.
func (l *Ledger) Others() ([]Lease, error) {
	entries, err := os.ReadDir(l.Dir)
	if err != nil {
		return nil, err
	}
	now := proc.SinceBoot()
	var all []Lease
	for _, e := range entries {
		own := func(f *LeaseFile) bool { return filepath.Base(f.File().Name()) == e.Name() }
		if e.Name() == "mutex" || slices.ContainsFunc(l.files, own) {
			continue
		}
		lease, ok := readLease(filepath.Join(l.Dir, e.Name()))
		if !ok || lease.Run == "" || lease.Waits && now-lease.Written > requestTimeout {
			continue
		}
		all = append(all, lease)
	}
	return all, nil
}

// readLease reads a file of another run. If no process holds its lock, it removes the file.
func readLease(path string) (lease Lease, ok bool) {
	f, err := os.Open(path)
	if err != nil {
		return lease, false
	}
	defer f.Close()
	free, err := alive.Hold(f)
	if free {
		os.Remove(path)
	}
	if free || err != nil {
		return lease, false
	}
	return lease, json.NewDecoder(f).Decode(&lease) == nil
}

// Reserve records the share of a stage in a file that the stage's process inherits. The caller holds the mutex.
func (l *Ledger) Reserve(lease Lease) (*LeaseFile, error) {
	f := &LeaseFile{ledger: l, lease: lease}
	pattern := "lease-*"
	if lease.Waits {
		pattern = "wish-*"
	}
	file, err := os.CreateTemp(l.Dir, pattern)
	if err != nil {
		return nil, err
	}
	held, err := alive.Hold(file)
	if err == nil && !held {
		err = fmt.Errorf("another process holds the new reservation %s: run again", file.Name())
	}
	if err != nil {
		return nil, errors.Join(err, file.Close())
	}
	f.file = file
	l.files = append(l.files, f)
	return f, f.write()
}

func (f *LeaseFile) write() error {
	lease, l := &f.lease, f.ledger
	lease.Run, lease.Store, lease.PID, lease.Written = l.run, l.Store, os.Getpid(), proc.SinceBoot()
	b, err := json.Marshal(lease)
	if err != nil {
		return err
	}
	_, err = f.File().WriteAt(append(b, '\n'), 0) // readers ignore everything behind the first value
	return err
}

// Free removes the file, unless it was removed before. It needs no mutex: a reader finds the whole lease or none.
func (f *LeaseFile) Free() error {
	f.ledger.files = slices.DeleteFunc(f.ledger.files, func(other *LeaseFile) bool { return other == f })
	err := os.Remove(f.File().Name())
	if errors.Is(err, fs.ErrNotExist) {
		err = nil
	}
	return errors.Join(err, f.file.Close())
}

// Request records the share that the run has waited for since a time after boot. The caller holds the mutex.
func (l *Ledger) Request(need sched.Share, address string, since time.Duration) error {
	lease := Lease{Address: address, CPUs: need.CPUs, Devices: need.GPUs, Memory: need.Memory, Since: since, Waits: true}
	if l.request != nil {
		l.request.lease = lease
		return l.request.write()
	}
	f, err := l.Reserve(lease)
	l.request = f
	return err
}

// Withdraw removes the request of this run, if there is one.
func (l *Ledger) Withdraw() error {
	f := l.request
	if l.request = nil; f == nil {
		return nil
	}
	return f.Free()
}

// Close removes the files of this run. It needs no mutex, because an unlocked file does not count.
func (l *Ledger) Close() error {
	var err error
	for _, f := range slices.Clone(l.files) {
		err = errors.Join(err, f.Free())
	}
	if l.mutex != nil {
		err = errors.Join(err, l.mutex.Close())
	}
	return err
}
