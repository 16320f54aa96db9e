package nesting

import "testing"

func TestDepthOfJSON(t *testing.T) {
	for text, want := range map[string]int{
		``:                       0,
		`"[["`:                   0,
		`{"a": [1, {"b": []}]}`:  4,
		`[][[]]`:                 2,
		`["\"[", "\\", [`:        2,
		`]]]][[`:                 0, // a decoder stops at the first bracket
		`{"a": "}"}, {"b": {"c"`: 2,
	} {
		if got := JSON(text); got != want {
			t.Errorf("%s: got depth %d, want %d", text, got, want)
		}
	}
}
