package bfcl

import (
	"fmt"
	"strings"
	"time"
)

// ReleaseDate is the date of the benchmark's data. Training and evaluation use it as "today", so
// that episodes are reproducible.
var ReleaseDate = time.Date(2026, time.March, 23, 0, 0, 0, 0, time.UTC)

// SettingsFor returns the settings for the tasks: the release date, and the official data from dir
// if one of them is an official task. Drills need no data.
func SettingsFor(tasks []*Task, dir string) (Settings, error) {
	s := Settings{Today: ReleaseDate}
	for _, t := range tasks {
		if !t.Official() {
			continue
		}
		if dir == "" {
			return s, fmt.Errorf("benchmark data not found: set its folder in the site file, " +
				"data { bfcl = \"...\" }, or run `make build`, which unpacks it into .deps/bfcl")
		}
		data, err := LoadData(dir)
		s.Data = data
		return s, err
	}
	return s, nil
}

// Official reports whether the task is one of the benchmark's.
func (t *Task) Official() bool { return strings.HasPrefix(t.ID, officialPrefix) }

// officialPrefix is the id prefix of the official multi-turn tasks.
const officialPrefix = "multi_turn_"
