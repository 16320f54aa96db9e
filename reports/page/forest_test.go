package page

import (
	"slices"
	"testing"
)

func TestForestBlocksShowIntervalEffectAndDetectableDifferences(t *testing.T) {
	low, high, detectable := -2.0, 2.0, 3.0
	for want, e := range map[string]Effect{
		" ░├─●─┤░ ": {Effect: 0, Low: &low, High: &high, Detectable: &detectable},
		"  ├─┼●┤  ": {Effect: 1, Low: &low, High: &high},
		"  ○ │ ○● ": {Effect: 3, PerSeed: []float64{-2, 2}},
	} {
		if got := e.forestBlocks(-4, 4, 9); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}

// The row of an outcome names it and its expected side; the plot names a common second arm once.
func TestAForestPlotNamesTheExpectedSideOfEachOutcome(t *testing.T) {
	effects := []Effect{{Outcome: "success", A: "a", B: "c", Expect: "higher"},
		{Outcome: "success", A: "b", B: "c", Expect: "higher"},
		{Outcome: "groups without variance", A: "a", B: "c", Expect: "lower"}}
	var got []string
	f := &Figure{Effects: effects}
	for _, row := range f.forestRows() {
		got = append(got, row.text)
	}
	want := []string{"success, expected higher →", "a", "b", "groups without variance, expected lower ←", "a"}
	if !slices.Equal(got, want) {
		t.Errorf("got rows %q, want %q", got, want)
	}
	effects[2].B = "d"
	if got := f.forestRows()[1].text; got != "c − a" {
		t.Errorf("several second arms: got the row %q, want both arms", got)
	}
}
