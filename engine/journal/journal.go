// Package journal has the append-only files of runs and stages: events, pins, sampled trajectories, calls of models. A
// line is the CRC-32C of a record in eight hexadecimal digits, a space, and the record as JSON. Whatever kills a writer
// tears at most the last record, and no torn record is read.
package journal

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"io/fs"
	"os"
	"strconv"

	"rcgrpo/engine/internal/disk"
)

// Journal is a file that is open for appending. Several goroutines may use it, and several processes the same file.
type Journal struct{ file *os.File }

// Open opens the journal at a path and creates it if it does not exist.
func Open(path string) (*Journal, error) {
	f, err := disk.OpenFile(path, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	return &Journal{f}, err
}

// Append adds a record, which survives a kill of this process. It is not flushed to the disk. The end of the line comes
// before the record, because the one before may be torn.
func (j *Journal) Append(record any) error {
	text, err := json.Marshal(record)
	if err != nil {
		return fmt.Errorf("%s: %w", j.file.Name(), err)
	}
	_, err = disk.Write(j.file, fmt.Appendf(make([]byte, 0, len(text)+10), "\n%08x %s", checksum(text), text))
	return err
}

// Close closes the file.
func (j *Journal) Close() error { return j.file.Close() }

// Read calls each with every whole record of a journal behind an offset, and returns the offset for the next call. It
// skips damaged lines. A missing file has no records. An error of each ends it, and so does a line of disk.MaxRecord
// bytes or a file that is no plain one: the journal may be of a copied run folder.
func Read(path string, from int64, each func(record []byte) error) (end int64, err error) {
	f, err := disk.OpenPlain(path, disk.MaxPlain)
	if errors.Is(err, fs.ErrNotExist) {
		return from, nil
	}
	if err != nil {
		return from, err
	}
	defer f.Close()
	in := &io.LimitedReader{R: io.NewSectionReader(f, from, f.Info.Size()-from)}
	lines := bufio.NewReaderSize(in, 1<<16)
	for end, err = from, nil; err == nil; {
		in.N = disk.MaxRecord
		var line []byte
		line, err = lines.ReadBytes('\n')
		record, whole := parse(bytes.TrimSuffix(line, []byte("\n")))
		if whole {
			if eachErr := each(record); eachErr != nil {
				return end, eachErr
			}
		}
		if whole || err == nil { // otherwise the line may be growing
			end += int64(len(line))
		}
	}
	if in.N == 0 {
		err = fmt.Errorf("%s: a line has more than %d bytes", path, disk.MaxRecord)
	} else if err == io.EOF {
		err = nil
	}
	return end, err
}

// parse returns the record of a line without its end, and whether its checksum is right.
func parse(line []byte) (record []byte, whole bool) {
	want, record, ok := bytes.Cut(line, []byte(" "))
	sum, err := strconv.ParseUint(string(want), 16, 32)
	return record, ok && err == nil && uint32(sum) == checksum(record)
}

func checksum(text []byte) uint32 { return crc32.Checksum(text, crc32.MakeTable(crc32.Castagnoli)) }
