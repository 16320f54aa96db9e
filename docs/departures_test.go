package docs_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"rcgrpo/bench/fixtures"
	"rcgrpo/engine/lang"
	"rcgrpo/internal/must"
	"rcgrpo/reports"
)

// chosenByTheFile are settings of the paper that have no default, or another one.
var chosenByTheFile = []string{"lr", "batch", "epochs", "updates", "group", "tokens.high"}

// The page marks departures from the paper's profile. Where the paper specifies nothing, the profile has the defaults
// of the kinds. So a new setting of the objective, or a changed default, must be added to the page's table.
func TestPaperSettingsAreTheDefaultsOfTheKinds(t *testing.T) {
	file := filepath.Join(t.TempDir(), "x.hcl")
	text := `
experiment {}
stage "tasks" "t" {
  source = "drills"
}
stage "curate" "d" {
  tasks  = stage.tasks.t.train
  ratio  = 1
  spoilt = 1
}
stage "model" "m" {
  path = dir("` + fixtures.Dir(t, "hf/models/qwen2-tiny") + `")
}
stage "sft" "x" {
  policy = stage.model.m.checkpoint
  data   = [stage.curate.d.expert]
}
stage "rctp-ft" "x" {
  policy = stage.model.m.checkpoint
  data   = [stage.curate.d.mixed]
}
stage "grpo" "x" {
  policy = stage.sft.x.checkpoint
  tasks  = stage.tasks.t.train
}
stage "rc-grpo" "x" {
  policy = stage.rctp-ft.x.checkpoint
  tasks  = stage.tasks.t.train
}
`
	must.OK(t, os.WriteFile(file, []byte(text), 0o644))
	x, diags := lang.Load(lang.Source{Path: file}, kinds())
	if diags.HasErrors() {
		t.Fatal(diags)
	}
	compared := 0
	for _, n := range x.Nodes {
		paper := reports.PaperSettings()[n.Kind.Name]
		if paper == nil {
			continue
		}
		compared++
		known := map[string]bool{}
		for _, s := range n.Settings {
			known[s.Name] = true
			want, listed := paper[s.Name]
			objective := false
			for _, block := range []string{"advantage.", "ratio.", "clip.", "loss.", "kl.", "sampler_correction.",
				"schedule.", "optimizer.", "tokens."} {
				objective = objective || strings.HasPrefix(s.Name, block)
			}
			switch {
			case !s.InKey: // results do not depend on it
			case !listed && objective && !(n.Kind.Name == "grpo" && s.Name == "tokens.high"): // grpo has no token
				t.Errorf("%s of %s is not in reports.PaperSettings, so a page would not mark it; its default is %s", s.Name,
					n.Kind.Name, s.Value)
			case listed && !slices.Contains(chosenByTheFile, s.Name) && !equalJSON(t, s.Value, want) &&
				s.Value != `"checkpoint"`:
				t.Errorf("%s of %s: reports.PaperSettings has %s, the default is %s", s.Name, n.Kind.Name, want, s.Value)
			}
		}
		for name := range paper {
			if !known[name] {
				t.Errorf("reports.PaperSettings has %s of %s, which is not a setting", name, n.Kind.Name)
			}
		}
	}
	if compared != 4 {
		t.Errorf("got %d training stages compared, want 4", compared)
	}
}

func equalJSON(t *testing.T, a, b string) bool {
	t.Helper()
	var x, y any
	must.OK(t, json.Unmarshal([]byte(a), &x))
	must.OK(t, json.Unmarshal([]byte(b), &y))
	return reflect.DeepEqual(x, y)
}
