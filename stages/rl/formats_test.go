package rl_test

import (
	"encoding/json"
	"path/filepath"
	"reflect"
	"testing"

	"rcgrpo/engine/artifact"
	"rcgrpo/internal/must"
	"rcgrpo/stages/rl"
)

// testdata/2026-11-22 has rows of a run of that day's version, before API models and own tasks: all their values are
// read, and a row that is written again is the same.
func TestRowsOfEarlierVersionsKeepAllTheirValues(t *testing.T) {
	wantSameRows[rl.Trajectory](t, rl.TrajectoriesFile)
	wantSameRows[rl.Trajectory](t, rl.DatasetFile)
	wantSameRows[rl.Score](t, rl.ScoresFile)
	wantSameRows[rl.Metric](t, rl.MetricsFile)
}

func wantSameRows[Row any](t *testing.T, name string) {
	t.Helper()
	path := filepath.Join("testdata/2026-11-22", name)
	var all []Row
	for row, err := range artifact.ReadRows[Row](path) {
		must.OK(t, err)
		all = append(all, row)
	}
	rows := 0
	for want, err := range artifact.ReadRows[map[string]any](path) {
		must.OK(t, err)
		var got map[string]any
		must.OK(t, json.Unmarshal(must.Get(json.Marshal(all[rows]))(t), &got))
		for key := range want {
			if !reflect.DeepEqual(got[key], want[key]) {
				t.Errorf("%s: %s is %v, want %v", name, key, got[key], want[key])
			}
		}
		if len(got) != len(want) {
			t.Errorf("%s: %d keys, want %d", name, len(got), len(want))
		}
		rows++
	}
	if rows == 0 {
		t.Errorf("%s has no rows", name)
	}
}

// Readers index the tokens of a sequence by its marks and the bounds of its messages.
func TestTrajectoriesWithOtherNumbersOfTokensAreRefused(t *testing.T) {
	for name, tc := range map[string]struct {
		row  rl.Trajectory
		want string
	}{
		"without tokens": {rl.Trajectory{Messages: []rl.Message{{Text: "x"}}}, ""},
		"more ids":       {rl.Trajectory{IDs: []int32{1, 2}, Mask: []bool{true}, Logp: []float32{0, 0}}, "2 ids, 1 marks"},
		"no logprobs":    {rl.Trajectory{IDs: []int32{1}, Mask: []bool{true}}, "1 marks and 0 logprobs"},
		"a late message": {rl.Trajectory{Messages: []rl.Message{{From: 0, To: 1}}}, "the ids 0 to 1 of 0"},
		"a document too many": {rl.Trajectory{Tools: []string{"a"}, Documents: make([]json.RawMessage, 2)},
			"1 tools and the documents of 2"},
		"a segment": {rl.Trajectory{Segments: []rl.Segment{{IDs: []int32{1}, Mask: []bool{true}, Logp: []float32{0},
			Messages: []rl.Message{{From: -1}}}}}, "the ids -1 to 0 of 1"},
	} {
		must.Match(t, tc.row.Check(), tc.want, name)
	}
}
