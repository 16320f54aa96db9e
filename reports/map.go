package reports

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/go-echarts/go-echarts/v2/charts"
	"github.com/go-echarts/go-echarts/v2/opts"
	"github.com/hashicorp/hcl/v2"

	"rcgrpo/engine/lang"
	"rcgrpo/reports/stats"
	"rcgrpo/stages/rl/objective"
)

// Map is a map block: a figure with a mark for each pair of a comparison, placed by two metrics of training and
// coloured by the difference of the outcome, and a table of the same numbers.
type Map struct {
	Title   string   `json:"title" hcl:"title,label" doc:"title of the figure"`
	Compare string   `json:"compare" hcl:"compare" doc:"label of a compare block with several pairs; the difference of"`
	_       struct{} `doc:"its outcome is the colour of a pair"`
	Outcome string   `json:"outcome,omitempty" hcl:"outcome,optional" doc:"outcome of that block, if blocks with"`
	_       struct{} `doc:"several outcomes have the label"`
	X       string   `json:"x" hcl:"x" doc:"metric of training on the horizontal axis, such as token_gap: its mean over"`
	_       struct{} `doc:"the early window of the second arm of a pair (with)"`
	Y       string   `json:"y" hcl:"y" doc:"metric of training on the vertical axis, such as zero_variance: its mean"`
	_       struct{} `doc:"over the early window of the first arm of a pair (without)"`

	At map[string]hcl.Range `json:"-" hcl:",ranges"`
}

// comparison returns the comparison of the map: the pairs of all compare blocks with its label and outcome. ok is false
// without such a block, or if the blocks have different outcomes.
func (m *Map) comparison(all []Comparison) (how Comparison, ok bool) {
	for _, c := range all {
		outcome := cmp.Or(c.Outcome, OutcomeSuccess)
		switch {
		case c.Label != m.Compare || m.Outcome != "" && m.Outcome != outcome:
		case !ok:
			how, ok = c, true
		case outcome != cmp.Or(how.Outcome, OutcomeSuccess) || c.Unpaired != how.Unpaired:
			return how, false
		default:
			how.Pairs = append(slices.Clip(how.Pairs), c.Pairs...)
		}
	}
	return how, ok
}

// check reports a map without a comparison or with metrics that no training logs.
func (m *Map) check(s *settings) (diags hcl.Diagnostics) {
	bad := func(at, summary, format string, args ...any) {
		diags = append(diags, mistake(m.At[at], summary, format, args...))
	}
	var labels, outcomes []string
	for _, c := range s.Compare {
		labels = append(labels, c.Label)
		if c.Label == m.Compare {
			outcomes = append(outcomes, cmp.Or(c.Outcome, OutcomeSuccess))
		}
	}
	_, ok := m.comparison(s.Compare)
	switch {
	case len(outcomes) == 0:
		bad("compare", "Unknown comparison", "No compare block has the label %q%s Write the label of a compare block with "+
			"several pairs.", m.Compare, cmp.Or(lang.NearHint(m.Compare, labels), "."))
	case m.Outcome != "" && !slices.Contains(outcomes, m.Outcome):
		bad("outcome", "Unknown outcome", "No compare block with the label %q has the outcome %q; there are %s.", m.Compare,
			m.Outcome, strings.Join(outcomes, ", "))
	case !ok:
		bad("compare", "Ambiguous comparison", "Compare blocks with the label %q differ in outcome (%s) or in unpaired. "+
			"Set outcome to one of these, or give the blocks different labels.", m.Compare, strings.Join(outcomes, ", "))
	}
	known := trainedMetrics()
	for _, axis := range []struct{ name, metric string }{{"x", m.X}, {"y", m.Y}} {
		if !slices.Contains(known, axis.metric) {
			bad(axis.name, "Unknown metric", "No training logs %q%s The axes of a map are metrics of training (rcgrpo kinds "+
				"rc-grpo).", axis.metric, cmp.Or(lang.NearHint(axis.metric, known), "."))
		}
	}
	if len(s.Curves) == 0 {
		bad("", "Map without trainings", "The axes of a map are metrics of the trainings in curves, and curves is empty. "+
			"Set curves to the trainings of the compared arms.")
	}
	return diags
}

