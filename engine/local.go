package engine

import (
	"context"
	"errors"
	"fmt"
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
// collected to be shown), the stage's error when it failed, and the context's cause when that ended first. Executors:
// this machine; a scripted one in tests.
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
	Log        string // file that takes the stage's output

	folder     runFolder
	assignment assignment
	lock       *artifact.Lock // nil when the output is not kept
}

// How long a stage may take to stop before it is killed.
const (
	graceAfterInterrupt = 2 * time.Minute // to finish its checkpoint
	graceAfterTimeout   = 10 * time.Second
)

// thisMachine runs light kinds in place and others as one process each.
type thisMachine struct{}

func (thisMachine) Execute(ctx context.Context, w Work, observe func(Event)) error {
	log, err := os.OpenFile(w.Log, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return err
	}
	defer log.Close()
	if _, ok := w.Node.Stage.(Runner); ok && w.Node.Kind.Light {
		p := performance{Node: w.Node, Experiment: w.Experiment, Store: w.Store, Folder: w.folder, Assignment: w.assignment,
			Log: log, Observe: observe}
		if w.lock != nil {
			p.Lock = w.lock.File()
		}
		return p.run(ctx)
	}
	return process(ctx, w, log, observe)
}

// process runs `node` of the right binary and waits for it. The child leads a process group of its own, so ^C in the
// terminal reaches the engine alone, which then asks the child to stop.
func process(ctx context.Context, w Work, log *os.File, observe func(Event)) error {
	binary, err := stageBinary(w.Node)
	if err != nil {
		return err
	}
	events, childEvents, err := os.Pipe()
	if err != nil {
		return err
	}
	defer events.Close()
	cmd := exec.Command(binary, "node", "-run", string(w.folder), "-node", w.Node.Address)
	cmd.Env = childEnv(os.Environ(), w.CPUs, w.GPUs)
	cmd.Stdout, cmd.Stderr = log, log
	cmd.ExtraFiles = []*os.File{childEvents}
	if w.lock != nil {
		cmd.ExtraFiles = append(cmd.ExtraFiles, w.lock.File())
	}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if _, err := cmd.StdinPipe(); err != nil { // open as long as this process lives
		return errors.Join(err, childEvents.Close())
	}
	err = cmd.Start()
	childEvents.Close()
	if err != nil {
		return fmt.Errorf("start %s: %w", binary, err)
	}
	ended := make(chan struct{})
	stopped := make(chan struct{})
	go func() {
		defer close(stopped)
		stopChild(ctx, cmd.Process.Pid, ended)
	}()
	var failed *Event
	readErr := readEvents(events, func(e Event) {
		if e.Kind == EventFailed {
			failed = &e
			return
		}
		observe(e)
	})
	waitErr := cmd.Wait()
	close(ended)
	<-stopped
	switch {
	case waitErr == nil && readErr != nil:
		return fmt.Errorf("read the events of %s: %w", w.Node.Address, readErr)
	case waitErr == nil:
		return nil
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case failed != nil && failed.Failure != nil && failed.Failure.Cause != "":
		return WithCause(failed.Failure.Cause, errors.New(failed.Text))
	case failed != nil:
		return errors.New(failed.Text)
	}
	return exitError(waitErr)
}

// stopChild waits for the context's end and then stops the child's process group: a request first, SIGKILL later.
func stopChild(ctx context.Context, pid int, ended <-chan struct{}) {
	select {
	case <-ended:
		return
	case <-ctx.Done():
	}
	syscall.Kill(pid, syscall.SIGTERM)
	grace := graceAfterInterrupt
	if errors.Is(context.Cause(ctx), errTimeout) {
		grace = graceAfterTimeout
	}
	kill := time.NewTimer(grace)
	defer kill.Stop()
	select {
	case <-ended:
	case <-kill.C:
		syscall.Kill(-pid, syscall.SIGKILL)
		<-ended
	}
}

// exitError says how a process ended that did not say why.
func exitError(err error) error {
	var exit *exec.ExitError
	if !errors.As(err, &exit) {
		return err
	}
	status, ok := exit.Sys().(syscall.WaitStatus)
	if !ok || !status.Signaled() {
		return fmt.Errorf("its process ended with exit code %d", exit.ExitCode())
	}
	switch status.Signal() {
	case syscall.SIGKILL:
		return WithCause(CauseOOM, errors.New("its process was killed (SIGKILL), as the kernel does when memory runs out"))
	case syscall.SIGTERM, syscall.SIGHUP, syscall.SIGINT:
		return WithCause(CausePreempted, fmt.Errorf("its process was told to stop (%v)", status.Signal()))
	}
	return fmt.Errorf("its process died: %v", status.Signal())
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

// gpuIDs asks the driver which devices there are; none without a driver.
func gpuIDs(ctx context.Context) []string {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	out, err := exec.CommandContext(ctx, "nvidia-smi", "--query-gpu=index", "--format=csv,noheader").Output()
	if err != nil {
		return nil
	}
	return strings.Fields(string(out))
}
