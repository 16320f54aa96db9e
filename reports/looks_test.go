package reports

import (
	"math"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// contrast is the WCAG 2 contrast ratio of two colours "#rrggbb".
func contrast(t *testing.T, a, b string) float64 {
	t.Helper()
	luminance := func(colour string) float64 {
		sum := 0.0
		for i, weight := range []float64{0.2126, 0.7152, 0.0722} {
			v, err := strconv.ParseUint(colour[1+2*i:3+2*i], 16, 8)
			if err != nil {
				t.Fatal(err)
			}
			c := float64(v) / 255
			if c <= 0.03928 {
				c /= 12.92
			} else {
				c = math.Pow((c+0.055)/1.055, 2.4)
			}
			sum += weight * c
		}
		return sum
	}
	x, y := luminance(a), luminance(b)
	return (max(x, y) + 0.05) / (min(x, y) + 0.05)
}

func TestColoursDifferAndHaveContrast(t *testing.T) {
	if len(lightColours) != len(darkColours) || len(lightSteps) != len(darkSteps) {
		t.Fatal("a palette has another length on dark ground")
	}
	for ground, colours := range map[string][]string{"#ffffff": lightColours, "#12161c": darkColours} {
		for i, colour := range colours {
			if got := contrast(t, colour, ground); got < 3 {
				t.Errorf("%s on %s: contrast %.2f, want at least 3", colour, ground, got)
			}
			if slices.Contains(colours[:i], colour) {
				t.Errorf("%s on %s occurs twice", colour, ground)
			}
		}
	}
}

// labelled returns a study of arms without runs.
func labelled(labels ...string) *Study {
	s := &Study{}
	for _, label := range labels {
		s.Arms = append(s.Arms, Arm{Label: label})
	}
	return s
}

func TestAHueBelongsToOneInitialisation(t *testing.T) {
	s := labelled("Base", "SFT", "SFT + GRPO", "SFT + RC-GRPO", "RCTP-FT + GRPO", "RCTP-FT + RC-GRPO", "Random weights",
		"Large", "RCTP-FT + RC-GRPO (paper profile)")
	looks := s.looks()
	hue, marker := map[int]string{}, map[string]int{}
	for i := range s.Arms {
		model, initialisation, method := s.Arms[i].parts()
		if s.baseline(&s.Arms[i]) {
			initialisation = "baselines"
		} else if known, ok := marker[method]; ok && known != looks[i].marker {
			t.Errorf("%s: marker %d, another arm with %s has %d", s.Arms[i].Label, looks[i].marker, method, known)
		}
		marker[method] = looks[i].marker
		family := looks[i].colour / shades
		if owner, ok := hue[family]; ok && owner != model+initialisation {
			t.Errorf("%s has the hue of %s", s.Arms[i].Label, owner)
		}
		hue[family] = model + initialisation
		if slices.Contains(looks[:i], looks[i]) {
			t.Errorf("%s looks like another arm: %+v", s.Arms[i].Label, looks[i])
		}
		if (family == baselines) != (initialisation == "baselines") {
			t.Errorf("%s: hue %d, want grey for baselines only", s.Arms[i].Label, family)
		}
	}
}

func TestRowsAreGroupedAndTheProposedMethodIsLast(t *testing.T) {
	s := labelled("A + GRPO", "A + RC-GRPO", "B + RC-GRPO", "Base", "B + GRPO (variant)", "A")
	s.Compare = []Comparison{{Pairs: [][]string{{"A + GRPO", "B + RC-GRPO"}, {"A + RC-GRPO", "B + RC-GRPO"}}}}
	s.groupArms()
	want := []string{"Base", "A", "A + GRPO", "A + RC-GRPO", "B + GRPO (variant)", "B + RC-GRPO"}
	if got := s.labels(); !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
	text := htmlOf(t, synthetic(1, 40, 8).Page())
	if !strings.Contains(text, `scope="colgroup">Baselines</th>`) ||
		!strings.Contains(text, `scope="colgroup">Arms</th>`) {
		t.Error("the tables do not name the groups of their rows")
	}
}

func TestOneArmThatFlattensTheOthersHasAPanelOfItsOwn(t *testing.T) {
	curve := func(arm string, scale float64) Series {
		return Series{Name: arm, X: []float64{1, 2, 3}, Runs: []Curve{{Y: []float64{scale, 2 * scale, 3 * scale}}}}
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
		tc.figure.separate()
		if tc.figure.Apart != tc.want {
			t.Errorf("%s: got %q apart, want %q", name, tc.figure.Apart, tc.want)
		}
		options, err := tc.figure.chart()
		if panels := strings.Count(string(options), `"gridIndex":1`); err != nil || (panels == 2) != (tc.want != "") {
			t.Errorf("%s: %d axes of a second panel, %v", name, panels, err)
		}
	}
}

func TestFiguresOfZerosAreLeftOut(t *testing.T) {
	s := synthetic(1, 16, 8)
	for i := range s.Arms {
		for _, row := range s.Arms[i].Runs[0].Curve {
			row.Values["stop_step"], row.Values["stop_length"], row.Values["stop_turn_limit"] = 0, 0, 0
		}
	}
	for _, f := range s.Page().figures() {
		if f.ID == "fig-stops" {
			t.Error("the page shows a figure of zeros")
		}
	}
	if !slices.ContainsFunc(s.complete().figures(), func(f *Figure) bool { return f.ID == "fig-stops" }) {
		t.Error("reproduce cannot compute the omitted figure")
	}
}

func TestDecimalPointsAreAligned(t *testing.T) {
	table := &Table{Columns: columns("<Arm", "Value", "Share")}
	table.add(NoArm, Text("a"), Number(0.851), Share(1, 2))
	table.add(NoArm, Text("b"), whole(1), Share(3, 4))
	table.add(NoArm, Text("c"), Text("−12.5"), Text("–"))
	for r, want := range []string{"", ".000", "00"} {
		if got := table.pads()[r]; got[1] != want || got[0] != "" || got[2] != "" {
			t.Errorf("row %d: got pads %q, want %q in the second column", r, got, want)
		}
	}
}

func TestCountsStandOncePerTable(t *testing.T) {
	table := &Table{Columns: columns("<Arm", "Overall", "base")}
	table.add(NoArm, Text("a"), Share(50, 100), Share(20, 40))
	table.add(NoArm, Text("b"), Share(10, 100), Share(3, 40))
	table.add(NoArm, Text("c"), Share(5, 20), Share(3, 8))
	table.countOnce()
	if want := "Overall 100, base 40; c: Overall 20, base 8."; !strings.HasSuffix(table.Lead, want) {
		t.Errorf("got lead %q, want %q at its end", table.Lead, want)
	}
	for r, row := range table.Rows {
		for _, cell := range row.Cells[1:] {
			if strings.Contains(cell.Detail, "/") || cell.Detail != percentRange(*cell.Interval) {
				t.Errorf("row %d: got detail %q, want the interval only", r, cell.Detail)
			}
		}
	}
}