// checkPairs reports a map of a single pair. compare contains the pairs of all comparisons.
func (m *Map) checkPairs(compare []Comparison) hcl.Diagnostics {
	if how, ok := m.comparison(compare); ok && len(how.Pairs) < 2 {
		return hcl.Diagnostics{mistake(m.At["compare"], "Map of a single pair", "A map compares pairs, but compare %q has "+
			"only one pair. Add arms to without and with of that block, or remove the map.", m.Compare)}
	}
	return nil
}

// mapped returns an error if the page has trainings of the compared arms, or misses no result, but none of these
// trainings logged the metric of an axis.
func (s *Study) mapped(m Map) error {
	how, _ := m.comparison(s.Compare)
	for side, metric := range []string{m.Y, m.X} {
		trained, logged := false, false
		var names []string
		for _, pair := range how.Pairs {
			names = append(names, pair[side])
			if a := s.arm(pair[side]); a != nil {
				trained, logged = trained || a.hasCurve(), logged || a.metricNames()[metric]
			}
		}
		if !logged && (trained || len(s.Failures) == 0) {
			return fmt.Errorf("map %q shows %s of %s, but no training in curves logged it: add their trainings to curves, or "+
				"choose another metric for %s", m.Title, metric, strings.Join(names, ", "), []string{"y", "x"}[side])
		}
	}
	return nil
}

// mapMark is one pair of a map.
type mapMark struct {
	*Contrast
	key              string
	x, y             []float64 // early means, one per training
	sourceX, sourceY Source
	stats.Interval   // of the difference
	over             string
}

// mapParts returns a figure and a table for each map and, if evaluations have the outcome, each set of tasks.
func (s *Study) mapParts() []Part {
	var parts []Part
	add := func(set string, training bool) {
		for i := range s.Maps {
			m := &s.Maps[i]
			how, ok := m.comparison(s.Compare)
			if !ok || how.ofTraining() != training {
				continue
			}
			judged := s.judged(set, training)
			if marks := s.mapMarks(m, how, judged); len(marks) > 0 {
				on := outcomeName(how.Outcome)
				switch {
				case how.Outcome == OutcomeSampled:
					on = "sampled success on " + setName(set)
				case !training:
					on = "success on " + setName(set)
				}
				id := "map-" + slug(m.Title) + "-" + setID(set)
				parts = append(parts, partsOf(m.figure(id, on, marks), set)...)
				parts = append(parts, partsOf(s.mapTable(m, id, on, marks, judged), set)...)
			}
		}
	}
	for _, set := range s.sets() {
		add(set, false)
	}
	add("", true)
	return parts
}

func (s *Study) mapMarks(m *Map, how Comparison, judged []*Contrast) []mapMark {
	var marks []mapMark
	keys := pairKeys(how.Pairs)
	for i, pair := range how.Pairs {
		c := contrastOf(judged, how, pair)
		if c == nil {
			continue
		}
		without, with := s.arm(pair[0]), s.arm(pair[1])
		early := func(a *Arm, metric string) ([]float64, Source) { // a row of the table requires the contrast
			return a.summary(metric, s.Windows).early, together(byEarly, metric, a.logged("", metric), c.Source)
		}
		mark := mapMark{Contrast: c, key: keys[i]}
		mark.x, mark.sourceX = early(with, m.X)
		mark.y, mark.sourceY = early(without, m.Y)
		mark.Interval, mark.over = c.interval()
		marks = append(marks, mark)
	}
	return marks
}

