package rl

import (
	"math"
	"reflect"
	"testing"
)

func TestPassAtKByHand(t *testing.T) {
	for _, tc := range []struct {
		n, c, k int
		want    float64
	}{
		{5, 0, 3, 0}, {5, 5, 1, 1}, {4, 1, 1, 0.25}, {4, 1, 4, 1},
		{4, 2, 2, 1 - 1.0/6}, // of the six pairs one has no success
		{10, 3, 5, 1 - 21.0/252},
	} {
		if got := PassAtK(tc.n, tc.c, tc.k); math.Abs(got-tc.want) > 1e-15 {
			t.Errorf("%d of %d, k = %d: got %v, want %v", tc.c, tc.n, tc.k, got, tc.want)
		}
	}
}

func TestPassesBySetCategoryAndK(t *testing.T) {
	score := func(set, task, category string, sample int, reward float64, official bool) Score {
		return Score{Set: set, Task: task, Category: category, Sample: sample, Reward: reward, Official: official}
	}
	got := Passes([]Score{
		score("test", "a", "base", 0, 1, true), score("test", "a", "base", 1, 0, false),
		score("test", "b", "miss_param", 0, 0, true), score("test", "b", "miss_param", 1, 0, false),
		score("new", "c", "base", 0, 1, false),
	}, []int{1, 2})
	want := []Pass{
		{"new", "all", 1, 1, 1, 1, 0}, {"new", "base", 1, 1, 1, 1, 0},
		{"test", "all", 1, 2, 2, 0.25, 0.5}, {"test", "all", 2, 2, 2, 0.5, 1},
		{"test", "base", 1, 1, 2, 0.5, 0.5}, {"test", "base", 2, 1, 2, 1, 1},
		{"test", "miss_param", 1, 1, 2, 0, 0.5}, {"test", "miss_param", 2, 1, 2, 0, 1},
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v\nwant %+v", got, want)
	}
}
