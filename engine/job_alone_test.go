package engine_test

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"

	"rcgrpo/engine"
	"rcgrpo/engine/artifact"
	"rcgrpo/engine/enginetest"
)

func TestJobWithoutARunReadsItsInputsAndWritesItsPorts(t *testing.T) {
	in, dir := t.TempDir(), t.TempDir()
	ref := artifact.Ref{Kind: "toy", Name: "a", Port: "out"}
	enginetest.WriteFile(t, filepath.Join(in, "out.txt"), "hello")
	var log bytes.Buffer
	j, err := engine.NewJob(engine.JobSetup{Dir: dir, Seed: 3, Inputs: map[artifact.Ref]string{ref: in}, Log: &log})
	if err != nil {
		t.Fatal(err)
	}
	if err := (&enginetest.Toy{From: []artifact.Ref{ref}, Text: "mine"}).Run(t.Context(), j); err != nil {
		t.Fatal(err)
	}
	if b, err := os.ReadFile(filepath.Join(dir, "out", "out.txt")); err != nil || string(b) != "mine\nhello\n" {
		t.Errorf("port: got %q, %v, want %q", b, err, "mine\nhello\n")
	}
	if _, err := j.Open(artifact.Ref{Kind: "toy", Name: "b", Port: "out"}); err == nil {
		t.Error("input that was not given: got no error, want one")
	}
	j.Logf("a line\n")
	if log.String() != "a line\n" {
		t.Errorf("log: got %q, want %q", log.String(), "a line\n")
	}
}
