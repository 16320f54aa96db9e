package rl

import (
	"cmp"
	"maps"
	"slices"
	"strings"
)

// PassesFile is the optional file of a scores artifact with rows of Pass.
const PassesFile = "passes.jsonl"

// Pass is pass@k over the tasks of a set: the probability that at least one of k episodes of a task succeeds,
// estimated without bias and averaged over tasks.
type Pass struct {
	Set      string  `json:"set,omitempty"`
	Category string  `json:"category"` // "all" for every task of the set
	K        int     `json:"k"`
	Tasks    int     `json:"tasks"`
	Samples  int     `json:"samples"`  // episodes per task, the minimum over tasks
	Reward   float64 `json:"reward"`   // estimate, where success is the paper's reward of 1
	Official float64 `json:"official"` // estimate, where success is the official checker's verdict
}

// PassAtK estimates without bias the probability that at least one of k episodes succeeds, from n episodes of
// which c succeeded: 1 - C(n-c, k) / C(n, k) (Chen et al. 2021, eq. 1). n is at least k.
func PassAtK(n, c, k int) float64 { return 1 - AllDrawn(n, n-c, k) }

// Passes computes pass@k for each k, set and category of scores, sorted by set and category with "all" first, ks
// in the given order. Tasks with fewer than k episodes are omitted.
func Passes(scores []Score, ks []int) []Pass {
	type unit struct{ set, category string }
	type count struct{ n, right, official int }
	tasks := map[unit]map[string]count{}
	for _, s := range scores {
		for _, category := range []string{"all", s.Category} {
			u := unit{s.Set, category}
			if tasks[u] == nil {
				tasks[u] = map[string]count{}
			}
			c := tasks[u][s.Task]
			c.n++
			if s.Reward == 1 {
				c.right++
			}
			if s.Official {
				c.official++
			}
			tasks[u][s.Task] = c
		}
	}
	name := func(u unit) string { return strings.TrimPrefix(u.category, "all") } // "all" first
	order := slices.SortedFunc(maps.Keys(tasks), func(a, b unit) int {
		return cmp.Or(cmp.Compare(a.set, b.set), cmp.Compare(name(a), name(b)))
	})
	var out []Pass
	for _, u := range order {
		for _, k := range ks {
			p := Pass{Set: u.set, Category: u.category, K: k}
			for _, id := range slices.Sorted(maps.Keys(tasks[u])) { // the sum of floats depends on the order
				c := tasks[u][id]
				if c.n < k {
					continue
				}
				if p.Tasks++; p.Tasks == 1 || c.n < p.Samples {
					p.Samples = c.n
				}
				p.Reward += PassAtK(c.n, c.right, k)
				p.Official += PassAtK(c.n, c.official, k)
			}
			if p.Tasks > 0 {
				p.Reward /= float64(p.Tasks)
				p.Official /= float64(p.Tasks)
				out = append(out, p)
			}
		}
	}
	return out
}

// AllDrawn returns the probability that h draws without replacement from n items, k of them marked, are all
// marked.
func AllDrawn(n, k, h int) float64 {
	out := 1.0
	for i := range h {
		if k-i <= 0 {
			return 0
		}
		out *= float64(k-i) / float64(n-i)
	}
	return out
}
