package slurm

import (
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"time"

	"rcgrpo/engine/artifact"
	"rcgrpo/engine/internal/disk"
	"rcgrpo/engine/runs"
)

// spec is what an attempt executes, and under which limits. It is the file jobs/KEY/N of the store, created once.
type spec struct {
	Name    string      // of the job
	Run     runs.Folder // whose pins the job needs
	Address string
	Key     string
	Store   string
	Binary  string // that runs the stage
	Args    []string
	GPUs    int
	Timeout time.Duration     // 0: none
	Requeue bool              // Slurm starts the job again after a preemption or the loss of its host
	Secrets map[string]string // files by the name of the variable
	Beat    time.Duration     // between two signs of life
	Lost    time.Duration     // without a sign of life, after which an attempt has ended
	Visible time.Duration     // in which files of another host become visible
	Had     bool              // the key had a result, which the stage replaces
	Adopted bool              `json:"-"`
}

// attempt is one job of a stage, with its files.
type attempt struct {
	spec
	path  string // jobs/KEY/N
	n     int
	alive *os.File // in the job: its sign of life
}

// exit is the end of an attempt, the file N.exit. It is created once, so it decides.
type exit struct {
	Cause    string        // one of the constants below
	Failure  *runs.Failure `json:",omitempty"` // with causeFailed
	Host     string
	Progress int // newest number of units that the stage reported
}

// Causes of the end of an attempt.
const (
	causeDone      = "done"      // the result is committed
	causeFailed    = "failed"    // the stage failed
	causeStopped   = "stopped"   // it got a request to stop, for a reason that Slurm knows
	causeTime      = "time"      // its time limit was close
	causePreempted = "preempted" // by another job
	causeHost      = "host"      // its host was lost or could not start it
	causeCancelled = "cancelled" // by a person
	causeReplaced  = "replaced"  // there is a newer attempt
)

// file returns the path of a file of the attempt. N.out has Slurm's own output of the job.
func (a *attempt) file(suffix string) string { return a.path + "." + suffix }

// exit returns the end of the attempt; ok is false before the exit file exists.
func (a *attempt) exit() (e exit, ok bool) {
	os.ReadDir(filepath.Dir(a.path)) // refreshes the names of a network file system
	return e, disk.ReadJSON(a.file("exit"), disk.MaxRecord, &e) == nil
}

// end writes the exit file, once: it returns the end that the first process has written. A file that a power cut has
// torn is replaced.
func (a *attempt) end(e exit) (exit, error) {
	err := createJSON(a.file("exit"), e)
	if first, ended := a.exit(); ended {
		return first, nil
	}
	if errors.Is(err, fs.ErrExist) {
		err = runs.WriteJSON(a.file("exit"), e)
	}
	return e, err
}

// createJSON is runs.WriteJSON of a file that only one process can create. The others get fs.ErrExist.
func createJSON(path string, v any) error {
	temporary := filepath.Join(filepath.Dir(path), "."+rand.Text())
	if err := runs.WriteJSON(temporary, v); err != nil {
		return err
	}
	defer os.Remove(temporary)
	return disk.LinkOnce(temporary, path)
}

// progress returns the newest number of units that the stage has reported, and its failure or nil.
func (a *attempt) progress() (done int, failure *runs.Failure) {
	all := runs.ReadEvents(a.Run.Events(a.Address))
	if all.Progress != nil {
		done = all.Progress.Done
	}
	return done, all.Failure
}

// sign is what the job of an attempt shows while it runs: the file N.alive, which it creates and touches.
type sign struct {
	Job, Host string
	Since     time.Time // by the clock of that host
	touched   time.Time
}

// sign returns the newest sign of life; the zero value if the attempt has not started.
func (a *attempt) sign() (s sign) {
	// Opening it refreshes its time on a network file system.
	if disk.ReadJSON(a.file("alive"), disk.MaxRecord, &s) != nil {
		return sign{}
	}
	if info, err := os.Stat(a.file("alive")); err == nil {
		s.touched = info.ModTime()
	}
	return s
}

// replaced reports whether there is a newer attempt, or another process has ended this one.
func (a *attempt) replaced() bool {
	_, ended := a.exit()
	return ended || disk.Exists(filepath.Join(filepath.Dir(a.path), strconv.Itoa(a.n+1))) || !disk.Exists(a.path)
}

// jobName is the form of newName. scancel gets the name, and a stranger's spec may name other jobs of the user. It may
// name any folder as that of its run, too, so the folder is the one with its name in this store.
var jobName = regexp.MustCompile(`^rcgrpo-[0-9a-f]{8}-[0-9a-f]{8}$`)

// readAttempt reads a spec.
func readAttempt(path string) (*attempt, error) {
	n, err := strconv.Atoi(filepath.Base(path))
	if err != nil {
		return nil, err
	}
	a := &attempt{path: path, n: n}
	err = disk.ReadJSON(path, disk.MaxRecord, &a.spec)
	run := a.Run.Name()
	if err == nil && (!jobName.MatchString(a.Name) || !filepath.IsLocal(run)) {
		err = fmt.Errorf("%s is no spec of a job: remove it", path)
	}
	a.Run = runs.Folder(filepath.Join(filepath.Dir(path), "../../runs", run))
	return a, err
}

// attempts returns the attempts of a key in their order.
func attempts(store *artifact.Store, key string) (all []*attempt, err error) {
	for n := 1; ; n++ {
		a, err := readAttempt(filepath.Join(store.Jobs(key), strconv.Itoa(n)))
		if errors.Is(err, fs.ErrNotExist) {
			return all, nil
		}
		if err != nil {
			return nil, err
		}
		all = append(all, a)
	}
}

// newName returns a name for jobs that no other job has.
func newName(key string) string {
	suffix := make([]byte, 4)
	rand.Read(suffix)
	return "rcgrpo-" + key[:8] + "-" + hex.EncodeToString(suffix)
}

// create creates the spec of the attempt. The error is fs.ErrExist if another engine has created one. A copy of a
// stranger's store may have the end of an attempt that has not begun, which would start jobs without end.
func (a *attempt) create(store *artifact.Store) error {
	if err := store.MakeDir(filepath.Dir(a.path)); err != nil {
		return err
	}
	if err := createJSON(a.path, a.spec); err != nil {
		return err
	}
	return errors.Join(os.RemoveAll(a.file("exit")), os.RemoveAll(a.file("alive")))
}

// forget removes the files of a key whose attempts have all ended.
func forget(store *artifact.Store, key string) error {
	all, err := attempts(store, key)
	if err != nil {
		return err
	}
	for _, a := range all {
		if _, ended := a.exit(); !ended {
			return nil
		}
	}
	return store.RemoveJobs(key)
}

// lastLine returns the last line of a file, or "".
func lastLine(path string) string {
	lines := runs.LastLines(path)
	return strings.Join(lines[max(0, len(lines)-1):], "")
}
