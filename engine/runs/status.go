package runs

import (
	"cmp"
	"fmt"
	"path/filepath"
	"strings"
	"time"

	"rcgrpo/engine/artifact"
	"rcgrpo/engine/proc"
)

// Status is the state of a run.
type Status struct {
	Record
	Folder Folder
	Live   bool      // its engine is running
	Ended  bool      // it has ended, successfully or not; neither Live nor Ended: it was killed
	Last   time.Time // of the last event
	Nodes  []NodeStatus

	store *artifact.Store // of the run; not the one that the assignments of a copy name, which may be any folder
	read  int64           // bytes of the journal
}

// NodeStatus is the state of one node in a run.
type NodeStatus struct {
	Address  string
	State    EventKind // EventPlanned: waiting; EventQueued; EventStarted: running; otherwise the end; "": up to date
	Started  time.Time `json:",omitzero"`
	Seconds  float64   `json:",omitzero"`  // if it has ended
	Key      string    `json:",omitzero"`  // of its result: done, kept, or up to date
	First    *Event    `json:",omitempty"` // first progress of this start
	Progress *Event    `json:",omitempty"` // newest progress while it runs
	Note     string    `json:",omitzero"`
	Failure  *Failure  `json:",omitzero"`
	Survives bool      `json:",omitzero"` // it is running, or its job is in the queue, although its run was killed

	Ranks []RankState `json:",omitempty"` // of a running stage with several processes
}

// ReadStatus reads the state of a run. It does not wait for locks.
func ReadStatus(store *artifact.Store, folder Folder) (*Status, error) {
	s, err := initialStatus(store, folder)
	if err != nil {
		return nil, err
	}
	err = s.update()
	for i := range s.Nodes {
		if n := &s.Nodes[i]; n.State == EventStarted {
			n.Ranks = reportedRanks(s.ranks(n.Address))
		}
	}
	return s, err
}

// update applies the events since the last call.
func (s *Status) update() (err error) {
	nodes := s.byAddress()
	s.read, err = readEvents(s.Folder.Journal(), s.read, func(e Event) {
		s.Last = e.Time
		if e.Kind == EventEnded {
			s.Ended, s.Live = true, false
		}
		if n := nodes[e.Address]; n != nil {
			n.observe(e)
		}
	})
	s.findOrphans()
	return err
}

// ranks returns the folder of the ranks of a stage, in this run or in the one from which the stage was adopted, whose
// log is linked.
func (s *Status) ranks(address string) string {
	log, err := filepath.EvalSymlinks(s.Folder.Log(address))
	if err != nil {
		return s.Folder.Ranks(address)
	}
	name := strings.TrimSuffix(filepath.Base(log), ".log") + ".ranks"
	return Folder(filepath.Dir(filepath.Dir(log))).Path("nodes", name)
}

func (s *Status) byAddress() map[string]*NodeStatus {
	nodes := map[string]*NodeStatus{}
	for i := range s.Nodes {
		nodes[s.Nodes[i].Address] = &s.Nodes[i]
	}
	return nodes
}

// initialStatus is the status of a run before its first event.
func initialStatus(store *artifact.Store, f Folder) (*Status, error) {
	record, err := f.Record()
	if err != nil {
		return nil, err
	}
	s := &Status{Record: record, Folder: f, Live: f.Live(), Last: record.Started, store: store}
	for _, n := range record.Nodes {
		status := NodeStatus{Address: n.Address, State: EventPlanned}
		if n.Verb == VerbUpToDate || n.Verb == VerbNotHere {
			status.State, status.Key = "", n.Key
		}
		s.Nodes = append(s.Nodes, status)
	}
	return s, nil
}

// findOrphans marks the nodes that are running although their run was killed, and describes the end of those that have
// ended since.
func (s *Status) findOrphans() {
	if s.Live || s.Ended {
		return
	}
	for i := range s.Nodes {
		n := &s.Nodes[i]
		if n.State != EventStarted && n.State != EventQueued {
			continue
		}
		a, err := s.Folder.Assignment(n.Address)
		if err != nil {
			continue
		}
		events := ReadEvents(s.Folder.Events(n.Address))
		if o := findOrphan(s.store, a.Key); o != nil && o.Run == s.Folder || s.store.HasJob(a.Key) {
			n.Survives, n.Progress = true, events.Progress
		} else if m, err := s.store.Manifest(a.Key); err == nil && m.Run == s.Folder.ID() {
			n.observe(Event{Kind: EventDone, Seconds: m.Seconds, Key: m.Key})
		} else if f := events.Failure; f != nil {
			f.Locate(s.Folder.Log(n.Address), s.store, a.Key)
			n.observe(Event{Kind: EventFailed, Failure: f})
		}
	}
}

func (n *NodeStatus) observe(e Event) {
	switch e.Kind {
	case EventStarted, EventAdopted: // which has been running for e.Seconds
		started := e.Time.Add(-time.Duration(e.Seconds * float64(time.Second)))
		n.State, n.Started, n.First, n.Progress = EventStarted, started, nil, nil
	case EventProgress:
		if n.First == nil || e.Time.Before(n.First.Time) { // the clock was set
			n.First = &e
		}
		n.Progress = &e
	case EventQueued:
		n.State, n.Note, n.First, n.Progress = EventQueued, e.Text, nil, nil
	case EventNote:
		n.Note = e.Text
	case EventSkipped, EventDone, EventKept, EventFetched, EventShown, EventFailed:
		n.State, n.Seconds, n.Failure, n.First, n.Progress = e.Kind, e.Seconds, e.Failure, nil, nil
		n.Key = cmp.Or(e.Key, n.Key)
		if e.Kind == EventSkipped {
			n.Note = e.Text
		}
	}
}

// Now is the time to which the run's duration counts: the current time while it is live, then that of the last event.
func (s *Status) Now() time.Time {
	if s.Live {
		return time.Now()
	}
	return s.Last
}

// State returns "running", "ended" or "killed".
func (s *Status) State() string {
	switch {
	case s.Live:
		return "running"
	case s.Ended:
		return "ended"
	}
	return "killed"
}

// Text describes the state of the run in a few words.
func (s *Status) Text() string {
	took := DurationText(s.Now().Sub(s.Started).Seconds())
	switch {
	case s.Live && s.Host == proc.HostName() && proc.Stopped(s.PID):
		return fmt.Sprintf("started %s ago, but %s", took, proc.StoppedText(s.PID))
	case s.Live:
		return "running for " + took
	case s.Ended:
		return "ended after " + took
	}
	return "killed, last event after " + took + "; a plain run resumes it"
}

// Text describes the state of the node in a few words.
func (n NodeStatus) Text(now time.Time) string {
	switch n.State {
	case EventPlanned, EventQueued:
		return cmp.Or(n.Note, "waiting")
	case EventStarted:
		return n.pace().Text(now)
	case EventFailed:
		return n.Failure.Text
	case EventSkipped:
		return n.Note
	case EventDone, EventShown:
		return DurationText(n.Seconds)
	}
	return ""
}

// Pace returns the units per second of a running node and the seconds until its end; each is 0 if unknown yet.
func (n NodeStatus) Pace(now time.Time) (rate, left float64) {
	return n.pace().Rate(), n.pace().Left(now)
}

func (n NodeStatus) pace() Pace {
	p := Pace{Started: n.Started}
	if n.First != nil && n.Progress != nil {
		p.First, p.Last = *n.First, *n.Progress
	}
	return p
}
