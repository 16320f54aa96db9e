package page

import (
	"math"
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

// key is the key of a mark, with its CSS class.
type key struct{ Class, Text string }

// Key explains the marks that a forest plot has.
func (f *Figure) Key() []key {
	var all []key
	has := func(mark func(Effect) bool, k key) {
		if slices.ContainsFunc(f.Effects, mark) {
			all = append(all, k)
		}
	}
	has(func(e Effect) bool { return e.Verdict != NotDecided }, key{"dot", "difference, decided"})
	has(func(e Effect) bool { return e.Verdict == NotDecided }, key{"dot open", "difference, not decided"})
	all = append(all, key{"line", "95 % interval"})
	has(func(e Effect) bool { return len(e.PerSeed) > 0 }, key{"seed", "each seed"})
	has(func(e Effect) bool { return e.Matters > 0 }, key{"margin", "smallest difference that matters"})
	has(func(e Effect) bool { return e.Detectable != nil }, key{"band", "this run cannot detect"})
	has(func(e Effect) bool { return e.Expect != "" }, key{"way", "expected side of 0"})
	return all
}

// heading names the outcome of an effect and the expected side: "success on test tasks, expected higher →".
func (e *Effect) heading() string {
	text := e.Outcome
	if e.Set != "" {
		text += " on " + e.Set
	}
	if e.Expect != "" {
		text += ", expected " + e.Expect + map[string]string{"higher": " →", "lower": " ←"}[e.Expect]
	}
	return text
}

// pair names the arms of an effect: "RCTP-FT + RC-GRPO − SFT + GRPO".
func (e *Effect) pair() string { return e.B + " − " + e.A }

// forestRow is a row of a forest plot: an effect, or a heading above the effects of an outcome.
type forestRow struct {
	*Effect        // nil for a heading
	text    string // the subtracted arm, or both arms if the plot has several second arms
	expect  string // of the effects below a heading
}

func (f *Figure) forestRows() (rows []forestRow) {
	of := map[string][]*Effect{} // by outcome and expectation
	var headings []string
	for _, e := range f.Effects {
		IndexOrAppend(&headings, e.heading())
		of[e.heading()] = append(of[e.heading()], &e)
	}
	second := f.Second()
	for _, heading := range headings {
		rows = append(rows, forestRow{text: heading, expect: of[heading][0].Expect})
		for _, e := range of[heading] {
			row := forestRow{Effect: e, text: e.A}
			if second == "" {
				row.text = e.pair()
			}
			rows = append(rows, row)
		}
	}
	return rows
}

// Heights of the rows of a forest plot in pixels. The page's script makes rows higher on a narrow screen, where the
// interval is below the names.
const (
	forestHeading = 30
	forestEffect  = 24
)

// forestHeight returns the height of all rows in pixels.
func (f *Figure) forestHeight() (height int) {
	for _, row := range f.forestRows() {
		height += row.height()
	}
	return height
}

func (r forestRow) height() int {
	if r.Effect == nil {
		return forestHeading
	}
	return forestEffect
}

// extent returns the limits of the axis of a forest plot, which contains 0 and every drawn number.
func (f *Figure) extent() (low, high float64) {
	include := func(values ...*float64) {
		for _, v := range values {
			if v != nil && !math.IsNaN(*v) && !math.IsInf(*v, 0) {
				low, high = min(low, *v), max(high, *v)
			}
		}
	}
	for _, e := range f.Effects {
		include(&e.Effect, e.Low, e.High)
		for j := range e.PerSeed {
			include(&e.PerSeed[j])
		}
		below := -e.Matters
		include(&below, &e.Matters)
		if e.Detectable != nil {
			below := -*e.Detectable
			include(&below, e.Detectable)
		}
	}
	if low == high {
		return -1, 1
	}
	margin := (high - low) / 20
	return low - margin, high + margin
}

// forestData returns the effects as rows of text, the first being the head.
func (f *Figure) forestData() [][]string {
	text := func(v *float64) string {
		if v == nil {
			return ""
		}
		return exact(*v)
	}
	rows := [][]string{{"outcome", "series", "effect", "low", "high", "detectable", "matters", "unit", "verdict",
		"per seed"}}
	for _, e := range f.Effects {
		var seeds []string
		for _, v := range e.PerSeed {
			seeds = append(seeds, exact(v))
		}
		rows = append(rows, []string{e.heading(), e.pair(), exact(e.Effect), text(e.Low), text(e.High), text(e.Detectable),
			text(&e.Matters), e.Unit, string(e.Verdict), strings.Join(seeds, "; ")})
	}
	return rows
}

// forestLines returns the rows of a forest plot as text.
func (f *Figure) forestLines() (lines []string) {
	for _, row := range f.forestRows() {
		if row.Effect == nil {
			lines = append(lines, row.text)
		} else {
			lines = append(lines, row.text+": "+row.Number())
		}
	}
	return lines
}
