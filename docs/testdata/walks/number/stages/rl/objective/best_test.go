package objective

import "testing"

// The best members of the groups have rewards 1, 0.5 and 0.
func TestBestOfAGroup(t *testing.T) {
	g := Groups{Rewards: [][]float64{{1, 0}, {0.5, 0.25}, {0, 0}}}
	if got := g.Diagnose()["best_of_group"]; got != 0.5 {
		t.Errorf("got %v, want 0.5", got)
	}
}
