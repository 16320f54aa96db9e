// Package resume stores the state of a training in its scratch folder, so that a killed training that resumes
// ends with the same results as an uninterrupted one. Start with Open. A Scratch has
//
//   - states (Save), folders with checksums that appear by one rename: weights, moments,
//     counters. They are expensive, so they are saved every few minutes, and the last ones are
//     kept.
//   - Rows, files that become files of a port at the end. A state stores the length of each.
//   - a log (Append, Replayed) of expensive data since the last state: sampled trajectories. Each
//     record has a checksum; a torn record is ignored.
//
// An attempt restores the last whole state, repeats the later updates with the trajectories of the log, and
// samples the rest of the open update with the same random numbers. Everything else must follow from the job's
// inputs, settings and seed. The neighbour is package train.
package resume

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"time"
)

const format = 2

// stateFile is the file of a state's folder that describes the others; it is written last.
const stateFile = "state.json"

// Scratch is the scratch folder of a training. One goroutine uses it, except for Append.
type Scratch struct {
	Passed []string // messages about states that Restore could not use

	dir     string
	rank    int     // of the process; only rank 0 writes states, rows and folders, and each rank has its log
	minutes float64 // between two states
	keep    int     // number of states
	update  int     // of the last restored or saved state; 0 for none
	saved   time.Time
	rows    []*Rows
	marks   map[string]mark   // of the restored state
	folders map[string]folder // filled by Replace, by name
	log     *log
}

type state struct {
	Format   int             `json:"format"`
	Update   int             `json:"update"`
	Progress json.RawMessage `json:"progress"`
	Files    map[string]file `json:"files"`
	Rows     map[string]mark `json:"rows"`

	Folders map[string]folder `json:"folders"`
}

type folder struct {
	Dir   string          `json:"dir"`
	Files map[string]file `json:"files"` // by slash-separated path
}

type file struct {
	Bytes  int64  `json:"bytes"`
	SHA256 string `json:"sha256"`
}

// Open opens the scratch folder of a job, which keeps at least one state, in one of its ranks. Call Restore next.
// Ranks above 0 restore after rank 0.
func Open(dir string, minutes float64, keep, rank int) (*Scratch, error) {
	t := &Scratch{minutes: minutes, keep: max(1, keep), dir: dir, rank: rank, saved: time.Now(), marks: map[string]mark{},
		folders: map[string]folder{}}
	for _, folder := range []string{t.states(), t.logs(), t.rowFiles(), t.folderFiles()} {
		if err := os.MkdirAll(folder, 0o700); err != nil {
			return nil, fmt.Errorf("resume: %w", err)
		}
	}
	return t, nil
}

func (t *Scratch) states() string   { return filepath.Join(t.dir, "states") }
func (t *Scratch) logs() string     { return logsOf(t.dir, t.rank) }
func (t *Scratch) rowFiles() string { return filepath.Join(t.dir, "rows") }

func logsOf(dir string, rank int) string {
	if rank == 0 {
		return filepath.Join(dir, "log")
	}
	return filepath.Join(dir, fmt.Sprintf("log.%d", rank))
}

// allLogs returns the folders of the logs of all ranks of all attempts.
func (t *Scratch) allLogs() ([]string, error) {
	others, err := filepath.Glob(filepath.Join(t.dir, "log.*"))
	return append([]string{logsOf(t.dir, 0)}, others...), err
}

func (t *Scratch) folderFiles() string { return filepath.Join(t.dir, "folders") }

// stateName names a state by the number of updates, so that names sort.
func stateName(update int) string { return fmt.Sprintf("%09d", update) }

