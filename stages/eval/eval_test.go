package eval

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/hashicorp/hcl/v2"

	"rcgrpo/engine"
)

// given stands for the stages that make checkpoints and tasks.
type given struct{}

func (given) Check() hcl.Diagnostics { return nil }

// mistakes are those of an eval stage with this body.
func mistakes(t *testing.T, body string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "x.hcl")
	text := "experiment {}\nstage \"given\" \"g\" {}\nstage \"eval\" \"s\" {\npolicy = stage.given.g.checkpoint\ntasks = stage.given.g.tasks\n" + body + "\n}\n"
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	_, diags := engine.Load(engine.Source{Path: path}, engine.Registry{Kind(), {
		Name: "given", Summary: "Given.", New: func() engine.Stage { return &given{} },
		Outputs: func(engine.Stage) map[string]string {
			return map[string]string{"checkpoint": "checkpoint", "tasks": "tasks"}
		},
	}})
	var said []string
	for _, d := range diags {
		said = append(said, d.Detail)
	}
	return strings.Join(said, "\n")
}

func TestValuesOutOfRangeAreRefused(t *testing.T) {
	for body, want := range map[string]string{
		"":                 "",
		"temperature = -1": "got -1",
		"samples = 2":      "2 samples at temperature 0",
		"samples = 0":      "0 samples",
		"samples = 4\ntemperature = 1\nk = [1, 4]": "",
		"samples = 4\ntemperature = 1\nk = [1, 5]": "from 4 episodes of a task, so each k lies between 1 and that; got 5",
		"k = [0]":         "got 0",
		"token = \"top\"": "\"checkpoint\", \"none\", \"high\", \"low\"",
	} {
		got := mistakes(t, body)
		if want == "" && got != "" || !strings.Contains(got, want) {
			t.Errorf("%q: got %q, want it to say %q", body, got, want)
		}
	}
}
