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
	"cmp"
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
	"sync/atomic"
	"time"

	"rcgrpo/engine/artifact"
)

// format is the version of the files of a state.
const format = 2

// stateFile is the file of a state's folder that describes the others; it is written last.
const stateFile = "state.json"

// Scratch is the scratch folder of a training. One goroutine uses it, except for Append.
type Scratch struct {
	Passed []string // messages about states that Restore could not use
	// Gather returns the messages of all ranks in their order, which call it together; nil in a job of one process.
	Gather func(phase string, own []byte) ([][]byte, error)

	dir     string
	rank    int           // rank of the process; only rank 0 writes states, rows and folders, and each rank has its log
	minutes float64       // least time between two states
	keep    int           // number of states that are kept
	update  int           // update after which the last state was restored or saved; 0 without a state
	saved   time.Time     // time of the last Save
	took    time.Duration // duration of the last Save
	rows    []*Rows
	marks   map[string]mark   // ends of the rows in the restored state, by name
	folders map[string]folder // folders that Replace filled last, by name
	log     *log
}

// state is the content of stateFile: what a state consists of.
type state struct {
	Format   int             `json:"format"`
	Update   int             `json:"update"`
	Progress json.RawMessage `json:"progress"`
	Files    map[string]file `json:"files"`
	Rows     map[string]mark `json:"rows"`

	Folders map[string]folder `json:"folders"`
}

// folder is a folder that Replace filled.
type folder struct {
	Dir   string          `json:"dir"`
	Files map[string]file `json:"files"` // by slash-separated path
}

// file is the expected content of a file.
type file struct {
	Bytes  int64  `json:"bytes"`
	SHA256 string `json:"sha256"`
}

