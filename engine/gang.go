package engine

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"rcgrpo/engine/internal/disk"
	"rcgrpo/engine/lang"
	"rcgrpo/engine/proc"
	"rcgrpo/engine/runs"
)

// A stage with several processes has one process that the engine starts, the supervisor, and its children, the ranks.
// The supervisor leads their session and signs the key's lock, so adoption and kills work as for one process. It passes
// the lock and the lease on, and the ranks die with it.

// Environment of a rank.
const (
	rankVariable = "RCGRPO_RANK"       // its number
	meetVariable = "RCGRPO_RENDEZVOUS" // folder of this attempt for the ranks' store and failures
)

// lastWords is the time that the other ranks have to end after one has failed.
const lastWords = 5 * time.Second

// rankPlace is the place of this process among the ranks of its stage; the zero value is a stage of one process.
type rankPlace struct {
	rank, ranks int
	meet        string
}

// placeOf returns the place of this process; ok is false in the supervisor.
func placeOf(n *lang.Node) (p rankPlace, ok bool) {
	if n.Resources.Processes <= 1 {
		return p, true
	}
	p = rankPlace{ranks: n.Resources.Processes, meet: os.Getenv(meetVariable)}
	var err error
	p.rank, err = strconv.Atoi(os.Getenv(rankVariable))
	return p, err == nil && p.meet != ""
}

// isRank reports whether a supervisor has started this process.
func isRank() bool { return os.Getenv(meetVariable) != "" }

// rankFailure is the file that a failed rank leaves for the supervisor.
type rankFailure struct {
	runs.Failure
	Echo bool // it follows from the failure of another rank
}

func failurePath(meet string, rank string) string { return filepath.Join(meet, "failure."+rank) }

// reportRank leaves the failure of this rank to the supervisor. An error whose method Echo returns true follows from
// the failure of another rank.
func reportRank(err error) {
	var e interface{ Echo() bool }
	f := rankFailure{runs.Failure{Text: err.Error(), Cause: CauseOf(err)}, errors.As(err, &e) && e.Echo()}
	leaveFailure(os.Getenv(meetVariable), os.Getenv(rankVariable), f)
}

func leaveFailure(meet, rank string, f rankFailure) {
	if text, err := json.Marshal(f); err == nil {
		disk.Overwrite(meet, failurePath(meet, rank), text)
	}
}

// readFailure returns the failure that a rank has left.
func readFailure(meet string, rank int) (f rankFailure, left bool) {
	text, err := os.ReadFile(failurePath(meet, strconv.Itoa(rank)))
	return f, err == nil && json.Unmarshal(text, &f) == nil
}

// rankEnd is the end of a rank.
type rankEnd struct {
	rank   int
	status syscall.WaitStatus
	killed bool // by the supervisor, after the failure of another rank
}

func (e rankEnd) failed() bool { return e.status.Signaled() || e.status.ExitStatus() != 0 }

// gang is the ranks of a stage on this node, as their supervisor sees them.
type gang struct {
	node   *lang.Node
	at     GangNode
	first  int    // number of the first rank of this node
	meet   string // folder of all ranks
	limits rankLimits
	ranks  []*exec.Cmd
	ended  chan rankEnd
}

// supervise runs the ranks of a node and waits for them. When ctx ends, they get a request to stop. When one fails, the
// others get lastWords to end, and the failure of the rank that caused it is returned. Ranks without progress are
// killed.
func supervise(ctx context.Context, folder runs.Folder, a runs.Assignment, n *lang.Node) (err error) {
	g := &gang{node: n, ended: make(chan rankEnd)}
	if g.limits, err = limitsOfRanks(); err != nil {
		return err
	}
	if g.at, err = gangNode(); err != nil {
		return err
	}
	var remove func() error
	if g.meet, remove, err = g.at.open(folder, a.Address); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, remove()) }()
	share := n.Resources.Processes / g.at.Count
	g.first, a.GPUs = g.at.Index*share, g.at.devices(a.GPUs)
	runtime.LockOSThread() // the kernel ends the ranks with the thread that has started them
	for rank := g.first; rank < g.first+share; rank++ {
		if err := g.start(folder, a, rank); err != nil {
			g.signal(syscall.SIGKILL)
			for range g.ranks {
				<-g.ended
			}
			return fmt.Errorf("start rank %d: %w", rank, err)
		}
	}
	ends, err := g.await(ctx)
	if err != nil || len(ends) == 0 {
		return err
	}
	if g.at.Index > 0 {
		leaveFailures(ends, g.meet, a.Kills)
		return errHelper
	}
	return rankError(g.withElsewhere(ends), g.meet, n.Resources.Processes, a.Kills)
}

