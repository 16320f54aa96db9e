package reports

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"rcgrpo/bfcl"
	"rcgrpo/engine/artifact"
	"rcgrpo/reports/page"
	"rcgrpo/stages/rl"
)

func TestPassAtKByHand(t *testing.T) {
	run := SeedRun{Seed: seedOf(1)}
	for task, rewards := range map[string][]float64{"a": {1, 0, 0, 0}, "b": {1, 1, 1, 1}, "c": {0, 0, 0, 0},
		"d": {1, 1, 0, 0}} {
		for i, reward := range rewards {
			run.Rows = append(run.Rows, Row{rl.Score{Task: task, Set: "test", Sample: i, Reward: reward},
				"stage.eval.x@1.scores"})
		}
	}
	// One of four right: 1/4, 1/2, 1. Two of four: 1/2, 1 - 1/6, 1. Means over the four tasks:
	// (0.25 + 1 + 0 + 0.5)/4, (0.5 + 1 + 0 + 5/6)/4 and 3/4.
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
	s.Arms[0].Runs[0].Rows = run.Rows[:1]
	if s.passTable("test") != nil || s.passFigure("test") != nil {
		t.Error("a single episode of a task gives a table or figure of pass@k")
	}
}

func TestForecastIsComparedWithTheFirstUpdate(t *testing.T) {
	curve := func(forecast, low, high, measured float64) []rl.Metric {
		return []rl.Metric{{Update: 1, Values: map[string]float64{"forecast_zero_variance": forecast, "forecast_low": low,
			"forecast_high": high, "zero_variance": measured, "forecast_all_right": forecast - 0.1,
			"forecast_all_wrong": 0.1, "all_right": measured - 0.2, "all_wrong": 0.2}},
			{Update: 2, Values: map[string]float64{"zero_variance": 1}}}
	}
	s := &Study{Arms: []Arm{{Label: "x",
		Runs: []SeedRun{{Seed: seedOf(1), Curve: curve(0.5, 0.4, 0.6, 0.55), CurveFrom: "a"},
			{Seed: seedOf(2), Curve: curve(0.5, 0.4, 0.6, 0.75), CurveFrom: "b"}}}, {Label: "none"}}}
	table := s.forecastTable()
	equalRows(t, table, "x | 50.0 % | 40.0 % | 10.0 % | 65.0 % | 45.0 % | 20.0 % | 1 of 2",
		"All trainings | – | – | – | – | – | – | 1 of 2")
	// Wilson's interval of 1 of 2, z = 1.96: (0.5 + z²/4 ± z·√(0.125 + z²/16)) / (1 + z²/2), 0.095 to 0.905.
	all, claim := table.Rows[1].Cells[7], "1 of 2 (fewer than 95 % · 9.5 to 90.5)"
	if strings.ReplaceAll(all.Line(), " %", " %") != claim || !slices.Equal(all.Source.From, []string{"a", "b"}) {
		t.Errorf("got the claim %q from %q, want %q of both trainings", all.Line(), all.Source.From, claim)
	}
	figure := s.forecastFigure()
	equal(t, "data of the figure", figure.CSV(), [][]string{
		{"series", "seed", "forecast share of groups", "measured share", "low", "high"},
		{"x", "seed 1", "0.5", "0.55", "0.4", "0.6"}, {"x", "seed 2", "0.5", "0.75", "0.4", "0.6"}})
	equal(t, "source of the second point", figure.Series[0].Points[1].Source.From, []string{"b"})
	s.Arms = s.Arms[1:]
	if f := s.forecastFigure(); len(f.Series) > 0 {
		t.Error("a figure without any forecast")
	}
}

// Malformed replies are a share of replies, per reward token and decoding, beside the share of successes.
func TestMalformedRepliesStandBesideSuccess(t *testing.T) {
	run := scored(1, "0100")
	s := &Study{Arms: []Arm{{Label: "A", Runs: []SeedRun{run}}}}
	if table := s.repliesTable(""); !table.Omitted {
		t.Error("scores without a count of replies have a table of them")
	}
	low := scored(1, "0000").Rows
	for i := range run.Rows {
		run.Rows[i].Token, run.Rows[i].Replies, run.Rows[i].Malformed = rl.TokenHigh, 5, i%2
		low[i].Token, low[i].Replies, low[i].Malformed, low[i].Greedy = rl.TokenLow, 2, 2, false
		low[i].Port = "stage.eval.low@1.scores"
	}
	s.Arms[0].Runs[0].Rows = append(run.Rows, low...)
	table := s.repliesTable("")
	var got []string
	for _, row := range table.Rows {
		share, _, _ := strings.Cut(row.Cells[4].Line(), " ·")
		got = append(got, row.Cells[1].Text+" "+row.Cells[2].Text+" "+row.Cells[3].Text+", "+share)
		if from := row.Cells[4].Source.From; len(from) != 1 {
			t.Errorf("got a share of replies from %q, want one evaluation", from)
		}
	}
	for i := range got {
		got[i] = strings.ReplaceAll(got[i], "\u00a0", " ")
	}
	equal(t, "rows", got, []string{"high greedy 25.0 %, 10.0 % (2/20", "low sampled 0.0 %, 100.0 % (8/8"})
	if table.Omitted {
		t.Error("the table is omitted")
	}
}

