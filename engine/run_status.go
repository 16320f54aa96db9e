package engine

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"rcgrpo/engine/artifact"
)

// RunStatus is what a run folder tells about its run.
type RunStatus struct {
	RunRecord
	Folder string
	Live   bool // its engine is there
	Ended  bool // it came to its end, whatever that was; neither Live nor Ended: it was killed
	Counts map[string]int
	Last   time.Time // of the last event
	Nodes  []NodeStatus
}

// NodeStatus is the state of one node in a run.
type NodeStatus struct {
	Address  string
	State    EventKind // EventPlanned: waiting; EventStarted: running; otherwise how it ended; "" when it was up to date
	Started  time.Time `json:",omitzero"`
	Seconds  float64   `json:",omitzero"`  // of what ended
	Key      string    `json:",omitzero"`  // of its result: done, kept, or up to date
	First    *Event    `json:",omitempty"` // progress of this start, from which the rate counts
	Progress *Event    `json:",omitempty"` // the last one while it runs
	Note     string    `json:",omitzero"`
	Failure  *Failure  `json:",omitzero"`
	Survives bool      `json:",omitzero"` // it runs, although its run was killed
}

// Experiments returns the names of the experiments that have runs in a store.
func Experiments(store *artifact.Store) ([]string, error) {
	entries, err := os.ReadDir(store.Runs(""))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	var names []string
	for _, e := range entries {
		if e.IsDir() {
			names = append(names, e.Name())
		}
	}
	return names, nil
}

// Runs returns the folders of an experiment's runs, the newest first.
func Runs(store *artifact.Store, experiment string) ([]string, error) {
	folders, err := runFolders(store, experiment)
	var paths []string
	for _, f := range folders {
		paths = append(paths, string(f))
	}
	return paths, err
}

// Status reads how far a run is, or how it ended. It waits for nobody.
func Status(folder string) (*RunStatus, error) {
	s, err := statusAtStart(folder)
	if err != nil {
		return nil, err
	}
	events, err := os.Open(eventsFile(folder))
	if errors.Is(err, fs.ErrNotExist) {
		return s, nil
	}
	if err != nil {
		return nil, err
	}
	defer events.Close()
	index := map[string]*NodeStatus{}
	for i := range s.Nodes {
		index[s.Nodes[i].Address] = &s.Nodes[i]
	}
	_, err = ReadEvents(events, func(e Event) { s.observe(e, index[e.Address]) })
	s.findSurvivors()
	return s, err
}

// statusAtStart is the status of a run before its first event.
func statusAtStart(folder string) (*RunStatus, error) {
	record, err := runFolder(folder).record()
	if err != nil {
		return nil, err
	}
	s := &RunStatus{RunRecord: record, Folder: folder, Live: Live(folder), Last: record.Started}
	for _, n := range record.Nodes {
		status := NodeStatus{Address: n.Address, State: EventPlanned}
		if n.Verb == UpToDate || n.Verb == Collected {
			status.State, status.Key = "", n.Key
		}
		s.Nodes = append(s.Nodes, status)
	}
	return s, nil
}

// findSurvivors marks the nodes that go on although their run was killed.
func (s *RunStatus) findSurvivors() {
	if s.Live || s.Ended {
		return
	}
	f := runFolder(s.Folder)
	for i := range s.Nodes {
		if n := &s.Nodes[i]; n.State == EventStarted && f.outlived(n.Address) {
			n.Survives, n.Progress = true, lastProgress(f.events(n.Address))
		}
	}
}

// Live says whether the engine of a run is there. It waits for nobody.
func Live(folder string) bool { return runFolder(folder).live() }

// eventsFile and planFile are the files of a run folder that Status reads.
func eventsFile(folder string) string { return runFolder(folder).path("events.jsonl") }
func planFile(folder string) string   { return runFolder(folder).path("plan.json") }

// observe moves the status on by one event, and with it the node of its address; nil: the run has no such node.
func (s *RunStatus) observe(e Event, n *NodeStatus) {
	s.Last = e.Time
	if e.Kind == EventEnded {
		s.Ended, s.Live, s.Counts = true, false, e.Counts
	}
	if n != nil {
		n.observe(e)
	}
}

