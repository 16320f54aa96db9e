package grpo

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/hashicorp/hcl/v2"

	"rcgrpo/engine"
)

// given stands for the stages that others would make checkpoints and tasks with.
type given struct{}

func (given) Check() hcl.Diagnostics { return nil }

// load decodes one stage as a file would give it and returns what is wrong with it, beside the stage.
func load(t *testing.T, kind, body string) (engine.Stage, string) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "x.hcl")
	text := "experiment {}\nstage \"given\" \"g\" {}\nstage \"" + kind + "\" \"s\" {\npolicy = stage.given.g.checkpoint\ntasks = stage.given.g.tasks\n" + body + "\n}\n"
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	x, diags := engine.Load(engine.Source{Path: path}, append(Kinds(), &engine.Kind{
		Name: "given", Summary: "Given.", New: func() engine.Stage { return &given{} },
		Outputs: func(engine.Stage) map[string]string {
			return map[string]string{"checkpoint": "checkpoint", "tasks": "tasks"}
		},
	}))
	var said []string
	for _, d := range diags {
		said = append(said, d.Summary+": "+d.Detail)
	}
	for _, n := range x.Nodes {
		if n.Kind.Name == kind {
			return n.Stage, strings.Join(said, "\n")
		}
	}
	return nil, strings.Join(said, "\n")
}

func TestDefaultsAreThePapers(t *testing.T) {
	stage, mistakes := load(t, "grpo", "")
	if mistakes != "" {
		t.Fatal(mistakes)
	}
	g := stage.(*grpo)
	if g.Group != 5 || g.Batch != 64 || g.LR != 1e-6 || g.KL.Beta != 0.1 || g.Ratio.Level != "trajectory" || g.Tokens.High != nil {
		t.Errorf("grpo: got %+v", g.settings)
	}
	stage, mistakes = load(t, "rc-grpo", "")
	if mistakes != "" {
		t.Fatal(mistakes)
	}
	c := stage.(*conditioned)
	if c.Group != 5 || c.Batch != 256 || c.Tokens.High != 0.5 || c.Tokens.Allocation != "iid" {
		t.Errorf("rc-grpo: got %+v, %+v", c.settings, c.Tokens)
	}
}

func TestHighOfGRPOIsAbsentNoneOrAll(t *testing.T) {
	for body, want := range map[string]float64{"tokens {\nhigh = 1\n}": 1, "tokens {\nhigh = 0\n}": 0} {
		stage, mistakes := load(t, "grpo", body)
		if mistakes != "" {
			t.Fatal(mistakes)
		}
		if got := stage.(*grpo).Tokens.High; got == nil || *got != want {
			t.Errorf("%q: got %v, want %v", body, got, want)
		}
	}
}

func TestValuesOutOfRangeAreRefused(t *testing.T) {
	for _, tc := range []struct{ kind, body, want string }{
		{"grpo", "tokens {\nhigh = 0.5\n}", "Use rc-grpo to draw tokens"},
		{"grpo", "tokens {\nhigh = -1\n}", "got -1"},
		{"grpo", "group = 1", "at least 2; got 1"},
		{"grpo", "updates = 0", "at least one update; got 0"},
		{"grpo", "batch = 0", "at least one task; got 0"},
		{"grpo", "lr = 0", "above 0; got 0"},
		{"grpo", "temperature = 0", "above 0; got 0"},
		{"grpo", "keep = -1", "got -1"},
		{"grpo", "optimizer {\nbeta1 = 1\n}", "below 1; got 1"},
		{"grpo", "kl {\nestimator = \"exact\"\nplace = \"reward\"\n}", "place = \"loss\""},
		{"rc-grpo", "tokens {\nhigh = 1.5\n}", "between 0 and 1; got 1.5"},
		{"rc-grpo", "tokens {\ninit = \"zeros\"\n}", "got \"zeros\""},
		{"rc-grpo", "group = 0", "at least 2; got 0"},
	} {
		if _, got := load(t, tc.kind, tc.body); !strings.Contains(got, tc.want) {
			t.Errorf("%s, %q: got %q, want it to say %q", tc.kind, tc.body, got, tc.want)
		}
	}
}
