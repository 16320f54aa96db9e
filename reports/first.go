package reports

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"

	"github.com/dustin/go-humanize/english"

	"rcgrpo/engine/lang"
	"rcgrpo/engine/runs"
	"rcgrpo/reports/page"
)

// first returns the figures and tables of the first screen: the effects that answer the question, and the outcomes of
// initialisations and methods.
func (s *Study) first() []page.Part {
	parts := forests("fig-answer", s.leadingEffects())
	if sets := s.sets(); len(sets) > 0 {
		parts = append(parts, s.crossTable(sets[0]).Parts("")...)
	}
	return parts
}

// leadingEffects returns the effects of the leading comparisons.
func (s *Study) leadingEffects() (effects []page.Effect) {
	set := s.firstSet()
	for _, how := range s.leading() {
		for _, c := range how.contrastsIn(s.decided(set)) {
			effects = append(effects, s.effect(c, set))
		}
	}
	return effects
}

// effectFigures draws every claim of the page. They are omitted if the first screen shows them all.
func (s *Study) effectFigures() []page.Part {
	all := s.effects()
	parts, omitted := forests("fig-effects", all), len(all) <= len(s.leadingEffects())
	for _, part := range parts {
		part.Figure.Title = "All comparisons: " + part.Figure.Title
		part.Figure.Omitted = omitted
	}
	return parts
}

// forests returns a forest plot for each unit of the effects, in order of appearance.
func forests(id string, effects []page.Effect) (parts []page.Part) {
	var units, headings []string
	for _, e := range effects {
		page.IndexOrAppend(&units, e.Unit)
		page.IndexOrAppend(&headings, e.Heading())
	}
	for _, unit := range units {
		f := &page.Figure{ID: id, Title: "Differences", X: "difference in " + cmp.Or(unit, "units of the metric"),
			Note: "The interval contains the interval over seeds, which treats seeds as independent, and, for success, the " +
				"one over task families, which treats families as independent. A filled dot is decided: the adjusted test is " +
				"below 5 %, or the interval excludes every difference that matters. A true difference in the grey band is " +
				"likely missed: a test at 5 % finds it with a power below 80 %, given the variance of these data."}
		if unit != page.PointsUnit {
			f.ID, f.Title = id+"-"+page.Slug(unit), f.Title+", "+unit
		}
		f.Effects = slices.DeleteFunc(slices.Clone(effects), func(e page.Effect) bool { return e.Unit != unit })
		sortByLabel(f.Effects, headings, (page.Effect).Heading)
		if b := f.Second(); b != "" {
			f.Title = b + " minus each other arm" + strings.TrimPrefix(f.Title, "Differences")
		}
		parts = append(parts, page.Part{Figure: f})
	}
	return parts
}

// crossTable shows the success of the arms, and each outcome of training that answers the question, as initialisations
// by methods with the differences at the margins. nil unless at least two methods were trained from each of at least
// two initialisations.
func (s *Study) crossTable(set string) *page.Table {
	rows, methods, label := s.cross(set)
	if len(rows) < 2 || len(methods) < 2 {
		return nil
	}
	outcomes := []Comparison{{}}
	for _, how := range s.leading() {
		other := func(o Comparison) bool { return o.Outcome == how.Outcome }
		if how.ofTraining() && !slices.ContainsFunc(outcomes, other) {
			outcomes = append(outcomes, Comparison{Outcome: how.Outcome})
		}
	}
	first, last := methods[0], methods[len(methods)-1]
	t := &page.Table{ID: "cross-" + setID(set), Title: "Outcomes by initialisation and method",
		Columns: append(page.Columns("<Initialisation"), page.Columns(append(methods, last+" minus "+first)...)...)}
	note := "Success by greedy decoding."
	if len(outcomes) > 1 {
		note += fmt.Sprintf(" Outcomes of training: mean of the last %d updates.", s.Windows.Late)
	}
	t.Notes = []string{note + " Differences of shares are in points, with 95 % intervals."}
	for _, how := range outcomes {
		add := func(cells ...page.Cell) {
			t.Rows = append(t.Rows, page.Row{Arm: page.NoArm, Group: s.crossGroup(how, set), Cells: cells})
		}
		for _, row := range rows {
			cells := []page.Cell{page.Text("%s", row)}
			for _, method := range methods {
				cells = append(cells, s.crossCell(label(row, method), set, how))
			}
			add(append(cells, s.crossDifference(how, set, label(row, first), label(row, last)))...)
		}
		if len(rows) == 2 {
			cells := []page.Cell{page.Text("%s minus %s", rows[1], rows[0])}
			for _, method := range methods {
				cells = append(cells, s.crossDifference(how, set, label(rows[0], method), label(rows[1], method)))
			}
			add(append(cells, page.Text(""))...)
		}
	}
	return t
}

