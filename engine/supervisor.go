package engine

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"rcgrpo/engine/internal/disk"
	"rcgrpo/engine/lang"
	"rcgrpo/engine/proc"
	"rcgrpo/engine/runs"
)

// rankGrace is the time that the other ranks have to end after one has failed.
const rankGrace = 5 * time.Second

// supervisor starts the ranks of a stage and waits for them. It leads their session and is the recorded holder of the
// key's lock, so adoption and kills work as for one process. The ranks inherit the lock and the lease, and end with it.
type supervisor struct {
	stage  *lang.Node
	meet   string // folder of the ranks
	kills  int64  // proc.OOMKills before the start of the ranks
	limits rankLimits
	ranks  []*exec.Cmd
	ended  chan rankEnd
	failed []rankFailure // in the order of their ends
}

// rankEnd is the end of the process of a rank.
type rankEnd struct {
	rank int
	exit proc.Exit
}

// supervise runs the ranks of a stage and waits for them. When ctx ends, they get a request to stop. When one
// fails, the others get rankGrace to end, and the failure of the rank that caused it is returned. Ranks without
// progress are killed.
func supervise(ctx context.Context, folder runs.Folder, a runs.Assignment, n *lang.Node) (err error) {
	s := &supervisor{stage: n, kills: a.Kills, ended: make(chan rankEnd)}
	if s.limits, err = limitsOfRanks(); err != nil {
		return err
	}
	if s.meet, err = folder.MakeRanks(a.Address); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(s.meet)) }()
	runtime.LockOSThread() // the kernel ends the ranks with the thread that has started them
	for rank := range n.Resources.Processes {
		if err := s.start(folder, a, rank); err != nil {
			s.signal(syscall.SIGKILL)
			for range s.ranks {
				<-s.ended
			}
			return fmt.Errorf("start rank %d: %w", rank, err)
		}
	}
	if err := s.await(ctx); err != nil || len(s.failed) == 0 {
		return err
	}
	return s.failure()
}

// start starts one rank: this program again, in the session of the supervisor.
func (s *supervisor) start(folder runs.Folder, a runs.Assignment, rank int) error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	c := exec.Command(self, "node", "--run", string(folder), "--node", s.stage.Address)
	c.Env = append(os.Environ(), fmt.Sprintf("%s=%d", rankVariable, rank), meetVariable+"="+s.meet,
		fmt.Sprintf("OMP_NUM_THREADS=%d", max(1, a.CPUs/s.stage.Resources.Processes)))
	if rank < len(a.GPUs) { // ranks on the CPU get none
		c.Env = append(c.Env, "CUDA_VISIBLE_DEVICES="+a.GPUs[rank])
	}
	var output io.Reader = strings.NewReader("")
	if rank == 0 { // the log reads as that of one process, with the lines of the other ranks marked
		c.Stdout, c.Stderr = os.Stdout, os.Stderr
	} else {
		if output, err = c.StdoutPipe(); err != nil {
			return err
		}
		c.Stderr = c.Stdout
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
	s.ranks = append(s.ranks, c)
	go func() {
		copyLines(os.Stderr, output, fmt.Sprintf("[%d] ", rank))
		c.Wait()
		s.ended <- rankEnd{rank, proc.ExitOf(c.ProcessState)}
	}()
	return nil
}

// copyLines copies lines with a prefix, each with one Write.
func copyLines(to io.Writer, from io.Reader, prefix string) {
	for lines := bufio.NewReader(from); ; {
		line, err := lines.ReadString('\n')
		if line != "" {
			fmt.Fprintf(to, "%s%s\n", prefix, strings.TrimSuffix(line, "\n"))
		}
		if err != nil {
			return
		}
	}
}

// stopped reports whether a rank is stopped by a signal.
func (s *supervisor) stopped(rank int) bool { return proc.Stopped(s.ranks[rank].Process.Pid) }

func (s *supervisor) signal(signal syscall.Signal) {
	for _, c := range s.ranks {
		c.Process.Signal(signal) // an error: it has ended
	}
}

// await waits for all ranks and collects their failures. The error is not nil if they were killed
// because they made no progress.
func (s *supervisor) await(ctx context.Context) (err error) {
	stop, killed, watch := ctx.Done(), false, &hangWatch{limits: s.limits}
	var late <-chan time.Time
	look := time.NewTicker(reportRanksEvery)
	defer look.Stop()
	looked := time.Now()
	for left := len(s.ranks); left > 0; {
		select {
		case e := <-s.ended:
			left--
			// The report of an ended rank no longer changes, so watch would take it for a hang. If the others hang from
			// now on, only the stage's timeout ends them.
			look.Stop()
			if !e.exit.Failed() {
				continue
			}
			s.addFailure(e, killed && e.exit.Signal == syscall.SIGKILL)
			if late == nil {
				late = time.After(rankGrace)
			}
		case <-stop:
			stop = nil
			s.signal(syscall.SIGTERM)
		case <-late:
			killed = true
			s.signal(syscall.SIGKILL)
		case now := <-look.C:
			err = watch.observe(runs.ReadRanks(s.meet, s.stage.Resources.Processes), now.Sub(looked))
			if looked = now; err != nil {
				look.Stop()
				watch.writeTable(os.Stderr, s.stopped)
				s.signal(syscall.SIGKILL)
			}
		}
	}
	return err
}

// addFailure adds the failure of a rank: the failure that the rank has left, or else how its process ended. killed
// reports whether the supervisor has killed the rank after the failure of another.
func (s *supervisor) addFailure(e rankEnd, killed bool) {
	var f rankFailure
	left := disk.ReadJSON(failurePath(s.meet, e.rank), disk.MaxRecord, &f) == nil
	if !left && killed {
		f = failureOf(e.rank, errors.New("it did not end after the failure of another rank"))
		f.Echo = true
	} else if !left {
		f = failureOf(e.rank, ExitError(e.exit, s.kills))
	}
	f.Crashed = e.exit.Signal != 0 && !killed
	s.failed = append(s.failed, f)
}

// failure returns the failure of the rank that caused the others: the first that was killed or crashed, otherwise the
// first whose error follows from no other rank's.
func (s *supervisor) failure() error {
	first := slices.MinFunc(s.failed, func(a, b rankFailure) int { return cmp.Compare(a.causality(), b.causality()) })
	return fmt.Errorf("rank %d of %d: %w", first.Rank, s.stage.Resources.Processes, &first.Failure)
}
