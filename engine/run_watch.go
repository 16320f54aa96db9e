package engine

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strings"

	"rcgrpo/engine/artifact"
)

// Watch follows one stage of an experiment from run to run.
type Watch struct {
	Log    string // of the run that is looked at; it may not be there yet
	Folder string // of that run

	store               *artifact.Store
	experiment, address string
	status              *RunStatus // with this node only
	read                int64      // bytes of events.jsonl
}

// WatchStage begins with the newest run that started or adopted a stage, or with the one in folder when that is not "".
// A stage that no run has started yet is watched in the newest run that is to start it and goes on; when there is none
// either, the error is artifact.ErrNotFound.
func WatchStage(store *artifact.Store, experiment, address, folder string) (*Watch, error) {
	w := &Watch{store: store, experiment: experiment, address: address}
	if folder == "" {
		folders, err := runFolders(store, experiment)
		if err != nil {
			return nil, err
		}
		for i, f := range folders {
			if exists(f.log(address)) || i == 0 && f.live() {
				folder = string(f)
				break
			}
		}
	}
	if folder == "" {
		return nil, fmt.Errorf("%s has no log in %s: %w", address, store.Runs(experiment), artifact.ErrNotFound)
	}
	return w, w.begin(folder)
}

func (w *Watch) begin(folder string) error {
	s, err := StatusAtStart(folder)
	if err != nil {
		return err
	}
	for _, n := range s.Nodes {
		if n.Address == w.address {
			s.Nodes = []NodeStatus{n}
			w.Folder, w.Log, w.status, w.read = folder, runFolder(folder).log(w.address), s, 0
			return nil
		}
	}
	return fmt.Errorf("run %s has no stage %s: %w", RunName(folder), w.address, artifact.ErrNotFound)
}

// Look says how the stage stands in this run: GoesOn, StageEnded, or RunKilled before the stage ended.
func (w *Watch) Look() (Standing, error) {
	w.status.Live = Live(w.Folder) // asked before the events, which tell of the end
	f, err := os.Open(EventsFile(w.Folder))
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
			case w.address:
				w.status.Observe(e, &w.status.Nodes[0])
			case "":
				w.status.Observe(e, nil)
			}
		})
		if err != nil {
			return StageEnded, err
		}
		w.read += n
	}
	w.status.FindSurvivors()
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
	folders, err := runFolders(w.store, w.experiment)
	if err != nil {
		return false, err
	}
	for _, f := range folders {
		if string(f) == w.Folder {
			return false, nil
		}
		if exists(f.log(w.address)) {
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
				newest = append(newest, shellAddress(n.Address))
			}
		}
	}
	if newest == nil {
		return "", fmt.Errorf("experiment %s has no runs in %s", experiment, store.Dir())
	}
	hint := NearHint(strings.TrimPrefix(wanted, "stage."), newest)
	if hint == "" {
		hint = "; the newest had " + strings.Join(newest[:min(10, len(newest))], ", ")
	}
	return "", fmt.Errorf("no run of %s had a stage %s%s", experiment, wanted, hint)
}
