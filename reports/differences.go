package reports

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/dustin/go-humanize/english"

	"rcgrpo/reports/page"

	"rcgrpo/reports/stats"
)

// inPoints reports whether the outcome is a share, whose differences are percentage points.
func (c *Comparison) inPoints() bool {
	return !c.ofTraining() || metricInfo(c.Outcome).Unit == "share"
}

// mean shows the mean of the outcome over trainings, with their range.
func (c *Comparison) mean(values []float64) page.Cell {
	if c.inPoints() {
		return meanShare(values)
	}
	return meanNumber(values)
}

// difference formats a difference of the outcome, with its sign.
func (c *Comparison) difference(v float64) string {
	return (&page.Effect{Unit: c.unit()}).Amount(c.scale() * v)
}

// between formats an interval of a difference; a dash if it is unknown.
func (c *Comparison) between(i stats.Interval) string {
	if !i.Known() {
		return "–"
	}
	return page.Range(c.difference(i.Low), c.difference(i.High))
}

// metricTitle returns the words for a metric of training in the middle of a sentence, or its name if it has none.
func metricTitle(metric string) string {
	if metric == "token_gap" {
		return "reward under high minus under low"
	}
	for _, c := range slices.Concat(signalMetrics, lateMetrics) {
		if c.metric == metric {
			return strings.ToLower(c.head[:1]) + c.head[1:]
		}
	}
	return metric
}

// cell shows the difference with its interval.
func (c *Contrast) cell() page.Cell {
	cell := page.Cell{Text: c.difference(c.Mean), Value: &c.Mean}
	if i := c.hull(); i.Known() {
		cell.Interval = &i
	}
	return cell
}

// exactTest returns the name of the test of each pair of policies, "" for outcomes of training.
func (c *Comparison) exactTest() string {
	switch {
	case c.ofTraining():
		return ""
	case c.Outcome == OutcomeSampled:
		return "t-test over families"
	case c.Unpaired:
		return "Fisher's exact test"
	}
	return "McNemar's exact test"
}

// comparisonTables returns the claims on each set of tasks, those about training with the first set, and behind folds
// their intervals and the tests of each pair of policies.
func (s *Study) comparisonTables() []page.Part {
	sets := s.sets()
	if len(sets) == 0 {
		sets = []string{""}
	}
	var parts []page.Part
	for _, set := range sets {
		if claims := s.claims(set); len(claims) > 0 {
			for _, t := range []*page.Table{s.claimTable(claims, set), intervalTable(claims, set), pairTable(claims, set)} {
				parts = append(parts, page.Part{Table: t})
			}
		}
	}
	return parts
}

// own returns the source of a value that depends on the outcomes of the contrast's arms only.
func (c *Contrast) own(by string) page.Source {
	return page.Source{From: c.Source.From, Rows: c.Source.Rows, By: by}
}

// claimTable has a row per claim of a set: the difference, its interval, one p-value and the verdict.
func (s *Study) claimTable(claims []*Contrast, set string) *page.Table {
	t := &page.Table{ID: "compare-" + setID(set), Title: "Claims on " + setName(set),
		Columns: page.Columns("<Without → with", "Δ", "<Verdict", "95 % interval", "Without", "With", "Detectable",
			"p, adjusted", "<Claim")}
	if slices.ContainsFunc(claims, (*Contrast).ofTraining) {
		t.Title += " and in training"
	}
	every := page.Source{} // p-values are adjusted over all claims, so each cell with one depends on all of them
	for _, c := range claims {
		every = page.Together("", "", every, c.Source)
	}
	var groups []string
	for _, c := range claims {
		group := c.outcomeName() + ", " + c.unit()
		page.IndexOrAppend(&groups, group)
		t.Rows = append(t.Rows, page.Row{Arm: page.NoArm, Group: group, Cells: s.claimCells(c, set, every)})
	}
	slices.SortStableFunc(t.Rows, func(a, b page.Row) int {
		return slices.Index(groups, a.Group) - slices.Index(groups, b.Group)
	})
	t.Notes = claimNotes(claims)
	return t
}

