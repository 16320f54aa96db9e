package api

import "rcgrpo/bfcl/internal/py"

var calendarMethods = []Method{
	on2("add_event", (*calendarAPI).add, Required("title"), Optional("day", int64(1))),
	on0("list_events", (*calendarAPI).list),
}

// calendarAPI is a class of events with the day of each.
type calendarAPI struct{ events *py.List }

func newCalendarAPI() Instance { return &calendarAPI{} }

func (c *calendarAPI) Load(scenario *py.Dict, _ *Shared, _ bool) error {
	c.events = py.NewList()
	if scenario == nil {
		return nil
	}
	if events, ok := scenario.Get("events"); ok {
		if list, isList := events.(*py.List); isList {
			c.events = list
		}
	}
	return nil
}

func (c *calendarAPI) State() []Attr   { return []Attr{{"events", c.events}} }
func (c *calendarAPI) Private() []Attr { return nil }

func (c *calendarAPI) Clone(m *py.Memo) Instance { return &calendarAPI{c.events.Clone(m)} }

func (c *calendarAPI) add(title, day py.Value) py.Value {
	c.events.Append(py.NewDict("title", title, "day", day))
	return py.NewDict("count", int64(len(c.events.Items)))
}

func (c *calendarAPI) list() py.Value { return py.NewDict("events", c.events) }
