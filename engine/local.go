package engine

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"rcgrpo/engine/artifact"
)

// Executor runs one node to its end. It returns nil when the node's result is committed (or, with inputs missing,
// collected to be shown), the stage's error when it failed, and the context's cause when that ended first. A stage may
// outlive the executor's own process; the next run adopts it. Executors: this machine; a scripted one in tests. Package
// enginetest has the suite that each must pass.
type Executor interface {
	Execute(ctx context.Context, w Work, observe func(Event)) error
}

// Work is one start of one node.
type Work struct {
	Node       *Node
	Experiment *Experiment
	Store      *artifact.Store
	CPUs       int
	GPUs       []string
	Attempt    int
	Log        string          // file that takes the stage's output
	Kill       <-chan struct{} // closed when the stage is to end at once, without its checkpoint; nil: never

	user       *artifact.Session // of the store, for what the stage finds there
	folder     runFolder
	assignment assignment
	lock       *artifact.Lock                // nil when the output is not kept
	lease      *os.File                      // its share of the machine; nil without one
	parts      artifact.Parts                // of the key; nil when the output is not kept
	inputs     map[string]*artifact.Manifest // by address, also those that are not recorded yet
	finish     func(*artifact.Committed)     // takes the result of a stage in this process, to be flushed
	adopt      bool                          // its program has ended already: only what it made is to be taken
}

// Args are the arguments with which Binary runs the node.
func (w Work) Args() []string {
	return []string{"node", "-run", string(w.folder), "-node", w.Node.Address}
}

// Binary is the program that can run the node: this one, or the one with tensors.
func (w Work) Binary() (string, error) { return stageBinary(w.Node) }

// Env is an environment for that program: base with the node's share of the machine.
func (w Work) Env(base []string) []string { return childEnv(base, w.CPUs, w.GPUs) }

// Events is the file to which that program appends what happens, as JSON Lines; Follow reads it.
func (w Work) Events() string { return w.folder.events(w.Node.Address) }

// Held are the files that the program inherits as descriptors 3, 4, …: the key's lock and the share of the machine stay
// taken while one of its processes lives.
func (w Work) Held() []*os.File {
	var files []*os.File
	for _, f := range []*os.File{w.lock.File(), w.lease} {
		if f != nil {
			files = append(files, f)
		}
	}
	return files
}

// Perform runs the node in this process; the run flushes its result. What the stage logs goes to log.
func (w Work) Perform(ctx context.Context, log io.Writer, observe func(Event)) error {
	return (&performance{Node: w.Node, Experiment: w.Experiment, Store: w.Store, User: w.user, Folder: w.folder, Assignment: w.assignment,
		Log: log, Observe: observe, Lock: w.lock, Share: w.lease, Adopt: w.adopt, Kill: w.Kill,
		Parts: w.parts, Inputs: w.inputs, Finish: w.finish}).run(ctx)
}

// How long a stage may take to stop before it is killed.
const (
	graceAfterInterrupt = 2 * time.Minute // to finish its checkpoint
	graceAfterTimeout   = 10 * time.Second
)

func graceAfter(cause error) time.Duration {
	if errors.Is(cause, errTimeout) {
		return graceAfterTimeout
	}
	return graceAfterInterrupt
}

// thisMachine runs light kinds in place and others as one process each.
type thisMachine struct{}

func (thisMachine) Execute(ctx context.Context, w Work, observe func(Event)) error {
	log, err := w.openLog()
	if err != nil {
		return err
	}
	defer log.Close()
	if runsInPlace(w.Node) {
		return w.Perform(ctx, log, observe)
	}
	return process(ctx, w, log, observe)
}

// runsInPlace says whether this machine needs no process of its own for a node.
func runsInPlace(n *Node) bool {
	_, ok := n.Stage.(Runner)
	return ok && n.Kind.InProcess
}

