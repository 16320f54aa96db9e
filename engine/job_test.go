package engine_test

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"

	"rcgrpo/engine"
	"rcgrpo/engine/artifact"
	"rcgrpo/engine/enginetest"
	"rcgrpo/internal/must"
)

func TestJobWithoutARunReadsItsInputsAndWritesItsPorts(t *testing.T) {
	in, dir := t.TempDir(), t.TempDir()
	ref := artifact.Ref{Kind: "toy", Name: "a", Port: "out"}
	enginetest.WriteFile(t, filepath.Join(in, "out.txt"), "hello")
	var log bytes.Buffer
	setup := engine.JobSetup{Dir: dir, Seed: 3, Inputs: map[artifact.Ref]string{ref: in}, Log: &log}
	j := must.Get(engine.NewJob(setup))(t)
	must.OK(t, (&enginetest.Toy{From: []artifact.Ref{ref}, Text: "mine"}).Run(t.Context(), j))
	wantEqual(t, "port", string(must.Get(os.ReadFile(filepath.Join(dir, "out", "out.txt")))(t)), "mine\nhello\n")
	if _, err := j.Open(artifact.Ref{Kind: "toy", Name: "b", Port: "out"}); err == nil {
		t.Error("input that was not given: got no error, want one")
	}
	j.Logf("a line\n")
	wantEqual(t, "log", log.String(), "a line\n")
}

func TestRandomStreamsDependOnSeedAndNameAlone(t *testing.T) {
	first := engine.Rand(1, "sampling").Uint64()
	for name, tc := range map[string]struct {
		seed   int64
		stream string
		equal  bool
	}{
		"the same again": {1, "sampling", true},
		"another seed":   {2, "sampling", false},
		"another stream": {1, "tasks", false},
		"a negative one": {-1, "sampling", false},
	} {
		wantEqual(t, name+" is equal", engine.Rand(tc.seed, tc.stream).Uint64() == first, tc.equal)
	}
	j := &engine.Job{Address: "stage.a.b", Seed: 1}
	wantEqual(t, "stream of a job", j.Rand("sampling").Uint64(), first)
}