// claimCells returns the row of a claim. every is the source of all claims of the table.
func (s *Study) claimCells(c *Contrast, set string, every page.Source) []page.Cell {
	adjusted := func(by string) page.Source {
		return page.Together(by+", Holm-adjusted over all claims of the table", c.Source.Rows, c.Source, every)
	}
	bySide, byMean := byReward.by, "mean of the differences, paired by task"
	switch {
	case c.ofTraining():
		bySide, byMean = byLate, byLate+", paired by seed"
	case c.Unpaired:
		byMean = "difference of the mean shares"
	}
	side := func(cell page.Cell) page.Cell {
		if cell.Counts != nil { // the table of results has the interval
			cell.Detail = page.Fraction(cell)
		}
		return cell.From(c.own(bySide))
	}
	detectable := page.Text("–")
	if d := c.detectable(); !math.IsNaN(d) {
		detectable = page.Cell{Text: strings.TrimPrefix(c.difference(d), "+"), Value: &d}
	}
	return []page.Cell{page.Text("%s → %s", c.A, c.B), c.cell().From(c.own(byMean)),
		s.verdictCell(c, set).From(adjusted("p and interval")),
		page.Text("%s", c.between(c.hull())).From(c.own("contains the intervals over seeds and over task families")),
		side(c.CellA), side(c.CellB),
		detectable.From(c.own("smallest effect detected with a power of 80 %, from the wider interval")),
		page.Text("%s", page.Probability(c.Adjusted)).From(adjusted("p over seeds or the largest of the pairs of policies")),
		page.Text("%s", c.Label).With("%s", strings.TrimSuffix(c.about()+" · "+c.size(), " · ")).
			From(page.Together("counts of policies, tasks and families", c.Source.Rows, c.Source, every))}
}

// verdictCell shows the verdict and, if nothing is decided, the published effect.
func (s *Study) verdictCell(c *Contrast, set string) page.Cell {
	e := s.effect(c, set)
	cell := page.Text("%s", string(e.Verdict))
	if e.Verdict == page.NotDecided && e.Reference != nil {
		cell = cell.With("%s reports %s", e.ReferenceName, e.Amount(*e.Reference))
	}
	return cell
}

// size counts the distinct tasks and families of an evaluation; "" for outcomes of training.
func (c *Contrast) size() string {
	switch {
	case c.ofTraining():
		return ""
	case c.Unpaired:
		return english.Plural(c.Families.Families, "family", "")
	}
	tasks := map[string]bool{}
	for _, p := range c.Pairs {
		for task := range p.a.outcomes {
			tasks[task] = true
		}
	}
	return english.Plural(len(tasks), "task", "") + ", " + english.Plural(c.Families.Families, "family", "")
}

// claimNotes explains the columns of the table of claims.
func claimNotes(claims []*Contrast) []string {
	notes := []string{"Δ is the second arm minus the first, in the unit above the rows. Success is paired by task. " +
		"An outcome of training is the mean over the late window, which ends at the same update on both sides, and is " +
		"paired by seed.",
		fmt.Sprintf("The interval contains two intervals: the 95 %% t-interval over seeds, which treats seeds as "+
			"independent and needs %d distinct policies per side, and the 95 %% bootstrap interval over task families "+
			"(2,000 resamples), which treats families as independent. Outcomes of training have the first only.",
			methodPolicies)}
	if slices.ContainsFunc(claims, func(c *Contrast) bool { return c.Unpaired }) {
		notes = append(notes, "Some claims compare different tasks, which are not paired: over seeds Welch's interval; "+
			"the bootstrap resamples the families of each side.")
	}
	matters := "No compare block of the report says which difference matters, so no verdict is No or No difference."
	if slices.ContainsFunc(claims, func(c *Contrast) bool { return c.Matters > 0 }) {
		matters = "No (without an expectation: No difference) means that the unadjusted interval excludes every " +
			"difference that matters by the compare block."
	}
	return append(notes, fmt.Sprintf("p tests the mean over seeds; below %d policies per side it is the largest of the "+
		"tests of all pairs of policies. It is Holm-adjusted over all tested claims of this table (%d).", methodPolicies,
		claims[0].Tests),
		"Yes and The opposite require p < 0.05 and an interval without 0. With fewer policies they hold for these "+
			"policies, and every pair must differ in the same direction. "+matters,
		"Detectable is the smallest difference that an unadjusted test at 5 % detects with a power of 80 %, given the "+
			"observed variance.")
}

