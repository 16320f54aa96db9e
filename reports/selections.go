package reports

import (
	"cmp"
	"slices"
	"strings"

	"rcgrpo/bfcl"
	"rcgrpo/reports/page"
	"rcgrpo/reports/stats"
	"rcgrpo/stages/rl"
)

// episodes holds some episodes of an arm, counted once: the greedy or the sampled ones on a set of tasks under a
// reward token, of one category or of all ("").
type episodes struct {
	name                 string // name of the arm, or of a side of a comparison
	set, token, category string
	greedy               bool
	runs                 []counted // runs with selected episodes
	policies             []policy  // policies of these runs
}

// counted is a run with its selected episodes by task.
type counted struct {
	*SeedRun
	rows []*Row
	from []string // ports of the rows
	outcomes
}

// scored selects the episodes of the arm on a set, greedy or sampled, under its condition.
func (a *Arm) scored(set string, greedy bool) episodes { return a.under(a.condition(), set, greedy) }

// under selects the episodes of the arm under a token.
func (a *Arm) under(token, set string, greedy bool) episodes {
	e := episodes{name: a.Label, set: set, token: token, greedy: greedy}
	for i := range a.Runs {
		var rows []*Row
		for k := range a.Runs[i].Rows {
			if row := &a.Runs[i].Rows[k]; row.Greedy == greedy && row.Set == set && row.Token == token {
				rows = append(rows, row)
			}
		}
		e.add(&a.Runs[i], rows)
	}
	return e
}

// inCategory selects the rows of a category; "" is every category.
func (e episodes) inCategory(category string) episodes {
	all := e
	if e.category = category; category == "" {
		return e
	}
	e.runs, e.policies = nil, nil
	for _, run := range all.runs {
		e.add(run.SeedRun, slices.DeleteFunc(slices.Clone(run.rows),
			func(row *Row) bool { return row.Category != category }))
	}
	return e
}

// add counts the selected rows of a run.
func (e *episodes) add(run *SeedRun, rows []*Row) {
	if len(rows) == 0 {
		return
	}
	one := counted{SeedRun: run, rows: rows, outcomes: outcomes{}}
	for _, row := range rows {
		page.IndexOrAppend(&one.from, row.Port)
		one.add(row.Task, row.tally(), e.greedy)
	}
	e.runs = append(e.runs, one)
	p := findOrAdd(&e.policies, policy{identity: run.identity(), outcomes: outcomes{}},
		func(p policy) bool { return p.identity == run.identity() })
	p.runs = append(p.runs, *run)
	for task, tally := range one.outcomes {
		p.add(task, tally, e.greedy)
	}
}

// each returns the selection of each policy.
func (e episodes) each() (all []episodes) {
	runs := e.runs
	for _, p := range e.policies {
		e.policies = []policy{p}
		e.runs = slices.DeleteFunc(slices.Clone(runs), func(r counted) bool { return r.identity() != p.identity })
		all = append(all, e)
	}
	return all
}

// source returns the source of a value from the selected rows.
func (e episodes) source(by string) page.Source {
	source := page.Source{By: by, Rows: "set " + cmp.Or(e.set, "test")}
	for _, run := range e.runs {
		source.From = append(source.From, run.from...)
	}
	if e.token != rl.TokenNone {
		source.Rows += ", token " + e.token
	}
	if e.category != "" {
		source.Rows += ", category " + e.category
	}
	source.Rows += ", " + decodingName(e.greedy)
	return source
}

func decodingName(greedy bool) string {
	if greedy {
		return "greedy"
	}
	return "sampled"
}

// measure is a number of selected rows, with its method in words.
type measure[S any] struct {
	by     string
	number func(S) page.Cell
}

// cell returns the number of the selected rows, with its source.
func (e episodes) cell(m measure[[]policy]) page.Cell {
	return m.number(e.policies).From(e.source(m.by))
}

