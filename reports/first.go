package reports

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"

	"rcgrpo/engine/lang"
)

// first returns the figures and tables of the first screen: the effects that answer the question, and the success of
// initialisations and methods.
func (s *Study) first() []Part {
	var effects []Effect
	set := s.firstSet()
	judged := judge(s.contrasts(set))
	for i, how := range s.comparisons() {
		if i > 0 && how.Expect == "" {
			continue
		}
		for _, c := range how.claims(judged) {
			effects = append(effects, s.effect(c, set))
		}
	}
	parts := forests("fig-answer", "Differences with 95 % intervals", effects)
	if sets := s.sets(); len(sets) > 0 {
		parts = append(parts, partsOf(s.crossTable(sets[0]), "")...)
	}
	return parts
}

// effectFigures draws every claim of the page. They are spare if the first screen shows them all.
func (s *Study) effectFigures() []Part {
	shown, all := 0, s.effects()
	for _, part := range s.first() {
		if part.Figure != nil {
			shown += len(part.Figure.Effects)
		}
	}
	parts := forests("fig-effects", "All comparisons", all)
	for _, part := range parts {
		part.Figure.spare = len(all) <= shown
	}
	return parts
}

// forests returns a forest plot for each unit of the effects, in order of appearance.
func forests(id, title string, effects []Effect) (parts []Part) {
	var units []string
	for _, e := range effects {
		place(&units, e.Unit)
	}
	for _, unit := range units {
		f := &Figure{ID: id, Title: title, X: "difference in " + cmp.Or(unit, "units of the metric"),
			Note: "Dot: difference of the two arms. Line: 95 % interval. Rings: each seed. Grey: differences too small to be " +
				"detected with these data (power 80 %)."}
		if unit != pointsUnit {
			f.ID, f.Title = id+"-"+slug(unit), title+", "+unit
		}
		f.Effects = slices.DeleteFunc(slices.Clone(effects), func(e Effect) bool { return e.Unit != unit })
		parts = append(parts, Part{Figure: f})
	}
	return parts
}

// heading names the outcome of an effect: "success on test tasks".
func (e *Effect) heading() string {
	if e.Set == "" {
		return e.Outcome
	}
	return e.Outcome + " on " + e.Set
}

// pair names the arms of an effect: "RCTP-FT + RC-GRPO − SFT + GRPO".
func (e *Effect) pair() string { return e.B + " − " + e.A }

// interval returns the number without its unit: "−0.7 [−3.5, +2.2]".
func (e *Effect) interval() string {
	short := *e
	if short.Unit != pointsUnit {
		short.Unit = ""
		return short.Number()
	}
	return strings.Replace(short.Number(), " "+pointsUnit, "", 1)
}

// forestRow is a row of a forest plot: an effect, or a heading above the effects of an outcome and a second arm.
type forestRow struct {
	*Effect // nil for a heading
	text    string
}

func (f *Figure) forestRows() (rows []forestRow) {
	of := map[string][]*Effect{} // by outcome
	var outcomes []string
	for i := range f.Effects {
		e := &f.Effects[i]
		place(&outcomes, e.heading())
		of[e.heading()] = append(of[e.heading()], e)
	}
	for _, outcome := range outcomes {
		first := of[outcome][0]
		one := !slices.ContainsFunc(of[outcome], func(e *Effect) bool { return e.B != first.B })
		if one {
			outcome += ": " + first.B + " minus"
		}
		rows = append(rows, forestRow{text: outcome})
		for _, e := range of[first.heading()] {
			row := forestRow{Effect: e, text: e.pair()}
			if one {
				row.text = e.A
			}
			rows = append(rows, row)
		}
	}
	return rows
}

// height returns the height of the row in pixels.
func (r forestRow) height() int {
	if r.Effect == nil {
		return 22
	}
	return 28
}

