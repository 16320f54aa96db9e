package engine

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"rcgrpo/engine/artifact"
)

// Watch follows one stage of an experiment from run to run.
type Watch struct {
	Address string // of the stage
	Log     string // of the run that is looked at; it may not be there yet
	Folder  string // of that run

	store      *artifact.Store
	experiment string
	status     *RunStatus // with this node only
	read       int64      // bytes of events.jsonl
}

// WatchStage begins with the newest run that started or adopted a stage, or with the one in folder when that is not "".
// A newest run that goes on and has not started it comes first, unless it only waits for another one that makes it. When
// there is no such run, the error is artifact.ErrNotFound.
func WatchStage(store *artifact.Store, experiment, address, folder string) (*Watch, error) {
	w := &Watch{store: store, experiment: experiment, Address: address}
	if folder == "" {
		folders, err := runFolders(store, experiment)
		if err != nil {
			return nil, err
		}
		for i, f := range folders {
			if exists(f.log(address)) {
				folder = string(f)
				break
			}
			if i == 0 && f.live() {
				folder = string(f.maker(store, address))
				break
			}
		}
	}
	if folder == "" {
		return nil, fmt.Errorf("%s has no log in %s: %w", address, store.Runs(experiment), artifact.ErrNotFound)
	}
	return w, w.begin(folder)
}

// maker is the run that makes a stage of this one: another of the experiment, where that has its key, or this one.
func (f runFolder) maker(store *artifact.Store, address string) runFolder {
	record, err := f.record()
	if err != nil {
		return f
	}
	for _, n := range record.Nodes {
		var h holder
		if n.Address == address && n.Key != "" && store.Holder(n.Key, &h) == nil && h.Address == address &&
			filepath.Dir(h.Run) == filepath.Dir(string(f)) && exists(h.folder().log(address)) {
			return h.folder()
		}
	}
	return f
}

func (w *Watch) begin(folder string) error {
	s, err := statusAtStart(folder)
	if err != nil {
		return err
	}
	for _, n := range s.Nodes {
		if n.Address == w.Address {
			s.Nodes = []NodeStatus{n}
			w.Folder, w.Log, w.status, w.read = folder, runFolder(folder).log(w.Address), s, 0
			return nil
		}
	}
	return fmt.Errorf("run %s has no stage %s: %w", RunName(folder), w.Address, artifact.ErrNotFound)
}

// Look says how the stage stands in this run: GoesOn, StageEnded, or RunKilled before the stage ended.
func (w *Watch) Look() (Standing, error) {
	w.status.Live = Live(w.Folder) // asked before the events, which tell of the end
	f, err := os.Open(eventsFile(w.Folder))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return StageEnded, err
	}
	if err == nil {
		defer f.Close()
		if _, err := f.Seek(w.read, io.SeekStart); err != nil {
			return StageEnded, err
		}
		n, err := ReadEvents(f, func(e Event) {
			switch e.Address {
			case w.Address:
				w.status.observe(e, &w.status.Nodes[0])
			case "":
				w.status.observe(e, nil)
			}
		})
		if err != nil {
			return StageEnded, err
		}
		w.read += n
	}
	w.status.findSurvivors()
	n := w.status.Nodes[0]
	switch open := n.State == EventStarted || n.State == EventPlanned; {
	case !open || w.status.Ended:
		return StageEnded, nil
	case w.status.Live || n.Survives:
		return GoesOn, nil
	}
	return RunKilled, nil
}

// Standing is how a watched stage stands.
type Standing int

const (
	GoesOn Standing = iota
	StageEnded
	RunKilled
)

// Next moves on to a newer run that has started or adopted the stage and says whether there is one.
func (w *Watch) Next() (bool, error) {
	return w.move(func(f runFolder) bool { return string(f) > w.Folder })
}

// Made moves to the newest run that has started or adopted the stage, which the watched one found made, and says whether
// there is one.
func (w *Watch) Made() (bool, error) {
	return w.move(func(runFolder) bool { return true })
}

// move goes to the newest run that has a log of the stage and is fit.
func (w *Watch) move(fit func(runFolder) bool) (bool, error) {
	folders, err := runFolders(w.store, w.experiment)
	if err != nil {
		return false, err
	}
	for _, f := range folders {
		if _, err := os.Stat(f.log(w.Address)); err == nil && fit(f) {
			return true, w.begin(string(f))
		}
	}
	return false, nil
}

// FindLogged returns the address that a user means, among those that runs of an experiment planned.
func FindLogged(store *artifact.Store, experiment, wanted string) (string, error) {
	folders, err := runFolders(store, experiment)
	if err != nil {
		return "", err
	}
	var newest []string
	for _, f := range folders {
		record, err := f.record()
		if err != nil {
			continue
		}
		for _, n := range record.Nodes {
			if SameAddress(n.Address, wanted) {
				return n.Address, nil
			}
		}
		if newest == nil {
			for _, n := range record.Nodes {
				newest = append(newest, ShortAddress(n.Address))
			}
		}
	}
	if newest == nil {
		return "", fmt.Errorf("experiment %s has no runs in %s", experiment, store.Dir())
	}
	hint := NearHint(strings.TrimPrefix(wanted, "stage."), newest)
	if hint == "" {
		hint = "; the newest had " + strings.Join(newest[:min(10, len(newest))], ", ")
		if more := len(newest) - 10; more > 0 {
			hint += " and " + Plural(more, "other")
		}
	}
	return "", fmt.Errorf("no run of %s had a stage %s%s", experiment, wanted, hint)
}
