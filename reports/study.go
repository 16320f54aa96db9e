package reports

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/dustin/go-humanize/english"
	"github.com/hashicorp/hcl/v2"

	"rcgrpo/bfcl"
	"rcgrpo/engine/artifact"
	"rcgrpo/reports/page"
	"rcgrpo/reports/stats"
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
	Chosen   []Chosen // sections that the report defines; none: the usual sections
	Data     []DataSet
	Mixtures []Mixture
	// Transcripts are the episodes that the page shows in full, one element per label.
	Transcripts []*page.Transcripts
	Calls       []Calls        // of API models
	Records     []Record       // one per stage behind the shown artifacts, in the order of the dependencies
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

	Scores     []rl.Score
	ScoresFrom []ScoreSource // origins of Scores, in the same order

	Curve     []rl.Metric // training by RL of the scored policy; nil if the page shows none
	CurveFrom string      // port of Curve or Tuning
	Tuning    []rl.Metric // fine-tuning of the scored policy
}

// ScoreSource is the origin of N consecutive scores: one evaluation.
type ScoreSource struct {
	Address string // of the port
	N       int
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
// the page then has no tables of them.
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

// DataSet is a list of tasks that the experiment used.
type DataSet struct {
	Label  string // "tasks.drills train"
	Stage  string // "tasks.drills": sets of one stage and seed belong to one split
	Seed   *int64
	Tasks  []*bfcl.Task
	Source string
}

// Mixture describes the trajectories of a fine-tuning data set.
type Mixture struct {
	Label   string // "curate.data mixed"
	Seed    *int64
	Members []Member
	Summary map[string]int // counts of the stage, such as unused quotas; may be nil
	Source  string

	// Expert and Failed are examples of the data, selected by hash; nil without such a trajectory.
	Expert, Failed     *page.Transcript
	ExpertOf, FailedOf int // total numbers
}

// Member is one trajectory of a Mixture.
type Member struct {
	Origin, Token, Task, Category string
	Passed                        bool // reward 1
}

// Record describes a stage behind the shown artifacts.
type Record struct {
	Address  string
	Kind     string
	Settings map[string]string  // canonical JSON by name
	NoEffect []string           // settings without effect in combination with the others, by name
	Manifest *artifact.Manifest // of its result; nil if the store has none
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

// scores iterates over the scores of all runs.
func (s *Study) scores(yield func(rl.Score) bool) {
	for _, r := range s.runs {
		for _, row := range r.Scores {
			if !yield(row) {
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
	tokens := map[string]bool{}
	for _, r := range a.Runs {
		for _, row := range r.Scores {
			tokens[row.Token] = true
		}
	}
	switch {
	case tokens[rl.TokenHigh]:
		return rl.TokenHigh
	case tokens[rl.TokenLow] && !tokens[rl.TokenNone]:
		return rl.TokenLow
	}
	return rl.TokenNone
}

// outcomes are the results of one policy on one set of tasks, by task.
type outcomes map[string]tally

type tally struct {
	family, category           string
	episodes, passed, official int
	replies, malformed         int
}

// rate returns the share of the task's episodes with reward 1.
func (t tally) rate() float64 { return float64(t.passed) / float64(t.episodes) }

// outcomes counts the episodes of a run on a set under a token.
func (r *SeedRun) outcomes(set, token string, greedy bool) outcomes {
	found := outcomes{}
	for _, row := range r.Scores {
		if row.Greedy == greedy && row.Set == set && row.Token == token {
			one := tally{family: row.Family, category: row.Category, episodes: 1, replies: row.Replies,
				malformed: row.Malformed}
			if row.Reward == 1 {
				one.passed = 1
			}
			if row.Official {
				one.official = 1
			}
			found.add(row.Task, one, greedy)
		}
	}
	return found
}

// add counts more episodes of a task. Greedy decoding repeats the same episode, so only the first one counts.
func (o outcomes) add(task string, more tally, greedy bool) {
	known, ok := o[task]
	if ok && greedy {
		return
	}
	more.episodes += known.episodes
	more.passed += known.passed
	more.official += known.official
	more.replies += known.replies
	more.malformed += known.malformed
	o[task] = more
}

// policy is one policy of an arm with the outcomes of all runs that evaluated it.
type policy struct {
	identity string
	seeds    []string // names of those runs
	outcomes
}

// name returns "seed 3", "seeds 1, 2, 3" if several seeds evaluated the policy, or "" without seeds.
func (p *policy) name() string {
	if len(p.seeds) < 2 {
		return strings.Join(p.seeds, "")
	}
	return "seeds " + strings.ReplaceAll(strings.Join(p.seeds, ", "), "seed ", "")
}

// newPolicy returns the policy of a run without outcomes.
func newPolicy(r *SeedRun) policy { return policy{identity: r.identity(), outcomes: outcomes{}} }

func (p *policy) same(other policy) bool { return p.identity == other.identity }

// policies returns the policies of some runs on a set under a token, without those that have no episodes.
func policies(runs []SeedRun, set, token string, greedy bool) []policy {
	var all []policy
	for _, run := range runs {
		found := run.outcomes(set, token, greedy)
		if len(found) == 0 {
			continue
		}
		one := newPolicy(&run)
		p := findOrAdd(&all, one, one.same)
		if name := run.Name(); name != "" {
			p.seeds = append(p.seeds, name)
		}
		for task, one := range found {
			p.add(task, one, greedy)
		}
	}
	return all
}

// policies returns the policies of the arm on a set, greedy or sampled, under its condition.
func (a *Arm) policies(set string, greedy bool) []policy {
	return policies(a.Runs, set, a.condition(), greedy)
}

func (a *Arm) runsOf(p *policy) []SeedRun {
	return slices.DeleteFunc(slices.Clone(a.Runs), func(r SeedRun) bool { return r.identity() != p.identity })
}

// sample counts episodes and successes by family.
type sample map[string]stats.Family

// sample counts the outcomes of a category ("": all), by the paper's reward or by the official verdict.
func (o outcomes) sample(category string, official bool) sample {
	families := sample{}
	for _, one := range o {
		if category != "" && one.category != category {
			continue
		}
		f := families[one.family]
		passed := one.passed
		if official {
			passed = one.official
		}
		families[one.family] = stats.Family{Sum: f.Sum + float64(passed), N: f.N + float64(one.episodes)}
	}
	return families
}

// malformed counts the replies of all outcomes, and those that are malformed.
func (o outcomes) malformed() sample {
	families := sample{}
	for _, one := range o {
		f := families[one.family]
		if one.replies > 0 {
			families[one.family] = stats.Family{Sum: f.Sum + float64(one.malformed), N: f.N + float64(one.replies)}
		}
	}
	return families
}

func samples(all []policy, category string, official bool) []sample {
	var found []sample
	for i := range all {
		if one := all[i].sample(category, official); len(one) > 0 {
			found = append(found, one)
		}
	}
	return found
}

func pooled(samples []sample) sample {
	all := sample{}
	for _, one := range samples {
		for name, f := range one {
			all[name] = stats.Pooled([]stats.Family{all[name], f})
		}
	}
	return all
}

func (s sample) families() []stats.Family {
	var all []stats.Family
	for _, name := range sortedKeys(s) {
		all = append(all, s[name])
	}
	return all
}

func (s sample) total() stats.Family { return stats.Pooled(s.families()) }

// share returns the cell of the sample: per cent, count and clustered interval; a dash without episodes.
func (s sample) share() page.Cell {
	all := s.total()
	return page.ShareCell(int(all.Sum), int(all.N), stats.ClusteredWilson(s.families(), stats.Level))
}

// rates returns the shares of samples with episodes.
func rates(samples []sample) []float64 {
	var shares []float64
	for _, one := range samples {
		shares = append(shares, one.total().Mean())
	}
	return shares
}

func sortedKeys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }
