package engine

import (
	"errors"
	"fmt"
	"os"
	"sync"
	"time"

	"rcgrpo/engine/internal/disk"
)

// logPool has the logs of the stages that run in this process. Where stages are small and many most print nothing, and to make
// and remove a file for each costs more than most of what else a run does for them. So a log has its stage's name only once
// somebody may look for it: when the stage has run for a moment, has failed, or has printed something. A file to which nothing was
// written serves the next stage, and a link to one empty file stands where it would have been.
type logPool struct {
	folder runFolder

	mu     sync.Mutex
	free   []*stageLog
	silent map[string]bool // logs of stages that ended well, for which no link stands yet
	made   int
}

func newLogPool(folder runFolder) *logPool {
	return &logPool{folder: folder, silent: map[string]bool{}}
}

// stageLog is a file for what a stage prints.
type stageLog struct {
	file *os.File // open for appending
	path string   // that it was made under, in the folder of the logs

	mu    sync.Mutex
	log   string      // of which stage; "" for none
	named bool        // it has that name too
	moved bool        // it has that name alone: the file system has no links
	timer *time.Timer // to give it
}

// nameAfter is how long a stage runs before its log has its name: less than until others can adopt it.
const nameAfter = signAfter / 2

// take returns a file that nothing was written to.
func (p *logPool) take() (*stageLog, error) {
	p.mu.Lock()
	for len(p.free) > 0 {
		l := p.free[len(p.free)-1]
		p.free = p.free[:len(p.free)-1]
		if size, err := sizeOf(l.file); err == nil && size == 0 {
			p.mu.Unlock()
			return l, nil
		}
		l.drop() // somebody who has left his stage's session has written to it since
	}
	p.made++
	path := p.folder.path("logs", fmt.Sprintf(".spare-%d", p.made))
	p.mu.Unlock()
	file, err := disk.OpenFile(path, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return nil, err
	}
	return &stageLog{file: file, path: path}, nil
}

// begin makes a file the log of a stage that starts.
func (l *stageLog) begin(log string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.log, l.named = log, false
	l.timer = time.AfterFunc(nameAfter, func() { l.name(log) })
}

// name gives the log its name. Where that fails it is tried again at the end.
func (l *stageLog) name(log string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.log != log || l.named {
		return
	}
	if l.named = disk.Link(l.path, log) == nil; !l.named && !exists(log) {
		l.named = disk.Rename(l.path, log) == nil
		l.moved = l.named
	}
}

// end takes the log of a stage that has ended, and how. A log that is blank is there for another stage; mark is to be called later then.
func (p *logPool) end(l *stageLog, err error) (blank bool, _ error) {
	l.timer.Stop()
	l.mu.Lock()
	defer l.mu.Unlock()
	log := l.log
	l.log = ""
	if size, statErr := sizeOf(l.file); err == nil && statErr == nil && size == 0 && !l.named {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.silent[log] = true
		return true, nil
	}
	if l.named {
		return false, l.drop()
	}
	return false, errors.Join(disk.Rename(l.path, log), l.file.Close())
}

// mark makes a link to the empty file where the log of a silent stage would be, before anybody hears of its end.
func (p *logPool) mark(log string) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.silent[log] {
		return nil
	}
	delete(p.silent, log)
	empty := p.folder.path("logs", ".empty")
	if err := disk.Link(empty, log); err == nil || errors.Is(err, os.ErrExist) {
		return nil
	}
	os.Remove(empty) // there is none yet, or it has as many links as a file may have
	if err := disk.WriteFile(empty, nil, 0o600); err != nil {
		return err
	}
	if disk.Link(empty, log) == nil {
		return nil
	}
	return disk.WriteFile(log, nil, 0o600) // the file system has no links
}

// giveBack takes the file of a silent stage back, for another one.
func (p *logPool) giveBack(l *stageLog) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.free = append(p.free, l)
}

// close removes what is left.
func (p *logPool) close() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	var errs []error
	for _, l := range p.free {
		errs = append(errs, l.drop())
	}
	p.free = nil
	return errors.Join(errs...)
}

// drop removes the file under the name that it was made under.
func (l *stageLog) drop() error {
	if l.moved {
		return l.file.Close()
	}
	return errors.Join(os.Remove(l.path), l.file.Close())
}

func sizeOf(f *os.File) (int64, error) {
	info, err := f.Stat()
	if err != nil {
		return 0, err
	}
	return info.Size(), nil
}

// showLogOf makes the log of a stage that an engine started which is gone that of an address of this run.
func (f runFolder) showLogOf(h holder, address string) error {
	theirs := h.folder().log(h.Address)
	if h.Log != "" && !exists(theirs) { // that engine was gone before the log had its name
		if err := disk.Rename(h.Log, theirs); err != nil {
			return err
		}
	}
	err := disk.Symlink(theirs, f.log(address))
	if err == nil || errors.Is(err, os.ErrExist) {
		return nil
	}
	// The file system has no links.
	return disk.WriteFile(f.log(address), []byte("another run started this stage; its log is "+theirs+"\n"), 0o600)
}
