package reports

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/hashicorp/hcl/v2"

	"rcgrpo/engine/lang"
	"rcgrpo/reports/page"
	"rcgrpo/reports/stats"
	"rcgrpo/stages/rl"
	"rcgrpo/stages/rl/blocks"
	"rcgrpo/stages/rl/objective"
)

// Map is a map block: a figure with a mark for each pair of a comparison, placed by two metrics of training and
// coloured by the difference of the outcome, and a table of the same numbers.
type Map struct {
	// title of the figure
	Title string `json:"title" hcl:"title,label"`
	// label of a compare block with several pairs; the difference of its outcome is the colour of a pair
	Compare string `json:"compare" hcl:"compare"`
	// outcome of that block, if blocks with several outcomes have the label
	Outcome string `json:"outcome,omitempty" hcl:"outcome,optional"`
	// metric of training on the horizontal axis, such as token_gap: its mean over the early window of the second arm
	// of a pair (with)
	X string `json:"x" hcl:"x"`
	// metric of training on the vertical axis, such as zero_variance: its mean over the early window of the first arm
	// of a pair (without)
	Y string `json:"y" hcl:"y"`

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
	bad := blocks.Mistakes(&diags)
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
		bad(true, "Unknown comparison", m.At["compare"], "No compare block has the label %q%s Write the label of a "+
			"compare block with several pairs.", m.Compare, cmp.Or(lang.NearHint(m.Compare, labels), "."))
	case m.Outcome != "" && !slices.Contains(outcomes, m.Outcome):
		bad(true, "Unknown outcome", m.At["outcome"],
			"No compare block with the label %q has the outcome %q; there are %s.", m.Compare, m.Outcome,
			strings.Join(outcomes, ", "))
	case !ok:
		bad(true, "Ambiguous comparison", m.At["compare"], "Compare blocks with the label %q differ in outcome (%s) or in "+
			"unpaired. Set outcome to one of these, or give the blocks different labels.", m.Compare,
			strings.Join(outcomes, ", "))
	}
	known := trainedMetrics()
	for _, axis := range []struct {
		at     hcl.Range
		metric string
	}{{m.At["x"], m.X}, {m.At["y"], m.Y}} {
		bad(!slices.Contains(known, axis.metric), "Unknown metric", axis.at, "No training logs %q%s The axes of a map are "+
			"metrics of training, such as token_gap and zero_variance.", axis.metric,
			cmp.Or(lang.NearHint(axis.metric, known), "."))
	}
	bad(s.Windows == nil, "Map without windows", m.At[""], "A map shows means over the early window, and the report has "+
		"no windows. Add windows { early = …, late = … }.")
	bad(len(s.Curves) == 0, "Map without trainings", m.At[""], "The axes of a map are metrics of the trainings in "+
		"curves, and curves is empty. Set curves to the trainings of the compared arms.")
	return diags
}

// checkPairs reports a map of a single pair. compare contains the pairs of all comparisons.
func (m *Map) checkPairs(compare []Comparison) (diags hcl.Diagnostics) {
	how, ok := m.comparison(compare)
	blocks.Mistakes(&diags)(ok && len(how.Pairs) < 2, "Map of a single pair", m.At["compare"], "A map compares pairs, "+
		"but compare %q has only one pair. Add arms to without and with of that block, or remove the map.", m.Compare)
	return diags
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
	key              string    // distinguishes the pairs
	x, y             []float64 // early means, one per training
	sourceX, sourceY page.Source
}

// mapParts returns a figure and a table for each map and, if evaluations have the outcome, each set of tasks.
func (s *Study) mapParts() []page.Part {
	if len(s.Maps) == 0 {
		return nil
	}
	var parts []page.Part
	for _, set := range s.sets() {
		all := s.decided(set)
		for _, m := range s.Maps {
			if marks := s.mapMarks(&m, all); len(marks) > 0 {
				id, on := "map-"+page.Slug(m.Title)+"-"+setID(set), marks[0].outcomeName()+" on "+setName(set)
				if marks[0].ofTraining() {
					on = metricTitle(marks[0].Outcome) + ", late in training"
				}
				f := m.figure(id, on, marks)
				if f != nil && set != s.firstSet() {
					f.Title += ", " + setName(set)
				}
				parts = append(parts, f.Parts(set)...)
				parts = append(parts, s.mapTable(&m, id, on, marks, all).Parts(set)...)
			}
		}
	}
	return parts
}

// mapMarks returns the compared pairs of the map. all are the contrasts of a set of tasks.
func (s *Study) mapMarks(m *Map, all []*Contrast) []mapMark {
	how, _ := m.comparison(s.Compare)
	how.Expect = "" // blocks of one map may differ in it
	var marks []mapMark
	keys, contrasts := pairKeys(how.Pairs), how.contrastsIn(all)
	for i, pair := range how.Pairs {
		c := contrastOf(contrasts, how, pair)
		if c == nil {
			continue
		}
		early := func(label, metric string) ([]float64, page.Source) { // the row of the table requires the contrast, too
			selected := s.arm(label).logged(s.Windows, metric)
			return selected.means(false), page.Together(byEarly, metric, selected.source(""), c.Source)
		}
		mark := mapMark{Contrast: c, key: keys[i]}
		mark.x, mark.sourceX = early(c.B, m.X)
		mark.y, mark.sourceY = early(c.A, m.Y)
		marks = append(marks, mark)
	}
	return marks
}

