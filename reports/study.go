package reports

import (
	"fmt"
	"slices"
	"strings"
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

	// Policy is the digest of the evaluated policy, "" where no manifest records it. An arm has as many policies as it has
	// digests: several seeds may evaluate one policy.
	Policy string

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

// identity tells the policies of an arm apart: the digest, or the seed where no digest is known.
func (r *Run) identity() string {
	if r.Policy != "" {
		return r.Policy
	}
	return r.Name()
}

// Comparison names pairs of labels, without and with what its label says, and the outcome to compare.
type Comparison struct {
	Label   string      `json:"label"`
	Pairs   [][2]string `json:"pairs"`
	Outcome string      `json:"outcome,omitempty"` // "" for OutcomeSuccess, OutcomeSampled, or a metric of training
	Expect  string      `json:"expect,omitempty"`  // "higher" or "lower": the expected outcome of the second arm of each pair
	// Unpaired compares arms that were evaluated on different tasks.
	Unpaired bool `json:"unpaired,omitempty"`
}

// Outcomes of a Comparison that come from evaluations. Every other outcome is a metric of training in its late window.
const (
	OutcomeSuccess = "success" // by greedy decoding
	OutcomeSampled = "sampled" // success of sampled episodes
)

// ofTraining reports whether the outcome is a metric of training.
func (c *Comparison) ofTraining() bool {
	return c.Outcome != "" && c.Outcome != OutcomeSuccess && c.Outcome != OutcomeSampled
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

// comparisons are the named ones; without any, every arm is compared with the first, by task where both have the same
// tasks.
func (s *Study) comparisons() []Comparison {
	if len(s.Compare) > 0 || len(s.Arms) < 2 {
		return s.Compare
	}
	paired := Comparison{Label: "against " + s.Arms[0].Label}
	unpaired := Comparison{Label: paired.Label + ", on other tasks", Unpaired: true}
	for _, a := range s.Arms[1:] {
		pair := [2]string{s.Arms[0].Label, a.Label}
		if s.pairable(Comparison{Pairs: [][2]string{pair}}) != nil {
			unpaired.Pairs = append(unpaired.Pairs, pair)
		} else {
			paired.Pairs = append(paired.Pairs, pair)
		}
	}
	return slices.DeleteFunc([]Comparison{paired, unpaired}, func(c Comparison) bool { return len(c.Pairs) == 0 })
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

// outcomes of one policy on one set of tasks, by task.
type outcomes map[string]tally

// tally counts the episodes of one task.
type tally struct {
	family, category           string
	episodes, passed, official int
}

// rate is the share of the task's episodes with reward 1.
func (t tally) rate() float64 { return float64(t.passed) / float64(t.episodes) }

// outcomes of a run on a set under a token. Greedy decoding gives one episode per task.
func (r *Run) outcomes(set, token string, greedy bool) outcomes {
	found := outcomes{}
	for _, row := range r.Scores {
		if row.Greedy == greedy && row.Set == set && row.Token == token {
			one := tally{family: row.Family, category: row.Category, episodes: 1}
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

// add counts more episodes of a task. Greedy decoding gives the same episode each time, so the first one stands.
func (o outcomes) add(task string, more tally, greedy bool) {
	known, ok := o[task]
	switch {
	case !ok:
		o[task] = more
	case !greedy:
		known.episodes, known.passed, known.official = known.episodes+more.episodes, known.passed+more.passed, known.official+more.official
		o[task] = known
	}
}

// policy is one policy of an arm with the outcomes of all runs that evaluated it.
type policy struct {
	identity string
	seeds    []string // names of those runs
	outcomes
}

// name is "seed 3", or "seeds 1, 2, 3" where several seeds evaluated one policy; "" without seeds.
func (p *policy) name() string {
	if len(p.seeds) < 2 {
		return strings.Join(p.seeds, "")
	}
	name := "seeds "
	for i, seed := range p.seeds {
		if i > 0 {
			name += ", "
		}
		name += strings.TrimPrefix(seed, "seed ")
	}
	return name
}

// policies of some runs on a set under a token, those without episodes left out.
func policies(runs []Run, set, token string, greedy bool) []policy {
	var all []policy
	for i := range runs {
		run := &runs[i]
		found := run.outcomes(set, token, greedy)
		if len(found) == 0 {
			continue
		}
		at := slices.IndexFunc(all, func(p policy) bool { return p.identity == run.identity() })
		if at < 0 {
			at = len(all)
			all = append(all, policy{identity: run.identity(), outcomes: outcomes{}})
		}
		if name := run.Name(); name != "" {
			all[at].seeds = append(all[at].seeds, name)
		}
		for task, one := range found {
			all[at].add(task, one, greedy)
		}
	}
	return all
}

// policies of the arm on a set, greedy or sampled, under the token it is judged by.
func (a *Arm) policies(set string, greedy bool) []policy {
	return policies(a.Runs, set, a.condition(), greedy)
}

// sample is a number of episodes with their successes, by family.
type sample map[string]Family

// sample of the outcomes of a category (all with ""), by the paper's reward or by the official verdict.
func (o outcomes) sample(category string, official bool) sample {
	families := sample{}
	for _, one := range o {
		if category != "" && one.category != category {
			continue
		}
		f := families[one.family]
		f.Episodes += one.episodes
		if official {
			f.Passed += one.official
		} else {
			f.Passed += one.passed
		}
		families[one.family] = f
	}
	return families
}

// pooled is all samples together.
func pooled(samples []sample) sample {
	all := sample{}
	for _, one := range samples {
		for name, f := range one {
			all[name] = Family{all[name].Passed + f.Passed, all[name].Episodes + f.Episodes}
		}
	}
	return all
}

func (s sample) count() (passed, episodes int) {
	for _, f := range s {
		passed, episodes = passed+f.Passed, episodes+f.Episodes
	}
	return passed, episodes
}

// families in the order of their names.
func (s sample) families() []Family {
	var all []Family
	for _, name := range sortedKeys(s) {
		all = append(all, s[name])
	}
	return all
}

// share is the cell of the sample: per cent, count and the interval clustered by family; a dash without episodes.
func (s sample) share() Cell {
	passed, episodes := s.count()
	return shareCell(passed, episodes, ClusteredWilson(s.families(), Level))
}

// rates are the shares of the samples that have episodes.
func rates(samples []sample) []float64 {
	var shares []float64
	for _, one := range samples {
		if passed, episodes := one.count(); episodes > 0 {
			shares = append(shares, float64(passed)/float64(episodes))
		}
	}
	return shares
}

func sortedKeys[V any](m map[string]V) []string {
	keys := make([]string, 0, len(m))
	for k := range m {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return keys
}
