package page

import (
	"fmt"
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

// key is the key of a mark: its CSS class, its glyph in text and its name in LaTeX.
type key struct{ Class, Glyph, Name, Text string }

// Key explains the marks that a forest plot has.
func (f *Figure) Key() []key {
	all := []key{{"dot", "●", "Dot", "difference"}, {"line", "├─┤", "Line", "95 % interval"}}
	has := func(mark func(Effect) bool, k key) {
		if slices.ContainsFunc(f.Effects, mark) {
			all = append(all, k)
		}
	}
	has(func(e Effect) bool { return len(e.PerSeed) > 0 }, key{"ring", "○", "Rings", "each seed"})
	has(func(e Effect) bool { return e.Detectable != nil }, key{"band", "░", "Box", "too small to be detected"})
	has(func(e Effect) bool { return e.Expect != "" }, key{"way", "→", "Arrow", "expected side of 0"})
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
	rows := [][]string{{"outcome", "series", "effect", "low", "high", "detectable", "unit", "verdict", "per seed"}}
	for _, e := range f.Effects {
		var seeds []string
		for _, v := range e.PerSeed {
			seeds = append(seeds, exact(v))
		}
		rows = append(rows, []string{e.heading(), e.pair(), exact(e.Effect), text(e.Low), text(e.High), text(e.Detectable),
			e.Unit, string(e.Verdict), strings.Join(seeds, "; ")})
	}
	return rows
}

// forestBlocks draws an effect in n characters between low and high: the interval ├─┤ with the effect ●, seeds ○, the
// line │ of no difference, and ░ for differences too small to be detected.
func (e *Effect) forestBlocks(low, high float64, n int) string {
	at := func(v float64) int { return int(math.Round(float64(n-1) * (v - low) / (high - low))) }
	cells := slices.Repeat([]rune{' '}, n)
	fill := func(from, to float64, r rune) {
		for i := max(0, at(from)); i <= min(n-1, at(to)); i++ {
			cells[i] = r
		}
	}
	if e.Detectable != nil {
		fill(-*e.Detectable, *e.Detectable, '░')
	}
	fill(0, 0, '│')
	if e.Low != nil && e.High != nil {
		fill(*e.Low, *e.High, '─')
		fill(*e.Low, *e.Low, '├')
		fill(*e.High, *e.High, '┤')
		if *e.Low < 0 && *e.High > 0 {
			fill(0, 0, '┼')
		}
	}
	for _, v := range e.PerSeed {
		fill(v, v, '○')
	}
	fill(e.Effect, e.Effect, '●')
	return string(cells)
}

// forestText returns the lines of a forest plot that is at most width characters wide: its key, then names, numbers and
// blocks, or, if these do not fit beside each other, the blocks under the names.
func (f *Figure) forestText(width int) (lines []string) {
	var marks []string
	for _, k := range f.Key() {
		marks = append(marks, k.Glyph+" "+k.Text)
	}
	lines = []string{strings.Join(marks, "   ")}
	names, numbers, rows := 0, 0, f.forestRows()
	for _, row := range rows {
		if row.Effect != nil {
			names, numbers = max(names, len([]rune(row.text))), max(numbers, len([]rune(row.Number())))
		}
	}
	low, high := f.extent()
	places := width - names - numbers - 6
	below := places < 24
	if below {
		places = width - 4
	}
	for _, row := range rows {
		if row.Effect == nil {
			lines = append(lines, row.text)
			continue
		}
		blocks := row.forestBlocks(low, high, max(10, min(60, places)))
		if below {
			lines = append(lines, "  "+row.text+": "+row.Number(), "    "+blocks)
			continue
		}
		lines = append(lines, fmt.Sprintf("  %-*s  %-*s  %s", names, row.text, numbers, row.Number(), blocks))
	}
	return lines
}