// crossGroup names the rows of an outcome.
func (s *Study) crossGroup(how Comparison, set string) string {
	name := how.outcomeName()
	name = strings.ToUpper(name[:1]) + name[1:]
	switch unit := how.unit(); {
	case !how.ofTraining():
		name += " on " + setName(set)
	case unit != page.PointsUnit && unit != "":
		name += ", " + unit
	}
	return name
}

// crossCell shows an outcome of an arm; below its success, the published success.
func (s *Study) crossCell(label, set string, how Comparison) page.Cell {
	a := s.arm(label)
	if how.ofTraining() {
		selected := a.logged(s.Windows, how.Outcome)
		var late []float64
		for _, run := range selected.runs {
			_, values, _ := run.values(how.Outcome)
			late = append(late, lateValue(values, s.Windows))
		}
		late = slices.DeleteFunc(late, math.IsNaN)
		if len(late) == 0 {
			return page.Text("–")
		}
		cell := how.mean(late)
		cell.Detail = ""
		return cell.From(selected.source(byLate))
	}
	cell := a.scored(set, true).cell(byReward)
	cell.Detail, cell.Counts = "", nil
	if _, p := s.referenceOf(label, set); p != nil {
		cell.Detail = "published " + p.Text
	}
	return cell
}

// crossDifference shows the difference of two arms in an outcome, b minus a.
func (s *Study) crossDifference(how Comparison, set, a, b string) page.Cell {
	names := []string{a, b}
	c := contrastOf(s.decided(set), how, names)
	if c == nil {
		c = s.compare(how, names, set)
	}
	if c == nil {
		return page.Text("–")
	}
	by := "mean of the differences, paired by task; the interval contains those over seeds and over families"
	if how.ofTraining() {
		by = byLate + ", paired by seed; the interval over seeds"
	}
	cell := c.cell().From(c.own(by))
	if i := c.hull(); i.Known() {
		cell.Detail = strings.ReplaceAll(c.between(i), "\u00a0", " ") // in two lines on a phone
	}
	return cell
}

// runLine describes the run: model, tasks, compared arms, seeds, updates, hours, code.
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
	for _, r := range s.runs {
		if r.Seed != nil {
			seeds[*r.Seed] = true
		}
	}
	if len(s.Arms) > 0 {
		add("%s", s.comparedArms())
	}
	if len(seeds) > 0 {
		names := strings.Trim(fmt.Sprint(slices.Sorted(maps.Keys(seeds))), "[]")
		add("%s (%s)", english.Plural(len(seeds), "seed", ""), strings.ReplaceAll(names, " ", ", "))
	}
	if longest := s.longest(); longest > 0 {
		add("up to %s", english.Plural(longest, "update", ""))
	}
	seconds := 0.0
	var codes []string
	for _, m := range s.results() {
		seconds += m.Seconds
		page.IndexOrAppend(&codes, page.Prefix(m.Revision, 10))
	}
	if seconds > 0 {
		add("%s of stage time", runs.DurationText(seconds))
	}
	if codes = slices.DeleteFunc(codes, func(c string) bool { return c == "" }); len(codes) > 0 {
		add("code %s", strings.Join(codes, ", "))
	}
	return strings.Join(parts, " · ")
}

// comparedArms counts the arms of the leading comparisons and the others: "4 arms compared, 5 more below".
func (s *Study) comparedArms() string {
	var names []string
	for _, e := range s.leadingEffects() {
		page.IndexOrAppend(&names, e.A)
		page.IndexOrAppend(&names, e.B)
	}
	if len(names) == 0 {
		return english.Plural(len(s.Arms), "arm", "")
	}
	if others := len(s.Arms) - len(names); others > 0 {
		return fmt.Sprintf("%s compared, %d more below", english.Plural(len(names), "arm", ""), others)
	}
	return english.Plural(len(names), "arm", "") + " compared"
}

// models describes the models that the shown stages start from: their shape, or the name of the stage that reads them.
func (s *Study) models() []string {
	var models []string
	for _, r := range s.Stages {
		if r.Kind != "model" {
			continue
		}
		unquoted := func(name string) string { return strings.Trim(r.Settings["architecture."+name], `"`) }
		if layers := unquoted("layers"); layers != "" {
			page.IndexOrAppend(&models, fmt.Sprintf("%s, %s layers of width %s, from random weights", unquoted("family"), layers,
				unquoted("hidden")))
			continue
		}
		address, _, _ := strings.Cut(lang.TrimStage(r.Address), "@")
		page.IndexOrAppend(&models, address)
	}
	return models
}

// limits returns the limits of the result, one sentence each.
func (s *Study) limits() (limits []string) {
	var fewer []string
	drawn := false // evaluations of a set have different tasks
	seeds := map[string]bool{}
	for _, a := range s.Arms {
		evaluated, identities := 0, map[string]bool{}
		for i := range a.Runs {
			if r := &a.Runs[i]; len(r.Rows) > 0 {
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