// The gain over GRPO is shown beside the forecast only for the GRPO arm that starts from the same checkpoints.
func TestForecastEfficiencyIsShownBesideTheMeasuredGain(t *testing.T) {
	s := synthetic(2, 40, 20)
	if table := s.efficiencyTable(); len(table.Rows) > 0 {
		t.Errorf("a table without a forecast of an efficiency: %v", table.Rows)
	}
	s.Stages = nil
	starts := map[string]string{"SFT + GRPO": "sft", "SFT + RC-GRPO": "sft", "RCTP-FT + GRPO": "rctp",
		"RCTP-FT + RC-GRPO": "rctp"}
	for i, a := range s.Arms {
		for j := range a.Runs {
			kind := "grpo"
			r := &s.Arms[i].Runs[j]
			if strings.HasSuffix(a.Label, "RC-GRPO") {
				kind = "rc-grpo"
			}
			if a.Label == "RCTP-FT + RC-GRPO" { // half widths 0.3 and 0.4: that of the mean is 0.5 / 2
				x, half := float64(j), 0.3+0.1*float64(j)
				for name, v := range map[string]float64{"efficiency_none": 0.5 + x, "efficiency_full": 1.5 + x,
					"transfer": 0.25 + x/2} {
					name = "forecast_" + name
					r.Curve[0].Values[name], r.Curve[0].Values[name+"_low"], r.Curve[0].Values[name+"_high"] = v, v-half, v+half
				}
			}
			r.CurveFrom = fmt.Sprintf("stage.%s.arm[%q]@%d.metrics", kind, a.Label, j+1)
			s.Stages = append(s.Stages, Stage{Address: strings.TrimSuffix(r.CurveFrom, ".metrics"), Kind: kind,
				Manifest: &artifact.Manifest{Parts: map[string]string{"input.policy": fmt.Sprint(starts[a.Label], j)}}})
		}
	}
	table := s.efficiencyTable()
	if len(table.Rows) != 1 {
		t.Fatalf("got %d rows, want one", len(table.Rows))
	}
	var got []string
	for _, c := range table.Rows[0].Cells {
		got = append(got, strings.ReplaceAll(c.Line(), "\u00a0", " "))
	}
	equal(t, "forecast and GRPO", got[:5], []string{"RCTP-FT + RC-GRPO", "1.00 (0.750 to 1.25)", "2.00 (1.75 to 2.25)",
		"0.500 (0.250 to 0.750)", "RCTP-FT + GRPO"})
	gain := s.compare(Comparison{}, []string{"RCTP-FT + GRPO", "RCTP-FT + RC-GRPO"}, "test")
	if cell := table.Rows[0].Cells[5]; cell.Value == nil || *cell.Value != gain.Mean || cell.Source.By == "" {
		t.Errorf("got the gain %+v, want %v with its source", cell, gain.Mean)
	}
	for row := range s.scores { // without greedy episodes, the gain of sampled ones
		row.Greedy = false
	}
	gain = s.compare(Comparison{Outcome: OutcomeSampled}, []string{"RCTP-FT + GRPO", "RCTP-FT + RC-GRPO"}, "test")
	if cell := s.efficiencyTable().Rows[0].Cells[5]; cell.Value == nil || *cell.Value != gain.Mean {
		t.Errorf("got the gain %+v of sampled episodes, want %v", cell, gain.Mean)
	}
	delete(s.Arms[3].Runs[1].Curve[0].Values, "forecast_transfer") // no transfer suffices in one seed
	s.Stages[slices.IndexFunc(s.Stages, func(r Stage) bool {
		return strings.HasPrefix(r.Address, `stage.grpo.arm["RCTP-FT + GRPO"]`)
	})].Manifest.Parts["input.policy"] = "another"
	row := s.efficiencyTable().Rows[0]
	if row.Cells[3].Text != "–" || row.Cells[4].Text != "–" || row.Cells[5].Text != "–" {
		t.Errorf("got %v, want dashes for a transfer that a seed lacks, and for GRPO from another checkpoint", row.Cells[3:])
	}
}

// The official checker compares turns; the verdict of an episode whose requests are merged is no failure but missing.
func TestOfficialVerdictsOfMergedPromptsAreADash(t *testing.T) {
	for prompt, want := range map[string]string{bfcl.PromptMerged: "–", bfcl.PromptTurns: "50.0"} {
		s := &Study{Arms: []Arm{{Label: "A", Runs: []SeedRun{scored(1, "0101"), scored(2, "0101")}}}}
		for row := range s.scores {
			row.Prompt = prompt
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
