package reports

import (
	"testing"

	"rcgrpo/stages/rl"
)

// A logged number is on the page by its row of objective.Metrics alone; a row of curveFigures draws it.
func TestALoggedNumberReachesThePage(t *testing.T) {
	best := map[string]float64{"best_of_group": 0.5}
	s := &Study{
		Windows: Windows{Early: 1, Late: 1},
		Arms: []Arm{
			{
				Label: "x",
				Runs: []SeedRun{
					{Curve: []rl.Metric{{Update: 1, Values: best}, {Update: 2, Values: best}}, CurveFrom: "stage.grpo.x"},
				},
			},
		},
	}
	row := s.valuesTable().Rows[0].Cells
	if row[0].Text != "best_of_group" || row[1].Text != "mean over groups of max R" || *row[3].Value != 0.5 {
		t.Errorf("got %+v", row)
	}
	for _, p := range items() {
		if p.name == "fig-best" {
			if figure := p.parts(s)[0].Figure; figure.CSV()[1][1] != "0.5" {
				t.Errorf("the figure draws %q", figure.CSV())
			}
			return
		}
	}
	t.Error("there is no fig-best")
}
