package bfcl

import (
	"encoding/json"
	"testing"
)

// The oracle over a task that uses the class: its ground truth passes, and with one call altered it fails.
func TestOracleOfTheCalendar(t *testing.T) {
	task := &Task{ID: "own_base_2", Category: "base", Number: 2, Family: "own_2", Classes: []string{"CalendarAPI"},
		InitialConfig: json.RawMessage(`{"CalendarAPI": {"events": []}}`),
		Turns:         []Turn{{User: "Note the review on day 3.", GroundTruth: []string{"add_event(title='review', day=3)"}}}}
	for call, passes := range map[string]bool{"add_event(title='review', day=3)": true, "add_event('review', 3)": true, "add_event(title='review')": false} {
		e, _, err := task.Play(Settings{}, [][][]string{{{call}}})
		if err != nil {
			t.Fatal(err)
		}
		if v := e.Verdict(); v.Official != passes || (v.Reward == 1) != passes {
			t.Errorf("%s: got %+v, want %v", call, v, passes)
		}
	}
}
