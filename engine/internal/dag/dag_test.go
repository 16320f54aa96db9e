package dag

import (
	"slices"
	"testing"
)

func TestOrderPutsNeedsFirstAndReturnsCycles(t *testing.T) {
	for name, tc := range map[string]struct {
		needs  [][]int
		order  []int
		cycles [][]int
	}{
		"nothing":                     {nil, []int{}, nil},
		"no edges keep their numbers": {[][]int{{}, {}, {}}, []int{0, 1, 2}, nil},
		"a chain against the numbers": {[][]int{{1}, {2}, {}}, []int{2, 1, 0}, nil},
		"a diamond":                   {[][]int{{}, {0}, {0}, {2, 1}}, []int{0, 1, 2, 3}, nil},
		"a vertex that needs itself":  {[][]int{{0}}, []int{0}, [][]int{{0}}},
		"a ring of three":             {[][]int{{1}, {2}, {0}}, []int{2, 1, 0}, [][]int{{0, 1, 2}}},
		"a ring behind a chain":       {[][]int{{1}, {2}, {1}}, []int{2, 1, 0}, [][]int{{1, 2}}},
	} {
		t.Run(name, func(t *testing.T) {
			order, cycles := Order(len(tc.needs), func(v int) []int { return tc.needs[v] })
			if !slices.Equal(order, tc.order) {
				t.Errorf("order: got %v, want %v", order, tc.order)
			}
			if !slices.EqualFunc(cycles, tc.cycles, slices.Equal[[]int]) {
				t.Errorf("cycles: got %v, want %v", cycles, tc.cycles)
			}
		})
	}
}
