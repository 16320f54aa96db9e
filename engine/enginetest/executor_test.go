package enginetest

import (
	"context"
	"testing"

	"rcgrpo/engine"
	"rcgrpo/engine/runs"
)

func TestMain(m *testing.M) { Main(m) }

func TestLocalExecutor(t *testing.T) { Executor(t, nil) }

// inPlace runs nodes in the engine's process.
type inPlace struct{}

func (inPlace) Execute(ctx context.Context, w *engine.Work, observe func(runs.Event)) error {
	return w.ExecuteHere(ctx, observe)
}

func TestExecutorInPlace(t *testing.T) { Executor(t, inPlace{}) }
