package bfcl

import (
	"fmt"
	"strings"
	"time"
)

// ReleaseDate is the day of the benchmark's data. Episodes that train or judge a policy take it for "today", so that they
// repeat.
var ReleaseDate = time.Date(2026, time.March, 23, 0, 0, 0, 0, time.UTC)

// SettingsFor gives the settings under which the tasks are played: on the release date, and with the benchmark's data
// loaded from dir when one of them is an official task. Drills need no data.
func SettingsFor(tasks []*Task, dir string) (Settings, error) {
	s := Settings{Today: ReleaseDate}
	for _, t := range tasks {
		if !strings.HasPrefix(t.ID, officialPrefix) {
			continue
		}
		if dir == "" {
			return s, fmt.Errorf("the benchmark's data is not there: name its folder in the site file, data { bfcl = \"...\" }, or run `make build`, which unpacks it into .deps/bfcl")
		}
		data, err := LoadData(dir)
		s.Data = data
		return s, err
	}
	return s, nil
}

// officialPrefix begins the ids of the benchmark's own multi-turn tasks.
const officialPrefix = "multi_turn_"