// forestHeight returns the height of all rows in pixels.
func (f *Figure) forestHeight() (height int) {
	for _, row := range f.forestRows() {
		height += row.height()
	}
	return height
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
	for i := range f.Effects {
		e := &f.Effects[i]
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
	for i := range f.Effects {
		e := &f.Effects[i]
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

// forestText returns the lines of a forest plot that is at most width characters wide: names, numbers and blocks, or,
// below 100 characters, the blocks under the names.
func (f *Figure) forestText(width int) (lines []string) {
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

// crossTable shows the success of the arms as initialisations by methods, with the differences at the margins. nil
// unless at least two methods were trained from each of at least two initialisations.
func (s *Study) crossTable(set string) *Table {
	rows, methods := s.cross(set)
	if len(rows) < 2 || len(methods) < 2 {
		return nil
	}
	judged := judge(s.contrasts(set))
	t := &Table{ID: "cross-" + setID(set), Title: "Success on " + setName(set) + ", greedy",
		Columns: append(columns("<Init."), columns(methods...)...)}
	t.Columns = append(t.Columns, Column{Name: "Δ points"})
	for _, row := range rows {
		cells := []Cell{Text("%s", row)}
		for _, method := range methods {
			cells = append(cells, s.crossCell(row+" + "+method, set))
		}
		last := methods[len(methods)-1]
		t.add(NoArm, append(cells, s.crossDifference(judged, set, row+" + "+methods[0], row+" + "+last))...)
	}
	if len(rows) == 2 {
		cells := []Cell{Text("Δ points")}
		for _, method := range methods {
			cells = append(cells, s.crossDifference(judged, set, rows[0]+" + "+method, rows[1]+" + "+method))
		}
		t.add(NoArm, append(cells, Text(""))...)
	}
	return t
}

// cross returns the initialisations (with their model) and the methods of the largest complete table that starts with
// the first initialisation: methods that every one of these initialisations has.
func (s *Study) cross(set string) (rows, methods []string) {
	of := map[string][]string{} // methods by initialisation
	for i := range s.Arms {
		a := &s.Arms[i]
		row, method, ok := strings.Cut(a.Label, " + ")
		if !ok || len(a.policies(set, true)) == 0 {
			continue
		}
		place(&rows, row)
		of[row] = append(of[row], method)
	}
	rows = slices.DeleteFunc(rows, func(row string) bool { return len(of[row]) < 2 })
	for _, row := range rows {
		for _, method := range of[row] {
			everywhere := !slices.ContainsFunc(rows, func(r string) bool { return !slices.Contains(of[r], method) })
			if everywhere {
				place(&methods, method)
			}
		}
	}
	return rows, methods
}

// crossCell shows the success of an arm and, below it, the published success.
func (s *Study) crossCell(label, set string) Cell {
	a := s.arm(label)
	cell := pooled(samples(a.policies(set, true), "", false)).share().From(a.scored(set, "", byReward))
	cell.Detail, cell.Count, cell.Of = "", 0, 0
	if p := s.referenceOf(label, set, ""); p != nil {
		cell.Detail = "published " + percent(p.share())
	}
	return cell
}

// crossDifference shows the difference of two arms, b minus a.
func (s *Study) crossDifference(judged []*Contrast, set, a, b string) Cell {
	how := Comparison{}
	c := contrastOf(judged, how, []string{a, b})
	if c == nil {
		if c = compareEvaluations(s.arm(a).side(), s.arm(b).side(), set, how); c == nil {
			return Text("–")
		}
	}
	e := s.effect(c, set)
	cell := Cell{Text: points(c.Mean), Value: &c.Mean}.From(Source{From: c.Source.From, Rows: c.Source.Rows,
		By: "mean of the differences, paired by task; the interval contains those over seeds and over families"})
	if e.Low != nil && e.High != nil {
		cell.Detail = fmt.Sprintf("%s\u00a0…\u00a0%s", e.amount(*e.Low), e.amount(*e.High))
	}
	return cell
}

// runLine describes what was run: model, tasks, seeds, updates, hours, commit.
func (s *Study) runLine() string {
	var parts []string
	add := func(format string, args ...any) { parts = append(parts, fmt.Sprintf(format, args...)) }
	if models := s.models(); len(models) > 0 {
		add("%s", strings.Join(models, ", "))
	}
	for _, set := range s.sets() {
		if each, all := s.taskCount(set); each > 0 && all > each {
			add("%d %s per evaluation (%d different ones)", each, setName(set), all)
		} else if each > 0 {
			add("%d %s", each, setName(set))
		}
	}
	seeds := map[int64]bool{}
	for _, a := range s.Arms {
		for _, r := range a.Runs {
			if r.Seed != nil {
				seeds[*r.Seed] = true
			}
		}
	}
	if len(s.Arms) > 0 {
		add("%s", plural(len(s.Arms), "arm"))
	}
	if len(seeds) > 0 {
		names := strings.Trim(fmt.Sprint(slices.Sorted(maps.Keys(seeds))), "[]")
		add("%s (%s)", plural(len(seeds), "seed"), strings.ReplaceAll(names, " ", ", "))
	}
	if longest := s.longest(); longest > 0 {
		add("up to %s", plural(longest, "update"))
	}
	seconds := 0.0
	var commits []string
	for _, r := range s.Records {
		if r.Manifest != nil {
			seconds += r.Manifest.Seconds
			place(&commits, prefix(r.Manifest.Revision, 10))
		}
	}
	if seconds > 0 {
		add("%s of stage time", hours(seconds))
	}
	if commits = slices.DeleteFunc(commits, func(c string) bool { return c == "" }); len(commits) > 0 {
		add("commit %s", strings.Join(commits, ", "))
	}
	return strings.Join(parts, " · ")
}

// hours formats a duration with one decimal.
func hours(seconds float64) string {
	if seconds < 3600 {
		return strconv.FormatFloat(seconds/60, 'f', 0, 64) + " minutes"
	}
	return strconv.FormatFloat(seconds/3600, 'f', 1, 64) + " hours"
}

// models describes the models that the shown stages start from: their shape, or the name of the stage that reads them.
func (s *Study) models() []string {
	var models []string
	for _, r := range s.Records {
		if r.Kind != "model" {
			continue
		}
		unquoted := func(name string) string { return strings.Trim(r.Settings["architecture."+name], `"`) }
		if layers := unquoted("layers"); layers != "" {
			place(&models, fmt.Sprintf("%s, %s layers of width %s, from random weights", unquoted("family"), layers,
				unquoted("hidden")))
			continue
		}
		address, _, _ := strings.Cut(lang.TrimStage(r.Address), "@")
		place(&models, address)
	}
	return models
}

// limits returns sentences about what the numbers leave open.
func (s *Study) limits() (limits []string) {
	var fewer []string
	drawn := false // evaluations of a set have different tasks
	seeds := map[string]bool{}
	for _, a := range s.Arms {
		evaluated, identities := 0, map[string]bool{}
		for i := range a.Runs {
			if r := &a.Runs[i]; len(r.Scores) > 0 {
				evaluated++
				identities[r.identity()], seeds[r.Name()] = true, true
			}
		}
		if len(identities) < evaluated {
			policies := "one policy"
			if len(identities) > 1 {
				policies = fmt.Sprintf("%d policies", len(identities))
			}
			fewer = append(fewer, fmt.Sprintf("%s (%s, %d evaluations)", a.Label, policies, evaluated))
		}
	}
	for _, set := range s.sets() {
		each, all := s.taskCount(set)
		drawn = drawn || all > each
	}
	if drawn && len(seeds) > 1 {
		limits = append(limits, "Evaluations of one set have different tasks, so intervals over seeds include the "+
			"variance of the draw.")
	}
	if len(fewer) > 0 {
		limits = append(limits, "More evaluations than trainings, which does not add seeds: "+strings.Join(fewer, "; ")+".")
	}
	return slices.Concat(limits, s.withoutWindows(), s.uncompared())
}
