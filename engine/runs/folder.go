package runs

import (
	"cmp"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
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

	"rcgrpo/engine/artifact"
	"rcgrpo/engine/internal/alive"
	"rcgrpo/engine/internal/disk"
	"rcgrpo/engine/lang"
	"rcgrpo/engine/proc"
)

// Folder is the folder of one run, STORE/runs/EXPERIMENT/ID:
//
//	files/          a copy of the experiment's files
//	source.json     Source for Load, with the values of all variables and the digests of all data
//	plan.json       Record
//	pins            keys of results that gc leaves alone while the run, or a stage that it has started, lives: see Pins
//	nodes/NAME.json Assignment of a stage, rewritten at each start
//	nodes/NAME.journal events of the stage's process, truncated at each start
//	logs/NAME.log   output of a stage
//	shown/NAME/     output that is not committed, because inputs were missing
//	journal         events of the run
//	lock            locked while the engine of the run lives
type Folder string

// Record describes a run and its plan.
type Record struct {
	ID         string
	Experiment string
	Path       string // of the experiment, as given
	Started    time.Time
	PID        int
	Host       string
	Revision   string
	Nodes      []NodeRecord
}

// Verbs of a node with a result. Package plan defines the type and all verbs.
const (
	VerbUpToDate = "up to date"
	VerbNotHere  = "not here"
)

// NodeRecord is a node of a Record.
type NodeRecord struct {
	Address string
	Verb    string
	Cause   string  `json:",omitempty"`
	Key     string  `json:",omitempty"`
	Expect  float64 `json:",omitempty"` // seconds
}

// Assignment describes one attempt at a node. It is stored as JSON for the process of the stage.
type Assignment struct {
	Address  string
	Key      string                   // "" with ShownOnly
	Inputs   map[string]string        // key of the result of each input, by address
	Missing  map[string]*MissingError `json:",omitempty"` // inputs without a result, by address
	Store    string
	CPUs     int
	GPUs     []string
	Attempt  int
	Since    time.Time // start of this attempt
	Kills    int64     // proc.OOMKills at the start
	Revision string
}

// ShownOnly reports whether the output is shown in the run folder and not committed, because inputs are missing.
func (a *Assignment) ShownOnly() bool { return a.Key == "" }

// MissingError reports a missing input of a stage that runs after failures (Kind.AfterFailures).
type MissingError struct {
	Address string   // of the stage that should have made the input
	Why     string   // "failed: …", "was skipped: stage.model.base failed"
	Lines   []string // the last lines of its log, if it failed
}

func (e *MissingError) Error() string { return fmt.Sprintf("%s is missing: it %s", e.Address, e.Why) }

// ID returns the run's id, unique in its experiment.
func (f Folder) ID() string { return filepath.Base(string(f)) }

// Experiment returns the name of the run's experiment.
func (f Folder) Experiment() string { return filepath.Base(filepath.Dir(string(f))) }

// Path returns the path of a file of the folder.
func (f Folder) Path(p ...string) string { return filepath.Join(append([]string{string(f)}, p...)...) }

// Log returns the path of a stage's log.
func (f Folder) Log(address string) string { return f.Path("logs", FileName(address)+".log") }

// Shown returns the folder for output that is not committed.
func (f Folder) Shown(address string) string { return f.Path("shown", FileName(address)) }

// Journal returns the path of the events of the run.
func (f Folder) Journal() string { return f.Path("journal") }

// Events returns the journal of a stage's process.
func (f Folder) Events(address string) string {
	return f.Path("nodes", FileName(address)+".journal")
}

// Name returns the name of a run for people: EXPERIMENT/ID.
func (f Folder) Name() string { return filepath.Join(f.Experiment(), f.ID()) }

// unplain matches the characters of an address that a file name does not contain.
var unplain = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`[^a-zA-Z0-9._@\[\]=+-]`) })

// FileName turns an address into a readable file name. Distinct addresses have distinct names.
func FileName(address string) string {
	name := unplain().ReplaceAllString(lang.ShortAddress(address), "_")
	if name != lang.ShortAddress(address) || len(name) > 120 {
		sum := sha256.Sum256([]byte(address))
		name = name[:min(len(name), 120)] + "-" + hex.EncodeToString(sum[:4])
	}
	return name
}

