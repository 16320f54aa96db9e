package reports

import (
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/hashicorp/hcl/v2"

	"rcgrpo/internal/must"
	"rcgrpo/reports/page"
	"rcgrpo/stages/rl"
)

// mapStudy has two pairs of arms with a training each. Early gap of the second arms: 0.1 and 0.3. Early share without
// variance of the first arms: 0.5 and 0.9. Successes of 8 tasks: 2 and 8, then 6 and 5.
func mapStudy() *Study {
	arm := func(label, passed string, gap, zero float64) Arm {
		run := scored(1, passed)
		run.CurveFrom = "stage.grpo.arm[" + label + "]@1.metrics"
		for u := range 20 { // early: the first ten updates
			late := float64(u / 10)
			run.Curve = append(run.Curve, rl.Metric{Update: u + 1, Values: map[string]float64{"token_gap": gap + late,
				"zero_variance": zero + 0.01*float64(u%2) + late}})
		}
		return Arm{Label: label, Runs: []SeedRun{run}}
	}
	return &Study{Windows: Windows{Early: 10, Late: 10},
		Arms: []Arm{arm("GRPO, a/b", "11000000", 7, 0.495), arm("RC-GRPO, a/b", "11111111", 0.1, 7),
			arm("GRPO, a/c", "11101110", 7, 0.895), arm("RC-GRPO, a/c", "11011100", 0.3, 7)},
		Compare: []Comparison{{Label: "tokens", Pairs: [][]string{{"GRPO, a/b", "RC-GRPO, a/b"}}, Expect: "higher"},
			{Label: "tokens", Pairs: [][]string{{"GRPO, a/b", "RC-GRPO, a/b"}}, Outcome: "zero_variance"},
			{Label: "tokens", Pairs: [][]string{{"GRPO, a/c", "RC-GRPO, a/c"}}}},
		Maps: []Map{{Title: "Where tokens help", Compare: "tokens", Outcome: OutcomeSuccess, X: "token_gap",
			Y: "zero_variance"}}}
}

func TestAMapPlacesEachPairByEarlyMetricsOfItsArms(t *testing.T) {
	p := mapStudy().Page()
	first := p.Sections[0].Parts
	if f := first[0].Figure; f == nil || f.Scale == "" || f != p.Figures()[1] { // behind the forest plot
		t.Fatalf("the first part of the page is %+v, want the figure of the map", first[0])
	}
	for i, want := range []page.Point{{Label: "a/b", X: 0.1, Value: 0.5, Shade: 75},
		{Label: "a/c", X: 0.3, Value: 0.9, Shade: -12.5}} {
		got := first[0].Figure.Series[0].Points[i]
		if got.Label != want.Label || math.Abs(got.X-want.X)+math.Abs(got.Value-want.Value)+
			math.Abs(got.Shade-want.Shade) > 1e-9 {
			t.Errorf("mark %d: got %+v, want %+v", i, got, want)
		}
	}
	effects := p.Effects // of the forest plot: a/b, its share without variance, a/c
	for row, effect := range map[int]page.Effect{0: effects[0], 1: effects[2]} {
		cells := first[1].Table.Rows[row].Cells
		want := fmt.Sprintf("%s [%sto%s]", effect.Amount(effect.Effect), effect.Amount(*effect.Low),
			effect.Amount(*effect.High))
		got := fmt.Sprintf("%s [%s]", cells[1].Text, strings.ReplaceAll(cells[3].Text, "\u00a0", ""))
		equal(t, fmt.Sprintf("row %d and the forest plot", row), got, want)
	}
}

// The colours are not replaced on the dark background, and the sign and the interval do not depend on them.
func TestTheColoursOfAMapAreSymmetricalAroundZero(t *testing.T) {
	drawn := mapStudy().Page()
	must.OK(t, drawn.Draw())
	var chart struct {
		VisualMap []struct {
			Min, Max float64
			InRange  struct{ Color []string }
		}
		Series []struct {
			Data []struct {
				Name                     string
				SymbolSize, SymbolRotate int
			}
		}
	}
	must.OK(t, json.Unmarshal(drawn.Sections[0].Parts[0].Figure.Options, &chart))
	if scale := chart.VisualMap[0]; scale.Min != -75 || scale.Max != 75 || len(scale.InRange.Color)%2 == 0 {
		t.Errorf("got the scale %+v, want −75 to 75 with a colour at 0", scale)
	}
	if got, want := fmt.Sprint(chart.Series), "[{[{a/b 24 0}]} {[{a/c 12 180}]}]"; got != want {
		t.Errorf("got marks %s, want %s: large where the interval excludes 0, upside down below 0", got, want)
	}
}

