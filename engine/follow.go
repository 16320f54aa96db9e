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

// followEvery is how often the files of a running stage are looked at.
const followEvery = 100 * time.Millisecond

// tail is how far somebody has read the events that a stage's process appends to a file.
type tail struct {
	failure *Failure // that the process told of
	file    *os.File
	lines   *bufio.Reader
	torn    []byte // a line without its end, so far
	err     error
}

// read calls observe for what has come since the last time. A file that is not there yet has nothing.
func (t *tail) read(path string, observe func(Event)) {
	if t.file == nil {
		f, err := os.Open(path)
		if errors.Is(err, fs.ErrNotExist) {
			return
		}
		if err != nil {
			t.err = err
			return
		}
		t.file, t.lines = f, bufio.NewReader(f)
	}
	for {
		line, err := t.lines.ReadBytes('\n')
		t.torn = append(t.torn, line...)
		if err != nil {
			if err != io.EOF {
				t.err = err
			}
			return
		}
		var e Event
		if json.Unmarshal(t.torn, &e) == nil {
			if e.Kind == EventFailed {
				t.failure = e.Failure
			} else {
				observe(e)
			}
		}
		t.torn = t.torn[:0]
	}
}

func (t *tail) close() {
	if t.file != nil {
		t.file.Close()
		t.file = nil
	}
}

// Follow passes on what a stage's process appends to its events (Work.Events) until ended is closed, and then the rest.
// The error is the failure that the process told of, if any, or why its events could not be read.
func Follow(path string, ended <-chan struct{}, observe func(Event)) error {
	var t tail
	defer t.close()
	every := time.NewTicker(followEvery)
	defer every.Stop()
	for {
		select {
		case <-ended:
			t.read(path, observe)
			if t.failure != nil {
				return t.failure.err()
			}
			return t.err
		case <-every.C:
			t.read(path, observe)
		}
	}
}

// lastProgress is the last progress in a file of events; nil without any.
func lastProgress(path string) (last *Event) {
	var t tail
	defer t.close()
	t.read(path, func(e Event) {
		if e.Kind == EventProgress {
			last = &e
		}
	})
	return last
}
