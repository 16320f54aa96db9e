package bfcl

import (
	"slices"
	"testing"
)

func TestScoresByCategoryInOfficialOrder(t *testing.T) {
	var tally Tally
	if got := tally.Scores(); got != nil {
		t.Errorf("without episodes: got %v, want none", got)
	}
	tally.Add("miss_func", Verdict{Official: true, Reward: 1})
	tally.Add("base", Verdict{Reward: 1, UnsupportedCalls: 3})
	tally.Add("base", Verdict{Official: true, Reward: 0})
	tally.Add("miss_func", Verdict{Official: true, Reward: 0})
	want := []Score{{"base", 2, 1, 0.5, 0.5, 3}, {"miss_func", 2, 2, 1, 0.5, 0}, {"all", 4, 3, 0.75, 0.5, 3}}
	for range 2 { // reading changes nothing
		if got := tally.Scores(); !slices.Equal(got, want) {
			t.Errorf("got %v, want %v", got, want)
		}
	}
}
