package reports

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/hashicorp/hcl/v2"

	"rcgrpo/bfcl"
	"rcgrpo/engine/lang"
	"rcgrpo/reports/page"
	"rcgrpo/reports/stats"
	"rcgrpo/stages/rl/blocks"
)

// Reference is a reference block: results that others published. A page shows them beside its own results on its first
// task set and never draws them as an arm.
type Reference struct {
	// name of the publication and its table
	Name string `json:"name" hcl:"name,label"`
	// address of the publication
	URL string `json:"url,omitempty" hcl:"url,optional"`
	// number of its tasks: overall, and of each category that it reports
	Of map[string]int `json:"of" hcl:"of" unit:"tasks"`
	// passed tasks of arms of the page: by label, then overall and by category
	Counts map[string]map[string]int `json:"counts" hcl:"counts,optional"`
	// passed tasks of methods that the page does not evaluate: by group, such as their model, then by name
	Others map[string]map[string]map[string]int `json:"others,omitempty" hcl:"others,optional"`

	At map[string]hcl.Range `json:"-" hcl:",ranges"`
}

// overall is the category of all tasks in a Reference.
const overall = "overall"

// faults returns the errors of the reference that do not depend on the arms of a page.
func (r *Reference) faults() (all hcl.Diagnostics) {
	bad := blocks.Mistakes(&all)
	known := append([]string{overall}, bfcl.Categories...)
	for _, category := range sortedKeys(r.Of) {
		bad(!slices.Contains(known, category), "Unknown category", r.At["of"], "No category is called %q%s There are %s.",
			category, cmp.Or(lang.NearHint(category, known), "."), strings.Join(known, ", "))
		bad(r.Of[category] < 1, "No tasks", r.At["of"], "A published share has at least one task; got of.%s = %d.",
			category, r.Of[category])
	}
	_, ok := r.Of[overall]
	bad(!ok, "No number of tasks", r.At["of"],
		"Write of = { %s = N }, the number of all tasks of the reference.", overall)
	bad(len(r.Counts)+len(r.Others) == 0, "Empty reference", r.At["counts"], "A reference needs passed tasks of at "+
		"least one arm: counts = { \"ARM\" = { %s = N } }.", overall)
	check := func(at hcl.Range, setting string, counts map[string]map[string]int) {
		for _, arm := range sortedKeys(counts) {
			for _, detail := range r.rowFaults(counts[arm]) {
				bad(true, "Impossible counts", at, "%s.%q: %s", setting, arm, detail)
			}
		}
	}
	check(r.At["counts"], "counts", r.Counts)
	for _, group := range sortedKeys(r.Others) {
		check(r.At["others"], fmt.Sprintf("others.%q", group), r.Others[group])
	}
	return all
}

// categories returns the categories of the reference, overall first.
func (r *Reference) categories() []string {
	rest := slices.DeleteFunc(sortedKeys(r.Of), func(c string) bool { return c == overall })
	return append([]string{overall}, rest...)
}

// rowFaults returns the errors in the counts of one arm.
func (r *Reference) rowFaults(counts map[string]int) (all []string) {
	parts, tasks, passed := 0, 0, 0
	for _, category := range sortedKeys(counts) {
		n, of := counts[category], r.Of[category]
		switch {
		case of == 0:
			all = append(all, fmt.Sprintf("%s is not in of; add its number of tasks there or remove it.", category))
		case n < 0 || n > of:
			all = append(all, fmt.Sprintf("%s has %d passed tasks of %d; write a count from 0 to %d.", category, n, of, of))
		case category != overall:
			parts, tasks, passed = parts+1, tasks+of, passed+n
		}
	}
	if _, ok := counts[overall]; !ok {
		return append(all, fmt.Sprintf("write its passed tasks of all tasks, %s = N.", overall))
	}
	if len(all) == 0 && parts > 0 && tasks == r.Of[overall] && passed != counts[overall] {
		all = append(all, fmt.Sprintf("its categories add up to %d passed tasks, but %s is %d; correct one of them.",
			passed, overall, counts[overall]))
	}
	return all
}

