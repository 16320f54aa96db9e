package engine

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

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
	f := rankFailure{runs.Failure{Text: err.Error(), Cause: causeOf(err)}, errors.As(err, &e) && e.Echo()}
	if text, err := json.Marshal(f); err == nil {
		os.WriteFile(failurePath(os.Getenv(meetVariable), os.Getenv(rankVariable)), text, 0o600)
	}
}

// rankEnd is the end of a rank.
type rankEnd struct {
	rank   int
	status syscall.WaitStatus
	killed bool // by the supervisor, after the failure of another rank
}

func (e rankEnd) failed() bool { return e.status.Signaled() || e.status.ExitStatus() != 0 }

// supervise runs the ranks of a node and waits for them. When ctx ends, they get a request to stop. When one fails, the
// others get lastWords to end, and the failure of the rank that caused it is returned.
func supervise(ctx context.Context, folder runs.Folder, a runs.Assignment, n *lang.Node) (err error) {
	meet, err := os.MkdirTemp(string(folder), "ranks.")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(meet)) }()
	runtime.LockOSThread() // the kernel ends the ranks with the thread that has started them
	ranks, ended := []*exec.Cmd{}, make(chan rankEnd)
	defer func() {
		for range ranks { // after an error below
			<-ended
		}
	}()
	for rank := range n.Resources.Processes {
		c, err := startRank(folder, a, n, meet, rank)
		if err != nil {
			signalRanks(ranks, syscall.SIGKILL)
			return fmt.Errorf("start rank %d: %w", rank, err)
		}
		ranks = append(ranks, c)
		go func() {
			c.Wait()
			ended <- rankEnd{rank: rank, status: c.ProcessState.Sys().(syscall.WaitStatus)}
		}()
	}
	ends := awaitRanks(ctx, ranks, ended)
	ranks = nil
	if len(ends) == 0 {
		return nil
	}
	return rankError(ends, meet, n.Resources.Processes, a.Kills)
}

// startRank starts one rank: this program again, in the session of the supervisor.
func startRank(folder runs.Folder, a runs.Assignment, n *lang.Node, meet string, rank int) (*exec.Cmd, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	c := exec.Command(self, "node", "--run", string(folder), "--node", n.Address)
	c.Env = append(os.Environ(), fmt.Sprintf("%s=%d", rankVariable, rank), meetVariable+"="+meet,
		fmt.Sprintf("OMP_NUM_THREADS=%d", max(1, a.CPUs/n.Resources.Processes)))
	if rank < len(a.GPUs) {
		c.Env = append(c.Env, "CUDA_VISIBLE_DEVICES="+a.GPUs[rank])
	}
	c.Stdout, c.Stderr = os.Stdout, os.Stderr
	c.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	for _, fd := range []uintptr{lockFile, leaseFile} {
		if held, err := unix.FcntlInt(fd, unix.F_DUPFD_CLOEXEC, 10); err == nil {
			f := os.NewFile(uintptr(held), "held")
			defer f.Close()
			c.ExtraFiles = append(c.ExtraFiles, f)
		}
	}
	return c, c.Start()
}

func signalRanks(ranks []*exec.Cmd, s syscall.Signal) {
	for _, c := range ranks {
		c.Process.Signal(s) // an error: it has ended
	}
}

// awaitRanks waits for all ranks and returns those that failed, in the order of their ends.
func awaitRanks(ctx context.Context, ranks []*exec.Cmd, ended <-chan rankEnd) (failed []rankEnd) {
	stop, killed := ctx.Done(), false
	var late <-chan time.Time
	for range ranks {
		for waiting := true; waiting; {
			select {
			case e := <-ended:
				waiting = false
				if e.killed = killed && e.status.Signal() == syscall.SIGKILL; !e.failed() {
					continue
				}
				if failed = append(failed, e); late == nil {
					late = time.After(lastWords)
				}
			case <-stop:
				stop = nil
				signalRanks(ranks, syscall.SIGTERM)
			case <-late:
				killed = true
				signalRanks(ranks, syscall.SIGKILL)
			}
		}
	}
	return failed
}

// rankError returns the error of the rank that caused the failures: the first that was killed or crashed, otherwise the
// first whose error follows from no other rank's.
func rankError(ends []rankEnd, meet string, count int, kills int64) error {
	errs, echo := make([]error, len(ends)), make([]bool, len(ends))
	for i, e := range ends {
		text, err := os.ReadFile(failurePath(meet, strconv.Itoa(e.rank)))
		var f rankFailure
		if err == nil {
			err = json.Unmarshal(text, &f)
		}
		switch {
		case err == nil:
			errs[i], echo[i] = &f.Failure, f.Echo
		case e.killed:
			errs[i], echo[i] = errors.New("it did not end after the failure of another rank"), true
		default:
			exit := proc.Exit{Code: e.status.ExitStatus()}
			if e.status.Signaled() {
				exit = proc.Exit{Signal: e.status.Signal()}
			}
			errs[i] = exitError(exit, kills)
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
	j.Threads = max(1, j.Threads/p.ranks)
}
