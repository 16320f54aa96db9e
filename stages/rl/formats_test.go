package rl

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"io"
	"os"
	"path/filepath"
	"reflect"
	"testing"

	"rcgrpo/internal/must"
)

// testdata/2026-11-22 has rows of a run of that day's version, before API models and own tasks: all their values are
// read, and a row that is written again is the same.
func TestRowsOfEarlierVersionsKeepAllTheirValues(t *testing.T) {
	for name, row := range map[string]any{TrajectoriesFile: Trajectory{}, DatasetFile: Trajectory{}, ScoresFile: Score{},
		MetricsFile: Metric{}} {
		text := must.Get(os.ReadFile(filepath.Join("testdata/2026-11-22", name)))(t)
		if filepath.Ext(name) == ".gz" {
			text = must.Get(io.ReadAll(must.Get(gzip.NewReader(bytes.NewReader(text)))(t)))(t)
		}
		rows := 0
		for line := range bytes.Lines(text) {
			read := json.NewDecoder(bytes.NewReader(line))
			read.DisallowUnknownFields()
			value := reflect.New(reflect.TypeOf(row)).Interface()
			must.OK(t, read.Decode(value))
			var want, got map[string]any
			must.OK(t, json.Unmarshal(line, &want))
			must.OK(t, json.Unmarshal(must.Get(json.Marshal(value))(t), &got))
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
}