// process runs `node` of the right binary and waits for it. The child leads a session of its own: ^C and the end of the
// terminal reach the engine alone, and when the engine is killed, the stage goes on and its events lie in a file.
func process(ctx context.Context, w Work, log *os.File, observe func(Event)) error {
	binary, err := w.Binary()
	if err != nil {
		return err
	}
	if err := os.WriteFile(w.Events(), nil, 0o600); err != nil { // of an attempt before
		return err
	}
	cmd := exec.Command(binary, w.Args()...)
	cmd.Env = w.Env(os.Environ())
	cmd.Stdout, cmd.Stderr = log, log
	cmd.ExtraFiles = w.Held()
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if w.lock == nil { // nobody could adopt it, so it ends with its engine: when its standard input does
		if _, err := cmd.StdinPipe(); err != nil {
			return err
		}
	}
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("start %s: %w", binary, err)
	}
	session := cmd.Process.Pid
	ended, stopped := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(stopped)
		stopSession(ctx, session, session, w.Kill, ended)
	}()
	followed := make(chan error)
	go func() { followed <- Follow(w.Events(), ended, observe) }()
	waitErr := cmd.Wait()
	close(ended)
	<-stopped
	told := <-followed
	killSession(session) // what it left running
	switch {
	case waitErr == nil && told != nil:
		return fmt.Errorf("read the events of %s: %w", w.Node.Address, told)
	case waitErr == nil:
		return nil
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case told != nil:
		return told
	}
	return exitError(waitErr, w.assignment.Kills)
}

// stopSession waits for the context's end and then stops the session that a process leads: a request to asked (the
// leader, or with a minus its process group) first, SIGKILL to all later, or as soon as kill is closed.
func stopSession(ctx context.Context, leader, asked int, kill, ended <-chan struct{}) {
	select {
	case <-ended:
		return
	case <-ctx.Done():
	}
	syscall.Kill(asked, syscall.SIGTERM)
	grace := time.NewTimer(graceAfter(context.Cause(ctx)))
	defer grace.Stop()
	select {
	case <-ended:
		return
	case <-grace.C:
	case <-kill:
	}
	syscall.Kill(leader, syscall.SIGKILL)
	killSession(leader)
}

// exitError says how a process ended that did not say why. kills is what oomKills said before it started.
func exitError(err error, kills int64) error {
	var exit *exec.ExitError
	if !errors.As(err, &exit) {
		return err
	}
	status, ok := exit.Sys().(syscall.WaitStatus)
	if !ok || !status.Signaled() {
		return fmt.Errorf("its process ended with exit code %d", exit.ExitCode())
	}
	return signalError(status.Signal(), kills)
}

// signalError says which signal ended a process and what that means.
func signalError(signal syscall.Signal, kills int64) error {
	switch signal {
	case syscall.SIGKILL:
		return killedError(kills, oomKills())
	case syscall.SIGTERM, syscall.SIGHUP, syscall.SIGINT:
		return WithCause(CausePreempted, fmt.Errorf("its process was told to stop (%v)", signal))
	}
	return fmt.Errorf("its process died: %v", signal)
}

// killedError tells a kill by the kernel for want of memory from others, by what oomKills said before and after.
func killedError(before, after int64) error {
	if before >= 0 && after > before {
		return WithCause(CauseOOM, errors.New("the kernel killed its process because memory ran out (SIGKILL)"))
	}
	return WithCause(CauseKilled, errors.New("its process was killed (SIGKILL)"))
}

// torchBinary is the name of the binary with tensors, beside this one.
const torchBinary = "rcgrpo-torch"

// stageBinary is this binary when it can run the node, otherwise the one with tensors.
func stageBinary(n *Node) (string, error) {
	self, err := os.Executable()
	if err != nil {
		return "", err
	}
	if _, ok := n.Stage.(Runner); ok {
		return self, nil
	}
	if path := os.Getenv("RCGRPO_TORCH"); path != "" {
		if _, err := os.Stat(path); err != nil {
			return "", fmt.Errorf("stages of kind %s need tensors, and $RCGRPO_TORCH names %s: %w", n.Kind.Name, path, errors.Unwrap(err))
		}
		return path, nil
	}
	path := filepath.Join(filepath.Dir(self), torchBinary)
	if _, err := os.Stat(path); err != nil {
		return "", fmt.Errorf("stages of kind %s need tensors, and there is no %s: `make build` makes it, $RCGRPO_TORCH names another one", n.Kind.Name, path)
	}
	return path, nil
}

// childEnv is the environment of a stage's process: the engine's, with its share of the machine.
func childEnv(env []string, cpus int, gpus []string) []string {
	own := []string{
		fmt.Sprintf("OMP_NUM_THREADS=%d", cpus),
		"CUDA_DEVICE_ORDER=PCI_BUS_ID", // numbers as nvidia-smi gives them; CUDA's own order is by speed
		"CUDA_VISIBLE_DEVICES=" + strings.Join(gpus, ","),
		childVariable + "=1",
	}
	env = slices.DeleteFunc(slices.Clone(env), func(v string) bool {
		return slices.ContainsFunc(own, func(o string) bool {
			name, _, _ := strings.Cut(o, "=")
			return strings.HasPrefix(v, name+"=")
		})
	})
	return append(env, own...)
}
