package engine

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"runtime/debug"
	"strconv"
	"syscall"
	"time"

	"rcgrpo/engine/artifact"
	"rcgrpo/engine/internal/alive"
	"rcgrpo/engine/journal"
	"rcgrpo/engine/lang"
	"rcgrpo/engine/proc"
	"rcgrpo/engine/runs"
)

// SourceDigest identifies the code of this binary; the build sets it (-ldflags "-X rcgrpo/engine.SourceDigest=…"). A
// stage runs only in a binary with the digest of the engine that starts it.
var SourceDigest string

// Revision returns SourceDigest, or the version that the Go tool derived from the commit, or "unknown".
func Revision() string {
	if info, ok := debug.ReadBuildInfo(); ok && SourceDigest == "" {
		return cmp.Or(info.Main.Version, "unknown")
	}
	return cmp.Or(SourceDigest, "unknown")
}

// Protocol between an engine and the process of a node.
const (
	childVariable = "RCGRPO_CHILD" // environment variable, set to 1
	codeVariable  = "RCGRPO_CODE"  // exit code of the stage's program, whose engine was killed
	lockFile      = 3              // inherited descriptor of the key's lock
	leaseFile     = 4              // inherited descriptor of the lease, behind the lock
)

// MemoryLimit calls exceeded once this process uses more memory than its limit and than the reserved bytes.
type MemoryLimit func(reserved int64, exceeded func(limit uint64))

// NodeMain is the main function of the process of one node, which an engine starts or the shell of a program becomes.
// It returns the exit code. It appends its events to a file of the run folder, stops on SIGTERM after a checkpoint, and
// continues if the engine is killed. Without limitMemory, its memory has no limit.
func NodeMain(runDir, address string, reg lang.Registry, stderr io.Writer, limitMemory MemoryLimit) int {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	folder, observe := runs.Folder(runDir), func(runs.Event) {}
	own, isRank := ownRank()
	var lock *os.File
	a, err := folder.Assignment(address)
	if err == nil && os.Getenv(childVariable) != "" {
		syscall.CloseOnExec(lockFile)
		syscall.CloseOnExec(leaseFile)
		if !a.ShownOnly() { // otherwise there is only a lease
			lock = os.NewFile(lockFile, "lock")
			defer lock.Close()
			defer alive.Beat(lock)() // of a claim
			if _, job := os.LookupEnv(AttemptVariable); !job && !isRank {
				holder, _ := a.Holder(folder).WithProcess(os.Getpid())
				err = holder.Write(lock)
			}
		}
		if own.number == 0 {
			events, openErr := journal.Open(folder.Events(address))
			if err = errors.Join(err, openErr); openErr == nil {
				observe = func(e runs.Event) {
					if err := events.Append(e); err != nil {
						fmt.Fprintf(stderr, "write events: %v\n", err)
					}
				}
			}
		}
	}
	fail := func(err error) int {
		fmt.Fprintln(stderr, err)
		if isRank {
			failureOf(own.number, err).leave(own.meet)
			return 1
		}
		observe(runs.Event{Time: time.Now(), Address: address, Kind: runs.EventFailed, Text: err.Error(),
			Failure: &runs.Failure{Text: err.Error(), Cause: CauseOf(err)}})
		return 1
	}
	watch := func(reserved int64) {
		if limitMemory == nil {
			return
		}
		limitMemory(reserved, func(limit uint64) {
			os.Exit(fail(WithCause(lang.CauseOOM, fmt.Errorf("it needs more than %d MiB of memory, as files of strangers can "+
				"be made to; if you trust what it reads, reserve more: resources { memory = \"8GiB\" }", limit>>20))))
		})
	}
	if err == nil {
		err = runNode(ctx, folder, a, reg, observe, lock, watch)
	}
	if err != nil {
		return fail(err)
	}
	return 0
}

// runNode executes one node of a run folder in this process, as its engine assigned it, and commits the result. It
// loads the experiment from the folder's copy and returns an error if the node's key differs from the planned one. A
// panic becomes an error. lock is the lock of the key, inherited from the engine. watch ends the process of a
// light stage when it uses more memory than that stage may.
func runNode(ctx context.Context, folder runs.Folder, a runs.Assignment, reg lang.Registry, observe func(runs.Event),
	lock *os.File, watch func(reserved int64),
) (err error) {
	defer func() {
		if v := recover(); v != nil {
			err = fmt.Errorf("%s ended with a bug in the program: %v", a.Address, v)
		}
	}()
	source, err := folder.Source()
	if err != nil {
		return err
	}
	var code *int // with one, the process runs nothing more, so it may be built from other code
	if n, err := strconv.Atoi(os.Getenv(codeVariable)); err == nil {
		code = &n
	} else if a.Revision != Revision() {
		return fmt.Errorf("this binary is built from other code (%s) than the engine that starts it (%s): build both again",
			Revision(), a.Revision)
	}
	x, diags := lang.Load(source, reg)
	if diags.HasErrors() {
		return fmt.Errorf("load the run folder's copy of %s: %w", source.Name, diags)
	}
	n := x.Node(a.Address)
	if n == nil {
		return fmt.Errorf("the run folder's copy of %s has no %s", source.Name, a.Address)
	}
	var own rank
	if n.Resources.Processes > 1 {
		var isRank bool
		if own, isRank = ownRank(); !isRank {
			return supervise(ctx, folder, a, n)
		}
		own.count = n.Resources.Processes
	}
	store, err := artifact.Open(a.Store)
	if err != nil {
		return err
	}
	if os.Getenv(childVariable) == "" {
		return fmt.Errorf("%s must be started by an engine, which holds its lock", a.Address)
	}
	w := &Work{Assignment: a, Node: n, experiment: x, store: store, Folder: folder, alone: code == nil, rank: own,
		inherited: lock, code: code}
	proc.LimitLocks(proc.ScratchMark(w.scratch()))
	if n.Kind.Light {
		go watch(n.Resources.Memory)
	}
	if err := w.ExecuteHere(ctx, observe); err != nil || w.result == nil {
		return err
	}
	return store.RemoveWork(a.Key)
}
