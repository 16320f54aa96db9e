package engine

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"rcgrpo/engine/artifact"
	"rcgrpo/engine/internal/disk"
)

// runFolder is the folder of one run, STORE/runs/EXPERIMENT/ID:
//
//	files/          the experiment's files as they were
//	source.json     Source for Load, with the values of all variables and the digests of all data
//	plan.json       RunRecord
//	nodes/NAME.json assignment of a stage, rewritten at each start
//	nodes/NAME.events.jsonl what the process of a stage tells, begun anew at each start
//	logs/NAME.log   output of a stage from its first byte; of a short one it is there when that has ended
//	shown/NAME/     output that is not kept, because inputs were missing
//	events.jsonl
//	lock            held while the run goes on
type runFolder string

// RunRecord says what a run set out to do.
type RunRecord struct {
	ID         string
	Experiment string
	Path       string // of the experiment, as given
	Started    time.Time
	PID        int
	Host       string
	Revision   string
	Nodes      []RunNodeRecord
}

// RunNodeRecord is a node of a RunRecord.
type RunNodeRecord struct {
	Address string
	Verb    Verb
	Cause   string  `json:",omitempty"`
	Key     string  `json:",omitempty"`
	Expect  float64 `json:",omitempty"` // seconds
}

func (f runFolder) id() string { return filepath.Base(string(f)) }
func (f runFolder) path(p ...string) string {
	return filepath.Join(append([]string{string(f)}, p...)...)
}
func (f runFolder) log(address string) string   { return f.path("logs", fileName(address)+".log") }
func (f runFolder) shown(address string) string { return f.path("shown", fileName(address)) }
func (f runFolder) events(address string) string {
	return f.path("nodes", fileName(address)+".events.jsonl")
}

// fileName makes an address a file's name: readable, and distinct for distinct addresses.
func fileName(address string) string {
	name := strings.Map(func(r rune) rune {
		switch {
		case r >= 'a' && r <= 'z', r >= 'A' && r <= 'Z', r >= '0' && r <= '9', strings.ContainsRune("._-@[]=+", r):
			return r
		}
		return '_'
	}, ShortAddress(address))
	if name != ShortAddress(address) || len(name) > 120 {
		sum := sha256.Sum256([]byte(address))
		name = name[:min(len(name), 120)] + "-" + hex.EncodeToString(sum[:4])
	}
	return name
}

// createRunFolder makes the folder of a run of p with everything a child process needs, and locks it. It appears whole,
// by one rename.
func createRunFolder(p *Plan) (runFolder, *os.File, error) {
	var tail [2]byte
	rand.Read(tail[:])
	started := time.Now()
	x := p.Experiment
	before, err := runFolders(p.Store, x.Name)
	if err != nil {
		return "", nil, err
	}
	id := runTime(started, before) + "-" + hex.EncodeToString(tail[:])
	f := runFolder(filepath.Join(p.Store.Runs(x.Name), id))
	aside := runFolder(filepath.Join(p.Store.Runs(x.Name), "."+id))
	if err := p.Store.MakeDir(p.Store.Runs(x.Name)); err != nil {
		return f, nil, fmt.Errorf("make the run folder: %w", err)
	}
	for _, sub := range []string{"files", "nodes", "logs"} {
		if err := disk.MkdirAll(aside.path(sub), 0o700); err != nil {
			return f, nil, fmt.Errorf("make the run folder: %w", err)
		}
	}
	lock, err := disk.OpenFile(aside.path("lock"), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return f, nil, err
	}
	if err := disk.Flock(lock, unix.LOCK_EX|unix.LOCK_NB); err != nil {
		return f, nil, errors.Join(err, lock.Close())
	}
	err = f.write(p, started, aside)
	if err == nil {
		err = disk.Rename(string(aside), string(f))
	}
	if err != nil {
		return f, nil, errors.Join(err, lock.Close())
	}
	return f, lock, nil
}

// runTimeFormat is how the id of a run begins. Ids sort by it.
const runTimeFormat = "20060102-150405.000"

// runTime is the time in the id of a new run: that of its start, but later than that of every run before, newest first,
// also when somebody has set the clock back meanwhile.
func runTime(started time.Time, before []runFolder) string {
	now := started.UTC().Format(runTimeFormat)
	if len(before) == 0 {
		return now
	}
	newest := before[0].id()
	newest = newest[:min(len(newest), len(runTimeFormat))]
	if at, err := time.Parse(runTimeFormat, newest); err == nil && newest >= now {
		return at.Add(time.Millisecond).Format(runTimeFormat)
	}
	return now
}

