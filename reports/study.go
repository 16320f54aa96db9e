package reports

import (
	"cmp"
	"fmt"
	"maps"
	"slices"

	"github.com/dustin/go-humanize/english"
	"github.com/hashicorp/hcl/v2"

	"rcgrpo/bfcl"
	"rcgrpo/engine/artifact"
	"rcgrpo/reports/page"
	"rcgrpo/stages/rl"
)

// Study holds everything that a page is computed from, as plain values.
type Study struct {
	Name, Question, Expect string
	Notes                  []string // sentences of the report for the head of the page

	Arms     []Arm // in the order of the page, which is the order of the colours
	Compare  []Comparison
	Maps     []Map
	Windows  Windows
	Sections []Section // sections that the report defines; none: the usual sections
	TaskSets []TaskSet
	DataSets []DataSet
	// Transcripts are the episodes that the page shows in full, one element per label.
	Transcripts []*page.Transcripts
	Calls       []Calls        // calls of API models
	Stages      []Stage        // one per stage behind the shown artifacts, in the order of the dependencies
	Failures    []page.Failure // stages without a result

	References []Reference // results that others published

	tested map[string][]*Contrast // by set of tasks, while a page is computed; nil otherwise
}

// Arm holds the runs of one label.
type Arm struct {
	Label string
	Design
	Runs []SeedRun // sorted by seed
}

// SeedRun is one seed of an arm.
type SeedRun struct {
	Seed *int64 // nil for a stage that does not run once per seed

	// Policy is the digest of the evaluated policy, "" if no manifest records it. An arm has as many policies as
	// digests: several seeds may evaluate one policy.
	Policy string

	Rows []Row // episodes of its evaluations

	Curve     []rl.Metric // training by RL of the scored policy; nil if the page shows none
	CurveFrom string      // port of Curve or Tuning
	Tuning    []rl.Metric // fine-tuning of the scored policy
}

// Row is an episode of an evaluation.
type Row struct {
	rl.Score
	Port string // address
}

// Name returns "seed 3", or "" without a seed.
func (r *SeedRun) Name() string {
	if r.Seed == nil {
		return ""
	}
	return fmt.Sprintf("seed %d", *r.Seed)
}

// identity distinguishes the policies of an arm: the digest, or the seed if the digest is unknown.
func (r *SeedRun) identity() string { return cmp.Or(r.Policy, r.Name()) }

// Windows are the numbers of updates that tables summarize at both ends of a training. The zero value has no windows:
// the page then has no tables over windows.
type Windows struct {
	// length of the first window, 10 or more (paper: 70)
	Early int `json:"early" hcl:"early" unit:"updates"`
	// length of the last window, 10 or more (paper: 70)
	Late int `json:"late" hcl:"late" unit:"updates"`

	At map[string]hcl.Range `json:"-" hcl:",ranges"`
}

// PaperWindows are the windows of the paper's tables.
var PaperWindows = Windows{Early: 70, Late: 70}

// shortestWindow is the number of updates below which a mean over a window says little about a phase of training.
const shortestWindow = 10

// fit reports whether the windows exist and do not overlap in a training of n updates.
func (w Windows) fit(n int) bool { return w.Late > 0 && w.Early+w.Late <= n }

// TaskSet is a list of tasks that the experiment used.
type TaskSet struct {
	Label  string // "tasks.drills train"
	Stage  string // "tasks.drills": sets of one stage and seed belong to one split
	Seed   *int64
	Tasks  []*bfcl.Task
	Source string
}

// DataSet describes the trajectories of a fine-tuning data set.
type DataSet struct {
	Label   string // "curate.data mixed"
	Seed    *int64
	Members []Member
	Summary map[string]int // counts of the stage, such as unused quotas; may be nil
	Source  string

	Examples page.Transcripts // experts and failures
}

// Member is one trajectory of a DataSet.
type Member struct {
	Origin, Token, Task, Category string
	Passed                        bool // reward 1
}

// Stage describes a stage behind the shown artifacts.
type Stage struct {
	Address  string
	Kind     string
	Settings map[string]string  // canonical JSON by name
	NoEffect []string           // settings without effect in combination with the others, by name
	Manifest *artifact.Manifest // manifest of its result; nil if the store has none
	Phases   map[string]float64 // seconds by phase ("rollout", "update"), from times.jsonl
	Card     string             // JSON that describes the model or the endpoint of the stage; "" for other stages
}

func (s *Study) arm(label string) *Arm {
	if i := s.armIndex(label); i >= 0 {
		return &s.Arms[i]
	}
	return nil
}

// armIndex returns the index of an arm, NoArm for a label of no arm.
func (s *Study) armIndex(label string) int {
	return slices.IndexFunc(s.Arms, func(a Arm) bool { return a.Label == label })
}