// pairKeys names each pair by the words that its labels share ("SFT + GRPO" and "SFT + RC-GRPO": "SFT"), or by both
// labels if these words do not distinguish the pairs.
func pairKeys(pairs [][]string) []string {
	var shared, both []string
	distinct := map[string]bool{"": true}
	for _, pair := range pairs {
		key := sharedWords(strings.Fields(pair[0]), strings.Fields(pair[1]))
		shared = append(shared, key)
		both = append(both, pair[0]+" → "+pair[1])
		distinct[key] = true
	}
	if len(distinct) == len(pairs)+1 {
		return shared
	}
	return both
}

// sharedWords returns the first and the last words that two labels share, without the signs around them.
func sharedWords(x, y []string) string {
	first, last := rl.CommonPrefix(x, y), 0
	for last < min(len(x), len(y))-first && x[len(x)-1-last] == y[len(y)-1-last] {
		last++
	}
	return strings.Trim(strings.Join(slices.Concat(x[:first], x[len(x)-last:]), " "), " +,;:/|→·-")
}

// figure returns the marks of the pairs that have a training with each metric; nil if there is none.
func (m *Map) figure(id, on string, marks []mapMark) *page.Figure {
	f := &page.Figure{
		ID: "fig-" + id, Title: m.Title, X: metricTitle(m.X) + ", with " + m.Compare,
		Y:     metricTitle(m.Y) + ", without " + m.Compare,
		Scale: strings.TrimSuffix(page.ScalePrefix+marks[0].unit(), ", "),
		Note: fmt.Sprintf("A mark for each pair of %q. Horizontal: mean %s of the arm with it over the early window. "+
			"Vertical: mean %s of the arm without it. Colour: difference of %s, with minus without. A triangle points up "+
			"for a higher outcome and down for a lower one. ", m.Compare, axisName(m.X), axisName(m.Y), on),
	}
	clear := map[bool]int{} // marks whose interval excludes 0, by whether the outcome is higher
	series := page.Series{Name: m.Compare, Arm: page.NoArm}
	for _, mark := range marks {
		if len(mark.x) == 0 || len(mark.y) == 0 {
			continue // the table shows a dash
		}
		hull, unit := mark.hull(), mark.scale()
		if hull.Known() && hull.Excludes(0) {
			clear[mark.Mean > 0]++
		}
		series.Points = append(series.Points, page.Point{Label: mark.key, X: stats.Mean(mark.x), Value: stats.Mean(mark.y),
			Shade: unit * mark.Mean, Interval: stats.Interval{Low: unit * hull.Low, High: unit * hull.High},
			Source: page.Together("as in the table of the same title", "", mark.Source, mark.sourceX, mark.sourceY)})
	}
	if len(series.Points) == 0 {
		return nil
	}
	f.Series = append(f.Series, series)
	size := "Large marks"
	if f.Title += fmt.Sprintf(": of %d pairs, %d clearly higher and %d clearly lower", len(series.Points), clear[true],
		clear[false]); len(clear) == 0 {
		size = "No mark is large; large ones"
	}
	f.Note += size + ": the 95\u00a0% interval excludes 0 (not adjusted for the number of pairs)."
	return f
}

// axisName returns the words for a metric and its name in the logs.
func axisName(metric string) string {
	if title := metricTitle(metric); title != metric {
		return title + " (" + metric + ")"
	}
	return metric
}

// mapTable shows the numbers of the figure, and the verdict of each pair. all are the contrasts that were judged
// together.
func (s *Study) mapTable(m *Map, id, on string, marks []mapMark, all []*Contrast) *page.Table {
	t := &page.Table{ID: id, Title: m.Title + ": " + on,
		Columns: page.Columns("<Pair", strings.TrimSpace("Δ "+marks[0].unit()),
			"<Verdict", "95 % interval", m.X+", with", m.Y+", without")}
	every := page.Source{}
	for _, c := range all {
		every = page.Together("", "", every, c.Source)
	}
	for _, mark := range marks {
		t.Add(page.NoArm, page.Text("%s", mark.key), mark.cell().From(mark.own("as in the table of claims")),
			page.Text("%s", mark.verdict()).From(page.Together("p, adjusted over all claims, and interval", mark.Source.Rows,
				mark.Source, every)),
			page.Text("%s", mark.between(mark.hull())).With("%s", mark.about()).From(mark.own("as in the table of claims")),
			meanNumber(mark.x).From(mark.sourceX), meanNumber(mark.y).From(mark.sourceY))
	}
	t.Notes = []string{
		fmt.Sprintf("Early window: the first %d updates. %s: %s; %s: %s.", s.Windows.Early, m.X, metricInfo(m.X).Formula,
			m.Y, metricInfo(m.Y).Formula),
		"The interval contains the interval over seeds, which treats seeds as independent, and that over task families, " +
			"which treats families as independent. It is not adjusted for the number of pairs; the verdict is, as in the " +
			"table of claims."}
	return t
}

// metricInfo returns the documentation of a metric of training.
func metricInfo(name string) objective.MetricInfo {
	info, _ := objective.MetricNamed(name)
	return info
}