// Create creates and locks the folder of a new run of an experiment, with the keys of its plan as pins. It appears
// complete, by one rename.
// files are the copies of the experiment's files by their paths in the folder; the paths of the source are in the
// folder, too. Create sets the id, time and process of the record.
func Create(
	store *artifact.Store, source lang.Source, files map[string][]byte, record Record,
) (f Folder, lock *os.File, err error) {
	defer func() {
		if err != nil {
			err = fmt.Errorf("create the run folder: %w", err)
			lock.Close() // of a nil file too
		}
	}()
	folders, err := Folders(store, record.Experiment)
	if err != nil {
		return f, nil, err
	}
	suffix := make([]byte, 2)
	rand.Read(suffix)
	started := time.Now()
	record.ID = runTime(started, folders) + "-" + hex.EncodeToString(suffix)
	record.Started, record.PID, record.Host = started.UTC(), os.Getpid(), proc.HostName()
	dir := store.Runs(record.Experiment)
	f, temporary := Folder(filepath.Join(dir, record.ID)), Folder(filepath.Join(dir, "."+record.ID))
	source.Path = f.Path(source.Path)
	for module, path := range source.Modules {
		source.Modules[module] = f.Path(path)
	}
	if err := store.MakeDir(dir); err != nil {
		return f, nil, err
	}
	for _, sub := range []string{"nodes", "logs"} {
		if err := disk.MkdirAll(temporary.Path(sub), 0o700); err != nil {
			return f, nil, err
		}
	}
	if lock, err = disk.OpenFile(temporary.Path("lock"), os.O_CREATE|os.O_RDWR, 0o600); err != nil {
		return f, nil, err
	}
	if err := store.Owned(lock); err != nil {
		return f, lock, errors.Join(err, os.RemoveAll(string(temporary)))
	}
	var keys []string
	for _, n := range record.Nodes {
		keys = append(keys, n.Key)
	}
	_, lockErr := alive.Hold(lock)
	errs := []error{lockErr,
		artifact.WritePins(temporary.Path("pins"), keys),
		WriteJSON(temporary.Path("source.json"), source), WriteJSON(temporary.Path("plan.json"), record)}
	for name, text := range files {
		path := temporary.Path(name)
		errs = append(errs, disk.MkdirAll(filepath.Dir(path), 0o700), disk.WriteFile(path, text, 0o600))
	}
	if err := cmp.Or(errs...); err != nil {
		return f, lock, err
	}
	return f, lock, disk.Rename(string(temporary), string(f))
}

// runTimeFormat is the prefix of a run's id. Runs are sorted by id.
const runTimeFormat = "20060102-150405.000"

// runTime returns the prefix for a new run: its start time, or a later one if the newest run has a later prefix
// because the clock was set back. folders are sorted, newest first.
func runTime(started time.Time, folders []Folder) string {
	at := started.UTC().Truncate(time.Millisecond)
	if len(folders) > 0 {
		id := folders[0].ID()
		newest, err := time.Parse(runTimeFormat, id[:min(len(id), len(runTimeFormat))])
		if err == nil && !at.After(newest) {
			at = newest.Add(time.Millisecond)
		}
	}
	return at.Format(runTimeFormat)
}

// Source returns the source for lang.Load.
func (f Folder) Source() (s lang.Source, err error) {
	err = disk.ReadJSON(f.Path("source.json"), disk.MaxRecord, &s)
	return s, err
}

// Record returns the description of the run.
func (f Folder) Record() (r Record, err error) {
	err = disk.ReadJSON(f.Path("plan.json"), disk.MaxRecord, &r)
	return r, err
}

// Assign stores an attempt for the process of the stage.
func (f Folder) Assign(a Assignment) error {
	return WriteJSON(f.Path("nodes", FileName(a.Address)+".json"), a)
}

// Assignment returns the newest attempt at a stage.
func (f Folder) Assignment(address string) (Assignment, error) {
	var a Assignment
	err := disk.ReadJSON(f.Path("nodes", FileName(address)+".json"), disk.MaxRecord, &a)
	if errors.Is(err, fs.ErrNotExist) {
		return a, fmt.Errorf("run folder %s has not started %s", f, address)
	}
	return a, err
}

