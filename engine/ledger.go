package engine

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"rcgrpo/engine/internal/disk"
)

// ledger records what all runs of one user reserve on one machine, whatever their stores. It is a private folder with
// one file per lease. A lease counts while its file is locked. The lock belongs to an open file that the stage's process
// inherits, so the kernel releases it with the last process of the stage, however that ends.
//
// A run decides while it holds the lock of the file "mutex". It writes nothing but files of this folder until it has
// released that lock, because all runs of the user wait for it. A run reuses the files of stages that have ended.
//
// Somebody may empty or remove the folder while runs go on. Each run notices within renewEvery, makes the folder and the
// mutex again and registers its running stages again; until all had time for that, no stage starts. Such a lease then
// lasts as long as its run: a stage that outlives its run is not registered again.
type ledger struct {
	dir    string
	mutex  *os.File // nil before the first lock, and after its name was lost
	run    string   // folder of the run
	store  string
	slots  []*slot
	wish   *slot             // what the run waits for; nil when it never waited
	opaque time.Duration     // since boot; until then leases of other runs may be missing
	open   map[string]answer // by file name: does a process other than the engine, which is stopped, have the file open
	halted map[int]answer    // by process: is that engine stopped
	start  uint64            // of this process, in ticks since boot
}

// lease is what one stage reserves of the machine, or what a run waits for. Times count from the boot of the machine:
// the ledger is for one machine, and nobody can set that clock.
type lease struct {
	Run     string        `json:"run,omitempty"` // folder; "" when the file is of no use just now
	Store   string        `json:"store,omitempty"`
	Address string        `json:"address,omitempty"`
	Key     string        `json:"key,omitempty"`
	PID     int           `json:"pid,omitempty"`   // of the engine
	Start   uint64        `json:"start,omitempty"` // of the engine, in ticks since boot
	CPUs    int           `json:"cpus,omitempty"`
	Memory  int64         `json:"memory,omitempty"` // bytes
	GPUs    []string      `json:"gpus,omitempty"`   // ids of those it holds
	Devices int           `json:"devices,omitempty"`
	Since   time.Duration `json:"since,omitempty"`
	Wish    bool          `json:"wish,omitempty"`
	Written time.Duration `json:"written,omitempty"`

	stopped bool // its engine is stopped, by SIGSTOP or ^Z
}

func (l lease) share() share { return share{l.CPUs, l.Devices, l.Memory} }

// slot is a file of the ledger.
type slot struct {
	file *os.File
	old  []*os.File // its files before somebody removed their names; a stage that is starting may still inherit one
	held lease
	used bool
}

// inherited is the file that the stage's process is to inherit; nil of a nil slot.
func (s *slot) inherited() *os.File {
	if s == nil {
		return nil
	}
	return s.file
}

// sinceBoot is the time since the machine was started. It goes on while the machine sleeps, and nobody can set it.
func sinceBoot() time.Duration {
	var now unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &now); err != nil {
		return 0
	}
	return time.Duration(now.Nano())
}

// leasesVariable names another folder for the ledger.
const leasesVariable = "RCGRPO_LEASES"

// ledgerFolders lists where the ledger of this user on this machine may be; the first that can be used is. The state
// folder of the user is best: it outlives sessions, which $XDG_RUNTIME_DIR does not, and nobody cleans it by age, as
// /tmp may be. Machines may share it, so the name of the machine is part of the folder's. $TMPDIR differs from shell to
// shell. /tmp is for users without a home of their own, or with one on a file system without locks.
func ledgerFolders() []string {
	if dir := os.Getenv(leasesVariable); dir != "" {
		return []string{dir}
	}
	var folders []string
	home, state := os.Getenv("HOME"), os.Getenv("XDG_STATE_HOME")
	if !filepath.IsAbs(state) {
		state = filepath.Join(home, ".local", "state")
	}
	if info, err := os.Stat(home); err == nil && filepath.IsAbs(home) && ownFile(info) { // sudo may keep the HOME of another user
		folders = append(folders, filepath.Join(state, "rcgrpo", fileName("leases-"+hostName())))
	}
	return append(folders, filepath.Join("/tmp", fmt.Sprintf("rcgrpo-%d", os.Getuid())))
}

func ownFile(info fs.FileInfo) bool {
	owner, ok := info.Sys().(*syscall.Stat_t)
	return !ok || int(owner.Uid) == os.Geteuid()
}

