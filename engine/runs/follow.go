package runs

import (
	"bufio"
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"math"
	"os"
	"time"

	"rcgrpo/engine/proc"
)

const followEvery = 100 * time.Millisecond

// readEvents calls f for the complete events of a file after offset, skips damaged lines, and returns the new offset.
// A missing file counts as empty.
func readEvents(path string, offset int64, f func(Event)) (int64, error) {
	file, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return offset, nil
	}
	if err != nil {
		return offset, err
	}
	defer file.Close()
	lines := bufio.NewReader(io.NewSectionReader(file, offset, math.MaxInt64-offset))
	for {
		line, err := lines.ReadBytes('\n')
		if err == io.EOF {
			return offset, nil
		}
		if err != nil {
			return offset, err
		}
		offset += int64(len(line))
		var e Event
		if json.Unmarshal(line, &e) == nil {
			f(e)
		}
	}
}

// EventReader reads the events that a stage's process appends to a file.
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

// Follow passes on the events that a stage's process appends to a file (Work.Events) until end is called, which returns
// the failure that the process reported, or the error of reading the file.
func Follow(path string, observe func(Event)) (end func() error) {
	var r EventReader
	stop := proc.Every(followEvery, func() { r.Read(path, observe) })
	return func() error {
		stop()
		if r.Failure != nil {
			return r.Failure
		}
		return r.err
	}
}

// lastProgress returns the last progress in a file of events; nil without any.
func lastProgress(path string) (last *Event) {
	readEvents(path, 0, func(e Event) {
		if e.Kind == EventProgress {
			last = &e
		}
	})
	return last
}
