package engine

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"rcgrpo/engine/proc"
	"rcgrpo/engine/runs"
)

// A gang on several nodes has a supervisor on each node, which starts an equal share of the ranks. The first supervisor
// makes the folder of the ranks and reports the failure of the stage; the others leave the failures of their ranks
// there. All nodes see the folder.

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

// open returns the folder of the ranks and a function that removes it. The first node makes it.
func (g GangNode) open(f runs.Folder, address string) (dir string, remove func() error, err error) {
	if g.Index > 0 {
		return f.Ranks(address), func() error { return nil }, nil
	}
	if dir, err = f.MakeRanks(address); err == nil && g.Count > 1 {
		err = os.WriteFile(startPath(f, address), []byte(g.Start), 0o600)
	}
	return dir, func() error { return g.remove(dir) }, err
}

// remove removes the folder of the ranks. Ranks of other nodes may still write their last reports there.
func (g GangNode) remove(dir string) (err error) {
	for deadline := time.Now().Add(lastWords); ; time.Sleep(100 * time.Millisecond) {
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

// leaveFailures leaves the failures of ranks that could not do it themselves.
func leaveFailures(ends []rankEnd, meet string, kills int64) {
	for _, e := range ends {
		if _, err := os.Stat(failurePath(meet, strconv.Itoa(e.rank))); err != nil && !e.killed {
			err := ExitError(e.exit(), kills)
			leaveFailure(meet, strconv.Itoa(e.rank), rankFailure{Failure: runs.Failure{Text: err.Error(), Cause: CauseOf(err)}})
		}
	}
}

// failuresElsewhere returns the ends of ranks of other nodes that left a failure.
func (g *gang) failuresElsewhere() (ends []rankEnd) {
	if g.at.Count == 1 || g.at.Index > 0 {
		return nil
	}
	for rank := range g.node.Resources.Processes {
		if _, left := readFailure(g.meet, rank); left && (rank < g.first || rank >= g.first+len(g.ranks)) {
			ends = append(ends, rankEnd{rank: rank, status: syscall.WaitStatus(1 << 8)}) // exit code 1
		}
	}
	return ends
}

// withElsewhere adds the failures of other nodes to those of this one. It waits for a failure that follows from no
// other, since the ranks of this node may notice it before it is visible here.
func (g *gang) withElsewhere(own []rankEnd) []rankEnd {
	if g.at.Count == 1 {
		return own
	}
	cause := func(e rankEnd) bool {
		f, left := readFailure(g.meet, e.rank)
		return left && !f.Echo || !left && !e.killed
	}
	for since := time.Now(); ; time.Sleep(100 * time.Millisecond) {
		all := append(g.failuresElsewhere(), own...)
		if slices.ContainsFunc(all, cause) || time.Since(since) > lastWords {
			return all
		}
	}
}

// exit returns how the process of the rank ended.
func (e rankEnd) exit() proc.Exit {
	if e.status.Signaled() {
		return proc.Exit{Signal: e.status.Signal()}
	}
	return proc.Exit{Code: e.status.ExitStatus()}
}

// errHelper is the end of a supervisor whose ranks have left their failures to that of the first node.
var errHelper = errors.New("ranks of this node have failed; the first node reports the failure")
