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
			f(e)
		}
		return err
	})
}

// EventReader reads the journal of a stage's process.
type EventReader struct {
	offset  int64
	Failure *Failure // reported by the process
	err     error
}

// Read calls observe for the events since the last call, except for the failure.
func (r *EventReader) Read(path string, observe func(Event)) {
	r.offset, r.err = readEvents(path, r.offset, func(e Event) {
		if e.Kind == EventFailed {
			r.Failure = e.Failure
		} else {
			observe(e)
		}
	})
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

// lastProgress returns the last progress in a journal; nil without any.
func lastProgress(path string) (last *Event) {
	readEvents(path, 0, func(e Event) {
		if e.Kind == EventProgress {
			last = &e
		}
	})
	return last
}
