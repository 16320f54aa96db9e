package proc

import (
	"bytes"
	"cmp"
	"fmt"
	"io"
	"os"
	"time"

	"rcgrpo/engine/internal/disk"
)

const logPollEvery = 100 * time.Millisecond

// LogLimit limits the log of a running stage. A program writes to the file itself, because it may outlive the
// engine, so the engine can only poll the size and cut out the middle.
type LogLimit struct {
	Path   string
	Most   int64  // bytes; 0: no limit
	Report func() // called after the first cut
	cut    bool
}

// Watch polls the log until the returned function is called, which polls once more.
func (l *LogLimit) Watch() (end func() error) {
	var err error
	stop := Every(logPollEvery, func() { err = cmp.Or(err, l.Poll()) })
	return func() error {
		stop()
		return err
	}
}

// Poll cuts the log if it exceeds the limit.
func (l *LogLimit) Poll() error {
	if l.Most == 0 {
		return nil
	}
	info, err := os.Stat(l.Path)
	if err != nil || info.Size() <= l.Most {
		return err
	}
	if err := cutLog(l.Path, l.Most); err != nil {
		return fmt.Errorf("cut the log to its limit: %w", err)
	}
	if !l.cut {
		l.cut = true
		l.Report()
	}
	return nil
}

// cutMark replaces the removed middle of a log.
const cutMark = "\n--- %d bytes were removed here, because the log reached its limit\n"

// cutLog shortens a log that exceeds most bytes: it keeps the first half of the limit and the newest quarter,
// with cutMark between them. Text that a program appends during the cut may be lost.
func cutLog(path string, most int64) error {
	f, err := disk.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return err
	}
	head, from := most/2, info.Size()-most/4
	removed := from - head
	old := make([]byte, len(cutMark)+20)
	n, err := f.ReadAt(old, head)
	if err != nil && err != io.EOF {
		return err
	}
	var earlier int64
	if _, err := fmt.Sscanf(string(old[:n]), cutMark, &earlier); err == nil { // the old mark does not count
		removed += earlier - int64(len(fmt.Sprintf(cutMark, earlier)))
	}
	line := make([]byte, 64<<10)
	if n, err = f.ReadAt(line, from); err != nil && err != io.EOF {
		return err
	}
	// The tail starts with a whole line.
	if end := int64(bytes.IndexByte(line[:n], '\n') + 1); end > 0 && end < info.Size()-from {
		from, removed = from+end, removed+end
	}
	mark := fmt.Sprintf(cutMark, removed)
	if _, err := disk.WriteAt(f, []byte(mark), head); err != nil {
		return err
	}
	to := head + int64(len(mark))
	kept, err := io.Copy(io.NewOffsetWriter(f, to), io.NewSectionReader(f, from, info.Size()-from))
	if err != nil {
		return err
	}
	return f.Truncate(to + kept)
}
