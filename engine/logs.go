package engine

import (
	"fmt"
	"os"
	"sync"

	"rcgrpo/engine/internal/disk"
)

// logPool lets the log file of a stage that printed nothing serve the next ones: to make a file costs more than to link
// one, and where stages are small and many most print nothing. Such a file has a name of its own besides the log's. Where it
// was the log of a stage that has ended, a link to one empty file stands.
type logPool struct {
	folder runFolder

	mu    sync.Mutex
	free  []string          // files that are no stage's log now
	lent  map[string]string // the others, by the log that each is
	named int
}

func (p *logPool) empty() string { return p.folder.path("logs", ".empty") }

// spareLog is a file that is going to be a log.
type spareLog struct {
	path string
	file *os.File // open for appending
	log  string   // that it has become; "" before
}

// spare opens a file for the log of a stage that is not known yet. It becomes that by assign, or goes back by giveBack.
func (p *logPool) spare() (*spareLog, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	var l spareLog
	if n := len(p.free); n > 0 {
		l.path, p.free = p.free[n-1], p.free[:n-1]
	} else {
		l.path = p.name()
	}
	var err error
	l.file, err = disk.OpenFile(l.path, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	return &l, err
}

func (p *logPool) assign(l *spareLog, log string) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	err := disk.Link(l.path, log)
	if err == nil {
		l.log, p.lent[log] = log, l.path
	}
	return err
}

// giveBack takes a file back to which nothing was written.
func (p *logPool) giveBack(l *spareLog) {
	l.file.Close()
	p.mu.Lock()
	defer p.mu.Unlock()
	if l.log != "" {
		delete(p.lent, l.log)
		os.Remove(l.log)
	}
	p.free = append(p.free, l.path)
}

// name is that of a new spare file.
func (p *logPool) name() string {
	p.named++
	return p.folder.path("logs", fmt.Sprintf(".spare-%d", p.named))
}

// begin puts a spare file, if there is one, where a stage's log is about to be made.
func (p *logPool) begin(log string) {
	if p == nil {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if n := len(p.free); n > 0 && disk.Link(p.free[n-1], log) == nil { // without success the log is a new file
		p.lent[log], p.free = p.free[n-1], p.free[:n-1]
	}
}

// end takes the log of a stage that has ended well, if it is empty. Whatever fails leaves it as it is.
func (p *logPool) end(log string) {
	info, err := os.Lstat(log)
	p.mu.Lock()
	defer p.mu.Unlock()
	spare, lent := p.lent[log]
	delete(p.lent, log)
	switch {
	case err != nil || info.Size() > 0 || !info.Mode().IsRegular():
		if lent {
			os.Remove(spare)
		}
		return
	case !lent:
		spare = p.name()
		if disk.Link(log, spare) != nil {
			return
		}
	}
	if os.Remove(log) != nil {
		os.Remove(spare)
		return
	}
	if p.linkEmpty(log) != nil {
		disk.Rename(spare, log)
		return
	}
	p.free = append(p.free, spare)
}

// linkEmpty puts a link to the empty file at log. It makes that file the first time, and once in as many links as a file may
// have.
func (p *logPool) linkEmpty(log string) error {
	if disk.Link(p.empty(), log) == nil {
		return nil
	}
	os.Remove(p.empty())
	f, err := disk.OpenFile(p.empty(), os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	f.Close()
	return disk.Link(p.empty(), log)
}

// close removes the names that are left.
func (p *logPool) close() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, spare := range p.free {
		os.Remove(spare)
	}
	for _, spare := range p.lent {
		os.Remove(spare)
	}
	p.free, p.lent = nil, nil
}
