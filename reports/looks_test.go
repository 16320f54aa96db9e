package reports

import (
	"slices"
	"strings"
	"testing"

	"rcgrpo/reports/page"
)

// labelled returns a study of arms without runs, with the designs that their labels "INIT + METHOD" name.
func labelled(labels ...string) *Study {
	s := &Study{}
	for _, label := range labels {
		s.Arms = append(s.Arms, Arm{Label: label, Design: designNamed(label)})
	}
	return s
}

// designNamed returns the design that a label "INIT + METHOD" names.
func designNamed(label string) (d Design) {
	d.Init, d.Method, _ = strings.Cut(label, " + ")
	return d
}

func TestAHueBelongsToOneInitialisation(t *testing.T) {
	s := labelled("Base", "SFT", "SFT + GRPO", "SFT + RC-GRPO", "RCTP-FT + GRPO", "RCTP-FT + RC-GRPO", "Random weights",
		"Large", "RCTP-FT + RC-GRPO (paper profile)")
	looks := s.looks()
	hue, marker := map[int]string{}, map[string]int{}
	for i := range s.Arms {
		initialisation, method := s.Arms[i].Init, s.Arms[i].Method
		if s.baseline(&s.Arms[i]) {
			initialisation = "baselines"
		} else if known, ok := marker[method]; ok && known != looks[i].Marker {
			t.Errorf("%s: marker %d, another arm with %s has %d", s.Arms[i].Label, looks[i].Marker, method, known)
		}
		marker[method] = looks[i].Marker
		family := looks[i].Colour / page.Shades
		if owner, ok := hue[family]; ok && owner != initialisation {
			t.Errorf("%s has the hue of %s", s.Arms[i].Label, owner)
		}
		hue[family] = initialisation
		if slices.Contains(looks[:i], looks[i]) {
			t.Errorf("%s looks like another arm: %+v", s.Arms[i].Label, looks[i])
		}
		if (family == page.Baselines) != (initialisation == "baselines") {
			t.Errorf("%s: hue %d, want grey for baselines only", s.Arms[i].Label, family)
		}
	}
}

func TestRowsAreGroupedAndTheProposedMethodIsLast(t *testing.T) {
	s := labelled("A + GRPO", "A + RC-GRPO", "B + RC-GRPO", "Base", "B + GRPO (variant)", "A")
	s.Compare = []Comparison{{Pairs: [][]string{{"A + GRPO", "B + RC-GRPO"}, {"A + RC-GRPO", "B + RC-GRPO"}}}}
	s.groupArms()
	equal(t, "labels", s.labels(), []string{"Base", "A", "A + GRPO", "A + RC-GRPO", "B + GRPO (variant)", "B + RC-GRPO"})
	text := htmlOf(t, synthetic(1, 40, 8).Page())
	if !strings.Contains(text, `scope="colgroup">Baselines</th>`) ||
		!strings.Contains(text, `scope="colgroup">Arms</th>`) {
		t.Error("the tables do not name the groups of their rows")
	}
}

func TestFiguresOfZerosAreLeftOut(t *testing.T) {
	s := synthetic(1, 16, 8)
	for i := range s.Arms {
		for _, row := range s.Arms[i].Runs[0].Curve {
			row.Values["stop_step"], row.Values["stop_length"], row.Values["stop_turn_limit"] = 0, 0, 0
		}
	}
	for _, f := range s.Page().Figures() {
		if f.ID == "fig-stops" {
			t.Error("the page shows a figure of zeros")
		}
	}
	if !slices.ContainsFunc(s.complete().Figures(), func(f *page.Figure) bool { return f.ID == "fig-stops" }) {
		t.Error("reproduce cannot compute the omitted figure")
	}
}
