package engine

import (
	"bufio"
	"encoding/json"
	"errors"
	"io"
	"os"
	"sync"
	"time"

	"rcgrpo/engine/internal/disk"
)

// EventKind is the closed list of what happens in a run.
type EventKind string

const (
	EventPlanned  EventKind = "planned"  // the run starts: Counts of the plan
	EventStarted  EventKind = "started"  // a stage starts, or starts again (Attempt)
	EventAdopted  EventKind = "adopted"  // a stage that outlived its run goes on under this one, after Seconds of running
	EventProgress EventKind = "progress" // Done of Total
	EventNote     EventKind = "note"     // something worth a line, for example waiting for another run
	EventDone     EventKind = "done"     // committed
	EventKept     EventKind = "kept"     // its inputs came out unchanged, or another run made it
	EventShown    EventKind = "shown"    // ran with inputs missing; its output is published, not kept
	EventFailed   EventKind = "failed"
	EventSkipped  EventKind = "skipped" // because of what stands in Text
	EventFile     EventKind = "file"    // a file was published: Path, Text says how
	EventEnded    EventKind = "ended"   // the run ends: Counts
)

// Event is one line of a run's events.jsonl.
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
	Seconds float64 `json:"seconds,omitempty"` // wall time of what ended
	Expect  float64 `json:"expect,omitempty"`  // seconds expected of what started; 0: unknown
	Path    string  `json:"path,omitempty"`    // log of what started or failed; file that was published

	Failure *Failure       `json:"failure,omitempty"`
	Counts  map[string]int `json:"counts,omitempty"` // by verb at the start, by outcome at the end
}

// eventLog appends events to a file as JSON Lines, whole lines at a time, so that a kill tears at most the last. What
// somebody may be waiting for is written at once, the rest within eventsWritten.
type eventLog struct {
	mu   sync.Mutex
	file *os.File
	last map[string]time.Time // of the progress written, by address
	held []byte               // lines that are not written
	due  bool                 // flush will be called
	err  error                // the first of writing
}

// eventsWritten is how long a reader of events.jsonl may lag behind.
const eventsWritten = 50 * time.Millisecond

// progressWritten bounds how often the progress of a stage reaches events.jsonl.
const progressWritten = time.Second

func openEventLog(path string) (*eventLog, error) {
	f, err := disk.OpenFile(path, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return nil, err
	}
	return &eventLog{file: f, last: map[string]time.Time{}}, nil
}

func (l *eventLog) write(e Event) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if e.Kind == EventProgress {
		// The stage's process has given the time. It may be before that of the last one: the clock can be set.
		if since := e.Time.Sub(l.last[e.Address]); since >= 0 && since < progressWritten && e.Done != e.Total {
			return nil
		}
		l.last[e.Address] = e.Time
	}
	line, err := json.Marshal(e)
	if err != nil {
		return err
	}
	l.held = append(append(l.held, line...), '\n')
	switch e.Kind {
	case EventStarted, EventDone, EventKept, EventFile, EventProgress:
		if !l.due {
			l.due = true
			time.AfterFunc(eventsWritten, l.flush)
		}
		return l.err
	}
	l.put()
	return l.err
}

func (l *eventLog) flush() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.due = false
	l.put()
}

// put writes what is held.
func (l *eventLog) put() {
	if len(l.held) == 0 {
		return
	}
	_, err := disk.Write(l.file, l.held)
	l.held = l.held[:0]
	if l.err == nil {
		l.err = err
	}
}

func (l *eventLog) close() error {
	l.flush()
	return errors.Join(l.err, l.file.Close())
}

func writeEvent(w io.Writer, e Event) error {
	b, err := json.Marshal(e)
	if err != nil {
		return err
	}
	_, err = w.Write(append(b, '\n'))
	return err
}

// ReadEvents calls f for every whole event of r and skips what is torn. read counts the bytes of the lines that are
// finished: a later call that starts there sees what was appended since, and nothing twice.
func ReadEvents(r io.Reader, f func(Event)) (read int64, err error) {
	lines := bufio.NewReader(r)
	for {
		line, err := lines.ReadBytes('\n')
		var e Event
		if err == nil {
			read += int64(len(line))
			if json.Unmarshal(line, &e) == nil {
				f(e)
			}
		}
		if err == io.EOF {
			return read, nil
		}
		if err != nil {
			return read, err
		}
	}
}