// openLedger opens the ledger of this user on this machine.
func openLedger(run, store string) (*ledger, error) {
	var errs []error
	for _, dir := range ledgerFolders() {
		l := &ledger{dir: dir, run: run, store: store, open: map[string]answer{}, halted: map[int]answer{}}
		if self, ok := processStat(os.Getpid()); ok {
			l.start = self.start
		}
		locked, err := l.tryLock()
		if err == nil {
			if locked {
				l.unlock()
			}
			return l, nil
		}
		errs = append(errs, err)
	}
	return nil, fmt.Errorf("runs share the machine through locked files in a folder, and there can be none (name another in $%s): %w", leasesVariable, errors.Join(errs...))
}

// makeFolder makes the folder, or checks the one that is there, and reports whether it made it.
func (l *ledger) makeFolder() (fresh bool, err error) {
	if err := os.MkdirAll(filepath.Dir(l.dir), 0o700); err != nil {
		return false, err
	}
	err = os.Mkdir(l.dir, 0o700)
	if fresh = err == nil; err != nil && !errors.Is(err, fs.ErrExist) {
		return false, err
	}
	info, err := os.Lstat(l.dir)
	if err != nil {
		return false, err
	}
	if !info.IsDir() || !ownFile(info) || info.Mode().Perm()&0o077 != 0 {
		return false, fmt.Errorf("%s must be a folder of yours that others cannot read (mode 0700): remove it", l.dir)
	}
	return fresh, nil
}

// openMutex opens the file of the mutex and makes it, and its folder, when they are not there.
func (l *ledger) openMutex() error {
	path := filepath.Join(l.dir, "mutex")
	for range 100 { // somebody may remove one while we make the other
		fresh, err := l.makeFolder()
		if err != nil {
			return err
		}
		f, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_RDWR, 0o600)
		if err == nil {
			if !fresh {
				l.obscure()
			}
			l.mutex = f
			if l.isOpaque() { // for runs that begin now
				_, err = fmt.Fprintln(f, int64(l.opaque))
			}
			return err
		}
		if errors.Is(err, fs.ErrExist) {
			f, err = os.OpenFile(path, os.O_RDWR, 0)
		}
		if err == nil {
			var until int64
			fmt.Fscan(f, &until) // mostly nothing stands there
			l.mutex, l.opaque = f, max(l.opaque, time.Duration(until))
			return nil
		}
		if !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return fmt.Errorf("%s is removed as often as it is made", path)
}

// renewEvery is how often a run looks whether its files are still in the ledger. Tests shorten it.
var renewEvery = time.Second

// renewWithin is how long all runs have to register again in a ledger that was emptied.
func renewWithin() time.Duration { return 2 * renewEvery }

// obscure notes that leases of other runs may be missing, because the folder was emptied.
func (l *ledger) obscure() { l.opaque = sinceBoot() + renewWithin() }

// isOpaque reports whether leases of other runs may be missing.
func (l *ledger) isOpaque() bool { return sinceBoot() < l.opaque }

// named reports whether an open file still has its name.
func named(f *os.File) bool {
	opened, err := f.Stat()
	if err != nil {
		return false
	}
	there, err := os.Lstat(f.Name())
	return err == nil && os.SameFile(opened, there)
}

// tryLock acquires the mutex and reports whether it could. A mutex without its name is no mutex: others have another.
func (l *ledger) tryLock() (bool, error) {
	for range 100 {
		if l.mutex == nil {
			if err := l.openMutex(); err != nil {
				return false, err
			}
		}
		err := disk.Flock(l.mutex, unix.LOCK_EX|unix.LOCK_NB)
		if err != nil && !errors.Is(err, unix.EWOULDBLOCK) {
			return false, err
		}
		if named(l.mutex) {
			return err == nil, nil
		}
		l.mutex.Close()
		l.mutex = nil
		l.obscure()
	}
	return false, fmt.Errorf("%s is removed as often as it is made", filepath.Join(l.dir, "mutex"))
}

// ledgerTimeout bounds the waiting for the mutex, which a run holds for less than a millisecond. Tests shorten it.
var ledgerTimeout = 30 * time.Second

