package api

import "testing"

func TestCalendar(t *testing.T) {
	p := start(t, "CalendarAPI", `{"events": [{"title": "review", "day": 3}]}`, nil)
	p.want("add_event('standup')", `{"count": 2}`)
	p.want("list_events()", `{"events": [{"title": "review", "day": 3}, {"title": "standup", "day": 1}]}`)
}
