package page

import (
	"math"
	"slices"
	"strings"
	"testing"

	"rcgrpo/reports/stats"
)

func TestOneArmThatFlattensTheOthersHasAPanelOfItsOwn(t *testing.T) {
	curve := func(arm string, scale float64) Series {
		return Series{Name: arm, X: []float64{1, 2, 3}, Curves: []Curve{{Y: []float64{scale, 2 * scale, 3 * scale}}}}
	}
	for name, tc := range map[string]struct {
		figure Figure
		want   string
	}{
		"one arm fifty times as large": {Figure{Series: []Series{curve("a", 1), curve("b", 50), curve("c", 1.2)}}, "b"},
		"similar ranges":               {Figure{Series: []Series{curve("a", 1), curve("b", 1.5), curve("c", 1.2)}}, ""},
		"a single arm":                 {Figure{Series: []Series{curve("a", 1)}}, ""},
		"shares have a fixed axis":     {Figure{Series: []Series{curve("a", .001), curve("b", .3)}, Share: true}, ""},
	} {
		tc.figure.Separate()
		if tc.figure.Apart != tc.want {
			t.Errorf("%s: got %q apart, want %q", name, tc.figure.Apart, tc.want)
		}
		options, err := tc.figure.options()
		if panels := strings.Count(string(options), `"gridIndex":1`); err != nil || (panels == 2) != (tc.want != "") {
			t.Errorf("%s: %d axes of a second panel, %v", name, panels, err)
		}
	}
}

// Both axes of points beside a diagonal have the limits of all values, in tenths.
func TestAFigureWithADiagonalHasEqualAxes(t *testing.T) {
	f := &Figure{Diagonal: "equal", Series: []Series{{Points: []Point{{X: 0.5, Value: 0.55,
		Interval: stats.Interval{Low: 0.4, High: 0.6}}, {X: 0.5, Value: 0.75, Interval: stats.Unknown}}}}}
	if low, high := f.extent(); low != 0.4 || high != 0.8 {
		t.Errorf("axes from %v to %v, want 0.4 to 0.8", low, high)
	}
}

// The row of an outcome names it and its expected side; the plot names a common second arm once.
func TestAForestPlotNamesTheExpectedSideOfEachOutcome(t *testing.T) {
	effects := []Effect{{Outcome: "success", A: "a", B: "c", Expect: "higher"},
		{Outcome: "success", A: "b", B: "c", Expect: "higher"},
		{Outcome: "groups without variance", A: "a", B: "c", Expect: "lower"}}
	var got []string
	f := &Figure{Effects: effects}
	for _, line := range f.forestLines() {
		row, _, _ := strings.Cut(line, ": ")
		got = append(got, row)
	}
	want := []string{"success, expected higher →", "a", "b", "groups without variance, expected lower ←", "a"}
	if !slices.Equal(got, want) {
		t.Errorf("got rows %q, want %q", got, want)
	}
	effects[2].B = "d"
	if got := f.forestLines()[1]; !strings.HasPrefix(got, "c minus a: ") {
		t.Errorf("several second arms: got the row %q, want both arms", got)
	}
}

// The work for a curve is the product of its length and the window.
func TestLongCurvesAreSmoothedOverABoundedWindow(t *testing.T) {
	for updates, want := range map[int]int{40: 2, 20 * maxSmooth: maxSmooth, 100 * maxSmooth: maxSmooth} {
		f := &Figure{}
		if f.Add(Series{X: make([]float64, updates), Curves: []Curve{{}}}); f.Smooth != want {
			t.Errorf("%d updates: got a window of %d, want %d", updates, f.Smooth, want)
		}
	}
	got := movingAverage([]float64{1, math.NaN(), 3, 8}, 3)
	if want := []float64{1, 0, 5.5, 5.5}; !math.IsNaN(got[1]) || got[0] != want[0] || !slices.Equal(got[2:], want[2:]) {
		t.Errorf("got %v, want %v and NaN at 1", got, want)
	}
}