// Live reports whether the engine of the run is running, without waiting for the lock.
func (f Folder) Live() bool {
	lock, err := os.OpenFile(f.Path("lock"), os.O_RDONLY|syscall.O_NONBLOCK, 0) // a pipe has no writer
	if err != nil {
		return false
	}
	defer lock.Close()
	if alive.Held(lock) {
		return true
	}
	record, err := f.Record()
	return err == nil && record.Host != proc.HostName() && alive.Recent(lock.Name())
}

// Folders returns the run folders of an experiment, newest first.
func Folders(store *artifact.Store, experiment string) (all []Folder, err error) {
	names, err := subfolders(store.Runs(experiment))
	for _, name := range slices.Backward(names) {
		if !strings.HasPrefix(name, ".") { // incomplete: Create has not renamed it
			all = append(all, Folder(filepath.Join(store.Runs(experiment), name)))
		}
	}
	return all, err
}

// Experiments returns the names of the experiments that have runs in a store.
func Experiments(store *artifact.Store) ([]string, error) { return subfolders(store.Runs("")) }

// subfolders returns the sorted names of the folders in dir; none if dir does not exist.
func subfolders(dir string) (names []string, err error) {
	entries, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		err = nil
	}
	for _, e := range entries {
		if e.IsDir() {
			names = append(names, e.Name())
		}
	}
	return names, err
}

// Find returns the folder of a run. The name is a folder, EXPERIMENT/ID, ID, a unique prefix of these, or
// `latest` or `latest~N` (the Nth before it), of the experiment given before it (EXPERIMENT/latest) or by the
// parameter; "": of all.
func Find(store *artifact.Store, experiment, name string) (Folder, error) {
	if f := Folder(name); disk.Exists(f.Path("plan.json")) {
		return f, nil
	}
	all, err := allRuns(store)
	if err != nil {
		return "", err
	}
	if m := latest().FindStringSubmatch(name); m != nil {
		of := cmp.Or(m[1], experiment)
		back, _ := strconv.Atoi(m[2]) // 0 without a number
		found := slices.DeleteFunc(slices.Clone(all), func(f Folder) bool { return of != "" && f.Experiment() != of })
		if back < len(found) {
			return found[back], nil
		}
		return "", missingRun(store, strings.TrimPrefix(of+"/"+path.Base(name), "/"), all)
	}
	if i := slices.IndexFunc(all, func(f Folder) bool { return f.Name() == name || f.ID() == name }); i >= 0 {
		return all[i], nil
	}
	found := slices.DeleteFunc(slices.Clone(all), func(f Folder) bool {
		return !strings.HasPrefix(f.Name(), name) && !strings.HasPrefix(f.ID(), name)
	})
	switch len(found) {
	case 0:
		return "", missingRun(store, name, all)
	case 1:
		return found[0], nil
	}
	return "", fmt.Errorf("%s is ambiguous: it matches the runs %s", name, joinNames(found))
}

func missingRun(store *artifact.Store, name string, all []Folder) error {
	if len(all) == 0 {
		return fmt.Errorf("there is no run %s: %s has none", name, store.Runs(""))
	}
	last := joinNames(all[:min(5, len(all))])
	return fmt.Errorf("there is no run %s in %s; the last ones are %s", name, store.Runs(""), last)
}

func joinNames(folders []Folder) string {
	var names []string
	for _, f := range folders {
		names = append(names, f.Name())
	}
	return strings.Join(names, ", ")
}

// allRuns returns the run folders of all experiments, newest first.
func allRuns(store *artifact.Store) (all []Folder, err error) {
	experiments, err := Experiments(store)
	for _, experiment := range experiments {
		folders, folderErr := Folders(store, experiment)
		all, err = append(all, folders...), cmp.Or(err, folderErr)
	}
	slices.SortFunc(all, func(a, b Folder) int { return strings.Compare(b.ID(), a.ID()) })
	return all, err
}

// latest matches "latest", "latest~2" and "x/latest~2".
var latest = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^(?:(.*)/)?latest(?:~(\d+))?$`) })

// WriteJSON replaces a file, so that a reader sees the old or the new content.
func WriteJSON(path string, v any) error {
	return disk.WriteJSON(filepath.Dir(path), path, disk.MaxRecord, v)
}