// start starts one rank: this program again, in the session of the supervisor.
func (g *gang) start(folder runs.Folder, a runs.Assignment, rank int) error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	c := exec.Command(self, "node", "--run", string(folder), "--node", g.node.Address)
	c.Env = append(os.Environ(), fmt.Sprintf("%s=%d", rankVariable, rank), meetVariable+"="+g.meet,
		fmt.Sprintf("OMP_NUM_THREADS=%d", max(1, a.CPUs/g.node.Resources.Processes)))
	if i := rank - g.first; i < len(a.GPUs) { // without GPUs, or on a device of the CPU, no rank has one of its own
		c.Env = append(c.Env, "CUDA_VISIBLE_DEVICES="+a.GPUs[i])
	}
	c.Stdout, c.Stderr = os.Stdout, os.Stderr
	log := &prefixed{to: os.Stderr, prefix: fmt.Sprintf("[%d] ", rank)}
	if rank > 0 { // the log reads as that of one process, with the lines of the others marked
		c.Stdout, c.Stderr = log, log
	}
	c.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	for _, fd := range []uintptr{lockFile, leaseFile} {
		if held, err := unix.FcntlInt(fd, unix.F_DUPFD_CLOEXEC, 10); err == nil {
			f := os.NewFile(uintptr(held), "held")
			defer f.Close()
			c.ExtraFiles = append(c.ExtraFiles, f)
		}
	}
	if err := c.Start(); err != nil {
		return err
	}
	g.ranks = append(g.ranks, c)
	go func() {
		c.Wait()
		log.end()
		g.ended <- rankEnd{rank: rank, status: c.ProcessState.Sys().(syscall.WaitStatus)}
	}()
	return nil
}

// prefixed writes lines with a prefix, each with one Write.
type prefixed struct {
	to     io.Writer
	prefix string
	line   []byte // incomplete
}

func (p *prefixed) Write(b []byte) (int, error) {
	p.line = append(p.line, b...)
	for {
		end := bytes.IndexByte(p.line, '\n')
		if end < 0 {
			return len(b), nil
		}
		if _, err := p.to.Write(append([]byte(p.prefix), p.line[:end+1]...)); err != nil {
			return 0, err
		}
		p.line = p.line[end+1:]
	}
}

// end writes an incomplete last line.
func (p *prefixed) end() {
	if len(p.line) > 0 {
		p.Write([]byte{'\n'})
	}
}

// stopped reports whether a rank of this node is stopped by a signal.
func (g *gang) stopped(rank int) bool {
	i := rank - g.first
	return i >= 0 && i < len(g.ranks) && proc.Stopped(g.ranks[i].Process.Pid)
}

func (g *gang) signal(s syscall.Signal) {
	for _, c := range g.ranks {
		c.Process.Signal(s) // an error: it has ended
	}
}

