package engine

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// ledger is where all runs of one user on one machine, whatever their stores, see what the others hold of it. It is a
// private folder with a file per lease. A lease counts while its file is locked, and the lock belongs to an open file
// that the stage's process inherits: it goes with the last process of the stage, however that ends.
//
// Who decides holds the lock of the file "mutex". A run keeps the files of stages that have ended for its next ones.
type ledger struct {
	dir    string
	mutex  *os.File
	run    string // folder of the run
	store  string
	slots  []*slot
	wish   *slot     // what the run waits for; nil when it never waited
	listed time.Time // modification of the folder when names was read; zero when it must be read again
	names  []string  // files of others
}

// lease is what one stage holds of the machine, or what a run waits for.
type lease struct {
	Run     string    `json:"run,omitempty"` // folder; "" when the file is of no use just now
	Store   string    `json:"store,omitempty"`
	Address string    `json:"address,omitempty"`
	Key     string    `json:"key,omitempty"`
	PID     int       `json:"pid,omitempty"` // of the engine
	CPUs    int       `json:"cpus,omitempty"`
	Memory  int64     `json:"memory,omitempty"` // bytes
	GPUs    []string  `json:"gpus,omitempty"`   // ids of those it holds
	Devices int       `json:"devices,omitempty"`
	Since   time.Time `json:"since,omitzero"`
	Wish    bool      `json:"wish,omitempty"`
}

func (l lease) share() share { return share{l.CPUs, l.Devices, l.Memory} }

// slot is a file of the ledger.
type slot struct {
	file *os.File
	used bool
}

// inherited is the file that the stage's process is to inherit; nil of a nil slot.
func (s *slot) inherited() *os.File {
	if s == nil {
		return nil
	}
	return s.file
}

// leasesVariable names another folder for the ledger.
const leasesVariable = "RCGRPO_LEASES"