// armFaults returns the errors of the reference on a page with some arms.
func (r *Reference) armFaults(arms []string) (all hcl.Diagnostics) {
	bad := blocks.Mistakes(&all)
	if len(arms) == 0 {
		bad(true, "Nothing to compare", r.At["counts"], "The report has no evaluations to show beside the reference: "+
			"write scores = [stage.eval.NAME].")
		return all
	}
	for _, arm := range sortedKeys(r.Counts) {
		bad(!slices.Contains(arms, arm), "Unknown arm", r.At["counts"], "No evaluation in scores is called %q%s There are "+
			"%s. Counts of methods that this page does not evaluate belong into others.", arm,
			cmp.Or(lang.NearHint(arm, arms), "."), strings.Join(arms, ", "))
	}
	for _, group := range sortedKeys(r.Others) {
		for _, name := range sortedKeys(r.Others[group]) {
			arm := strings.TrimPrefix(group+"/"+name, "/")
			bad(slices.Contains(arms, arm), "Arm of this page", r.At["others"],
				"This page evaluates %q, so its counts belong into counts.", arm)
		}
	}
	return all
}

// PublishedEffect is a published difference of two arms, B minus A, in shares.
type PublishedEffect struct {
	Reference        string // name
	A, B, Difference page.Cell
}

// referenceOf returns the share that the first reference with this arm reports on a task set, and the name of the
// reference; nil if none does.
func (s *Study) referenceOf(arm, set string) (name string, share *page.Cell) {
	if set != s.firstSet() {
		return "", nil
	}
	for _, r := range s.References {
		if share = r.published(r.Counts[arm], overall); share != nil {
			return r.Name, share
		}
	}
	return "", nil
}

// published returns the share of a category in a row of counts, or nil.
func (r *Reference) published(counts map[string]int, category string) *page.Cell {
	n, ok := counts[category]
	if !ok || r.Of[category] == 0 {
		return nil
	}
	share := page.Share(n, r.Of[category])
	return &share
}

// referenceEffect returns the difference of two arms that one reference reports on a task set; nil if none
// reports both. Its interval is Newcombe's: publications rarely report which tasks both arms pass.
func (s *Study) referenceEffect(a, b, set string) *PublishedEffect {
	nameA, x := s.referenceOf(a, set)
	nameB, y := s.referenceOf(b, set)
	if x == nil || y == nil || nameA != nameB {
		return nil
	}
	difference, interval := *y.Value-*x.Value, stats.Newcombe(*x.Value, *x.Interval, *y.Value, *y.Interval)
	cell := page.Cell{Text: page.Points(difference), Value: &difference, Interval: &interval}
	return &PublishedEffect{nameA, *x, *y,
		cell.With("%s", page.Range(page.Points(interval.Low), page.Points(interval.High)))}
}

// referenceParts returns the tables that show each reference beside the results of the page: shares of all tasks, then
// by category.
func (s *Study) referenceParts() []page.Part {
	set := s.firstSet()
	var parts []page.Part
	for _, r := range s.References {
		all := &page.Table{ID: "reference-" + page.Slug(r.Name), Title: r.Name + ": success there and here",
			Columns: page.Columns("<Arm", "Paper", "Here", "<Within our interval", "Fisher's exact"),
			Notes:   slices.Clone(referenceNotes)}
		if r.URL != "" {
			all.Lead = "Published at " + r.URL + "."
		}
		parted := &page.Table{ID: all.ID + "-categories", Folded: true,
			Title:   r.Name + ": success by category, there and here",
			Columns: slices.Insert(slices.Clone(all.Columns), 1, page.Columns("<Category")...),
			Notes:   slices.Clone(referenceNotes[:1])}
		for _, row := range s.referenceRows(&r) {
			add := func(t *page.Table, p *page.Cell, category string, names ...page.Cell) {
				t.Rows = append(t.Rows, page.Row{Arm: s.armIndex(row.arm), Group: row.group,
					Cells: append(append([]page.Cell{page.Text("%s", row.name)}, names...),
						s.besideReference(p, row.arm, set, category)...)})
			}
			for _, category := range r.categories() {
				p := r.published(row.counts, category)
				switch {
				case p == nil:
				case category == overall:
					add(all, p, "")
				default:
					add(parted, p, category, page.Text("%s", categoryName(category)))
				}
			}
		}
		parts = slices.Concat(parts, all.Parts(set), parted.Parts(set))
	}
	return parts
}

// referenceNotes explain the tables of a reference; the first note is about its table by category.
var referenceNotes = []string{
	"Paper: passed tasks as published, with Wilson's 95 % interval of independent tasks. Here: the main table's pooled " +
		"episodes, with their clustered interval; a dash: not evaluated here. Within: our interval contains the " +
		"published share.",
	"Fisher's exact test of both counts takes all episodes as independent, also those of one family or task, so that " +
		"its p-value is too small with several seeds. It is not adjusted and decides nothing on this page.",
}

// referenceRow is an arm of the page, or a method that only the reference has.
type referenceRow struct {
	name   string
	arm    string // label; "" for a method of the reference
	group  string // group of such a method
	counts map[string]int
}

