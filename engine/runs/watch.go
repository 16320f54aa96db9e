package runs

import (
	"cmp"
	"fmt"

	"rcgrpo/engine/artifact"
	"rcgrpo/engine/internal/disk"
	"rcgrpo/engine/lang"
)

// Watch follows one stage of an experiment from run to run.
type Watch struct {
	Address string // of the stage
	Log     string // in the current run; it may not exist yet
	Folder  Folder // of the current run

	store  *artifact.Store
	status *Status // with this node only
}

// NewWatch starts with the run in folder. If folder is "", it starts with the newest run, if that is live and
// executes the stage or will do so, or else with the newest run that has a log of the stage. Without such a run
// it returns artifact.ErrNotFound.
func NewWatch(store *artifact.Store, experiment, address string, folder Folder) (*Watch, error) {
	w := &Watch{store: store, Address: address}
	if folder != "" {
		return w, w.start(folder)
	}
	folders, err := Folders(store, experiment)
	if err != nil {
		return nil, err
	}
	for i, f := range folders {
		if disk.Exists(f.Log(address)) {
			return w, w.start(f)
		}
		if i == 0 && f.Live() {
			return w, w.start(f.executor(store, address))
		}
	}
	return nil, fmt.Errorf("%s has no log in %s: %w", address, store.Runs(experiment), artifact.ErrNotFound)
}

// executor returns the run of the experiment that executes a stage of this run: another one if it holds the
// stage's key.
func (f Folder) executor(store *artifact.Store, address string) Folder {
	record, _ := f.Record()
	for _, n := range record.Nodes {
		var h Holder
		if n.Address == address && n.Key != "" && store.Holder(n.Key, &h) == nil && h.Address == address &&
			h.Run.Experiment() == f.Experiment() && disk.Exists(h.Run.Log(address)) {
			return h.Run
		}
	}
	return f
}

func (w *Watch) start(f Folder) error {
	s, err := initialStatus(w.store, f)
	if err != nil {
		return err
	}
	n := s.byAddress()[w.Address]
	if n == nil {
		return fmt.Errorf("run %s has no stage %s: %w", f.Name(), w.Address, artifact.ErrNotFound)
	}
	s.Nodes = []NodeStatus{*n}
	w.Folder, w.Log, w.status = f, f.Log(w.Address), s
	return nil
}

// StageState is the state of a watched stage.
type StageState int

const (
	StageOpen  StageState = iota // waiting or running
	StageEnded                   // or its run has ended
	RunKilled                    // before the stage ended
)

// Poll returns the state of the stage in the current run.
func (w *Watch) Poll() (StageState, error) {
	w.status.Live = w.Folder.Live() // before the events, which contain the end of the run
	if err := w.status.update(); err != nil {
		return StageEnded, err
	}
	n := w.status.Nodes[0]
	switch {
	case w.status.Ended || n.State != EventStarted && n.State != EventPlanned && n.State != EventQueued:
		return StageEnded, nil
	case w.status.Live || n.Survives:
		return StageOpen, nil
	}
	return RunKilled, nil
}

// Next moves to the newest run after a folder, or of all for "", that has a log of the stage, and reports whether there
// is one.
func (w *Watch) Next(after Folder) (bool, error) {
	folders, err := Folders(w.store, w.Folder.Experiment())
	if err != nil {
		return false, err
	}
	for _, f := range folders {
		if f > after && disk.Exists(f.Log(w.Address)) {
			return true, w.start(f)
		}
	}
	return false, nil
}

// FindStage returns the address, among those in the plans of an experiment's runs, that a user has given in another
// spelling.
func FindStage(store *artifact.Store, experiment, wanted string) (string, error) {
	folders, err := Folders(store, experiment)
	if err != nil {
		return "", err
	}
	if len(folders) == 0 {
		return "", fmt.Errorf("experiment %s has no runs in %s", experiment, store.Dir())
	}
	var names []string
	for _, f := range folders {
		record, _ := f.Record()
		for _, n := range record.Nodes {
			if lang.ShortAddress(n.Address) == lang.ShortAddress(wanted) {
				return n.Address, nil
			}
			names = append(names, lang.ShortAddress(n.Address))
		}
	}
	return "", fmt.Errorf("no run of %s had a stage %s%s", experiment, wanted,
		cmp.Or(lang.NearHint(lang.ShortAddress(wanted), names), "; `rcgrpo status --all` lists the stages"))
}
