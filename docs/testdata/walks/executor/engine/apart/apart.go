// Package apart is an executor that starts a process for each node, as one for a cluster would start jobs.
package apart

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"syscall"

	"rcgrpo/engine"
	"rcgrpo/engine/lang"
	"rcgrpo/engine/runs"
)

// Executor starts each node's program and follows its events.
type Executor struct{}

// Execute runs one node to its end.
func (Executor) Execute(ctx context.Context, w *engine.Work, observe func(runs.Event)) error {
	binary, err := w.Binary()
	if err != nil {
		return err
	}
	fmt.Fprintf(w.Log, "apart starts %s\n", w.Node.Address)
	command := exec.CommandContext(ctx, binary, w.Args()...)
	command.Cancel = func() error { return command.Process.Signal(syscall.SIGTERM) }
	command.Env, command.ExtraFiles, command.Stdout, command.Stderr = w.Env(os.Environ()), w.Held(), w.Log, w.Log
	if err := command.Start(); err != nil {
		return err
	}
	endFollowing := runs.Follow(w.Events(), observe)
	waited := command.Wait()
	told := endFollowing()
	switch {
	case waited == nil:
		return nil
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case told != nil:
		return told
	}
	return engine.WithCause(lang.CauseKilled, waited)
}
