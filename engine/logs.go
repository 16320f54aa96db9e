package engine

import (
	"os"
	"sync"

	"rcgrpo/engine/internal/disk"
)

// logPool hands the log files of stages that printed nothing on to the next ones: to make a file costs more than to rename
// one, and where stages are small and many most print nothing. Under the old name stands a link to one empty file.
type logPool struct {
	folder runFolder

	mu    sync.Mutex
	spare []string
}

func (p *logPool) empty() string { return p.folder.path("logs", ".empty") }

// begin puts a spare file, if there is one, where a stage's log is about to be made.
func (p *logPool) begin(log string) {
	if p == nil {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if n := len(p.spare); n > 0 {
		disk.RenameNew(p.spare[n-1], log) // without success the log is a new file
		p.spare = p.spare[:n-1]
	}
}

// end takes the log of a stage that has ended well, if it is empty. Whatever fails leaves it as it is.
func (p *logPool) end(log string) {
	info, err := os.Lstat(log)
	if err != nil || info.Size() > 0 {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	spare := log + ".spare"
	if disk.Rename(log, spare) != nil {
		return
	}
	if disk.Link(p.empty(), log) != nil { // the first time, and once in as many links as a file may have
		os.Remove(p.empty())
		if f, err := disk.OpenFile(p.empty(), os.O_CREATE|os.O_WRONLY, 0o600); err == nil {
			f.Close()
		}
		if disk.Link(p.empty(), log) != nil {
			disk.Rename(spare, log)
			return
		}
	}
	p.spare = append(p.spare, spare)
}

// close removes what is left.
func (p *logPool) close() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, spare := range p.spare {
		os.Remove(spare)
	}
	p.spare = nil
}
