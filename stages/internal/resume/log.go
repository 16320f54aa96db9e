package resume

import (
	"errors"
	"fmt"
	"path/filepath"
	"sync"

	"rcgrpo/engine/journal"
)

// log stores the records since a state was saved. Each state has a journal of its own, which is removed with the state.
type log struct {
	dir     string
	mu      sync.Mutex
	journal *journal.Journal
}

// openLog opens the logs since a state and appends to the newest.
func openLog(dir string, since int) (*log, error) {
	known, err := numbered(dir)
	if err != nil {
		return nil, err
	}
	l := &log{dir: dir}
	if n := len(known); n > 0 && known[n-1] > since {
		since = known[n-1] // this state could not be used; the records of its journal are still valid
	}
	return l, l.begin(since)
}

// begin switches to the journal of a state.
func (l *log) begin(state int) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	j, err := journal.Open(filepath.Join(l.dir, stateName(state)))
	if err != nil {
		return fmt.Errorf("resume: %w", err)
	}
	if l.journal != nil {
		err = l.journal.Close()
	}
	l.journal = j
	return err
}

// Append adds a record. It may be called from several goroutines. The text is not flushed to the disk: it
// survives a killed process, and records lost in a power failure are computed again.
func (t *Scratch) Append(record any) error {
	t.log.mu.Lock()
	defer t.log.mu.Unlock()
	return t.log.journal.Append(record)
}

// Replayed calls each with the stored records of all ranks, and those of one rank in their order. They are all records
// since the restored state, and some before it.
func (t *Scratch) Replayed(each func(record []byte) error) error {
	folders, err := t.allLogs()
	if err != nil {
		return err
	}
	for _, folder := range folders {
		known, err := numbered(folder)
		for _, n := range known {
			_, readErr := journal.Read(filepath.Join(folder, stateName(n)), 0, each)
			err = errors.Join(err, readErr)
		}
		if err != nil {
			return err
		}
	}
	return nil
}
