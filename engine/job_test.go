package engine

import (
	"math"
	"testing"

	"rcgrpo/engine/runs"
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
	var told []runs.Event
	j := &Job{observe: func(e runs.Event) { told = append(told, e) }}
	for i := range 1000 {
		j.Progress(i+1, 1000, "updates", runs.Value{"loss", math.NaN()}, runs.Value{"reward", 1})
	}
	if last := told[len(told)-1]; len(told) > 500 || last.Done != 1000 || len(last.Values) != 1 {
		t.Errorf("got %d events, the last %+v; want few, the end, and no NaN", len(told), last)
	}
}