// Measures of scores. The mean over policies is a dash below three of them.
var (
	byReward = measure[[]policy]{"share of reward 1, Wilson interval clustered by family",
		func(all []policy) page.Cell { return pooled(all, passed).share() }}
	byVerdict = measure[[]policy]{"share of passed official verdicts, Wilson interval clustered by family",
		unlessMerged(func(all []policy) page.Cell { return pooled(all, official).share() })}
	byMalformed = measure[[]policy]{"share of malformed replies, Wilson interval clustered by family",
		func(all []policy) page.Cell { return pooled(all, malformed).share() }}
	byMean = measure[[]policy]{"mean over policies of the share of reward 1, t-interval",
		func(all []policy) page.Cell { return policyMean(rates(all, passed)) }}
	byVerdictMean = measure[[]policy]{"mean over policies of the share of passed official verdicts, t-interval",
		unlessMerged(func(all []policy) page.Cell { return policyMean(rates(all, official)) })}
	overPolicies = measure[[]policy]{byMean.by, overPoliciesCell}
)

// unlessMerged returns a measure of official verdicts, a dash if the tasks have merged requests: the official checker
// compares turns, and these episodes have one.
func unlessMerged(number func([]policy) page.Cell) func([]policy) page.Cell {
	return func(all []policy) page.Cell {
		for _, p := range all {
			for _, one := range p.outcomes {
				if one.merged {
					return page.Text("–").With("merged prompt")
				}
			}
		}
		return number(all)
	}
}

// outcomes are the results of one policy by task.
type outcomes map[string]tally

// tally counts the episodes of a task.
type tally struct {
	family, category           string
	episodes, passed, official int
	replies, malformed         int
	merged                     bool // all requests of the task are one prompt
}

// rate returns the share of the task's episodes with reward 1.
func (t tally) rate() float64 { return float64(t.passed) / float64(t.episodes) }

// tally counts one episode.
func (r *Row) tally() tally {
	one := tally{family: r.Family, category: r.Category, episodes: 1, replies: r.Replies, malformed: r.Malformed,
		merged: r.Prompt == bfcl.PromptMerged}
	if r.Reward == 1 {
		one.passed = 1
	}
	if r.Official {
		one.official = 1
	}
	return one
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
	runs     []SeedRun
	outcomes
}

// name returns "seed 3", "seeds 1, 2, 3" if several seeds evaluated the policy, or "" without seeds.
func (p *policy) name() string {
	seeds := p.seeds()
	if len(seeds) < 2 {
		return strings.Join(seeds, "")
	}
	return "seeds " + strings.ReplaceAll(strings.Join(seeds, ", "), "seed ", "")
}

// seeds returns the names of the policy's runs, without those that have none.
func (p *policy) seeds() (names []string) {
	for _, r := range p.runs {
		if name := r.Name(); name != "" {
			names = append(names, name)
		}
	}
	return names
}

// passed, official and malformed return the numerator and denominator of a share of episodes, or of replies.
func passed(t tally) (n, of int)    { return t.passed, t.episodes }
func official(t tally) (n, of int)  { return t.official, t.episodes }
func malformed(t tally) (n, of int) { return t.malformed, t.replies }

// sample holds the numerator and denominator of a share, by family.
type sample map[string]stats.Family

// pooled counts the outcomes of some policies together.
func pooled(all []policy, count func(tally) (n, of int)) sample {
	families := sample{}
	for _, p := range all {
		for _, one := range p.outcomes {
			if n, of := count(one); of > 0 {
				f := families[one.family]
				families[one.family] = stats.Family{Sum: f.Sum + float64(n), N: f.N + float64(of)}
			}
		}
	}
	return families
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

// rates returns the share of each policy.
func rates(all []policy, count func(tally) (n, of int)) (shares []float64) {
	for i := range all {
		shares = append(shares, pooled(all[i:i+1], count).total().Mean())
	}
	return shares
}