// pairKeys names each pair by the words that its labels share ("SFT + GRPO" and "SFT + RC-GRPO": "SFT"). If these do
// not distinguish the pairs, the names are the labels of the side that does, or both labels.
func pairKeys(pairs [][]string) []string {
	distinct := func(keys []string) bool {
		sorted := slices.Compact(slices.Sorted(slices.Values(keys)))
		return len(sorted) == len(keys) && !slices.Contains(keys, "")
	}
	var keys []string
	for _, name := range []func(a, b string) string{
		sharedWords,
		func(_, b string) string { return b },
		func(a, _ string) string { return a },
		func(a, b string) string { return a + " → " + b },
	} {
		keys = nil
		for _, pair := range pairs {
			keys = append(keys, name(pair[0], pair[1]))
		}
		if distinct(keys) {
			break
		}
	}
	return keys
}

// sharedWords returns the first and the last words that two labels share, without the signs around them.
func sharedWords(a, b string) string {
	words := func(label string) []string { return strings.Fields(strings.ReplaceAll(label, "/", "/ ")) }
	x, y := words(a), words(b)
	first, last := 0, 0
	for first < min(len(x), len(y)) && x[first] == y[first] {
		first++
	}
	for last < min(len(x), len(y))-first && x[len(x)-1-last] == y[len(y)-1-last] {
		last++
	}
	shared := strings.Join(slices.Concat(x[:first], x[len(x)-last:]), " ")
	return strings.Trim(strings.ReplaceAll(shared, "/ ", "/"), " +,;:/|→·-")
}

// scalePoints is the Scale of a figure whose colour is a difference in percentage points.
const scalePoints = "difference, points"

// shade formats a value of the colour, with its sign.
func (f *Figure) shade(v float64) string {
	if f.Scale == scalePoints {
		return points(v / 100)
	}
	if v > 0 {
		return "+" + significant(v)
	}
	return significant(v)
}

// figure returns the marks of the pairs that have a training with each metric; nil if there is none.
func (m *Map) figure(id, on string, marks []mapMark) *Figure {
	f := &Figure{
		ID: "fig-" + id, Title: m.Title, X: m.X + ", with " + m.Compare, Y: m.Y + ", without " + m.Compare,
		Scale: "difference", Note: fmt.Sprintf("A mark for each pair of %q. Horizontal: mean %s of the arm with it over the "+
			"early window. Vertical: mean %s of the arm without it. Colour: difference of %s, with minus without. A "+
			"triangle points up for a higher outcome and down for a lower one. Large marks: the 95\u00a0%% interval excludes 0 "+
			"(not adjusted for the number of pairs).", m.Compare, m.X, m.Y, on),
	}
	unit := 1.0
	if marks[0].inPoints() {
		unit, f.Scale = 100, scalePoints
	}
	series := Series{Name: m.Compare, Arm: NoArm}
	for _, mark := range marks {
		x, y := stats.Mean(mark.x), stats.Mean(mark.y)
		if len(mark.x) == 0 || len(mark.y) == 0 {
			continue // the table shows a dash
		}
		series.Points = append(series.Points, Point{Label: mark.key, X: x, Value: y, Shade: unit * mark.Mean,
			Interval: stats.Interval{Low: unit * mark.Low, High: unit * mark.High},
			Source:   together("as in the table of the same title", "", mark.Source, mark.sourceX, mark.sourceY)})
	}
	if len(series.Points) > 0 {
		f.Series = append(f.Series, series)
	}
	return f.orNil()
}

