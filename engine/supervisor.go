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
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"rcgrpo/engine/lang"
	"rcgrpo/engine/proc"
	"rcgrpo/engine/runs"
)

// rankGrace is the time that the other ranks have to end after one has failed.
const rankGrace = 5 * time.Second

// supervisor starts the ranks of a gang on its node and waits for them. It leads their session and is the recorded
// holder of the key's lock, so adoption and kills work as for one process. The ranks inherit the lock and the lease,
// and end with it.
//
// A gang on several nodes has a supervisor on each, with an equal share of the ranks. The first makes the folder of the
// ranks and reports the failure of the stage; the others leave the failures of their ranks there. All nodes see the
// folder.
type supervisor struct {
	stage  *lang.Node
	at     GangNode
	first  int    // number of the first rank of this node
	meet   string // folder of all ranks
	kills  int64  // proc.OOMKills before the start of the ranks
	limits rankLimits
	ranks  []*exec.Cmd
	ended  chan rankEnd
	failed []rankFailure // of this node, in the order of their ends
}

// rankEnd is the end of the process of a rank.
type rankEnd struct {
	rank int
	exit proc.Exit
}

// supervise runs the ranks of this machine and waits for them. When ctx ends, they get a request to stop. When one
// fails, the others get rankGrace to end, and the failure of the rank that caused it is returned. Ranks without
// progress are killed.
func supervise(ctx context.Context, folder runs.Folder, a runs.Assignment, n *lang.Node) (err error) {
	s := &supervisor{stage: n, kills: a.Kills, ended: make(chan rankEnd)}
	if s.limits, err = limitsOfRanks(); err != nil {
		return err
	}
	if s.at, err = gangNode(); err != nil {
		return err
	}
	if s.meet, err = s.at.open(folder, a.Address); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.at.remove(s.meet)) }()
	share := n.Resources.Processes / s.at.Count
	s.first, a.GPUs = s.at.Index*share, s.at.devices(a.GPUs)
	runtime.LockOSThread() // the kernel ends the ranks with the thread that has started them
	for rank := s.first; rank < s.first+share; rank++ {
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
	if s.at.Index > 0 {
		return errHelper
	}
	return s.failure()
}

// errHelper is the end of a supervisor whose ranks have left their failures to that of the first node.
var errHelper = errors.New("ranks of this node have failed; the first node reports the failure")

// start starts one rank: this program again, in the session of the supervisor.
func (s *supervisor) start(folder runs.Folder, a runs.Assignment, rank int) error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	c := exec.Command(self, "node", "--run", string(folder), "--node", s.stage.Address)
	c.Env = append(os.Environ(), fmt.Sprintf("%s=%d", rankVariable, rank), meetVariable+"="+s.meet,
		fmt.Sprintf("OMP_NUM_THREADS=%d", max(1, a.CPUs/s.stage.Resources.Processes)))
	if i := rank - s.first; i < len(a.GPUs) { // ranks on the CPU get none
		c.Env = append(c.Env, "CUDA_VISIBLE_DEVICES="+a.GPUs[i])
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

// stopped reports whether a rank of this node is stopped by a signal.
func (s *supervisor) stopped(rank int) bool {
	return s.owns(rank) && proc.Stopped(s.ranks[rank-s.first].Process.Pid)
}

// owns reports whether a rank is on this node.
func (s *supervisor) owns(rank int) bool { return rank >= s.first && rank < s.first+len(s.ranks) }

func (s *supervisor) signal(signal syscall.Signal) {
	for _, c := range s.ranks {
		c.Process.Signal(signal) // an error: it has ended
	}
}

// await waits for all ranks of this node and records those that failed. The error is not nil if they were killed
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
			s.record(e, killed && e.exit.Signal == syscall.SIGKILL)
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
			} else if late == nil && s.at.Index == 0 && len(s.failedElsewhere()) > 0 {
				late = time.After(rankGrace)
			}
		}
	}
	return err
}