// await waits for all ranks and returns those that failed, in the order of their ends. err is not nil if they were
// killed because they made no progress.
func (g *gang) await(ctx context.Context) (failed []rankEnd, err error) {
	stop, killed, watch := ctx.Done(), false, &hangWatch{limits: g.limits}
	var late <-chan time.Time
	look := time.NewTicker(reportRanksEvery)
	defer look.Stop()
	looked := time.Now()
	for left := len(g.ranks); left > 0; {
		select {
		case e := <-g.ended:
			left--
			// The report of an ended rank does not change any more, so a hang of the others cannot be detected: `timeout` ends
			// them.
			look.Stop()
			if e.killed = killed && e.status.Signal() == syscall.SIGKILL; !e.failed() {
				continue
			}
			if failed = append(failed, e); late == nil {
				late = time.After(lastWords)
			}
		case <-stop:
			stop = nil
			g.signal(syscall.SIGTERM)
		case <-late:
			killed = true
			g.signal(syscall.SIGKILL)
		case now := <-look.C:
			err = watch.observe(runs.ReadRanks(g.meet, g.node.Resources.Processes), now.Sub(looked))
			if looked = now; err != nil {
				look.Stop()
				watch.writeTable(os.Stderr, g.stopped)
				g.signal(syscall.SIGKILL)
			} else if late == nil && len(g.failuresElsewhere()) > 0 {
				late = time.After(lastWords)
			}
		}
	}
	return failed, err
}

// rankError returns the error of the rank that caused the failures: the first that was killed or crashed, otherwise the
// first whose error follows from no other rank's.
func rankError(ends []rankEnd, meet string, count int, kills int64) error {
	errs, echo := make([]error, len(ends)), make([]bool, len(ends))
	for i, e := range ends {
		f, left := readFailure(meet, e.rank)
		switch {
		case left:
			errs[i], echo[i] = &f.Failure, f.Echo
		case e.killed:
			errs[i], echo[i] = errors.New("it did not end after the failure of another rank"), true
		default:
			errs[i] = ExitError(e.exit(), kills)
		}
	}
	first := slices.IndexFunc(ends, func(e rankEnd) bool { return e.status.Signaled() && !e.killed })
	if first < 0 {
		first = slices.Index(echo, false)
	}
	first = max(0, first)
	return fmt.Errorf("rank %d of %d: %w", ends[first].rank, count, errs[first])
}

// executeRank executes a rank above 0, which commits nothing.
func (w *Work) executeRank(ctx context.Context, runner Runner, job *Job) error {
	job.out = portFolder(filepath.Join(w.place.meet, "ports", strconv.Itoa(w.place.rank)))
	return runStage(ctx, runner, job)
}

// set enters the rank into its job.
func (p rankPlace) set(j *Job) {
	if p.ranks == 0 {
		return
	}
	j.Rank, j.Ranks, j.Rendezvous = p.rank, p.ranks, filepath.Join(p.meet, "store")
	if at, err := gangNode(); err == nil {
		j.Listen = at.Address
	}
	j.Threads = max(1, j.Threads/p.ranks)
	if l, err := limitsOfRanks(); err == nil { // the supervisor has already rejected invalid limits
		j.Arrival = l.arrival
	}
}

// ReportRank makes f the source of the reports of this rank, from now on: its phase, steps and waiting. The engine
// calls it every second, from another goroutine, and after the stage. A job of one process reports nothing.
func (j *Job) ReportRank(f func() runs.RankState) { j.report.Store(&f) }

// state returns the report of this rank.
func (p rankPlace) state(j *Job) (s runs.RankState) {
	if f := j.report.Load(); f != nil {
		s = (*f)()
	}
	s.Rank, s.PeakBytes = p.rank, peakBytes()
	return s
}

// states returns the newest reports of all ranks.
func (p rankPlace) states(j *Job) []runs.RankState {
	all := runs.ReadRanks(p.meet, p.ranks)
	all[p.rank] = p.state(j)
	return all
}

// reportRanks writes the reports of a rank until end is called.
func (p rankPlace) reportRanks(j *Job) (end func()) {
	if p.ranks == 0 {
		return func() {}
	}
	write := func() {
		if err := runs.WriteRank(p.meet, p.state(j)); err != nil {
			j.Logf("report of the rank: %v", err)
		}
	}
	write()
	stop, stopped := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(stopped)
		for tick := time.NewTicker(reportRanksEvery); ; {
			select {
			case <-tick.C:
				write()
			case <-stop:
				tick.Stop()
				write()
				return
			}
		}
	}()
	return func() {
		close(stop)
		<-stopped
	}
}
