package engine

import (
	"bufio"
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"os"
	"time"
)

const followEvery = 100 * time.Millisecond

// eventReader reads the events that a stage's process appends to a file.
type eventReader struct {
	failure *Failure // reported by the process
	file    *os.File
	lines   *bufio.Reader
	partial []byte // of a line without its end
	err     error
}

// read calls observe for the events since the last call. A missing file counts as empty.
func (r *eventReader) read(path string, observe func(Event)) {
	if r.file == nil {
		f, err := os.Open(path)
		if errors.Is(err, fs.ErrNotExist) {
			return
		}
		if err != nil {
			r.err = err
			return
		}
		r.file, r.lines = f, bufio.NewReader(f)
	}
	for {
		line, err := r.lines.ReadBytes('\n')
		r.partial = append(r.partial, line...)
		if err != nil {
			if err != io.EOF {
				r.err = err
			}
			return
		}
		var e Event
		if json.Unmarshal(r.partial, &e) == nil {
			if e.Kind == EventFailed {
				r.failure = e.Failure
			} else {
				observe(e)
			}
		}
		r.partial = r.partial[:0]
	}
}

func (r *eventReader) close() {
	if r.file != nil {
		r.file.Close()
		r.file = nil
	}
}

// Follow passes on the events that a stage's process appends to a file (Work.Events) until ended is closed. It returns
// the failure that the process reported, or the error of reading the file.
func Follow(path string, ended <-chan struct{}, observe func(Event)) error {
	var r eventReader
	defer r.close()
	every := time.NewTicker(followEvery)
	defer every.Stop()
	for {
		select {
		case <-ended:
			r.read(path, observe)
			if r.failure != nil {
				return r.failure
			}
			return r.err
		case <-every.C:
			r.read(path, observe)
		}
	}
}

// lastProgress returns the last progress in a file of events; nil without any.
func lastProgress(path string) (last *Event) {
	var r eventReader
	defer r.close()
	r.read(path, func(e Event) {
		if e.Kind == EventProgress {
			last = &e
		}
	})
	return last
}
