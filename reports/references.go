package reports

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/hashicorp/hcl/v2"

	"rcgrpo/bfcl"
	"rcgrpo/engine/lang"
	"rcgrpo/reports/stats"
)

// Reference is a reference block: results that others published. A page shows them beside its own results on its first
// task set and never draws them as an arm.
type Reference struct {
	Name   string                    `json:"name" hcl:"name,label" doc:"name of the publication and its table"`
	URL    string                    `json:"url,omitempty" hcl:"url,optional" doc:"address of the publication"`
	Of     map[string]int            `json:"of" hcl:"of" unit:"tasks" doc:"number of its tasks: overall, and of each"`
	_      struct{}                  `doc:"category that it reports"`
	Counts map[string]map[string]int `json:"counts" hcl:"counts,optional" doc:"passed tasks of arms of the page: by"`
	_      struct{}                  `doc:"label, then overall and by category"`
	Others map[string]map[string]int `json:"others,omitempty" hcl:"others,optional" doc:"passed tasks of methods that"`
	_      struct{}                  `doc:"the page does not evaluate; a GROUP/ before the name names their group"`

	At map[string]hcl.Range `json:"-" hcl:",ranges"`
}

// overall is the category of all tasks in a Reference.
const overall = "overall"

// referenceFault is an error of a reference block, at one of its settings.
type referenceFault struct{ setting, summary, detail string }

// faults returns the errors of the reference that do not depend on the arms of a page.
func (r *Reference) faults() (all []referenceFault) {
	bad := func(setting, summary, format string, args ...any) {
		all = append(all, referenceFault{setting, summary, fmt.Sprintf(format, args...)})
	}
	known := append([]string{overall}, bfcl.Categories...)
	for _, category := range sortedKeys(r.Of) {
		if !slices.Contains(known, category) {
			bad("of", "Unknown category", "No category is called %q%s There are %s.", category,
				cmp.Or(lang.NearHint(category, known), "."), strings.Join(known, ", "))
		}
		if r.Of[category] < 1 {
			bad("of", "No tasks", "A published share has at least one task; got of.%s = %d.", category, r.Of[category])
		}
	}
	if r.Of[overall] == 0 {
		bad("of", "No number of tasks", "Write of = { %s = N }, the number of all tasks of the reference.", overall)
	}
	if len(r.Counts)+len(r.Others) == 0 {
		bad("counts", "Empty reference", "A reference needs passed tasks of at least one arm: counts = { \"ARM\" = { "+
			"%s = N } }.", overall)
	}
	for _, rows := range []struct {
		setting string
		counts  map[string]map[string]int
	}{{"counts", r.Counts}, {"others", r.Others}} {
		for _, arm := range sortedKeys(rows.counts) {
			for _, detail := range r.rowFaults(rows.counts[arm]) {
				bad(rows.setting, "Impossible counts", "%s.%q: %s", rows.setting, arm, detail)
			}
		}
	}
	return all
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
func (r *Reference) armFaults(arms []string) (all []referenceFault) {
	for _, arm := range sortedKeys(r.Counts) {
		if !slices.Contains(arms, arm) {
			all = append(all, referenceFault{"counts", "Unknown arm", fmt.Sprintf("No evaluation in scores is called "+
				"%q%s There are %s. Counts of methods that this page does not evaluate belong into others.", arm,
				cmp.Or(lang.NearHint(arm, arms), "."), strings.Join(arms, ", "))})
		}
	}
	for _, arm := range sortedKeys(r.Others) {
		if slices.Contains(arms, arm) {
			all = append(all, referenceFault{"others", "Arm of this page", fmt.Sprintf("This page evaluates %q, so its "+
				"counts belong into counts.", arm)})
		}
	}
	return all
}

// Published is one share of a Reference.
type Published struct {
	Reference string // name
	Count, Of int
	Interval  stats.Interval // Wilson's, of the share
}

// share returns the published share, from 0 to 1.
func (p *Published) share() float64 { return float64(p.Count) / float64(p.Of) }

// PublishedEffect is a published difference of two arms, B minus A, in shares.
type PublishedEffect struct {
	Reference  string // name
	A, B       *Published
	Difference float64
	Interval   stats.Interval // Newcombe's: publications rarely report which tasks both arms pass
}

// referenceOf returns the share that the first reference with this arm reports on a task set, overall ("") or of a
// category. nil: no reference reports it.
func (s *Study) referenceOf(arm, set, category string) *Published {
	if sets := s.sets(); len(sets) > 0 && set != sets[0] {
		return nil
	}
	for i := range s.References {
		if p := s.References[i].published(s.References[i].Counts[arm], category); p != nil {
			return p
		}
	}
	return nil
}

// published returns the share of a category ("": overall) in a row of counts, or nil.
func (r *Reference) published(counts map[string]int, category string) *Published {
	category = cmp.Or(category, overall)
	n, ok := counts[category]
	of := r.Of[category]
	if !ok || of == 0 {
		return nil
	}
	return &Published{Reference: r.Name, Count: n, Of: of, Interval: stats.Wilson(n, of, stats.Level)}
}

// referenceEffect returns the difference of two arms that one reference reports on a task set, overall ("") or of a
// category. nil: no reference reports both arms.
func (s *Study) referenceEffect(a, b, set, category string) *PublishedEffect {
	x, y := s.referenceOf(a, set, category), s.referenceOf(b, set, category)
	if x == nil || y == nil || x.Reference != y.Reference {
		return nil
	}
	return &PublishedEffect{Reference: x.Reference, A: x, B: y, Difference: y.share() - x.share(),
		Interval: stats.Newcombe(x.share(), x.Interval, y.share(), y.Interval)}
}
