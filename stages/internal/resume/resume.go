// Package resume keeps in the scratch folder of a training what an attempt after a kill needs to end in the same bytes as
// one that was never interrupted. Start with Open; Training holds
//
//   - whole states (Save), each a folder with checksums that appears by one rename: weights, moments, counters. They
//     cost much, so they are made every few minutes, and the last ones are kept.
//   - Rows, the files that become files of a port at the end. A state knows how long each was.
//   - a log (Append, Replayed) of what happened since and cannot be computed again cheaply: the trajectories that were
//     sampled. Each record has its checksum; a torn one at the end is as if it had never been written.
//
// So an attempt goes back to the last whole state, makes the updates since with the trajectories of the log, samples the
// rest of the open update with the same random numbers, and goes on. What is not in a state or the log must follow from
// the job's inputs, settings and seed.
package resume

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"time"
)

// format is raised when what older code left can no longer be read.
const format = 1

// stateFile is the file of a state's folder that says what is in it; it is written last.
const stateFile = "state.json"

// Settings say how often whole states are made and how many are kept.
type Settings struct {
	Every time.Duration // least time between two states; 0 makes one after every update
	Keep  int           // at least 1
}

// Training is the scratch folder of a training. It is used by one goroutine, except for Append.
type Training struct {
	Settings
	dir    string
	update int // of the state that it began with or saved last; 0 for none
	saved  time.Time
	rows   []*Rows
	marks  map[string]mark // of that state
	log    *log
}

// state is what stateFile holds.
type state struct {
	Format   int             `json:"format"`
	Update   int             `json:"update"`
	Progress json.RawMessage `json:"progress"`
	Files    map[string]file `json:"files"`
	Rows     map[string]mark `json:"rows"`
}

type file struct {
	Bytes  int64  `json:"bytes"`
	SHA256 string `json:"sha256"`
}

// Open opens the scratch folder of a job. After it, Restore comes first.
func Open(dir string, s Settings) (*Training, error) {
	t := &Training{Settings: s, dir: dir, saved: time.Now(), marks: map[string]mark{}}
	t.Keep = max(1, t.Keep)
	for _, folder := range []string{t.states(), t.logs(), t.rowFiles()} {
		if err := os.MkdirAll(folder, 0o700); err != nil {
			return nil, fmt.Errorf("resume: %w", err)
		}
	}
	return t, nil
}

func (t *Training) states() string   { return filepath.Join(t.dir, "states") }
func (t *Training) logs() string     { return filepath.Join(t.dir, "log") }
func (t *Training) rowFiles() string { return filepath.Join(t.dir, "rows") }

// stateName names a state by the updates made before it, so that names sort.
func stateName(update int) string { return fmt.Sprintf("%09d", update) }

// Restore goes back to the newest state that is whole: it decodes what Save was given into progress, calls read with the
// state's folder, and returns the updates made until then. Damaged states are passed over. Without a state it returns 0.
// In either case the log of what happened since is ready for Replayed and Append.
func (t *Training) Restore(progress any, read func(dir string) error) (update int, err error) {
	known, err := numbered(t.states())
	if err != nil {
		return 0, err
	}
	for _, n := range slices.Backward(known) {
		dir := filepath.Join(t.states(), stateName(n))
		s, whole := t.whole(dir)
		if !whole {
			continue
		}
		if err := json.Unmarshal(s.Progress, progress); err != nil {
			return 0, fmt.Errorf("resume from %s: %w", dir, err)
		}
		if err := read(dir); err != nil {
			return 0, fmt.Errorf("resume from %s: %w", dir, err)
		}
		t.update, t.marks = s.Update, s.Rows
		break
	}
	t.log, err = openLog(t.logs(), t.update)
	return t.update, err
}

// whole reads a state and says whether it and the rows before it are as they were saved.
func (t *Training) whole(dir string) (s state, ok bool) {
	raw, err := os.ReadFile(filepath.Join(dir, stateFile))
	if err != nil || json.Unmarshal(raw, &s) != nil || s.Format != format {
		return s, false
	}
	for name, want := range s.Files {
		if got, err := sum(filepath.Join(dir, name)); err != nil || got != want {
			return s, false
		}
	}
	for name, want := range s.Rows {
		if !want.reached(filepath.Join(t.rowFiles(), name)) {
			return s, false
		}
	}
	return s, true
}

// Due says whether it is time for a state.
func (t *Training) Due() bool { return time.Since(t.saved) >= t.Every }

// Update is that of the state that training began with or saved last.
func (t *Training) Update() int { return t.update }