// openLedger opens the ledger of this user on this machine. It lies in /tmp and not in $TMPDIR or $XDG_RUNTIME_DIR, which
// differ from shell to shell and may go with a session that a stage outlives.
func openLedger(run, store string) (*ledger, error) {
	dir := os.Getenv(leasesVariable)
	if dir == "" {
		dir = filepath.Join("/tmp", fmt.Sprintf("rcgrpo-%d", os.Getuid()))
	}
	if err := os.Mkdir(dir, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return nil, fmt.Errorf("runs share the machine through files in a folder, and there can be none (name another in $%s): %w", leasesVariable, err)
	}
	info, err := os.Lstat(dir)
	if err != nil {
		return nil, err
	}
	if owner, ok := info.Sys().(*syscall.Stat_t); !info.IsDir() || ok && int(owner.Uid) != os.Getuid() || info.Mode().Perm()&0o077 != 0 {
		return nil, fmt.Errorf("runs share the machine through files in %s, which must be a folder of yours that others cannot read (mode 0700): remove it, or name another folder in $%s", dir, leasesVariable)
	}
	mutex, err := os.OpenFile(filepath.Join(dir, "mutex"), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	return &ledger{dir: dir, mutex: mutex, run: run, store: store}, nil
}

func (l *ledger) lock() error {
	for {
		if err := unix.Flock(int(l.mutex.Fd()), unix.LOCK_EX); !errors.Is(err, unix.EINTR) {
			return err
		}
	}
}

func (l *ledger) unlock() { unix.Flock(int(l.mutex.Fd()), unix.LOCK_UN) }

// stampStep is how old a folder's time stamp must be to say that nothing has been added since: the kernel's clock for
// time stamps moves in steps.
const stampStep = 20 * time.Millisecond

// wishHolds is how long a wish counts after it was written. A run that waits writes it each time that it looks; one that
// does not look any more, because somebody has stopped its process, must not keep others from what it does not use.
const wishHolds = 10 * time.Second

// others reads what others hold and wish. The caller has the lock. Files of those who are gone are removed.
func (l *ledger) others() ([]lease, error) {
	info, err := os.Stat(l.dir)
	if err != nil {
		return nil, err
	}
	if !info.ModTime().Equal(l.listed) {
		entries, err := os.ReadDir(l.dir)
		if err != nil {
			return nil, err
		}
		l.names = l.names[:0]
		for _, e := range entries {
			if e.Name() != "mutex" && !l.owns(e.Name()) {
				l.names = append(l.names, e.Name())
			}
		}
		l.listed = info.ModTime()
		if time.Since(l.listed) < stampStep {
			l.listed = time.Time{}
		}
	}
	var all []lease
	for _, name := range l.names {
		held, at, ok := readLease(filepath.Join(l.dir, name))
		if ok && held.Run != "" && !(held.Wish && time.Since(at) > wishHolds) {
			all = append(all, held)
		}
	}
	return all, nil
}

func (l *ledger) owns(name string) bool {
	is := func(s *slot) bool { return s != nil && filepath.Base(s.file.Name()) == name }
	return is(l.wish) || slices.ContainsFunc(l.slots, is)
}

// readLease reads a file of somebody else and says when it was written, or removes it when nobody has it locked.
func readLease(path string) (held lease, written time.Time, ok bool) {
	f, err := os.Open(path)
	if err != nil {
		return held, written, false
	}
	defer f.Close()
	if !errors.Is(unix.Flock(int(f.Fd()), unix.LOCK_SH|unix.LOCK_NB), unix.EWOULDBLOCK) {
		os.Remove(path)
		return held, written, false
	}
	info, err := f.Stat()
	if err != nil {
		return held, written, false
	}
	return held, info.ModTime(), json.NewDecoder(f).Decode(&held) == nil
}

// add makes a file and locks it.
func (l *ledger) add(pattern string) (*slot, error) {
	f, err := os.CreateTemp(l.dir, pattern)
	if err != nil {
		return nil, err
	}
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return &slot{file: f}, nil
}

// take writes down what a stage holds, in a slot whose file the stage's process is to inherit. The caller has the lock.
func (l *ledger) take(held lease) (*slot, error) {
	i := slices.IndexFunc(l.slots, func(s *slot) bool { return !s.used })
	if i < 0 {
		s, err := l.add("lease-*")
		if err != nil {
			return nil, err
		}
		i, l.slots = len(l.slots), append(l.slots, s)
	}
	s := l.slots[i]
	if err := l.write(s, held); err != nil {
		return nil, err
	}
	s.used = true
	return s, nil
}

func (l *ledger) write(s *slot, held lease) error {
	held.Run, held.Store, held.PID = l.run, l.store, os.Getpid()
	b, err := json.Marshal(held)
	if err != nil {
		return err
	}
	_, err = s.file.WriteAt(append(b, '\n'), 0) // what stands behind the first value counts for nothing
	return err
}

// release frees a slot, whatever the stage that had it left behind.
func (l *ledger) release(s *slot) error {
	if err := l.lock(); err != nil {
		return err
	}
	defer l.unlock()
	s.used = false
	_, err := s.file.WriteAt([]byte("{}\n"), 0)
	return err
}

// wait writes down what the run waits for. The caller has the lock.
func (l *ledger) wait(need share, address string, since time.Time) (err error) {
	if l.wish == nil {
		if l.wish, err = l.add("wish-*"); err != nil {
			return err
		}
	}
	l.wish.used = true
	return l.write(l.wish, lease{Address: address, CPUs: need.cpus, Devices: need.gpus, Memory: need.memory, Since: since, Wish: true})
}

// waitNoMore takes the wish back. It needs no lock: whoever reads the file sees one or the other.
func (l *ledger) waitNoMore() error {
	if l.wish == nil || !l.wish.used {
		return nil
	}
	l.wish.used = false
	_, err := l.wish.file.WriteAt([]byte("{}\n"), 0)
	return err
}

// close gives everything back.
func (l *ledger) close() error {
	if l == nil {
		return nil
	}
	err := l.lock()
	for _, s := range append(l.slots, l.wish) {
		if s != nil {
			err = errors.Join(err, os.Remove(s.file.Name()), s.file.Close())
		}
	}
	return errors.Join(err, l.mutex.Close())
}

// holders names those among others who hold what need lacks.
func holders(others []lease, need share) string {
	var names []string
	for _, o := range others {
		switch {
		case o.Wish:
		case need.gpus > 0 && len(o.GPUs) > 0:
			names = append(names, fmt.Sprintf("%s of run %s has GPU %s", o.Address, RunName(o.Run), strings.Join(o.GPUs, ", ")))
		case need.gpus == 0:
			names = append(names, fmt.Sprintf("%s of run %s has %s", o.Address, RunName(o.Run), Plural(o.CPUs, "CPU")))
		}
	}
	const most = 3
	if len(names) > most {
		names = append(names[:most], fmt.Sprintf("and %d more", len(names)-most))
	}
	return strings.Join(names, "; ")
}