// intervalTable shows the intervals and unadjusted p-values behind each claim of a set.
func intervalTable(claims []*Contrast, set string) *page.Table {
	has := func(known func(*Contrast) bool) bool { return slices.ContainsFunc(claims, known) }
	t := &page.Table{ID: "intervals-" + setID(set), Title: "Intervals behind the claims on " + setName(set), Folded: true}
	t.Columns = append(page.Columns("<Without → with", "<Outcome"),
		page.Column{Name: "95 % over seeds", Omitted: !has((*Contrast).method)},
		page.Column{Name: "p over seeds", Omitted: !has((*Contrast).method)},
		page.Column{Name: "95 % over families", Omitted: !has(func(c *Contrast) bool { return c.Families.Known() })},
		page.Column{Name: "95 % Newcombe", Omitted: !has(func(c *Contrast) bool { return c.Newcombe.Known() })})
	for _, c := range claims {
		families := page.Text("%s", c.between(c.Families.Interval))
		if c.Families.Known() {
			families = families.With("%s", english.Plural(c.Families.Families, "family", ""))
		}
		bySeeds := "paired t-interval over seeds"
		if c.Unpaired {
			bySeeds = "Welch's t-interval over seeds"
		}
		t.Add(page.NoArm, page.Text("%s → %s", c.A, c.B), page.Text("%s", c.outcomeName()).With("%s", c.unit()),
			page.Text("%s", c.between(c.OverSeeds)).From(c.own(bySeeds)),
			page.Text("%s", page.Probability(c.OverSeedsP)).From(c.own(bySeeds+", its p-value, not adjusted")),
			families.From(c.own("bootstrap over families, 2,000 resamples")),
			page.Text("%s", c.between(c.Newcombe)).
				From(c.own("Newcombe's interval from the clustered Wilson intervals of both sides")))
	}
	t.Notes = []string{"Over seeds: t-interval, which treats seeds as independent. Over families: bootstrap, which " +
		"treats task families as independent and the policies as given. Newcombe's interval, for unpaired claims, combines " +
		"the clustered Wilson intervals of both sides and treats families as independent."}
	return t
}

// pairTable shows the tests of each pair of policies behind the claims of a set.
func pairTable(claims []*Contrast, set string) *page.Table {
	t := &page.Table{ID: "pairs-" + setID(set), Title: "Each pair of policies on " + setName(set), Folded: true,
		Columns: page.Columns("<Without → with", "<Outcome", "<Seed", "Tasks", "Only without", "Only with", "Δ", "p",
			"<Test"),
		Notes: []string{"Only without and only with count the tasks that only one side of the pair passes. The exact " +
			"tests treat tasks as independent; the t-test treats task families as independent. These p-values are not " +
			"adjusted."}}
	for _, c := range claims {
		for _, p := range c.Pairs {
			count := func(n int, known bool) page.Cell {
				if !known {
					return page.Text("–")
				}
				return page.Whole(n).From(c.own("number of paired tasks"))
			}
			paired := p.Tasks > 0
			greedy := paired && c.Outcome != OutcomeSampled
			t.Add(page.NoArm, page.Text("%s → %s", c.A, c.B), page.Text("%s", c.outcomeName()).With("%s", c.unit()),
				page.Text("%s", cmp.Or(p.name(), "–")), count(p.Tasks, paired), count(p.OnlyA, greedy), count(p.OnlyB, greedy),
				page.Cell{Text: c.difference(p.Difference), Value: &p.Difference}.From(c.own("difference of the pair")),
				page.Text("%s", page.Probability(p.P)).From(c.own(cmp.Or(c.exactTest(), "no test"))),
				page.Text("%s", cmp.Or(c.exactTest(), "–")))
		}
	}
	return t
}

