package engine

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"time"

	"rcgrpo/engine/internal/disk"
)

// logLimit keeps the log of a running stage within a size. A program writes to the file itself, so that it can outlive
// the engine; the engine can only look at the size and cut the middle out.
type logLimit struct {
	path   string
	most   int64             // bytes; 0: no limit
	report func(text string) // called once, at the first cut
	told   bool
}

// keep looks again and again until the function that it returns is called, which looks for the last time.
func (l *logLimit) keep() (end func() error) {
	if l.most == 0 {
		return func() error { return nil }
	}
	stop, stopped := make(chan struct{}), make(chan error, 1)
	start := time.AfterFunc(followEvery, func() {
		every := time.NewTicker(followEvery)
		defer every.Stop()
		var first error
		for {
			if err := l.look(); first == nil {
				first = err
			}
			select {
			case <-every.C:
			case <-stop:
				stopped <- first
				return
			}
		}
	})
	return func() error {
		close(stop)
		if start.Stop() { // it never looked
			stopped <- nil
		}
		return errors.Join(<-stopped, l.look())
	}
}

// look cuts the log when it is longer than the limit.
func (l *logLimit) look() error {
	if l.most == 0 {
		return nil
	}
	info, err := os.Stat(l.path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil || info.Size() <= l.most {
		return err
	}
	if err := cutLog(l.path, l.most); err != nil {
		return fmt.Errorf("cut the log to its limit: %w", err)
	}
	if !l.told {
		l.told = true
		l.report(fmt.Sprintf("its log reached the limit of %s: the middle is removed, and a line in the log says how much (logs.limit of the site file)",
			BytesText(l.most)))
	}
	return nil
}

// cutMark stands in a log where something was removed.
const cutMark = "\n--- %d bytes were removed here, because the log reached its limit\n"

// cutLog shortens a log that is longer than most: the first half of the limit and the newest quarter stay, with cutMark
// between them. Programs that append meanwhile continue behind that; what they write during the cut may be lost.
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
	before := make([]byte, len(cutMark)+20)
	n, err := f.ReadAt(before, head)
	if err != nil && err != io.EOF {
		return err
	}
	var earlier int64
	if _, err := fmt.Sscanf(string(before[:n]), cutMark, &earlier); err == nil { // that line is removed now and counts for none
		removed += earlier - int64(len(fmt.Sprintf(cutMark, earlier)))
	}
	line := make([]byte, 64<<10)
	if n, err = f.ReadAt(line, from); err != nil && err != io.EOF {
		return err
	}
	if end := int64(bytes.IndexByte(line[:n], '\n') + 1); end > 0 && end < info.Size()-from { // begin with a whole line
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
