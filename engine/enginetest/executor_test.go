package enginetest

import (
	"context"
	"os"
	"os/exec"
	"syscall"
	"testing"

	"rcgrpo/engine"
	"rcgrpo/engine/lang"
	"rcgrpo/engine/runs"
)

func TestMain(m *testing.M) { Main(m) }

func TestLocalExecutor(t *testing.T) { Executor(t, nil) }

// inPlace runs nodes in the engine's process.
type inPlace struct{}

func (inPlace) Execute(ctx context.Context, w *engine.Work, observe func(runs.Event)) error {
	return w.Execute(ctx, observe)
}

func TestExecutorInPlace(t *testing.T) { Executor(t, inPlace{}) }

// apart is an executor of another package that starts processes, as one for a cluster would start jobs.
type apart struct{}

func (apart) Execute(ctx context.Context, w *engine.Work, observe func(runs.Event)) error {
	binary, err := w.Binary()
	if err != nil {
		return err
	}
	cmd := exec.CommandContext(ctx, binary, w.Args()...)
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.Env, cmd.ExtraFiles, cmd.Stdout, cmd.Stderr = w.Env(os.Environ()), w.Held(), w.Log, w.Log
	if err := cmd.Start(); err != nil {
		return err
	}
	endFollowing := runs.Follow(w.Events(), observe)
	waitErr := cmd.Wait()
	failure := endFollowing()
	switch {
	case waitErr == nil:
		return nil
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case failure != nil:
		return failure
	}
	return engine.WithCause(lang.CauseKilled, waitErr)
}

func TestExecutorOfAnotherPackage(t *testing.T) { Executor(t, apart{}) }
