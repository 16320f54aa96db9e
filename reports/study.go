package reports

import (
	"fmt"
	"slices"
	"time"

	"rcgrpo/bfcl"
	"rcgrpo/stages/rl"
)

// Study is what an experiment left behind, as plain values: everything a page is computed from.
type Study struct {
	Name, Question, Expect string
	Notes                  []string // sentences of the report's own for the head of the page

	Arms     []Arm // in the order of the file; the order of the colours
	Compare  []Comparison
	Windows  Windows
	Part     bool     // some artifacts of a whole: nothing is left out because it would say nothing new
	Chosen   []Chosen // the sections that a report asks for; none: the usual ones
	Data     []DataSet
	Mixtures []Mixture
	// Transcripts are some episodes of each evaluation that the page shows in full, an element per label.
	Transcripts []*Transcripts
	Records     []Record // one per stage whose artifacts are shown, in the order they were needed
	// Failures are stages that did not finish; what they would have made is missing below.
	Failures []Failure
}

// Arm is everything known about one label.
type Arm struct {
	Label string
	Runs  []Run // by seed
}

// Run is one seed of an arm.
type Run struct {
	Seed *int64 // nil where seeds do not multiply

	Scores     []rl.Score
	ScoresFrom []Stretch // which of them came from where, in their order

	Curve     []rl.Metric // the training that made the scored policy; nil when none is shown
	CurveFrom string
	Tuning    []rl.Metric // the fine-tuning that made it, where that was no RL
}

// Stretch is a part of a run's scores: those of one evaluation.
type Stretch struct {
	Address string // of its port
	N       int
}

// Name is "seed 3", or "" for a run that no seed made.
func (r *Run) Name() string {
	if r.Seed == nil {
		return ""
	}
	return fmt.Sprintf("seed %d", *r.Seed)
}

// Comparison names pairs of labels: without and with whatever its label says.
type Comparison struct {
	Label string      `json:"label"`
	Pairs [][2]string `json:"pairs"`
}

// Windows are the updates summarised at both ends of a training; the paper's are 70 each.
type Windows struct {
	Early int `json:"early"`
	Late  int `json:"late"`
}

// PaperWindows are those of the paper's tables.
var PaperWindows = Windows{Early: 70, Late: 70}

// fit shortens the windows of a run of n updates that could not hold both; then each is a fifth of it, the share the
// paper's have.
func (w Windows) fit(n int) Windows {
	if w.Early+w.Late <= n {
		return w
	}
	fifth := max(1, n/5)
	return Windows{min(w.Early, fifth), min(w.Late, fifth)}
}

// DataSet is a list of tasks that the experiment used.
type DataSet struct {
	Label  string // "tasks.drills train"
	Stage  string // "tasks.drills": sets of one stage and seed are sides of one split
	Seed   *int64
	Tasks  []*bfcl.Task
	Source string
}

// Mixture counts what a fine-tuning data set is made of.
type Mixture struct {
	Label   string // "curate.data mixed"
	Seed    *int64
	Counts  map[[2]string]int // by origin and reward token
	Summary map[string]int    // what its maker counted, such as quotas that passed on; nil when it says nothing
	Source  string
}

// Record is what a manifest says about one stage.
type Record struct {
	Address  string
	Kind     string
	Settings map[string]string // canonical JSON by name
	NoEffect []string          // settings that change nothing beside the others, by name
	Made     bool              // its manifest was found; the rest says nothing otherwise
	Started  time.Time
	Seconds  float64
	Phases   map[string]float64 // seconds by phase ("rollout", "update"), from times.jsonl
	Device   string
	Peak     int64 // bytes
	Revision string
	Key      string
	Digests  map[string]string // by port
}

// arm returns the arm of that label, or nil.
func (s *Study) arm(label string) *Arm {
	for i := range s.Arms {
		if s.Arms[i].Label == label {
			return &s.Arms[i]
		}
	}
	return nil
}

// sortArms puts the arms in the order of a page: those named first, then those of the comparisons, then the others as
// they came (the elements of a for_each come sorted).
func (s *Study) sortArms(named []string) {
	order := slices.Clone(named)
	for _, c := range s.Compare {
		for _, pair := range c.Pairs {
			order = append(order, pair[:]...)
		}
	}
	place := func(a Arm) int {
		if i := slices.Index(order, a.Label); i >= 0 {
			return i
		}
		return len(order)
	}
	slices.SortStableFunc(s.Arms, func(a, b Arm) int { return place(a) - place(b) })
}

// sets are the names of the task sets that were scored, in order of appearance.
func (s *Study) sets() []string {
	var sets []string
	for _, a := range s.Arms {
		for _, r := range a.Runs {
			for _, row := range r.Scores {
				if !slices.Contains(sets, row.Set) {
					sets = append(sets, row.Set)
				}
			}
		}
	}
	return sets
}

// categories that occur in a set, sorted.
func (s *Study) categories(set string) []string {
	found := map[string]bool{}
	for _, a := range s.Arms {
		for _, r := range a.Runs {
			for _, row := range r.Scores {
				if row.Set == set {
					found[row.Category] = true
				}
			}
		}
	}
	return sortedKeys(found)
}

// comparisons are the named ones; without any, every arm is compared with the first.
func (s *Study) comparisons() []Comparison {
	if len(s.Compare) > 0 || len(s.Arms) < 2 {
		return s.Compare
	}
	c := Comparison{Label: "against " + s.Arms[0].Label}
	for _, a := range s.Arms[1:] {
		c.Pairs = append(c.Pairs, [2]string{s.Arms[0].Label, a.Label})
	}
	return []Comparison{c}
}

// condition is the reward token an arm is judged under: high where it was evaluated with tokens, none otherwise.
func (a *Arm) condition() string {
	condition, found := rl.TokenNone, false
	for _, r := range a.Runs {
		for _, row := range r.Scores {
			switch {
			case row.Token == rl.TokenHigh:
				return rl.TokenHigh
			case !found || row.Token == rl.TokenNone:
				condition, found = row.Token, true
			}
		}
	}
	return condition
}

// outcomes of one run, by task.
type outcomes map[string]outcome

type outcome struct {
	passed, official bool
	family, category string
}

// greedy are the outcomes of greedy decoding on a set under a token.
func (r *Run) greedy(set, token string) outcomes {
	found := outcomes{}
	for _, row := range r.Scores {
		if row.Greedy && row.Set == set && row.Token == token {
			found[row.Task] = outcome{row.Reward == 1, row.Official, row.Family, row.Category}
		}
	}
	return found
}

// sampled counts the successes among sampled episodes on a set under a token.
func (r *Run) sampled(set, token string) (count, of int) {
	for _, row := range r.Scores {
		if !row.Greedy && row.Set == set && row.Token == token {
			of++
			if row.Reward == 1 {
				count++
			}
		}
	}
	return count, of
}

// count says how many outcomes there are for which counts holds, and how many of those pass.
func (o outcomes) count(counts func(outcome) bool, passes func(outcome) bool) (passed, of int) {
	for _, one := range o {
		if counts(one) {
			of++
			if passes(one) {
				passed++
			}
		}
	}
	return passed, of
}

func anyOutcome(outcome) bool   { return true }
func rewarded(o outcome) bool   { return o.passed }
func officially(o outcome) bool { return o.official }

func sortedKeys[V any](m map[string]V) []string {
	keys := make([]string, 0, len(m))
	for k := range m {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return keys
}