// Restore resumes from the newest whole state: it calls read with the folder of the state, decodes the value of
// Save into progress, and returns the number of updates. Without a state it returns 0. Passed explains why newer
// states could not be used; they are removed. Afterwards Replayed and Append are ready.
//
// If read fails, it may have filled a part of its target. An older state fills it again; without one, the
// returned error tells that the next attempt starts again.
func (t *Scratch) Restore(progress any, read func(dir string) error) (update int, err error) {
	known, err := numbered(t.states())
	if err != nil {
		return 0, err
	}
	var unread error
	for _, n := range slices.Backward(known) {
		dir := filepath.Join(t.states(), stateName(n))
		s, why := t.whole(dir)
		if why == nil {
			if why = read(dir); why == nil { // only the used state fills progress
				why = json.Unmarshal(s.Progress, progress)
			}
			unread = why
		}
		if why == nil {
			t.update, t.marks, t.folders = s.Update, s.Rows, s.Folders
			break
		}
		if t.rank > 0 {
			return 0, fmt.Errorf("resume: %w", why)
		}
		t.Passed = append(t.Passed, fmt.Sprintf("the checkpoint after update %d in the scratch folder cannot be used: %v",
			n, why))
		if err := os.RemoveAll(dir); err != nil {
			return 0, fmt.Errorf("resume: %w", err)
		}
	}
	if unread != nil {
		return 0, fmt.Errorf("resume: %w; no other checkpoint is left, so the stage starts again at the next run", unread)
	}
	if len(t.Passed) > 0 {
		t.Passed = append(t.Passed, "resuming from "+t.origin())
	}
	t.log, err = openLog(t.logs(), t.update)
	return t.update, err
}

func (t *Scratch) origin() string {
	if t.update == 0 {
		return "the start: no checkpoint is whole"
	}
	return fmt.Sprintf("the checkpoint after update %d", t.update)
}

func readState(dir string) (s state, err error) {
	raw, err := os.ReadFile(filepath.Join(dir, stateFile))
	if err != nil {
		return s, err
	}
	want, text, _ := bytes.Cut(raw, []byte("\n"))
	if got := sha256.Sum256(text); hex.EncodeToString(got[:]) != string(want) {
		return s, fmt.Errorf("%s is damaged", stateFile)
	}
	if err := json.Unmarshal(text, &s); err != nil || s.Format != format {
		return s, fmt.Errorf("another version of rcgrpo wrote it, in format %d; this one reads format %d", s.Format, format)
	}
	return s, nil
}

// whole reads a state; the error describes the first difference of its files, rows or folders from what was
// saved.
func (t *Scratch) whole(dir string) (s state, err error) {
	if s, err = readState(dir); err != nil {
		return s, err
	}
	if err := unchanged(dir, s.Files); err != nil {
		return s, err
	}
	for name, want := range s.Rows {
		if !want.reached(filepath.Join(t.rowFiles(), name)) {
			return s, fmt.Errorf("the rows %s beside it are damaged", name)
		}
	}
	for _, f := range s.Folders {
		if err := unchanged(filepath.Join(t.folderFiles(), f.Dir), f.Files); err != nil {
			return s, err
		}
	}
	return s, nil
}

func unchanged(dir string, files map[string]file) error {
	for name, want := range files {
		got, err := sum(filepath.Join(dir, filepath.FromSlash(name)))
		if err != nil {
			return err
		}
		if got != want {
			return fmt.Errorf("%s is damaged: it has %d bytes, want %d with another digest", name, got.Bytes, want.Bytes)
		}
	}
	return nil
}

// Due reports whether a state is due.
func (t *Scratch) Due() bool {
	return time.Since(t.saved) >= time.Duration(t.minutes*float64(time.Minute))
}

// Save saves a state after so many updates: the files that write puts into a folder, and progress as JSON. The
// state appears as a whole or not at all. Older states and their logs are removed.
// Ranks above 0 only call write, with an empty name, because its work may need all ranks.
func (t *Scratch) Save(update int, progress any, write func(dir string) error) error {
	if update == t.update {
		return nil
	}
	if t.rank > 0 {
		t.update = update
		return errors.Join(write(""), t.log.begin(update))
	}
	staged := filepath.Join(t.states(), ".new")
	err := t.stage(staged, update, progress, write)
	if err == nil {
		err = t.commit(staged, update)
	}
	if err != nil {
		return errors.Join(fmt.Errorf("save the state after update %d: %w", update, err), os.RemoveAll(staged))
	}
	return nil
}

// stage writes a whole state to disk under a temporary name.
func (t *Scratch) stage(dir string, update int, progress any, write func(dir string) error) (err error) {
	if err := errors.Join(os.RemoveAll(dir), os.Mkdir(dir, 0o700)); err != nil {
		return err
	}
	if err := write(dir); err != nil {
		return err
	}
	s := state{Format: format, Update: update, Rows: map[string]mark{}, Folders: maps.Clone(t.folders)}
	if s.Progress, err = json.Marshal(progress); err != nil {
		return err
	}
	if s.Files, err = flushed(dir); err != nil {
		return err
	}
	for _, r := range t.rows {
		if err := r.file.Sync(); err != nil {
			return err
		}
		s.Rows[filepath.Base(r.path)] = r.mark
	}
	text, err := json.Marshal(s)
	if err != nil {
		return err
	}
	path := filepath.Join(dir, stateFile)
	return errors.Join(os.WriteFile(path, fmt.Appendf(nil, "%x\n%s", sha256.Sum256(text), text), 0o600), syncPath(path),
		syncPath(dir))
}

