package apart

import (
	"testing"

	"rcgrpo/engine/enginetest"
)

func TestMain(m *testing.M) { enginetest.Main(m) }

func TestExecutor(t *testing.T) { enginetest.Executor(t, Executor{}) }
