package reports

import (
	"slices"
	"testing"

	"rcgrpo/bfcl"
)

func TestSizesByHand(t *testing.T) {
	one, two := &bfcl.Task{Turns: make([]bfcl.Turn, 1)}, &bfcl.Task{Turns: make([]bfcl.Turn, 2)}
	s := &Study{TaskSets: []TaskSet{{Label: "a", Tasks: []*bfcl.Task{one, two, two, two}, Source: "stage.tasks.a.train"}}}
	want := [][]string{{"turns", "a"}, {"1", "0.25"}, {"2", "0.75"}}
	if got := s.sizeFigure().CSV(); !slices.EqualFunc(got, want, slices.Equal[[]string]) {
		t.Errorf("got %q, want %q", got, want)
	}
}
