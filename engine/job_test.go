package engine

import (
	"bytes"
	"math"
	"os"
	"path/filepath"
	"testing"

	"rcgrpo/engine/artifact"
)

func TestRandomStreamsDependOnSeedAndNameAlone(t *testing.T) {
	first := Rand(1, "sampling").Uint64()
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
		if got := Rand(tc.seed, tc.stream).Uint64() == first; got != tc.equal {
			t.Errorf("%s: got equal %v, want %v", name, got, tc.equal)
		}
	}
	j := &Job{Address: "stage.a.b", Seed: 1}
	if got := j.Rand("sampling").Uint64(); got != first {
		t.Errorf("stream of a job: got %d, want %d", got, first)
	}
}

func TestNewJobReadsItsInputsAndKeepsItsPorts(t *testing.T) {
	in, dir := t.TempDir(), t.TempDir()
	ref := artifact.Ref{Kind: "toy", Name: "a", Port: "out"}
	if err := os.WriteFile(filepath.Join(in, "out.txt"), []byte("hello"), 0o600); err != nil {
		t.Fatal(err)
	}
	var log bytes.Buffer
	j, err := NewJob(JobSetup{Dir: dir, Seed: 3, Inputs: map[artifact.Ref]string{ref: in}, Log: &log})
	if err != nil {
		t.Fatal(err)
	}
	if err := (&toy{From: []artifact.Ref{ref}, Text: "mine"}).Run(t.Context(), j); err != nil {
		t.Fatal(err)
	}
	if b, err := os.ReadFile(filepath.Join(dir, "out", "out.txt")); err != nil || string(b) != "mine\nhello\n" {
		t.Errorf("port: got %q, %v", b, err)
	}
	if _, err := j.Open(artifact.Ref{Kind: "toy", Name: "b", Port: "out"}); err == nil {
		t.Error("an input that was not given: got no error, want one")
	}
	j.Logf("a line\n")
	if log.String() != "a line\n" {
		t.Errorf("log: got %q", log.String())
	}
}

func TestPublishedNamesStayBelowTheExperiment(t *testing.T) {
	for _, name := range []string{"../page.html", "/etc/page.html", ""} {
		if err := new(Job).Publish("page", "page.html", name); err == nil {
			t.Errorf("%q: got no error, want one", name)
		}
	}
	j := new(Job)
	if err := j.Publish("page", "page.html", "out/page.html"); err != nil {
		t.Error(err)
	}
	if err := j.Publish("page", "other.html", "out/page.html"); err == nil {
		t.Error("the same name twice: got no error, want one")
	}
}

func TestProgressIsThrottledExceptTheEnd(t *testing.T) {
	var told []Event
	j := &Job{jobBackend: jobBackend{observe: func(e Event) { told = append(told, e) }}}
	for i := range 1000 {
		j.Progress(i+1, 1000, "updates", Value{"loss", math.NaN()}, Value{"reward", 1})
	}
	if last := told[len(told)-1]; len(told) > 500 || last.Done != 1000 || len(last.Values) != 1 {
		t.Errorf("got %d events, the last %+v; want few, the end, and no NaN", len(told), last)
	}
}