// lock acquires the mutex. It ends with the context's cause, or with an error that names the process that has it.
func (l *ledger) lock(ctx context.Context) error {
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

func (l *ledger) unlock() { disk.Flock(l.mutex, unix.LOCK_UN) }

// busyError names the process that has the mutex, and its state.
func (l *ledger) busyError() error {
	who := "a process that this machine does not show"
	for pid := range processesWithOpen("mutex") {
		if pid != os.Getpid() && locks(pid, l.mutex) {
			if who = fmt.Sprintf("process %d", pid); stopped(pid) {
				who += fmt.Sprintf(", which is stopped (`kill -CONT %d` continues it, `kill -9 %d` ends it)", pid, pid)
			}
		}
	}
	return fmt.Errorf("%s has been locked for %v by %s: runs share the machine through this file and cannot start stages meanwhile", l.mutex.Name(), ledgerTimeout, who)
}

// locks reports whether a process has acquired the flock of a file, as the kernel lists it.
func locks(pid int, f *os.File) bool {
	info, err := f.Stat()
	if err != nil {
		return false
	}
	inode := strconv.FormatUint(info.Sys().(*syscall.Stat_t).Ino, 10)
	all, _ := os.ReadFile("/proc/locks")
	for line := range strings.Lines(string(all)) {
		words := strings.Fields(line) // 1: FLOCK ADVISORY WRITE PID MAJOR:MINOR:INODE 0 EOF; one that waits has "->" behind the number
		if len(words) == 8 && words[1] == "FLOCK" && words[4] == strconv.Itoa(pid) && strings.HasSuffix(words[5], ":"+inode) {
			return true
		}
	}
	return false
}

// processesWithOpen lists the processes of this user that have a file of that name open.
func processesWithOpen(name string) map[int]bool {
	pids := map[int]bool{}
	entries, _ := os.ReadDir("/proc")
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil {
			continue
		}
		dir := filepath.Join("/proc", e.Name(), "fd")
		files, _ := os.ReadDir(dir)
		for _, f := range files {
			if to, err := os.Readlink(filepath.Join(dir, f.Name())); err == nil && filepath.Base(to) == name {
				pids[pid] = true
				break
			}
		}
	}
	return pids
}

// stopped reports whether a process is stopped, by SIGSTOP or ^Z.
func stopped(pid int) bool {
	status, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "status"))
	return err == nil && strings.Contains(string(status), "\nState:\tT")
}

// wishHolds is how long a wish counts after it was written. A run that waits writes it each time that it looks; one that
// does not look any more, because somebody has stopped its process, must not keep others from what it does not use.
const wishHolds = 10 * time.Second

// others reads what others hold and wish. The caller has the lock. Files of those who are gone are removed.
func (l *ledger) others() ([]lease, error) {
	entries, err := os.ReadDir(l.dir)
	if err != nil {
		return nil, err
	}
	now := sinceBoot()
	var all []lease
	for _, e := range entries {
		if e.Name() == "mutex" || l.owns(e.Name()) {
			continue
		}
		held, ok := readLease(filepath.Join(l.dir, e.Name()))
		if !ok || held.Run == "" || held.Wish && now-held.Written > wishHolds {
			continue
		}
		if held.stopped = l.isStopped(held); held.stopped && !held.Wish && l.ended(e.Name(), held) {
			continue
		}
		all = append(all, held)
	}
	return all, nil
}

// answer is one of the kernel, to ask for which takes longer than all else that is done under the lock.
type answer struct {
	yes bool
	at  time.Duration
}

// isStopped reports whether the engine of a lease is stopped, or was so a moment ago.
func (l *ledger) isStopped(held lease) bool {
	now := sinceBoot()
	a, known := l.halted[held.PID]
	if !known || now-a.at > lookAgain {
		a = answer{stopped(held.PID) && sameProcess(held.PID, held.Start), now}
		l.halted[held.PID] = a
	}
	return a.yes
}

// ended reports whether the stage of a lease has ended although its engine, which is stopped, has not released it: no
// other process has the file open. A stage that runs inside the engine's own process is stopped with it and counts as
// ended until the engine goes on.
func (l *ledger) ended(name string, held lease) bool {
	now := sinceBoot()
	a, known := l.open[name]
	if !known || now-a.at > renewEvery {
		pids := processesWithOpen(name)
		delete(pids, held.PID)
		delete(pids, os.Getpid())
		a = answer{len(pids) > 0, now}
		l.open[name] = a
	}
	return !a.yes
}

func (l *ledger) owns(name string) bool {
	is := func(s *slot) bool { return s != nil && filepath.Base(s.file.Name()) == name }
	return is(l.wish) || slices.ContainsFunc(l.slots, is)
}

// readLease reads a file of somebody else, or removes it when nobody has it locked.
func readLease(path string) (held lease, ok bool) {
	f, err := os.Open(path)
	if err != nil {
		return held, false
	}
	defer f.Close()
	switch err := disk.Flock(f, unix.LOCK_SH|unix.LOCK_NB); {
	case err == nil:
		os.Remove(path)
		return held, false
	case !errors.Is(err, unix.EWOULDBLOCK):
		return held, false
	}
	return held, json.NewDecoder(f).Decode(&held) == nil
}

