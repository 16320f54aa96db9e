package reports

import (
	"bytes"
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"rcgrpo/engine/artifact"
	"rcgrpo/internal/must"
	"rcgrpo/reports/page"
	"rcgrpo/reports/stats"
	"rcgrpo/stages/rl"
)

func TestOutcomesAreSortedByHowManyArmsPass(t *testing.T) {
	base := scored(0, "0100")
	base.Seed = nil // matches both seeds
	s := &Study{Arms: []Arm{{Label: "a", Runs: []SeedRun{scored(1, "1110"), scored(2, "1000")}},
		{Label: "b", Runs: []SeedRun{base}}}}
	f := s.outcomeFigure("")
	want := [][]string{{"seed", "task", "a", "b"},
		{"seed 1", "1", "1", "1"},                                                                                  // both
		{"seed 1", "0", "1", "0"}, {"seed 1", "2", "1", "0"}, {"seed 2", "0", "1", "0"}, {"seed 2", "1", "0", "1"}, // one
		{"seed 1", "3", "0", "0"}, {"seed 2", "2", "0", "0"}, {"seed 2", "3", "0", "0"}} // none
	equal(t, "data", f.CSV(), want)
	// Runs of passes are one stretch: a passes the first four columns, b the first and the fifth.
	spans := func(i int) (all [][2]float64) {
		for _, span := range f.Series[i].Points {
			all = append(all, [2]float64{span.Low, span.High})
		}
		return all
	}
	equal(t, "stretches of a", spans(0), [][2]float64{{0, 4}})
	equal(t, "stretches of b", spans(1), [][2]float64{{0, 1}, {4, 5}})
	s.Arms = s.Arms[:1]
	if s.outcomeFigure("") != nil {
		t.Error("one arm alone gets a matrix")
	}
}

func TestTimeLineLeavesIdleTimesOut(t *testing.T) {
	at := func(seconds int) time.Time { return time.Date(2026, 1, 1, 0, 0, seconds, 0, time.UTC) }
	made := func(address string, started time.Time, seconds float64) Stage {
		return Stage{Address: address, Manifest: &artifact.Manifest{Started: started, Seconds: seconds}}
	}
	s := &Study{Stages: []Stage{
		made("stage.eval.arm@2", at(7200), 5), // an hour and more after all others
		made("stage.sft.warm", at(0), 10),
		made("stage.eval.arm@1", at(4), 20),    // beside sft
		made("stage.grpo.arm", time.Time{}, 0), // of a record without times
	}}
	f := s.timelineFigures()[0].Figure
	want := []page.Point{{Value: 0, Interval: stats.Interval{Low: 0, High: 10}, Label: "10s"},
		{Value: 1, Interval: stats.Interval{Low: 4, High: 24}, Label: "seed 1: 20s"},
		{Value: 1, Interval: stats.Interval{Low: 24, High: 29}, Label: "seed 2: 5.0s"}}
	equal(t, "lanes", f.Lanes, []string{"sft.warm", "eval.arm"})
	equal(t, "spans", f.Series[0].Points, want)
	if (&Study{Stages: s.Stages[3:]}).timelineFigures() != nil {
		t.Error("nothing was made, and there is a time line")
	}
}

// A figure fits on a printed page. Its data are those of its lanes.
func TestALongTimeLineIsSeveralFigures(t *testing.T) {
	s := &Study{}
	for i := range mostLanes + 2 {
		s.Stages = append(s.Stages, Stage{Address: fmt.Sprintf("stage.sft.s%02d", i), Manifest: &artifact.Manifest{
			Started: time.Date(2026, 1, 1, 0, 0, i, 0, time.UTC), Seconds: 1}})
	}
	parts := s.timelineFigures()
	if len(parts) != 2 {
		t.Fatalf("got %d figures, want 2", len(parts))
	}
	second := parts[1].Figure
	want := [][]string{{"stage", "seed", "from, s", "to, s"}, {"sft.s28", "", "28", "29"}, {"sft.s29", "", "29", "30"}}
	if !reflect.DeepEqual(second.CSV(), want) || second.Series[0].Points[1].Value != 1 ||
		len(parts[0].Figure.CSV()) != mostLanes+1 {
		t.Errorf("got %q in the second figure, want %q", second.CSV(), want)
	}
}

func TestSuccessesPerGroupAreMeansOverSeeds(t *testing.T) {
	curve := func(none, half, all float64) []rl.Metric {
		return []rl.Metric{{Update: 1, Values: map[string]float64{"successes_0": none, "successes_1": half,
			"successes_2": all, "successes_of": 9, "successes_9": 0}}} // without 3 to 8, so of no group
	}
	s := &Study{Arms: []Arm{{Label: "a", Runs: []SeedRun{{Seed: seedOf(1), Curve: curve(0.5, 0.25, 0.25)},
		{Seed: seedOf(2), Curve: curve(0, 0.25, 0.75)}}}, {Label: "untrained"}}}
	figures := s.successFigures()
	if len(figures) != 1 {
		t.Fatalf("got %d figures, want one for the trained arm", len(figures))
	}
	equal(t, "data", figures[0].Figure.CSV(), [][]string{{"update", "0 of 2, seed 1", "0 of 2, seed 2", "1 of 2, seed 1",
		"1 of 2, seed 2", "2 of 2, seed 1", "2 of 2, seed 2"}, {"1", "0.5", "0", "0.25", "0.25", "0.25", "0.75"}})
	var drawn bytes.Buffer
	must.OK(t, s.Page().Markdown(&drawn))
	must.Contain(t, drawn.String(), "0 of 2: 0.250", "1 of 2: 0.250", "2 of 2: 0.500")
	if s := figures[0].Figure.Series; s[0].Step != 1 || s[2].Step != len(page.LightSteps) {
		t.Errorf("the scale does not go from its first to its last step: %d … %d", s[0].Step, s[2].Step)
	}
}