// referenceRows returns the rows of a reference by group: groups without an arm of the page first, then the arms of
// the page in its order, below the methods of the same group.
func (s *Study) referenceRows(r *Reference) (rows []referenceRow) {
	groups := sortedKeys(r.Others)
	firstOf := func(group string) int {
		return slices.IndexFunc(s.Arms, func(a Arm) bool { return a.Model == group })
	}
	slices.SortStableFunc(groups, func(a, b string) int { return firstOf(a) - firstOf(b) })
	others := func(group string) {
		for _, name := range sortedKeys(r.Others[group]) {
			rows = append(rows, referenceRow{name: name, group: group, counts: r.Others[group][name]})
		}
	}
	for _, group := range groups {
		if firstOf(group) < 0 {
			others(group)
		}
	}
	for i, a := range s.Arms {
		if firstOf(a.Model) == i {
			others(a.Model)
		}
		if counts, ok := r.Counts[a.Label]; ok {
			rows = append(rows, referenceRow{name: a.Label, arm: a.Label, counts: counts})
		}
	}
	for _, label := range sortedKeys(r.Counts) {
		if s.arm(label) == nil { // its stage failed
			rows = append(rows, referenceRow{name: label, arm: label, counts: r.Counts[label]})
		}
	}
	return rows
}

// besideReference returns the published share, that of the page, and how they compare.
func (s *Study) besideReference(p *page.Cell, label, set, category string) []page.Cell {
	a := cmp.Or(s.arm(label), &Arm{}) // its stage failed: an arm without episodes
	selected := a.scored(set, true).inCategory(category)
	ours := selected.cell(byReward)
	if ours.Counts == nil {
		return []page.Cell{*p, page.Text("–"), page.Text("–"), page.Text("–")}
	}
	test := stats.Fisher(p.Count, p.Of, ours.Count, ours.Of)
	return []page.Cell{*p, ours,
		within(ours.Interval, p).From(selected.source("published share within the clustered Wilson interval")),
		page.Cell{Text: page.Probability(test), Value: &test}.
			From(selected.source("Fisher's exact test against the published count"))}
}

// within reports whether an interval contains a published share or difference; a dash without an interval.
func within(i *stats.Interval, published *page.Cell) page.Cell {
	switch {
	case i == nil:
		return page.Text("–")
	case i.Excludes(*published.Value):
		return page.Text("no")
	}
	return page.Text("yes")
}

// ablationTables show, for each comparison of success, the differences that a reference reports beside those of the
// page: the paper's ablations. A comparison without such a difference has no table.
func (s *Study) ablationTables() []page.Part {
	set := s.firstSet()
	if len(s.sets()) == 0 {
		return nil
	}
	var parts []page.Part
	for _, how := range s.comparisons() {
		if how.Outcome != "" && how.Outcome != OutcomeSuccess {
			continue
		}
		t := &page.Table{ID: "ablation-" + page.Slug(how.Label), Title: "Effect of " + how.Label + ", there and here",
			Columns: page.Columns("<Without → with", "Paper: without", "Paper: with", "Paper: Δ points", "Here: without",
				"Here: with", "Here: Δ points", "<Within our interval"),
			Notes: []string{"Paper: Newcombe's 95 % interval of two independent shares, because a publication rarely reports " +
				"which tasks both arms pass. Here: the interval that contains those over seeds and over task families."}}
		for _, names := range how.Pairs {
			e := s.referenceEffect(names[0], names[1], set)
			if e == nil {
				continue
			}
			cells := []page.Cell{page.Text("%s → %s", names[0], names[1]), e.A, e.B, e.Difference}
			t.Add(page.NoArm, append(cells, contrastOf(s.decided(set), how, names).besideReference(e)...)...)
		}
		parts = append(parts, t.Parts(set)...)
	}
	return parts
}

// besideReference returns the sides and the difference of the contrast beside a published difference; dashes without a
// contrast.
func (c *Contrast) besideReference(e *PublishedEffect) []page.Cell {
	if c == nil {
		return []page.Cell{page.Text("–"), page.Text("–"), page.Text("–"), page.Text("–")}
	}
	difference := c.cell()
	if difference.Interval != nil {
		difference = difference.With("%s", c.between(*difference.Interval))
	}
	return []page.Cell{c.CellA.From(c.own(byReward.by)), c.CellB.From(c.own(byReward.by)),
		difference.From(c.own("mean of the differences, hull of both intervals")),
		within(difference.Interval, &e.Difference).From(c.own("published difference within the hull of both intervals"))}
}
