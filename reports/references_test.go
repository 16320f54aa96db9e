package reports

import (
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"rcgrpo/engine/lang"
	"rcgrpo/internal/must"
	"rcgrpo/reports/stats"
)

func TestMistakesOfAReferenceNameTheirPlaceAndAWayOut(t *testing.T) {
	stages, _, _ := strings.Cut(strings.ReplaceAll(scriptedExperiment, "FAIL", `"none"`), `stage "report" "page"`)
	const right = `of = { overall = 40, base = 10 }`
	for name, tc := range map[string]struct{ block, want string }{
		"an arm that the page lacks": {right + `; counts = { "Non" = { overall = 1 } }`, `Unknown arm: No evaluation in scores is called "Non"; did you mean None?`},
		"an other arm that it has":   {right + `; others = { "None" = { overall = 1 } }`, "Arm of this page: "},
		"a category that does not exist": {`of = { overall = 4, bass = 2 }; counts = { "None" = { overall = 1 } }`,
			"Unknown category: No category is called \"bass\"; did you mean base?"},
		"a category without tasks": {right + `; counts = { "None" = { overall = 1, miss_func = 1 } }`,
			`Impossible counts: counts."None": miss_func is not in of; add its number of tasks there or remove it.`},
		"more passed tasks than tasks": {right + `; counts = { "None" = { overall = 41 } }`,
			`Impossible counts: counts."None": overall has 41 passed tasks of 40; write a count from 0 to 40.`},
		"a sum that is not the whole": {`of = { overall = 4, base = 2, miss_func = 2 }; ` +
			`counts = { "None" = { overall = 3, base = 1, miss_func = 1 } }`,
			`Impossible counts: counts."None": its categories add up to 2 passed tasks, but overall is 3;`},
		"no overall count":  {right + `; counts = { "None" = { base = 1 } }`, "write its passed tasks of all tasks, overall = N."},
		"no overall number": {`of = { base = 10 }; counts = { "None" = { base = 1 } }`, "No number of tasks: Write of = { overall = N }"},
		"no tasks":          {`of = { overall = 0 }; counts = { "None" = { overall = 0 } }`, "No tasks: "},
		"no arm":            {right, "Empty reference: "},
	} {
		t.Run(name, func(t *testing.T) {
			file := filepath.Join(t.TempDir(), "x.hcl")
			text := stages + "stage \"report\" \"page\" {\n  scores = [stage.eval.arm]\n  reference \"paper\" {\n    " +
				strings.ReplaceAll(tc.block, "; ", "\n    ") + "\n  }\n}\n"
			must.OK(t, os.WriteFile(file, []byte(text), 0o600))
			_, diags := lang.Load(lang.Source{Path: file}, scriptedKinds())
			if len(diags) == 0 {
				t.Fatal("got no diagnostic")
			}
			if got := diags[0].Summary + ": " + diags[0].Detail; !strings.Contains(got, tc.want) {
				t.Errorf("got %s, want %s", got, tc.want)
			}
			if line := strings.Split(text, "\n")[diags[0].Subject.Start.Line-1]; !strings.Contains(line, " = {") &&
				!strings.Contains(line, "reference") {
				t.Errorf("the diagnostic is at the line %q", line)
			}
		})
	}
}

// The paper's RCTP-FT arms on Qwen: 59 and 68 of 80 tasks. The Wilson intervals are those of design/training.md 1.4.
func TestAReferenceGivesSharesAndEffectsOfTheFirstTaskSet(t *testing.T) {
	s := &Study{Arms: []Arm{{Label: "ours", Runs: []SeedRun{scored(1, "1100")}}}, References: []Reference{{Name: "paper",
		Of:     map[string]int{"overall": 80, "base": 18},
		Counts: map[string]map[string]int{"GRPO": {"overall": 59}, "RC": {"overall": 68, "base": 14}}}}}
	p := s.referenceOf("GRPO", "", "")
	if p == nil || p.Count != 59 || p.Of != 80 || math.Abs(p.Interval.Low-0.632) > 5e-4 ||
		math.Abs(p.Interval.High-0.821) > 5e-4 {
		t.Fatalf("got %+v, want 59 of 80, 63.2 … 82.1 %%", p)
	}
	for what, p := range map[string]*Published{"another task set": s.referenceOf("GRPO", "test_new", ""),
		"a category that it does not report": s.referenceOf("GRPO", "", "base"), "an arm of ours": s.referenceOf("ours", "", "")} {
		if p != nil {
			t.Errorf("%s: got %+v, want nothing", what, p)
		}
	}
	e := s.referenceEffect("GRPO", "RC", "", "")
	want := stats.Newcombe(59./80, stats.Wilson(59, 80, stats.Level), 68./80, stats.Wilson(68, 80, stats.Level))
	if e == nil || math.Abs(e.Difference-9./80) > 1e-15 || e.Interval != want {
		t.Errorf("got %+v, want 11.25 points %v", e, want)
	}
	if e := s.referenceEffect("GRPO", "ours", "", ""); e != nil {
		t.Errorf("an effect of an arm that it does not report: got %+v", e)
	}
}
