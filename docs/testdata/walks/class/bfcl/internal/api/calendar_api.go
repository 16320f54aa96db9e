package api

import "rcgrpo/bfcl/internal/py"

var calendarMethods = []Method{
	{"add_event", []Param{Required("title"), Optional("day", int64(1))}},
	{"list_events", nil},
}

// calendarAPI is a class of events with the day of each.
type calendarAPI struct{ events *py.List }

func newCalendarAPI() Instance { return &calendarAPI{} }

func (c *calendarAPI) Load(scenario *py.Dict, _ *Shared, _ bool) error {
	c.events = py.NewList()
	if scenario == nil {
		return nil
	}
	if events, ok := scenario.GetStr("events"); ok {
		if list, isList := events.(*py.List); isList {
			c.events = list
		}
	}
	return nil
}

func (c *calendarAPI) State() []Attr   { return []Attr{{"events", c.events}} }
func (c *calendarAPI) Private() []Attr { return nil }

func (c *calendarAPI) Clone(m *py.Memo) Instance { return &calendarAPI{c.events.Clone(m)} }

func (c *calendarAPI) Call(method int, args []py.Value) (py.Value, error) {
	switch method {
	case 0:
		c.events.Append(py.NewDict("title", args[0], "day", args[1]))
		return py.NewDict("count", int64(len(c.events.Items))), nil
	case 1:
		return py.NewDict("events", c.events), nil
	}
	return nil, noMethod(method)
}
