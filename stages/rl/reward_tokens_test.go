package rl

import (
	"math"
	"slices"
	"testing"
)

func TestTokensOfAGroup(t *testing.T) {
	for _, c := range []struct {
		p    float64
		g, n int
	}{{0.5, 5, 3}, {0.5, 4, 2}, {1, 5, 5}, {0, 5, 0}, {0.1, 5, 1}} {
		high := 0
		for _, tok := range DrawTokens(AllocationStratified, c.p, c.g, 1, 2, "t") {
			if tok == TokenHigh {
				high++
			}
		}
		if high != c.n {
			t.Errorf("stratified, p %v, G %d: got %d high, want %d", c.p, c.g, high, c.n)
		}
	}
	first, total := map[int]int{}, 0
	const n = 20000
	for u := range n {
		tokens := DrawTokens(AllocationIID, 0.25, 4, 7, u, "t")
		for i, tok := range tokens {
			if tok == TokenHigh {
				first[i]++
				total++
			}
		}
	}
	// Each place is high with probability 0.25; three standard errors of n draws are 0.0092.
	for i := range 4 {
		if share := float64(first[i]) / n; math.Abs(share-0.25) > 0.0092 {
			t.Errorf("place %d is high in %v of groups, want 0.25", i, share)
		}
	}
}

func TestUniformNumbersDependOnEveryName(t *testing.T) {
	base := Sampling(1, 2, "a", 3).At(4)
	others := []float64{Sampling(2, 2, "a", 3).At(4), Sampling(1, 3, "a", 3).At(4), Sampling(1, 2, "b", 3).At(4),
		Sampling(1, 2, "a", 4).At(4), Sampling(1, 2, "a", 3).At(5), Sampling(1, 2, "a", 4).At(3)}
	if slices.Contains(others, base) {
		t.Errorf("two names share the number %v", base)
	}
	if again := Sampling(1, 2, "a", 3).At(4); again != base {
		t.Errorf("got %v and %v for one name", base, again)
	}
	// Ten bins over one stream: chi-square with 9 degrees of freedom stays below 27.9 with probability 0.999.
	var bins [10]float64
	s := Sampling(9, 1, "task", 0)
	for i := range 10000 {
		u := s.At(i)
		if u < 0 || u >= 1 {
			t.Fatalf("number %v is outside [0,1)", u)
		}
		bins[int(u*10)]++
	}
	chi := 0.0
	for _, n := range bins {
		chi += (n - 1000) * (n - 1000) / 1000
	}
	if chi > 27.9 {
		t.Errorf("bins %v are not even: chi-square %v", bins, chi)
	}
}