// gapTable shows the effect of the reward token: success under high and under low for every arm that was evaluated
// under both.
func (s *Study) gapTable(set string) *page.Table {
	t := &page.Table{
		ID: "gap-" + setID(set), Title: "Effect of the reward token on " + setName(set),
		Columns: page.Columns("<Policy", "High", "Low", "Gap, points", "95 % interval", "p"),
		Notes: []string{"Greedy success of one checkpoint when conditioned on each token, paired by task; gap is high " +
			"minus low. Over seeds: t-interval, which treats policies as independent. Over task families: bootstrap, which " +
			"treats families as independent; if no task differs, the interval comes from Clopper and Pearson's bound for " +
			"the share of families in which one could. p: over seeds, or the largest of McNemar's exact tests of the " +
			"policies; not adjusted, and it decides nothing."},
	}
	for i := range s.Arms {
		high, low := s.Arms[i].tokenSides(set)
		c := compareEvaluations(low, high, Comparison{})
		if c == nil {
			continue
		}
		interval, over := c.Families.Interval, "over task families"
		if c.method() {
			interval, over = c.OverSeeds, "over seeds"
		}
		gap := page.Cell{Text: page.Points(c.Mean), Value: &c.Mean}
		if interval.Known() {
			gap.Interval = &interval
		}
		t.Add(i, page.Text("%s", s.Arms[i].Label), c.CellB.From(c.own(byReward.by)), c.CellA.From(c.own(byReward.by)),
			gap.From(c.own("mean over policies of high minus low, paired by task")),
			page.Text("%s", c.between(interval)).With("%s", over).From(c.own("interval "+over)),
			page.Text("%s", page.Probability(c.p())).From(c.own("p over seeds or the largest of McNemar's exact tests")))
	}
	return t
}

// comparable reports whether both arms have the outcome of a comparison, on at least one set.
func (s *Study) comparable(how Comparison, names []string) bool {
	if how.ofTraining() {
		return s.compare(how, names, "") != nil
	}
	a, b, greedy := s.arm(names[0]), s.arm(names[1]), how.Outcome != OutcomeSampled
	return slices.ContainsFunc(s.sets(), func(set string) bool {
		return len(a.scored(set, greedy).runs) > 0 && len(b.scored(set, greedy).runs) > 0
	})
}

// uncompared returns sentences about comparisons that the page cannot make.
func (s *Study) uncompared() []string {
	var missing, impossible []string
	for _, c := range s.Compare {
		for _, pair := range c.Pairs {
			absent := slices.DeleteFunc(slices.Clone(pair), func(label string) bool { return s.arm(label) != nil })
			for _, label := range absent {
				page.IndexOrAppend(&missing, label)
			}
			if len(absent) == 0 && !s.comparable(c, pair) {
				impossible = append(impossible, fmt.Sprintf("%s → %s (%s)", pair[0], pair[1], c.Label))
			}
		}
	}
	var facts []string
	untested := !slices.ContainsFunc(s.Compare, func(c Comparison) bool { return c.Expect != "" })
	if s.Expect != "" && len(s.Arms) > 1 && untested {
		facts = append(facts, "No comparison of this page has an expectation, so no verdict is about the expected outcome.")
	}
	if len(missing) > 0 {
		facts = append(facts, "Not scored, so missing from the comparisons: "+strings.Join(missing, ", ")+".")
	}
	if len(impossible) > 0 {
		facts = append(facts, "Not compared, because no task set and no late window has the outcome of both arms: "+
			strings.Join(impossible, "; ")+".")
	}
	return facts
}

// setName names a task set in titles.
func setName(set string) string {
	switch cmp.Or(set, "test") {
	case "test":
		return "test tasks"
	case "test_new":
		return "test tasks with new wording"
	}
	return "set " + set
}

// setID returns the set as part of an element id.
func setID(set string) string { return page.Slug(cmp.Or(set, "test")) }
