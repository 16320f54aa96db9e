package api

import "testing"

func TestCalendar(t *testing.T) {
	p := start(t, "CalendarAPI", `{"events": [{"title": "review", "day": 3}]}`)
	p.want(`{"count": 2}`, "add_event", "standup")
	p.want(`{"events": [{"title": "review", "day": 3}, {"title": "standup", "day": 1}]}`, "list_events")
}
