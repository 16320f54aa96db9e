package ranks_test

import (
	"reflect"
	"testing"

	"rcgrpo/stages/internal/ranks"
)

func TestPartsTakeTheLongestItemsFirst(t *testing.T) {
	for name, tc := range map[string]struct {
		rows  []int
		parts int
		want  [][]int
	}{
		"one part has all items in order": {[]int{3, 9, 1}, 1, [][]int{{0, 1, 2}}},
		"each item to the smallest part":  {[]int{2, 7, 3, 5, 4}, 2, [][]int{{1, 2}, {0, 3, 4}}},
		"equal items in turn":             {[]int{1, 1, 1, 1}, 3, [][]int{{0, 3}, {1}, {2}}},
		"a part without items":            {[]int{5}, 2, [][]int{{0}, nil}},
		"no items":                        {nil, 2, [][]int{nil, nil}},
	} {
		if got := ranks.Parts(tc.rows, tc.parts); !reflect.DeepEqual(got, tc.want) {
			t.Errorf("%s: got %v, want %v", name, got, tc.want)
		}
	}
}
