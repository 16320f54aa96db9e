package runs

import (
	"time"

	"rcgrpo/engine/journal"
)

// EventKind names an event of a run.
type EventKind string

const (
	EventPlanned  EventKind = "planned"  // the run starts: Counts of the plan
	EventQueued   EventKind = "queued"   // it waits in the queue of a cluster, for the reason in Text
	EventStarted  EventKind = "started"  // an attempt at a stage starts
	EventAdopted  EventKind = "adopted"  // this run adopts a stage that has been running for Seconds
	EventProgress EventKind = "progress" // Done of Total
	EventNote     EventKind = "note"     // a message, for example about waiting for another run
	EventDone     EventKind = "done"     // the result is committed
	EventKept     EventKind = "kept"     // the result is in the store: the inputs are unchanged, or another run made it
	EventFetched  EventKind = "fetched"  // the result came from the remote store
	EventShown    EventKind = "shown"    // executed with inputs missing; the output is published but not committed
	EventFailed   EventKind = "failed"
	EventSkipped  EventKind = "skipped" // for the reason in Text
	EventFile     EventKind = "file"    // a file was published: Path and Text
	EventEnded    EventKind = "ended"   // the run ends: Counts
)

// Event is a record of a run's journal.
type Event struct {
	Time    time.Time `json:"time"`
	Address string    `json:"address,omitempty"`
	Kind    EventKind `json:"kind"`
	Text    string    `json:"text,omitempty"`

	Done   int     `json:"done,omitempty"`
	Total  int     `json:"total,omitempty"`
	Unit   string  `json:"unit,omitempty"`
	Values []Value `json:"values,omitempty"`

	Attempt int     `json:"attempt,omitempty"`
	Key     string  `json:"key,omitempty"`
	Seconds float64 `json:"seconds,omitempty"` // wall time of the ended stage
	Expect  float64 `json:"expect,omitempty"`  // estimate for the started stage in seconds; 0: unknown
	Path    string  `json:"path,omitempty"`    // log of the stage; published file

	Failure *Failure       `json:"failure,omitempty"`
	Counts  map[string]int `json:"counts,omitempty"` // by verb at the start, by outcome at the end
}

// Value is a number shown beside a stage's progress.
type Value struct {
	Name  string  `json:"name"`
	Value float64 `json:"value"`
}

// EventLog is the journal of a run.
type EventLog struct {
	*journal.Journal
	last map[string]time.Time // of the newest written progress, by address
}

const progressEvery = time.Second // between written progress events of one stage

// OpenEventLog opens a journal of events for appending.
func OpenEventLog(path string) (*EventLog, error) {
	j, err := journal.Open(path)
	return &EventLog{j, map[string]time.Time{}}, err
}

// Write appends an event, except for progress that follows other progress of the stage within a second.
func (l *EventLog) Write(e Event) error {
	if e.Kind == EventProgress {
		since := e.Time.Sub(l.last[e.Address]) // negative if the clock was set
		if since >= 0 && since < progressEvery && e.Done != e.Total {
			return nil
		}
		l.last[e.Address] = e.Time
	}
	return l.Append(e)
}
