package reports

import (
	"math"
	"slices"
	"strings"
	"testing"

	"rcgrpo/bfcl"
	"rcgrpo/reports/page"
	"rcgrpo/stages/rl"
)

func TestPassAtKByHand(t *testing.T) {
	run := SeedRun{Seed: seedOf(1)}
	for task, rewards := range map[string][]float64{"a": {1, 0, 0, 0}, "b": {1, 1, 1, 1}, "c": {0, 0, 0, 0},
		"d": {1, 1, 0, 0}} {
		for i, reward := range rewards {
			run.Scores = append(run.Scores, rl.Score{Task: task, Set: "test", Sample: i, Reward: reward})
		}
	}
	run.ScoresFrom = []ScoreSource{{"stage.eval.x@1.scores", len(run.Scores)}}
	// One of four right: 1/4, 1/2, 1. Two of four: 1/2, 1 - 1/6, 1. Means over the four tasks.
	want := []float64{(0.25 + 1 + 0 + 0.5) / 4, (0.5 + 1 + 0 + 5.0/6) / 4, 3.0 / 4}
	got := policies([]SeedRun{run}, "test", "", false)[0].passCurve()
	if !slices.EqualFunc(got, want, func(a, b float64) bool { return math.Abs(a-b) < 1e-12 }) {
		t.Errorf("got %v, want %v", got, want)
	}
	s := &Study{Arms: []Arm{{Label: "x", Runs: []SeedRun{run}}}}
	table := s.passTable("test")
	if table == nil || len(table.Columns) != 5 || table.Rows[0].Cells[2].Text != "58.3\u00a0%" ||
		table.Rows[0].Cells[2].Source.From[0] != "stage.eval.x@1.scores" ||
		table.Rows[0].Cells[4].Line() != "16 (of 4 tasks)" ||
		table.Rows[0].Cells[4].Source.From[0] != "stage.eval.x@1.scores" {
		t.Fatalf("got %+v", table)
	}
	figure := s.passFigure("test")
	equal(t, "data of the figure", figure.CSV(),
		[][]string{{"k", "x, seed 1"}, {"1", "0.4375"}, {"2", "0.58333"}, {"4", "0.75"}})
	s.Arms[0].Runs[0].Scores = run.Scores[:1]
	s.Arms[0].Runs[0].ScoresFrom[0].N = 1
	if s.passTable("test") != nil || s.passFigure("test") != nil {
		t.Error("a single episode of a task gives a table or figure of pass@k")
	}
}

func TestForecastIsComparedWithTheFirstUpdate(t *testing.T) {
	curve := func(forecast, low, high, measured float64) []rl.Metric {
		return []rl.Metric{{Update: 1, Values: map[string]float64{"forecast_zero_variance": forecast, "forecast_low": low,
			"forecast_high": high, "zero_variance": measured}},
			{Update: 2, Values: map[string]float64{"zero_variance": 1}}}
	}
	s := &Study{Arms: []Arm{{"x", []SeedRun{{Seed: seedOf(1), Curve: curve(0.5, 0.4, 0.6, 0.55), CurveFrom: "a"},
		{Seed: seedOf(2), Curve: curve(0.5, 0.4, 0.6, 0.75), CurveFrom: "b"}}}, {Label: "none"}}}
	table := s.forecastTable()
	equalRows(t, table, "x | 50.0 % | 65.0 % | 1 of 2", "All trainings | – | – | 1 of 2")
	// Wilson's interval of 1 of 2, z = 1.96: (0.5 + z²/4 ± z·√(0.125 + z²/16)) / (1 + z²/2), 0.095 to 0.905.
	all, claim := table.Rows[1].Cells[3], "1 of 2 (fewer than 95 % · 9.5 … 90.5)"
	if strings.ReplaceAll(all.Line(), " %", " %") != claim || !slices.Equal(all.Source.From, []string{"a", "b"}) {
		t.Errorf("got the claim %q from %q, want %q of both trainings", all.Line(), all.Source.From, claim)
	}
	figure := s.forecastFigure()
	equal(t, "data of the figure", figure.CSV(), [][]string{
		{"series", "seed", "forecast share of groups", "measured share", "low", "high"},
		{"x", "seed 1", "0.5", "0.55", "0.4", "0.6"}, {"x", "seed 2", "0.5", "0.75", "0.4", "0.6"}})
	equal(t, "source of the second point", figure.Sources()[".r2"].From, []string{"b"})
	s.Arms = s.Arms[1:]
	if s.forecastFigure() != nil {
		t.Error("a figure without any forecast")
	}
}

// The official checker compares turns; the verdict of an episode whose requests are merged is no failure but missing.
func TestOfficialVerdictsOfMergedPromptsAreADash(t *testing.T) {
	for prompt, want := range map[string]string{bfcl.PromptMerged: "–", bfcl.PromptTurns: "50.0"} {
		s := &Study{Arms: []Arm{{"A", []SeedRun{scored(1, "0101"), scored(2, "0101")}}}}
		for _, run := range s.Arms[0].Runs {
			for i := range run.Scores {
				run.Scores[i].Prompt = prompt
			}
		}
		for _, table := range []*page.Table{s.mainTable(""), s.seedTable("")} {
			column := slices.Index(heads(table), "Official verdict")
			for _, row := range table.Rows {
				if got := row.Cells[column].Text; !strings.HasPrefix(got, want) {
					t.Errorf("prompt %q, table %s: got verdict %q, want %q", prompt, table.ID, got, want)
				}
			}
		}
	}
}