// mapTable shows the numbers of the figure, and the verdict of each pair. all are the contrasts that were judged
// together.
func (s *Study) mapTable(m *Map, id, on string, marks []mapMark, all []*Contrast) *Table {
	unit := "Δ"
	if marks[0].inPoints() {
		unit = "Δ points"
	}
	t := &Table{ID: id, Title: m.Title + ": " + on,
		Columns: columns("<Pair", m.X+", with", m.Y+", without", unit, "95 %", "<Verdict")}
	every := Source{}
	for _, c := range all {
		every = together("", "", every, c.Source)
	}
	for _, mark := range marks {
		own := func(by string) Source { return Source{From: mark.Source.From, Rows: mark.Source.Rows, By: by} }
		difference := Cell{Text: mark.difference(mark.Mean), Value: &mark.Mean}
		if mark.Known() {
			difference.Interval = &mark.Interval
		}
		verdict := []string{"lower", "not decided", "higher"}[mark.Verdict+1]
		t.add(NoArm, Text("%s", mark.key), meanNumber(mark.x).From(mark.sourceX),
			meanNumber(mark.y).From(mark.sourceY), difference.From(own("difference, as in the table of the comparison")),
			Text("%s", mark.between(mark.Interval)).With("%s", mark.over).From(own("interval "+mark.over)),
			Text("%s", verdict).With("%s", mark.expected()).
				From(together("tests of the set"+byAdjusted, mark.Source.Rows, mark.Source, every)))
	}
	t.Notes = []string{definitions(m.X, m.Y) + " " + s.windowNote(),
		fmt.Sprintf("The interval assumes independent seeds (t-interval) or independent task families (bootstrap). "+
			"Verdicts use p-values that are Holm-adjusted over %d tests, as in the table of the comparison.", marks[0].Tests)}
	return t
}

// definitions defines metrics as package objective does.
func definitions(names ...string) string {
	var all []string
	for _, info := range objective.Metrics {
		if slices.Contains(names, info.Name) {
			all = append(all, info.Name+": "+info.Formula)
		}
	}
	return strings.Join(all, "; ") + "."
}

// divergingColours run from negative over zero to positive differences. Each has a contrast of 3 on the light and on
// the dark background, and readers with common colour deficiencies can distinguish blue, grey and orange.
var divergingColours = []string{"#1a72b5", "#4a7fae", "#808891", "#b37a48", "#d0640f"}

// mapChart draws a triangle for each point, coloured by its shade on a scale that is symmetrical around 0.
func (f *Figure) mapChart() ([]byte, error) {
	chart := charts.NewScatter()
	left, right, largest := math.Inf(1), math.Inf(-1), 0.0
	for _, p := range f.points {
		left, right, largest = min(left, p.X), max(right, p.X), max(largest, math.Abs(p.Shade))
	}
	bound := cmp.Or(largest, 1)
	chart.SetGlobalOptions(append(f.global("value", nil), charts.WithVisualMapOpts(opts.VisualMap{
		Dimension: "2", Min: float32(-bound), Max: float32(bound), Right: "0", Top: "middle",
		Text:    []string{f.shade(bound) + strings.TrimPrefix(f.Scale, "difference,"), f.shade(-bound)},
		InRange: &opts.VisualMapInRange{Color: divergingColours},
	}))...)
	for _, half := range []string{"right", "left"} { // a label is on the side with more space
		var data []opts.ScatterData
		for _, p := range f.points {
			if (p.X > (left+right)/2) != (half == "left") {
				continue
			}
			interval := "–"
			if p.Known() {
				interval = f.shade(p.Low) + " … " + f.shade(p.High)
			}
			mark := opts.ScatterData{Name: p.Label, Symbol: "triangle", SymbolSize: 12,
				Value: []any{short(p.X), short(p.Value), short(p.Shade), f.shade(p.Shade), interval}}
			if p.Known() && p.Excludes(0) {
				mark.SymbolSize = 24
			}
			switch {
			case p.Shade < 0:
				mark.SymbolRotate = 180
			case p.Shade == 0:
				mark.Symbol = "circle"
			}
			data = append(data, mark)
		}
		chart.AddSeries(f.Series[0].Name, data,
			charts.WithLabelOpts(opts.Label{Show: opts.Bool(true), Position: half, Formatter: "{b} {@[3]}"}),
			charts.WithLabelLayoutOpts(opts.LabelLayout{HideOverlap: opts.Bool(true)}))
	}
	return finish(chart)
}
