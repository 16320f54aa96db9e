package engine

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"rcgrpo/engine/proc"
	"rcgrpo/engine/runs"
)

// GracePeriod is the time that a stage has to stop before it is killed.
func GracePeriod(cause error) time.Duration {
	if errors.Is(cause, errTimeout) {
		return 10 * time.Second
	}
	return 2 * time.Minute // to finish a checkpoint
}

// localExecutor runs nodes on this machine.
type localExecutor struct{}

// Execute executes a node by `node` of the right binary, or here if its kind is InProcess. If this engine is killed,
// the stage continues and its events are in a file.
func (localExecutor) Execute(ctx context.Context, w *Work, observe func(runs.Event)) error {
	if w.Node.Kind.InProcess {
		return w.ExecuteHere(ctx, observe)
	}
	binary, err := w.Binary()
	if err != nil {
		return err
	}
	if err := os.WriteFile(w.Events(), nil, 0o600); err != nil { // of an earlier attempt
		return err
	}
	// Programs of the stage lead sessions of their own; they end with it, however it ends.
	p, err := proc.Start(proc.Command{Args: append([]string{binary}, w.Args()...), Env: w.Env(os.Environ()),
		Files: append([]*os.File{nil, w.Log, w.Log}, w.Held()...), Mark: proc.ScratchMark(w.scratch())})
	if err != nil {
		return fmt.Errorf("start %s: %w", binary, err)
	}
	endFollowing := runs.Follow(w.Events(), observe)
	exit, err := p.Wait(ctx, GracePeriod, w.Kill)
	reported := endFollowing()
	switch {
	case err != nil:
		return fmt.Errorf("wait for %s: %w", binary, err)
	case !exit.Failed():
		return nil
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case reported != nil:
		return reported
	}
	return ExitError(exit, w.Kills)
}

// Binary returns the program that can execute the node: this one, or the one with tensors beside it.
func (w *Work) Binary() (string, error) {
	n := w.Node
	self, err := os.Executable()
	if err != nil {
		return "", err
	}
	if runnerOf(n.Stage) != nil {
		return self, nil
	}
	return TorchBinary("stages of kind " + n.Kind.Name)
}

// TorchBinary returns the program with tensors beside this one. The error says who needs it.
func TorchBinary(who string) (string, error) {
	self, err := os.Executable()
	if err != nil {
		return "", err
	}
	path := cmp.Or(os.Getenv("RCGRPO_TORCH"), filepath.Join(filepath.Dir(self), "rcgrpo-torch"))
	if _, err := os.Stat(path); err != nil {
		return "", fmt.Errorf("%s need tensors, but there is no %s: run `make build`, or name another binary in "+
			"$RCGRPO_TORCH", who, path)
	}
	return path, nil
}

// Env returns base with the variables of the node's share of the machine.
func (w *Work) Env(base []string) []string {
	own := []string{
		fmt.Sprintf("OMP_NUM_THREADS=%d", w.CPUs),
		"CUDA_DEVICE_ORDER=PCI_BUS_ID", // the order of nvidia-smi; the default of CUDA is by speed
		"CUDA_VISIBLE_DEVICES=" + strings.Join(w.GPUs, ","),
		childVariable + "=1",
	}
	others := slices.DeleteFunc(slices.Clone(base), func(v string) bool {
		name, _, _ := strings.Cut(v, "=")
		return slices.ContainsFunc(own, func(o string) bool { return strings.HasPrefix(o, name+"=") })
	})
	return append(others, own...)
}
