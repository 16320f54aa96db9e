package rollout

import (
	"strings"
	"testing"

	"rcgrpo/engine/enginetest"
	"rcgrpo/engine/lang"
)

func TestValuesOutOfRangeAreRefused(t *testing.T) {
	for body, want := range map[string]string{
		"":                           "",
		"temperature = 0":            "at least 0.001; got 0",
		"temperature = 2\ntop_p = 1": "",
		"top_p = 0":                  "above 0 and at most 1; got 0",
		"samples = 0":                "at least once; got 0",
		"samples = 10000001":         "samples is at most 10000000; got 10000001",
		"limits {\nsteps = 4611686018427387904\n}": "steps is at most 10000000; got 4611686018427387904",
	} {
		_, diags := enginetest.Load(t, lang.Registry{Kind(),
			enginetest.Given(map[string]string{"checkpoint": "checkpoint", "tasks": "tasks"})},
			"stage \"given\" \"g\" {}\nstage \"rollout\" \"s\" {\npolicy = stage.given.g.checkpoint\ntasks = "+
				"stage.given.g.tasks\n"+body+"\n}\n")
		if got := enginetest.Mistakes(diags); want == "" && got != "" || !strings.Contains(got, want) {
			t.Errorf("%q: got %q, want it to say %q", body, got, want)
		}
	}
}