// commit gives a staged state its name and removes older ones.
func (t *Scratch) commit(staged string, update int) error {
	dir := filepath.Join(t.states(), stateName(update))
	if err := os.RemoveAll(dir); err != nil { // a damaged state
		return err
	}
	if err := errors.Join(os.Rename(staged, dir), syncPath(t.states())); err != nil {
		return err
	}
	t.update, t.saved = update, time.Now()
	if err := t.log.begin(update); err != nil {
		return err
	}
	return t.removeOld()
}

// flushed flushes all files of a folder to the disk and returns their digests by slash-separated path.
func flushed(dir string) (map[string]file, error) {
	files := map[string]file{}
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		if err := syncPath(path); err != nil {
			return err
		}
		inside, err := filepath.Rel(dir, path)
		if err != nil {
			return err
		}
		files[filepath.ToSlash(inside)], err = sum(path)
		return err
	})
	return files, err
}

// Folder returns the folder that Replace filled last under a name.
func (t *Scratch) Folder(name string) string {
	return filepath.Join(t.folderFiles(), t.folders[name].Dir)
}

// Replace fills a new folder. Later states contain it; earlier states keep theirs.
func (t *Scratch) Replace(name string, write func(dir string) error) error {
	if t.rank > 0 {
		return write("") // its work may need all ranks
	}
	dir, err := os.MkdirTemp(t.folderFiles(), name+".")
	if err != nil {
		return err
	}
	f := folder{Dir: filepath.Base(dir)}
	if err = write(dir); err == nil {
		f.Files, err = flushed(dir)
	}
	if err != nil {
		return errors.Join(err, os.RemoveAll(dir))
	}
	t.folders[name] = f
	return nil
}

// dropFolders removes the folders of Replace that no state contains.
func (t *Scratch) dropFolders() error {
	used := map[string]bool{}
	for _, f := range t.folders {
		used[f.Dir] = true
	}
	known, err := numbered(t.states())
	if err != nil {
		return err
	}
	for _, n := range known {
		s, err := readState(filepath.Join(t.states(), stateName(n)))
		if err != nil {
			return err
		}
		for _, f := range s.Folders {
			used[f.Dir] = true
		}
	}
	entries, err := os.ReadDir(t.folderFiles())
	for _, e := range entries {
		if !used[e.Name()] {
			err = errors.Join(err, os.RemoveAll(filepath.Join(t.folderFiles(), e.Name())))
		}
	}
	return err
}

// progressFile holds the progress of a state beside a result.
const progressFile = "progress.json"

// WriteProgress writes progress into a folder for a longer run.
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

// removeOld removes all states but the last ones, and logs that are older than these.
func (t *Scratch) removeOld() error {
	known, err := numbered(t.states())
	if err != nil {
		return err
	}
	if len(known) < t.keep {
		return t.dropFolders()
	}
	first := known[len(known)-t.keep]
	for _, n := range known {
		if n < first {
			err = errors.Join(err, os.RemoveAll(filepath.Join(t.states(), stateName(n))))
		}
	}
	folders, listErr := t.allLogs()
	for _, folder := range folders {
		logs, numbersErr := numbered(folder)
		for _, n := range logs {
			if n < first {
				err = errors.Join(err, os.Remove(filepath.Join(folder, stateName(n))))
			}
		}
		listErr = errors.Join(listErr, numbersErr)
	}
	return errors.Join(err, listErr, t.dropFolders())
}

// Close closes the files. The engine removes the folder after the stage succeeded.
func (t *Scratch) Close() error {
	var err error
	for _, r := range t.rows {
		if r.file != nil {
			err = errors.Join(err, r.file.Close())
		}
	}
	if t.log != nil {
		err = errors.Join(err, t.log.file.Close())
	}
	t.rows, t.log = nil, nil
	return err
}

// numbered lists the entries of a folder with numeric names, ascending.
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

// syncPath flushes a file, or the names in a folder, to the disk.
func syncPath(path string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	return errors.Join(f.Sync(), f.Close())
}