func TestPairsAreNamedByTheWordsThatTheirLabelsShare(t *testing.T) {
	for want, pairs := range map[string][][]string{
		"RCTP-FT; SFT":     {{"RCTP-FT + GRPO", "RCTP-FT + RC-GRPO"}, {"SFT + GRPO", "SFT + RC-GRPO"}},
		"a/b; a/c, β = 1":  {{"GRPO, a/b", "RC-GRPO, a/b"}, {"GRPO, a/c, β = 1", "RC-GRPO, a/c, β = 1"}},
		"A → A + B; A → C": {{"A", "A + B"}, {"A", "C"}},
		"A → AB; A → AC":   {{"A", "AB"}, {"A", "AC"}},
	} {
		equal(t, fmt.Sprint(pairs), strings.Join(pairKeys(pairs), "; "), want)
	}
}

func TestAMapOfMetricsThatItsTrainingsDidNotLogIsAnError(t *testing.T) {
	for want, change := range map[string]func(*Study){
		"": func(*Study) {},
		"clip_fraction of RC-GRPO, a/b, RC-GRPO, a/c": func(s *Study) { s.Maps[0].X = "clip_fraction" },
		"zero_variance of GRPO, a/b, GRPO, a/c": func(s *Study) {
			s.Arms[0].Runs[0].Curve, s.Arms[2].Runs[0].Curve = nil, nil
		},
	} {
		s := mapStudy()
		change(s)
		must.Match(t, s.check(), want)
		s.Failures = []page.Failure{{Address: "stage.grpo.arm"}} // the results may be missing for that reason
		if err := s.check(); strings.HasPrefix(want, "zero") && err != nil {
			t.Errorf("trainings without results: %v", err)
		}
	}
}

func TestFaultyMapsAreReportedAtTheirSettings(t *testing.T) {
	good := `map "Where more training helps" {
    compare = "the other amount"
    x       = "entropy"
    y       = "reward"
  }`
	with := func(compare, x string) string { // the faulty line has the comment
		return strings.ReplaceAll(strings.Replace(good, `"the other amount"`, compare, 1), `"entropy"`, x)
	}
	entropy := `"entropy"`
	for name, faulty := range map[string]struct{ text, summary, detail string }{
		"no fault": {good, "", ""},
		"an unknown compare": {with(`"the other amuont" # HERE`, entropy), "Unknown comparison",
			"did you mean the other amount?"},
		"one pair": {with(`"any training, sampled" # HERE`, entropy), "Map of a single pair",
			"Add arms to without and with"},
		"compares with two outcomes": {with(`"more training" # HERE`, entropy), "Ambiguous comparison",
			"(success, reward)"},
		"an outcome that no compare has": {with("\"more training\"\noutcome = \"kl\" # HERE", entropy), "Unknown outcome",
			"there are success, reward"},
		"an unknown metric": {with(`"the other amount"`, `"entropie" # HERE`), "Unknown metric", "did you mean entropy?"},
		"no windows": {strings.Replace(good, "{", "{ # HERE", 1) + "\n  # no windows", "Map without windows",
			"Add windows {"},
		"no trainings": {strings.Replace(good, "{", "{ # HERE", 1) + "\n  # no curves", "Map without trainings",
			"Set curves"},
	} {
		text := strings.Replace(scriptedExperiment, good, faulty.text, 1)
		for comment, setting := range map[string]string{"# no curves": "  curves = [stage.grpo.arm, stage.sft.warm]\n",
			"# no windows": "  windows = { early = 10, late = 10 }\n"} {
			if strings.Contains(text, comment) {
				text = strings.Replace(text, setting, "", 1)
			}
		}
		_, diags := loaded(t, text)
		above, _, _ := strings.Cut(text, "# HERE")
		found := slices.ContainsFunc(diags, func(d *hcl.Diagnostic) bool {
			return d.Summary == faulty.summary && d.Subject.Start.Line == 1+strings.Count(above, "\n") &&
				strings.Contains(d.Detail, faulty.detail)
		})
		if found != (faulty.summary != "") || diags.HasErrors() != found {
			t.Errorf("%s: got %v, want %q", name, diags, faulty.summary)
		}
	}
}