// A quarter of the groups with none of four, half with one, a quarter with all: 0.5 + 1 = 1.5 successes per group.
func TestSuccessesPerGroupInOneNumber(t *testing.T) {
	row := rl.Metric{Update: 1, Values: map[string]float64{"successes_0": 0.25, "successes_1": 0.5, "successes_2": 0,
		"successes_3": 0, "successes_4": 0.25}}
	s := &Study{Windows: Windows{Early: 1, Late: 1}, Arms: []Arm{{Label: "x",
		Runs: []SeedRun{{Curve: []rl.Metric{row, row}, CurveFrom: "stage.grpo.x"}}},
		{Label: "y", Runs: []SeedRun{{Curve: make([]rl.Metric, 2)}}}}}
	table := s.signalTable()
	if len(table.Columns) != 3 || table.Columns[2].Name != "Successes per group" ||
		*table.Rows[0].Cells[2].Value != 1.5 || table.Rows[1].Cells[2].Text != "–" {
		t.Errorf("got %+v", table)
	}
}

// The paper's figure: the spread above, the reward below, over the same updates.
func TestSpreadAndRewardShareTheirUpdatesInTwoPanels(t *testing.T) {
	s := synthetic(2, 20, 30)
	drawn := s.complete()
	must.OK(t, drawn.Draw())
	figures := drawn.Figures()
	f := figures[slices.IndexFunc(figures, func(f *page.Figure) bool { return f.ID == "fig-spread-reward" })]
	text := f.Options
	var options struct {
		XAxis []struct {
			Name      string
			Max       float64
			GridIndex int
		}
		YAxis, Grid []struct{ Name string }
		Series      []struct {
			ID                     string
			XAxisIndex, YAxisIndex int
		}
	}
	must.OK(t, json.Unmarshal(text, &options))
	if len(options.Grid) != 2 || len(options.XAxis) != 2 || options.XAxis[0].Max != 30 || options.XAxis[1].Max != 30 ||
		options.YAxis[0].Name != "spread over the batch" || options.YAxis[1].Name != "mean reward" {
		t.Fatalf("got axes %+v and %+v in %d panels, want two panels of 30 updates", options.XAxis, options.YAxis,
			len(options.Grid))
	}
	lines := map[string]int{}
	for _, line := range options.Series {
		if name, ok := strings.CutPrefix(line.ID, "="); ok {
			_, metric, _ := strings.Cut(name, " ")
			lines[fmt.Sprintf("%s, panel %d", metric, max(line.XAxisIndex, line.YAxisIndex))]++
		}
	}
	equal(t, "lines of four arms", lines, map[string]int{"spread, panel 0": 4, "reward, panel 1": 4})
	for _, r := range s.runs {
		for _, row := range r.Curve {
			delete(row.Values, "spread_batch_ddof1")
		}
	}
	for _, p := range s.complete().Figures() {
		if p.ID == "fig-spread-reward" {
			t.Error("a study without one of the metrics has the figure")
		}
	}
}

// A page shows trainings of different lengths, so no window is that of all its figures.
func TestEachCaptionNamesItsOwnSmoothing(t *testing.T) {
	s := synthetic(2, 16, 150)
	for _, r := range s.runs {
		for u := range 400 { // fine-tuning is longer than RL
			r.Tuning = append(r.Tuning, rl.Metric{Update: u + 1, Values: map[string]float64{"loss": 1}})
		}
	}
	p := s.Page()
	must.OK(t, p.Draw())
	checked := 0
	for _, section := range p.Sections {
		if strings.Contains(section.Lead, "verage") {
			t.Errorf("section %s: got lead %q, want no smoothing in it", section.Title, section.Lead)
		}
		for _, part := range section.Parts {
			f := part.Figure
			if f == nil || len(f.Series) == 0 || len(f.Series[0].Curves) == 0 {
				continue
			}
			checked++
			want := "moving average of the mean over seeds over 7 updates"
			switch {
			case f.ID == "fig-tuning":
				want = "moving average of the mean over seeds over 20 updates"
			case f.X == "k":
				want = "Curves: the mean over seeds at each k."
			}
			if !strings.Contains(f.Caption, want) {
				t.Errorf("%s: got caption %q, want %q in it", f.ID, f.Caption, want)
			}
		}
	}
	if checked < 10 {
		t.Errorf("only %d figures of curves", checked)
	}
	if html := htmlOf(t, p); strings.Count(html, "over 20 updates") != 1 {
		t.Errorf("the page names the window of 20 updates %d times, want once", strings.Count(html, "over 20 updates"))
	}
}

// By hand: moving averages over five updates of the squares 0, 1, 4, … 99² begin with (0 + 1 + 4)/3 and end with
// (97² + 98² + 99²)/3.
func TestTextHasBothEndsOfADrawnCurve(t *testing.T) {
	values := make([]float64, 100)
	for i := range values {
		values[i] = float64(i * i)
	}
	s := &Study{Arms: []Arm{{Label: "a", Runs: []SeedRun{logging(1, "entropy", values...)}}}}
	var md, text bytes.Buffer
	must.OK(t, s.Page().Markdown(&md))
	must.OK(t, s.Page().Text(&text, 200))
	for _, written := range []string{md.String(), text.String()} {
		must.Contain(t, written, "a: 1.67 → 9605\n", "as a moving average over 5.")
	}
}
