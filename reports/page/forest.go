package page

import (
	"slices"
	"strings"
)

// Second returns the arm from which all effects of a forest plot subtract another; "" if there are several.
func (f *Figure) Second() string {
	b := f.Effects[0].B
	if slices.ContainsFunc(f.Effects, func(e Effect) bool { return e.B != b }) {
		return ""
	}
	return b
}

// key explains a mark, whose CSS class it has.
type key struct{ Class, Text string }

// key returns the explanations of the marks that a forest plot has.
func (f *Figure) key() []key {
	var all []key
	has := func(mark func(Effect) bool, k key) {
		if slices.ContainsFunc(f.Effects, mark) {
			all = append(all, k)
		}
	}
	has(func(e Effect) bool { return e.Verdict != NotDecided }, key{"dot", "decided"})
	has(func(e Effect) bool { return e.Verdict == NotDecided }, key{"dot open", "not decided"})
	all = append(all, key{"line", "95 % interval"})
	has(func(e Effect) bool { return len(e.PerSeed) > 0 }, key{"seed", "each seed"})
	if i := slices.IndexFunc(f.Effects, func(e Effect) bool { return e.Matters > 0 }); i >= 0 {
		e := f.Effects[i]
		all = append(all, key{"margin", "smallest that matters, ±" + strings.TrimSuffix(e.size(e.Matters), ".0")})
	}
	has(func(e Effect) bool { return e.Detectable != nil }, key{"band", "differences likely missed"})
	has(func(e Effect) bool { return e.Expect != "" }, key{"way", "expected side of 0"})
	return all
}

// Heading names the outcome of an effect and the expected side: "success on test tasks, expected higher →". A figure
// has the effects of a heading one below the other.
func (e Effect) Heading() string {
	text := e.Outcome
	if e.Set != "" {
		text += " on " + e.Set
	}
	if e.Expect != "" {
		text += ", expected " + e.Expect + map[string]string{"higher": " →", "lower": " ←"}[e.Expect]
	}
	return text
}

// name names an effect: the subtracted arm, or "RCTP-FT + RC-GRPO minus SFT + GRPO" if the second arms differ.
func (e *Effect) name(second string) string {
	if second == "" {
		return e.B + " minus " + e.A
	}
	return e.A
}

// head returns the heading of an effect if the one above has another.
func (f *Figure) head(i int) string {
	if i > 0 && f.Effects[i-1].Heading() == f.Effects[i].Heading() {
		return ""
	}
	return f.Effects[i].Heading()
}

// Heights of the rows of a forest plot in pixels. The page's script makes rows higher on a narrow screen, where the
// interval is below the names.
const (
	forestHeading = 30
	forestEffect  = 24
)

// forestHeight returns the height of all rows in pixels.
func (f *Figure) forestHeight() (height int) {
	for i := range f.Effects {
		if height += forestEffect; f.head(i) != "" {
			height += forestHeading
		}
	}
	return height
}

// forestLines returns the rows of a forest plot as text.
func (f *Figure) forestLines() (lines []string) {
	second := f.Second()
	for i, e := range f.Effects {
		if head := f.head(i); head != "" {
			lines = append(lines, head)
		}
		lines = append(lines, e.name(second)+": "+e.Number())
	}
	return lines
}