// sortArms sorts the arms: first the named arms, then those of the comparisons, then the others in their present order.
func (s *Study) sortArms(named []string) {
	order := slices.Clone(named)
	for _, c := range s.Compare {
		for _, pair := range c.Pairs {
			order = append(order, pair...)
		}
	}
	sortByLabel(s.Arms, order, func(a Arm) string { return a.Label })
}

// sortByLabel sorts stably by the index of the label in order, unknown labels last.
func sortByLabel[T any](all []T, order []string, label func(T) string) {
	place := func(one T) int {
		if i := slices.Index(order, label(one)); i >= 0 {
			return i
		}
		return len(order)
	}
	slices.SortStableFunc(all, func(a, b T) int { return place(a) - place(b) })
}

// runs iterates over the runs of all arms.
func (s *Study) runs(yield func(*Arm, *SeedRun) bool) {
	for i := range s.Arms {
		for j := range s.Arms[i].Runs {
			if !yield(&s.Arms[i], &s.Arms[i].Runs[j]) {
				return
			}
		}
	}
}

// scores iterates over the rows of all evaluations.
func (s *Study) scores(yield func(*Row) bool) {
	for _, r := range s.runs {
		for i := range r.Rows {
			if !yield(&r.Rows[i]) {
				return
			}
		}
	}
}

// sets returns the names of the evaluated task sets, in order of appearance.
func (s *Study) sets() []string {
	var sets []string
	for row := range s.scores {
		page.IndexOrAppend(&sets, row.Set)
	}
	return sets
}

// tasksOf counts the distinct tasks of a set and their families: "160 distinct tasks of 20 families".
func (s *Study) tasksOf(set string) string {
	tasks, families := map[string]bool{}, map[string]bool{}
	for row := range s.scores {
		if row.Set == set {
			tasks[row.Task], families[row.Family] = true, true
		}
	}
	return english.Plural(len(tasks), "distinct task", "") + " of " + english.Plural(len(families), "family", "")
}

// categories returns the sorted categories of a set. It is nil if there is only one, which equals the overall column.
func (s *Study) categories(set string) []string {
	found := map[string]bool{}
	for row := range s.scores {
		if row.Set == set {
			found[row.Category] = true
		}
	}
	if len(found) < 2 {
		return nil
	}
	return sortedKeys(found)
}

// categoryNames are words for the benchmark's categories. An arm may be called base, too.
var categoryNames = map[string]string{"base": "Base category", "miss_func": "Missing function",
	"miss_param": "Missing parameter", "long_context": "Long context", "composite": "Composite"}

func categoryName(category string) string { return cmp.Or(categoryNames[category], category) }

// categoryColumns returns a column for each category.
func categoryColumns(categories []string) (all []page.Column) {
	for _, c := range categories {
		all = append(all, page.Column{Name: categoryName(c)})
	}
	return all
}

// comparisons returns the comparisons of the report, those with an expectation first. Without any, every arm is
// compared with the first arm, paired by task if both have the same tasks.
func (s *Study) comparisons() []Comparison {
	if len(s.Compare) > 0 || len(s.Arms) < 2 {
		return slices.Concat(expecting(s.Compare, true), expecting(s.Compare, false))
	}
	paired := Comparison{Label: "against " + s.Arms[0].Label}
	unpaired := Comparison{Label: paired.Label + ", on other tasks", Unpaired: true}
	for _, a := range s.Arms[1:] {
		pair := []string{s.Arms[0].Label, a.Label}
		if s.pairable(Comparison{Pairs: [][]string{pair}}) != nil {
			unpaired.Pairs = append(unpaired.Pairs, pair)
		} else {
			paired.Pairs = append(paired.Pairs, pair)
		}
	}
	return slices.DeleteFunc([]Comparison{paired, unpaired}, func(c Comparison) bool { return len(c.Pairs) == 0 })
}

// expecting returns the comparisons with or without an expectation.
func expecting(all []Comparison, expectation bool) []Comparison {
	return slices.DeleteFunc(slices.Clone(all), func(c Comparison) bool { return (c.Expect != "") != expectation })
}

// condition returns the reward token under which tables compare the arm: high if it was evaluated with tokens.
func (a *Arm) condition() string {
	has := func(token string) bool {
		return slices.ContainsFunc(a.Runs, func(r SeedRun) bool {
			return slices.ContainsFunc(r.Rows, func(row Row) bool { return row.Token == token })
		})
	}
	switch {
	case has(rl.TokenHigh):
		return rl.TokenHigh
	case has(rl.TokenLow) && !has(rl.TokenNone):
		return rl.TokenLow
	}
	return rl.TokenNone
}

func sortedKeys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }
