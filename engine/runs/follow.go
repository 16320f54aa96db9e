package runs

import (
	"encoding/json"
	"time"

	"rcgrpo/engine/journal"
	"rcgrpo/engine/proc"
)

const followEvery = 100 * time.Millisecond

// readEvents calls f for the events of a journal behind an offset, and returns the new offset.
func readEvents(path string, from int64, f func(Event)) (int64, error) {
	return journal.Read(path, from, func(record []byte) error {
		var e Event
		err := json.Unmarshal(record, &e)
		if err == nil {
			if e.Kind == EventFailed && e.Failure == nil { // of a stranger's run
				e.Failure = &Failure{}
			}
			f(e)
		}
		return err
	})
}

// EventReader reads the journal of a stage's process.
type EventReader struct {
	offset   int64
	Progress *Event   // the newest
	Failure  *Failure // reported by the process
	err      error
}

// Read calls observe for the events since the last call, except for the failure.
func (r *EventReader) Read(path string, observe func(Event)) {
	r.offset, r.err = readEvents(path, r.offset, func(e Event) {
		switch e.Kind {
		case EventFailed:
			r.Failure = e.Failure
			return
		case EventProgress:
			r.Progress = &e
		}
		observe(e)
	})
}

// ReadEvents reads a journal so far.
func ReadEvents(path string) (r EventReader) {
	r.Read(path, func(Event) {})
	return r
}

// Follow passes on the events in the journal of a stage's process (Work.Events) until end is called, which returns
// the failure that the process reported, or the error of reading the journal.
func Follow(path string, observe func(Event)) (end func() error) {
	var r EventReader
	read := func() { r.Read(path, observe) }
	stop := proc.Every(followEvery, read)
	return func() error {
		stop()
		read()
		if r.Failure != nil {
			return r.Failure
		}
		return r.err
	}
}
