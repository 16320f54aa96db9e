package nesting

import "testing"

func TestDepthAndCommasOfJSON(t *testing.T) {
	for text, want := range map[string][2]int{
		``:                       {0, 0},
		`"[[,"`:                  {0, 0},
		`{"a": [1, {"b": []}]}`:  {4, 1},
		`[][[]]`:                 {2, 0},
		`["\"[,", "\\", [`:       {2, 2},
		`]]]][[`:                 {0, 0}, // a decoder stops at the first bracket
		`{"a": "}"}, {"b": {"c"`: {2, 1},
	} {
		if depth, commas := JSON(text); depth != want[0] || commas != want[1] {
			t.Errorf("%s: got depth %d and %d commas, want %v", text, depth, commas, want)
		}
	}
}
