package resume

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"sync"
)

// log is an append-only file of records since a state was saved. A line is the CRC-32C of the JSON text in eight
// hexadecimal digits, a space, and the text. Each state has its own file, which is removed with it.
type log struct {
	dir  string
	mu   sync.Mutex
	file *os.File
}

// castagnoli is a function because building the table would slow down programs that do not resume.
func castagnoli() *crc32.Table { return crc32.MakeTable(crc32.Castagnoli) }

// openLog opens the logs since a state and appends to the newest.
func openLog(dir string, since int) (*log, error) {
	known, err := numbered(dir)
	if err != nil {
		return nil, err
	}
	l := &log{dir: dir}
	if n := len(known); n > 0 && known[n-1] > since {
		since = known[n-1] // of a state that could not be used; its records are still valid
	}
	return l, l.begin(since)
}

// begin switches to the log of a state, truncated after its last whole record.
func (l *log) begin(state int) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	f, err := os.OpenFile(filepath.Join(l.dir, stateName(state)), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return fmt.Errorf("resume: %w", err)
	}
	end, err := records(f, func([]byte) error { return nil })
	if err == nil {
		err = f.Truncate(end)
	}
	if err == nil {
		_, err = f.Seek(end, io.SeekStart)
	}
	if l.file != nil {
		err = errors.Join(err, l.file.Close())
	}
	l.file = f
	return err
}

// Append adds a record. It may be called from several goroutines. The text is not flushed to the disk: it
// survives a killed process, and records lost in a power failure are computed again.
func (t *Scratch) Append(record any) error {
	text, err := json.Marshal(record)
	if err != nil {
		return fmt.Errorf("log: %w", err)
	}
	line := fmt.Appendf(make([]byte, 0, len(text)+10), "%08x %s\n", crc32.Checksum(text, castagnoli()), text)
	t.log.mu.Lock()
	defer t.log.mu.Unlock()
	_, err = t.log.file.Write(line)
	return err
}

// Replayed calls each with the stored records of all ranks, those of each in order: all since the restored state,
// and some before it.
func (t *Scratch) Replayed(each func(record []byte) error) error {
	folders, err := t.allLogs()
	if err != nil {
		return err
	}
	for _, folder := range folders {
		known, err := numbered(folder)
		if err != nil {
			return err
		}
		for _, n := range known {
			f, err := os.Open(filepath.Join(folder, stateName(n)))
			if err != nil {
				return err
			}
			_, err = records(f, each)
			if err := errors.Join(err, f.Close()); err != nil {
				return err
			}
		}
	}
	return nil
}

// records reads whole records up to the first torn or damaged one and returns where they end.
func records(r io.Reader, each func(record []byte) error) (end int64, err error) {
	in := bufio.NewReaderSize(r, 1<<16)
	for {
		line, err := in.ReadBytes('\n')
		if err == io.EOF {
			return end, nil
		}
		if err != nil {
			return end, err
		}
		want, text, ok := bytes.Cut(bytes.TrimSuffix(line, []byte("\n")), []byte(" "))
		if sum, err := strconv.ParseUint(string(want), 16, 32); !ok || err != nil ||
			uint32(sum) != crc32.Checksum(text, castagnoli()) {
			return end, nil
		}
		if err := each(text); err != nil {
			return end, err
		}
		end += int64(len(line))
	}
}