// Save makes a state of the training after so many updates: what write puts into a folder, and progress as JSON. It
// appears whole or not at all; older ones make room, and so does the log of what is in it.
func (t *Training) Save(update int, progress any, write func(dir string) error) (err error) {
	if update == t.update {
		return nil
	}
	aside := filepath.Join(t.states(), ".new")
	defer func() {
		if err != nil {
			err = errors.Join(fmt.Errorf("save the state after update %d: %w", update, err), os.RemoveAll(aside))
		}
	}()
	if err := errors.Join(os.RemoveAll(aside), os.Mkdir(aside, 0o700)); err != nil {
		return err
	}
	if err := write(aside); err != nil {
		return err
	}
	s := state{Format: format, Update: update, Files: map[string]file{}, Rows: map[string]mark{}}
	if s.Progress, err = json.Marshal(progress); err != nil {
		return err
	}
	names, err := os.ReadDir(aside)
	if err != nil {
		return err
	}
	for _, e := range names {
		path := filepath.Join(aside, e.Name())
		if err := syncPath(path); err != nil {
			return err
		}
		if s.Files[e.Name()], err = sum(path); err != nil {
			return err
		}
	}
	for _, r := range t.rows {
		if err := r.file.Sync(); err != nil {
			return err
		}
		s.Rows[r.name] = r.mark
	}
	text, err := json.Marshal(s)
	if err != nil {
		return err
	}
	path := filepath.Join(aside, stateFile)
	if err := errors.Join(os.WriteFile(path, text, 0o600), syncPath(path), syncPath(aside)); err != nil {
		return err
	}
	dir := filepath.Join(t.states(), stateName(update))
	if err := os.RemoveAll(dir); err != nil { // a damaged one that was passed over
		return err
	}
	if err := errors.Join(os.Rename(aside, dir), syncPath(t.states())); err != nil {
		return err
	}
	t.update, t.saved, t.marks = update, time.Now(), s.Rows
	if err := t.log.begin(update); err != nil {
		return err
	}
	return t.makeRoom()
}

// Folder is a folder of the scratch by name; Replace fills it.
func (t *Training) Folder(name string) string { return filepath.Join(t.dir, name) }

// Replace fills a folder of the scratch anew. It is not part of a state: an attempt that goes back to before it was filled
// fills it again with the same.
func (t *Training) Replace(name string, write func(dir string) error) error {
	dir, aside := t.Folder(name), t.Folder("."+name)
	if err := errors.Join(os.RemoveAll(aside), os.Mkdir(aside, 0o700)); err != nil {
		return err
	}
	if err := write(aside); err != nil {
		return err
	}
	return errors.Join(os.RemoveAll(dir), os.Rename(aside, dir))
}

// progressFile holds the progress of a state that stands beside a result.
const progressFile = "progress.json"

// WriteProgress writes progress into a folder, for a longer run to read.
func WriteProgress(dir string, progress any) error {
	text, err := json.Marshal(progress)
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(dir, progressFile), text, 0o600)
}

// ReadProgress reads what WriteProgress wrote.
func ReadProgress(dir string, progress any) error {
	text, err := os.ReadFile(filepath.Join(dir, progressFile))
	if err != nil {
		return err
	}
	return json.Unmarshal(text, progress)
}

// makeRoom removes all states but the last ones, and the logs that only they need.
func (t *Training) makeRoom() error {
	known, err := numbered(t.states())
	if err != nil {
		return err
	}
	if len(known) < t.Keep {
		return nil
	}
	first := known[len(known)-t.Keep]
	for _, n := range known {
		if n < first {
			err = errors.Join(err, os.RemoveAll(filepath.Join(t.states(), stateName(n))))
		}
	}
	logs, listErr := numbered(t.logs())
	for _, n := range logs {
		if n < first {
			err = errors.Join(err, os.Remove(filepath.Join(t.logs(), stateName(n))))
		}
	}
	return errors.Join(err, listErr)
}

// Close closes the files. The folder stays: it goes when the stage has succeeded.
func (t *Training) Close() error {
	var err error
	for _, r := range t.rows {
		err = errors.Join(err, r.file.Close())
	}
	if t.log != nil {
		err = errors.Join(err, t.log.file.Close())
	}
	t.rows, t.log = nil, nil
	return err
}

// numbered lists the entries of a folder whose names are numbers, ascending.
func numbered(dir string) (all []int, err error) {
	entries, err := os.ReadDir(dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("resume: %w", err)
	}
	for _, e := range entries {
		if n, err := strconv.Atoi(e.Name()); err == nil && e.Name() == stateName(n) {
			all = append(all, n)
		}
	}
	slices.Sort(all)
	return all, nil
}

func sum(path string) (file, error) {
	f, err := os.Open(path)
	if err != nil {
		return file{}, err
	}
	defer f.Close()
	h := sha256.New()
	n, err := io.Copy(h, f)
	return file{n, hex.EncodeToString(h.Sum(nil))}, err
}

// syncPath makes a file, or the names in a folder, durable.
func syncPath(path string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	return errors.Join(f.Sync(), f.Close())
}