// write fills the folder while it lies aside.
func (f runFolder) write(p *Plan, started time.Time, aside runFolder) error {
	x := p.Experiment
	for _, path := range x.Paths { // as they were read, whatever happened to them since
		if err := disk.WriteFile(aside.path("files", filepath.Base(path)), x.Files[path].Bytes, 0o600); err != nil {
			return fmt.Errorf("copy the experiment into its run folder: %w", err)
		}
	}
	source := Source{Path: f.path("files"), Vars: x.Vars, Base: x.Dir, Name: x.Name, Digests: x.Digests,
		Env: slices.DeleteFunc(slices.Clone(x.Source.Env), notForTheFolder)}
	if len(x.Paths) == 1 {
		source.Path = f.path("files", filepath.Base(x.Paths[0]))
	}
	if x.Site != nil && x.Site.Path != "" {
		site, err := filepath.Abs(x.Site.Path)
		if err != nil {
			return err
		}
		source.Site = site
	}
	host, _ := os.Hostname()
	record := RunRecord{ID: f.id(), Experiment: x.Name, Path: x.Source.Path, Started: started.UTC(), PID: os.Getpid(),
		Host: host, Revision: Revision()}
	for _, n := range p.Nodes {
		record.Nodes = append(record.Nodes, RunNodeRecord{n.Address, n.Verb, n.Cause.Text, n.Key, n.Estimate.Seconds()})
	}
	var sourceErr error
	var beside sync.WaitGroup // both name everything there is
	beside.Go(func() { sourceErr = writeJSON(aside.path("source.json"), source) })
	planErr := writeJSON(aside.path("plan.json"), record)
	beside.Wait()
	return errors.Join(sourceErr, planErr)
}

// notForTheFolder picks the environment variables that a run folder does not keep: those that Load does not read, which
// may be secrets, and those of the experiment's variables, whose values stand in Vars.
func notForTheFolder(v string) bool {
	name, _, _ := strings.Cut(v, "=")
	return name != "HOME" && !strings.HasPrefix(name, "RCGRPO_") || strings.HasPrefix(name, "RCGRPO_VAR_")
}

func (f runFolder) source() (Source, error) {
	var s Source
	return s, readJSON(f.path("source.json"), &s)
}

func (f runFolder) record() (RunRecord, error) {
	var r RunRecord
	return r, readJSON(f.path("plan.json"), &r)
}

func (f runFolder) assign(a assignment) error {
	return writeJSON(f.path("nodes", fileName(a.Address)+".json"), a)
}

func (f runFolder) assignment(address string) (assignment, error) {
	var a assignment
	err := readJSON(f.path("nodes", fileName(address)+".json"), &a)
	if errors.Is(err, fs.ErrNotExist) {
		return a, fmt.Errorf("run folder %s has started no %s", f, address)
	}
	return a, err
}

// live says whether the run still goes on. Asking takes the lock shared, for an instant, and only when it is free.
func (f runFolder) live() bool {
	lock, err := os.Open(f.path("lock"))
	if err != nil {
		return false
	}
	defer lock.Close()
	return errors.Is(unix.Flock(int(lock.Fd()), unix.LOCK_SH|unix.LOCK_NB), unix.EWOULDBLOCK)
}

// runFolders returns the run folders of an experiment, the newest first.
func runFolders(store *artifact.Store, experiment string) ([]runFolder, error) {
	entries, err := os.ReadDir(store.Runs(experiment))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	var all []runFolder
	for _, e := range slices.Backward(entries) {
		if e.IsDir() && !strings.HasPrefix(e.Name(), ".") { // one that is being made, or was when its run was killed
			all = append(all, runFolder(filepath.Join(store.Runs(experiment), e.Name())))
		}
	}
	return all, nil
}

// writeJSON writes aside and renames, so that a reader sees a whole file.
func writeJSON(path string, v any) error {
	b, err := json.MarshalIndent(v, "", "  ")
	if err != nil {
		return fmt.Errorf("write %s: %w", path, err)
	}
	next := path + ".new"
	if err := disk.WriteFile(next, append(b, '\n'), 0o600); err != nil {
		return err
	}
	return disk.Rename(next, path)
}

func readJSON(path string, v any) error {
	b, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	if err := json.Unmarshal(b, v); err != nil {
		return fmt.Errorf("%s is damaged: %w", path, err)
	}
	return nil
}