// Open opens the scratch folder of a job, which keeps at least one state, in one of its ranks. Call Restore next.
// Ranks above 0 restore after rank 0.
func Open(dir string, minutes float64, keep, rank int) (*Scratch, error) {
	t := &Scratch{minutes: minutes, keep: max(1, keep), dir: dir, rank: rank, saved: time.Now(), marks: map[string]mark{},
		folders: map[string]folder{}}
	logs, err := t.allLogs()
	for _, folder := range append(logs, t.states(), t.logs(), t.rowFiles(), t.folderFiles()) {
		if err = cmp.Or(err, os.MkdirAll(folder, 0o700)); err != nil {
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
// If read fails, it may have filled a part of its target. An older state fills it again; without one, Restore returns
// an error and the next attempt starts from the first update.
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
			t.update, t.marks = s.Update, s.Rows
			maps.Copy(t.folders, s.Folders)
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

// origin describes the state from which the training resumes.
func (t *Scratch) origin() string {
	if t.update == 0 {
		return "the start: no checkpoint is whole"
	}
	return fmt.Sprintf("the checkpoint after update %d", t.update)
}

// readState reads stateFile, whose first line is the checksum of the rest.
func readState(dir string) (s state, err error) {
	raw, err := (&artifact.Artifact{Dir: dir}).Read(stateFile) // the store may be a copy
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
	if s.Update < 1 || stateName(s.Update) != filepath.Base(dir) { // others may have written it
		return s, fmt.Errorf("%s is of update %d, which is none or another", stateFile, s.Update)
	}
	return s, nil
}

// whole reads a state; the error describes the first difference of its files, rows or folders from what was
// saved. Ranks above 0 compare nothing, because rank 0 has done so.
func (t *Scratch) whole(dir string) (s state, err error) {
	if s, err = readState(dir); err != nil || t.rank > 0 {
		return s, err
	}
	read := map[string]file{}
	if err := unchanged(dir, s.Files, read); err != nil {
		return s, err
	}
	for name, want := range s.Rows {
		if filepath.Base(name) != name {
			return s, fmt.Errorf("%q is no file of rows", name)
		}
		if !want.reached(filepath.Join(t.rowFiles(), name)) {
			return s, fmt.Errorf("the rows %s beside it are damaged", name)
		}
	}
	for _, f := range s.Folders {
		dir := filepath.Join(t.folderFiles(), f.Dir)
		if filepath.Dir(dir) != t.folderFiles() { // it becomes a part of the result
			return s, fmt.Errorf("%q is no folder of the state", f.Dir)
		}
		if err := unchanged(dir, f.Files, read); err != nil {
			return s, err
		}
	}
	return s, nil
}

// unchanged returns an error for the first file that differs from its expected content. It reads each file once,
// however many names the state has for it, and adds its content to read.
func unchanged(dir string, files, read map[string]file) error {
	for name, want := range files {
		name := filepath.FromSlash(name)
		if !filepath.IsLocal(name) {
			return fmt.Errorf("%q is no file of the state", name)
		}
		path := filepath.Join(dir, name)
		if _, ok := read[path]; !ok {
			got, err := sum(path)
			if err != nil {
				return err
			}
			read[path] = got
		}
		if got := read[path]; got != want {
			return fmt.Errorf("%s is damaged: it has %d bytes, want %d with another digest", name, got.Bytes, want.Bytes)
		}
	}
	return nil
}

// rest is the time between two states as a multiple of the time that the last one took.
const rest = 20

// Due reports whether a state is due: after every update if the interval is 0 minutes, otherwise after the interval and
// so late that saving takes at most a twentieth of the time.
func (t *Scratch) Due() bool {
	return t.minutes == 0 || time.Since(t.saved) >= max(time.Duration(t.minutes*float64(time.Minute)), rest*t.took)
}

// Save saves the state after an update: progress as JSON, and the files that write puts into a folder. The state
// appears as a whole or not at all. Older states and their logs are removed.
//
// All ranks call Save, and each call of write may write some of the files. A rank that gets an error must end, so that
// the others lose contact: the state then does not appear.
func (t *Scratch) Save(update int, progress any, write func(dir string) error) error {
	if update == t.update {
		return nil
	}
	start, staged := time.Now(), filepath.Join(t.states(), ".new")
	files, err := t.stage(staged, write)
	if err == nil && t.rank == 0 {
		if err = t.describe(staged, update, progress, files); err == nil {
			err = t.commit(staged, update)
		}
	}
	if err != nil && t.rank == 0 {
		err = errors.Join(err, os.RemoveAll(staged))
	}
	if err == nil {
		t.update, t.saved, t.took = update, time.Now(), time.Since(start)
		if err = t.log.begin(update); err == nil && t.rank == 0 {
			err = t.removeOld()
		}
	}
	if err != nil {
		return fmt.Errorf("save the state after update %d: %w", update, err)
	}
	return nil
}

// stage writes the files of a state into dir and flushes them to the disk. It returns their digests in rank 0. The
// ranks divide the files among them for flushing and hashing.
func (t *Scratch) stage(dir string, write func(dir string) error) (map[string]file, error) {
	if t.rank == 0 {
		if err := errors.Join(os.RemoveAll(dir), os.Mkdir(dir, 0o700)); err != nil {
			return nil, err
		}
	}
	if _, err := t.gather("state folder", nil); err != nil {
		return nil, err
	}
	if err := write(dir); err != nil {
		return nil, err
	}
	ranks, err := t.gather("state files", nil)
	if err != nil {
		return nil, err
	}
	own, err := flushed(dir, func(i int) bool { return i%len(ranks) == t.rank })
	if err != nil {
		return nil, err
	}
	text, err := json.Marshal(own)
	if err != nil {
		return nil, err
	}
	lists, err := t.gather("state digests", text)
	all := map[string]file{}
	for _, list := range lists {
		err = errors.Join(err, json.Unmarshal(list, &all)) // adds to the map
	}
	return all, err
}

// gather calls Gather. In a job of one process it returns the own message.
func (t *Scratch) gather(phase string, own []byte) ([][]byte, error) {
	if t.Gather == nil {
		return [][]byte{own}, nil
	}
	return t.Gather(phase, own)
}

// describe writes the file of a staged state that describes the others.
func (t *Scratch) describe(dir string, update int, progress any, files map[string]file) (err error) {
	s := state{Format: format, Update: update, Files: files, Rows: map[string]mark{}, Folders: maps.Clone(t.folders)}
	if s.Progress, err = json.Marshal(progress); err != nil {
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

// commit gives a staged state its name.
func (t *Scratch) commit(staged string, update int) error {
	dir := filepath.Join(t.states(), stateName(update))
	if err := os.RemoveAll(dir); err != nil { // a damaged state
		return err
	}
	return errors.Join(os.Rename(staged, dir), syncPath(t.states()))
}

// flushed flushes files of a folder to the disk and returns their digests by slash-separated path. It takes the files
// whose index in the order of their names own accepts.
func flushed(dir string, own func(i int) bool) (map[string]file, error) {
	files, i := map[string]file{}, -1
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		if i++; !own(i) {
			return nil
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

// Replace fills a new folder. Later states contain it; earlier states keep theirs. In ranks above 0 the folder is "":
// they write only what all ranks write together.
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
		f.Files, err = flushed(dir, func(int) bool { return true })
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
	text, err := (&artifact.Artifact{Dir: dir}).Read(progressFile)
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
		err = errors.Join(err, t.log.journal.Close())
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

// sum returns the size and digest of a file.
func sum(path string) (file, error) {
	f, err := artifact.OpenPlain(path)
	if err != nil {
		return file{}, err
	}
	defer f.Close()
	h := sha256.New()
	n, err := io.Copy(io.MultiWriter(h, counted{}), f)
	return file{n, hex.EncodeToString(h.Sum(nil))}, err
}

// steps counts the pieces of files that this process has read, and the files that it has flushed.
var steps atomic.Int64

// Steps returns a number that grows while this process reads or flushes files, which takes minutes for a large model.
func Steps() int64 { return steps.Load() }

// counted is a writer that counts the pieces of files which it gets.
type counted struct{}

func (counted) Write(p []byte) (int, error) {
	steps.Add(1)
	return len(p), nil
}

// syncPath flushes a file, or the names in a folder, to the disk.
func syncPath(path string) error {
	steps.Add(1)
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	return errors.Join(f.Sync(), f.Close())
}