// add makes a file and locks it.
func (l *ledger) add(pattern string) (*os.File, error) {
	f, err := os.CreateTemp(l.dir, pattern)
	if err != nil {
		return nil, err
	}
	if err := disk.Flock(f, unix.LOCK_EX|unix.LOCK_NB); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

// File names of leases and wishes.
const (
	leasePattern = "lease-*"
	wishPattern  = "wish-*"
)

// renew registers the run again where somebody has removed its files, and reports whether that was so.
func (l *ledger) renew(ctx context.Context) (lost bool, err error) {
	missing := func(s *slot) bool { return s != nil && s.used && !named(s.file) }
	if l.mutex != nil && named(l.mutex) && !missing(l.wish) && !slices.ContainsFunc(l.slots, missing) {
		return false, nil
	}
	if err := l.lock(ctx); err != nil {
		return true, err
	}
	defer l.unlock()
	l.slots = slices.DeleteFunc(l.slots, func(s *slot) bool { return !s.used && !named(s.file) && s.close() == nil })
	for _, s := range append(slices.Clone(l.slots), l.wish) {
		if !missing(s) {
			continue
		}
		pattern := leasePattern
		if s == l.wish {
			pattern = wishPattern
		}
		f, err := l.add(pattern)
		if err != nil {
			return true, err
		}
		s.old, s.file = append(s.old, s.file), f
		if err := l.write(s, s.held); err != nil {
			return true, err
		}
	}
	return true, nil
}

// take records what a stage reserves, in a slot whose file the stage's process inherits. The caller has the lock.
func (l *ledger) take(held lease) (*slot, error) {
	i := slices.IndexFunc(l.slots, func(s *slot) bool { return !s.used && named(s.file) })
	if i < 0 {
		f, err := l.add(leasePattern)
		if err != nil {
			return nil, err
		}
		i, l.slots = len(l.slots), append(l.slots, &slot{file: f})
	}
	s := l.slots[i]
	if err := l.write(s, held); err != nil {
		return nil, err
	}
	s.used = true
	return s, nil
}

func (l *ledger) write(s *slot, held lease) error {
	held.Run, held.Store, held.PID, held.Start, held.Written = l.run, l.store, os.Getpid(), l.start, sinceBoot()
	s.held = held
	b, err := json.Marshal(held)
	if err != nil {
		return err
	}
	_, err = s.file.WriteAt(append(b, '\n'), 0) // what stands behind the first value counts for nothing
	return err
}

// release frees a slot, whatever the stage that had it left behind. It needs no lock: a reader sees the lease or none.
func (s *slot) release() error {
	s.used = false
	_, err := s.file.WriteAt([]byte("{}\n"), 0)
	return err
}

// close removes the slot's file, unless somebody has.
func (s *slot) close() error {
	var err error
	if named(s.file) {
		err = os.Remove(s.file.Name())
	}
	if errors.Is(err, fs.ErrNotExist) {
		err = nil
	}
	for _, f := range append(s.old, s.file) {
		err = errors.Join(err, f.Close())
	}
	return err
}

// wait writes down what the run waits for. The caller has the lock.
func (l *ledger) wait(need share, address string, since time.Duration) error {
	if l.wish == nil {
		f, err := l.add(wishPattern)
		if err != nil {
			return err
		}
		l.wish = &slot{file: f}
	}
	l.wish.used = true
	return l.write(l.wish, lease{Address: address, CPUs: need.cpus, Devices: need.gpus, Memory: need.memory, Since: since, Wish: true})
}

// waitNoMore takes the wish back.
func (l *ledger) waitNoMore() error {
	if l.wish == nil || !l.wish.used {
		return nil
	}
	return l.wish.release()
}

// close gives everything back. It needs no lock: nobody misses a file that nobody has locked.
func (l *ledger) close() error {
	if l == nil {
		return nil
	}
	var err error
	for _, s := range append(l.slots, l.wish) {
		if s != nil {
			err = errors.Join(err, s.close())
		}
	}
	if l.mutex != nil {
		err = errors.Join(err, l.mutex.Close())
	}
	return err
}

// holders names those among others who hold what need lacks.
func holders(others []lease, need share) string {
	var names []string
	for _, o := range others {
		var has string
		switch {
		case o.Wish:
			continue
		case need.gpus > 0 && len(o.GPUs) > 0:
			has = "GPU " + strings.Join(o.GPUs, ", ")
		case need.gpus == 0:
			has = Plural(o.CPUs, "CPU")
		default:
			continue
		}
		text := fmt.Sprintf("%s of run %s has %s", o.Address, RunName(o.Run), has)
		if o.stopped {
			text += "; " + stoppedText(o.PID)
		}
		names = append(names, text)
	}
	const most = 3
	if len(names) > most {
		names = append(names[:most], fmt.Sprintf("and %d more", len(names)-most))
	}
	return strings.Join(names, "; ")
}

// stoppedText says that a run is stopped, and what continues it.
func stoppedText(pid int) string {
	return fmt.Sprintf("its engine is stopped (process %d; `fg` in its terminal or `kill -CONT %d` continues it)", pid, pid)
}