// observe moves the state of a node on.
func (n *NodeStatus) observe(e Event) {
	switch e.Kind {
	case EventStarted:
		n.State, n.Started, n.First, n.Progress = e.Kind, e.Time, nil, nil
	case EventAdopted:
		n.State, n.First, n.Progress, n.Started = EventStarted, nil, nil, e.Time.Add(-time.Duration(e.Seconds*float64(time.Second)))
	case EventProgress:
		if n.First == nil || e.Time.Before(n.First.Time) { // or the clock was set
			n.First = &e
		}
		n.Progress = &e
	case EventNote, EventSkipped:
		n.Note = e.Text
	}
	switch e.Kind {
	case EventDone, EventKept, EventShown, EventFailed, EventSkipped:
		n.State, n.Seconds, n.Failure, n.First, n.Progress = e.Kind, e.Seconds, e.Failure, nil, nil
	}
	if e.Kind == EventDone || e.Kind == EventKept {
		n.Key = e.Key
	}
}

// Now is the time that what runs is measured by: the clock's while the run goes on, that of the last event after it.
func (s *RunStatus) Now() time.Time {
	if s.Live {
		return time.Now()
	}
	return s.Last
}

// State is "running", "ended", or "killed": neither.
func (s *RunStatus) State() string {
	switch {
	case s.Live:
		return "running"
	case s.Ended:
		return "ended"
	}
	return "killed"
}

// Text says in a few words how the run stands.
func (s *RunStatus) Text() string {
	took := duration(s.Now().Sub(s.Started).Seconds())
	switch s.State() {
	case "running":
		if s.Host == hostName() && stopped(s.PID) {
			return fmt.Sprintf("started %s ago, but %s", took, stoppedText(s.PID))
		}
		return "running for " + took
	case "ended":
		return "ended after " + took
	}
	return "killed, and last heard of after " + took + "; a plain run goes on from there"
}

// Text says in a few words how the node stands.
func (n NodeStatus) Text(now time.Time) string {
	switch n.State {
	case EventPlanned:
		return cmp.Or(n.Note, "waiting")
	case EventStarted:
		return n.live().text(now)
	case EventFailed:
		return n.Failure.Text
	case EventSkipped:
		return n.Note
	case EventDone, EventShown:
		return duration(n.Seconds)
	}
	return ""
}

// Pace is how many units a running node finishes per second, and the seconds it still needs at that pace; each 0 when it
// cannot be known yet.
func (n NodeStatus) Pace(now time.Time) (rate, left float64) {
	live := n.live()
	return live.rate(), live.left(now)
}

func (n NodeStatus) live() *liveStage {
	s := &liveStage{started: n.Started}
	if n.First != nil && n.Progress != nil {
		s.first, s.last = *n.First, *n.Progress
	}
	return s
}

// outlived says whether the stage that this run started goes on without it.
func (f runFolder) outlived(address string) bool {
	a, err := f.assignment(address)
	if err != nil || a.Key == "" {
		return false
	}
	store, err := artifact.Open(a.Store)
	if err != nil {
		return false
	}
	var h holder
	return store.Holder(a.Key, &h) == nil && h.folder() == f && h.PID != 0 && h.alive()
}

// RunName is how people call a run folder: EXPERIMENT/ID.
func RunName(folder string) string {
	return filepath.Join(filepath.Base(filepath.Dir(folder)), filepath.Base(folder))
}

// SameAddress says whether two spellings mean one address: `stage.` and quotes may be left out.
func SameAddress(a, b string) bool { return ShortAddress(a) == ShortAddress(b) }

// ParseBytes reads a size such as "200GB" or "1.5 GiB".
func ParseBytes(text string) (int64, error) {
	n, ok := parseBytes(text)
	if !ok {
		return 0, fmt.Errorf("%q is no size; write a number and a unit, such as 200GB", text)
	}
	return n, nil
}

// BytesText writes a size with three digits and the largest decimal unit that it has at least one of: "1.5 MB".
func BytesText(n int64) string {
	size, units := float64(n), []string{"B", "kB", "MB", "GB", "TB"}
	for len(units) > 1 && size >= 1000 {
		size, units = size/1000, units[1:]
	}
	if units[0] == "B" {
		return fmt.Sprintf("%d B", n)
	}
	return fmt.Sprintf("%.3g %s", size, units[0])
}