// record adds the failure of a rank: the one that it has left, or else how its process ended. killed reports whether
// the supervisor has killed it after the failure of another rank.
func (s *supervisor) record(e rankEnd, killed bool) {
	f, left := readFailure(s.meet, e.rank)
	if !left && killed {
		f = failureOf(e.rank, errors.New("it did not end after the failure of another rank"))
		f.Echo = true
	} else if !left {
		f = failureOf(e.rank, ExitError(e.exit, s.kills))
	}
	f.Crashed = e.exit.Signal != 0 && !killed
	s.failed = append(s.failed, f)
	f.leave(s.meet) // for the supervisor of the first node
}

// failure returns the failure of the rank that caused the others: the first that was killed or crashed, otherwise the
// first whose error follows from no other rank's. If there is none on this node, it waits for one of another node.
func (s *supervisor) failure() error {
	for since := time.Now(); ; time.Sleep(100 * time.Millisecond) {
		first := slices.MinFunc(append(s.failedElsewhere(), s.failed...), func(a, b rankFailure) int {
			return cmp.Compare(a.causality(), b.causality())
		})
		if !first.Echo || s.at.Count == 1 || time.Since(since) > rankGrace {
			return fmt.Errorf("rank %d of %d: %w", first.Rank, s.stage.Resources.Processes, &first.Failure)
		}
	}
}

// failedElsewhere returns the failures that ranks of other nodes have left.
func (s *supervisor) failedElsewhere() (all []rankFailure) {
	for rank := range s.stage.Resources.Processes {
		if f, left := readFailure(s.meet, rank); left && !s.owns(rank) {
			all = append(all, f)
		}
	}
	return all
}

// GangNode is the place of a node among those of a stage. The zero value is the only node.
type GangNode struct {
	Index, Count int
	Address      string // at which ranks of other nodes reach this one
	Start        string // one word that identifies this start of the stage
}

const gangVariable = "RCGRPO_GANG_NODE"

// Env returns the variable that passes the place to the processes of a stage.
func (g GangNode) Env() string {
	return fmt.Sprintf("%s=%d %d %s %s", gangVariable, g.Index, g.Count, g.Address, g.Start)
}

// gangNode returns the place of this node.
func gangNode() (g GangNode, err error) {
	g.Count = 1
	if text := os.Getenv(gangVariable); text != "" {
		_, err = fmt.Sscan(text, &g.Index, &g.Count, &g.Address, &g.Start)
	}
	return g, err
}

// isHelper reports whether this process supervises ranks for the supervisor of another node.
func isHelper() bool {
	g, _ := gangNode()
	return g.Index > 0
}

func startPath(f runs.Folder, address string) string { return filepath.Join(f.Ranks(address), "start") }

// Started reports whether the first node of the stage has made the folder of the ranks.
func (g GangNode) Started(f runs.Folder, address string) bool {
	os.ReadDir(f.Ranks(address)) // refreshes the names of a network file system
	word, _ := os.ReadFile(startPath(f, address))
	return string(word) == g.Start
}

// open returns the folder of the ranks, which the first node makes.
func (g GangNode) open(f runs.Folder, address string) (dir string, err error) {
	if g.Index > 0 {
		return f.Ranks(address), nil
	}
	if dir, err = f.MakeRanks(address); err == nil && g.Count > 1 {
		err = os.WriteFile(startPath(f, address), []byte(g.Start), 0o600)
	}
	return dir, err
}

// remove removes the folder of the ranks on the first node. Ranks of other nodes may still write their last reports
// there.
func (g GangNode) remove(dir string) (err error) {
	if g.Index > 0 {
		return nil
	}
	for deadline := time.Now().Add(rankGrace); ; time.Sleep(100 * time.Millisecond) {
		if err = os.RemoveAll(dir); err == nil || g.Count == 1 || time.Now().After(deadline) {
			return err
		}
	}
}

// devices returns the GPUs of this node. The assignment has those of the first.
func (g GangNode) devices(assigned []string) []string {
	if g.Index == 0 {
		return assigned
	}
	return strings.FieldsFunc(os.Getenv("CUDA_VISIBLE_DEVICES"), func(r rune) bool { return r == ',' })
}
