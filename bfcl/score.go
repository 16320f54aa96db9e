package bfcl

import "slices"

// Score aggregates the verdicts on the tasks of one category.
type Score struct {
	Category string  `json:"category"` // one of Categories, or "all"
	N        int     `json:"n"`        // episodes
	Passed   int     `json:"passed"`   // accepted by the official checker
	Accuracy float64 `json:"accuracy"` // Passed / N; 0 without episodes
	Reward   float64 `json:"reward"`   // mean of the paper's reward; 0 without episodes

	UnsupportedCalls int `json:"unsupported_calls,omitempty"` // calls outside the supported subset of Python
}

// Tally aggregates verdicts by category. The zero Tally is empty.
type Tally struct{ scores []Score }

// Add counts the verdict of one episode.
func (t *Tally) Add(category string, v Verdict) {
	at := slices.IndexFunc(t.scores, func(s Score) bool { return s.Category == category })
	if at < 0 {
		at = len(t.scores)
		t.scores = append(t.scores, Score{Category: category})
	}
	s := &t.scores[at]
	s.N++
	if v.Official {
		s.Passed++
	}
	s.Reward += v.Reward // the sum, until Scores divides it
	s.UnsupportedCalls += v.UnsupportedCalls
}

// Scores returns one score per category in official order, then other categories, then the total.
// It returns nil without episodes.
func (t *Tally) Scores() []Score {
	if len(t.scores) == 0 {
		return nil
	}
	rank := func(s Score) int {
		if i := slices.Index(Categories, s.Category); i >= 0 {
			return i
		}
		return len(Categories)
	}
	scores := slices.Clone(t.scores)
	slices.SortStableFunc(scores, func(a, b Score) int { return rank(a) - rank(b) })
	all := Score{Category: "all"}
	for _, s := range scores {
		all.N += s.N
		all.Passed += s.Passed
		all.Reward += s.Reward
		all.UnsupportedCalls += s.UnsupportedCalls
	}
	scores = append(scores, all)
	for i := range scores {
		scores[i].Accuracy = float64(scores[i].Passed) / float64(scores[i].N)
		scores[i].Reward /= float64(scores[i].N)
	}
	return scores
}
