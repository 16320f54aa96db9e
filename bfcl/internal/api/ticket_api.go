package api

import "rcgrpo/bfcl/internal/py"

const (
	ticketCreate = iota
	ticketGet
	ticketClose
	ticketResolve
	ticketEdit
	ticketLogin
	ticketLoginStatus
	ticketLogout
	ticketOfUser
)

var ticketMethods = []Method{
	ticketCreate: {"create_ticket", []Param{Required("title"), Optional("description", ""),
		Optional("priority", int64(1))}},
	ticketGet:         {"get_ticket", []Param{Required("ticket_id")}},
	ticketClose:       {"close_ticket", []Param{Required("ticket_id")}},
	ticketResolve:     {"resolve_ticket", []Param{Required("ticket_id"), Required("resolution")}},
	ticketEdit:        {"edit_ticket", []Param{Required("ticket_id"), Required("updates")}},
	ticketLogin:       {"ticket_login", []Param{Required("username"), Required("password")}},
	ticketLoginStatus: {"ticket_get_login_status", nil},
	ticketLogout:      {"logout", nil},
	ticketOfUser:      {"get_user_tickets", []Param{Optional("status", nil)}},
}

// ticketAPI implements TicketAPI (bfcl/SPEC.md 13.5). Creating and listing tickets require a login;
// reading and changing a ticket do not.
type ticketAPI struct {
	queue   py.Value // list of tickets, oldest first
	counter py.Value // id of the next ticket
	user    py.Value // None or a name
}

func newTicketAPI() Instance { return &ticketAPI{} }

func (t *ticketAPI) Load(scenario *py.Dict, _ *Shared, _ bool) error {
	t.queue = setting(scenario, "ticket_queue", py.NewList())
	t.counter = setting(scenario, "ticket_counter", int64(1))
	t.user = setting(scenario, "current_user", nil)
	return nil
}

func (t *ticketAPI) State() []Attr {
	return []Attr{{"ticket_queue", t.queue}, {"ticket_counter", t.counter}, {"current_user", t.user}}
}

func (t *ticketAPI) Private() []Attr { return nil }

func (t *ticketAPI) Clone(m *py.Memo) Instance {
	return &ticketAPI{queue: py.Clone(t.queue, m), counter: py.Clone(t.counter, m), user: py.Clone(t.user, m)}
}

var (
	ticketDone       = fixed("success", true)
	ticketNotDone    = fixed("success", false)
	ticketIn         = fixed("login_status", true)
	ticketOut        = fixed("login_status", false)
	ticketNeedsLogin = fixed("error", "User not authenticated. Please log in to create a ticket.")
	ticketPriority   = fixed("error", "Invalid priority. Priority must be between 1 and 5.")
)

func (t *ticketAPI) Call(method int, args []py.Value) (py.Value, error) {
	switch method {
	case ticketCreate:
		return t.create(args[0], args[1], args[2])
	case ticketGet:
		ticket, err := t.find(args[0])
		if err != nil {
			return nil, err
		}
		if ticket == nil {
			return ticketMissing(args[0]), nil
		}
		return ticket, nil
	case ticketClose:
		return t.finish(args[0], "Closed", "closed", nil)
	case ticketResolve:
		return t.finish(args[0], "Resolved", "resolved", args[1:])
	case ticketEdit:
		return t.edit(args[0], args[1])
	case ticketLogin:
		if py.Truthy(args[0]) && py.Truthy(args[1]) {
			t.user = args[0]
			return ticketDone, nil
		}
		return ticketNotDone, nil
	case ticketLoginStatus:
		if py.Truthy(t.user) {
			return ticketIn, nil
		}
		return ticketOut, nil
	case ticketLogout:
		if py.Truthy(t.user) {
			t.user = nil
			return ticketDone, nil
		}
		return ticketNotDone, nil
	case ticketOfUser:
		return t.ofUser(args[0])
	}
	return nil, noMethod(method)
}

func (t *ticketAPI) create(title, description, priority py.Value) (py.Value, error) {
	if !py.Truthy(t.user) {
		return ticketNeedsLogin, nil
	}
	wrong, err := py.Compare("<", priority, int64(1))
	if err == nil && !wrong {
		wrong, err = py.Compare(">", priority, int64(5))
	}
	if err != nil {
		return nil, err
	}
	if wrong {
		return ticketPriority, nil
	}
	ticket := py.NewDict("id", t.counter, "title", title, "description", description, "status", "Open",
		"priority", priority, "created_by", t.user)
	queue, err := asList(t.queue, "append")
	if err != nil {
		return nil, err
	}
	queue.Append(ticket)
	if t.counter, err = increment(t.counter); err != nil {
		return nil, err
	}
	return ticket, nil
}

// increment returns v + 1, or v itself with an error.
func increment(v py.Value) (py.Value, error) {
	next, err := inPlace("+", v, int64(1))
	if err != nil {
		return v, err
	}
	return next, nil
}

// find returns the first ticket with that id, or None. A preceding ticket without an id is an
// error.
func (t *ticketAPI) find(id py.Value) (py.Value, error) {
	queue, err := py.Iterate(t.queue)
	if err != nil {
		return nil, err
	}
	for _, ticket := range queue {
		have, err := field(ticket, "id")
		if err != nil {
			return nil, err
		}
		same, err := py.EqualErr(have, id)
		if err != nil {
			return nil, err
		}
		if same {
			return ticket, nil
		}
	}
	return nil, nil
}

func ticketMissing(id py.Value) py.Value {
	return fault("Ticket with ID " + py.Str(id) + " not found.")
}

// finish sets a ticket's final status and an optional resolution. It refuses only a ticket that
// already has this status.
func (t *ticketAPI) finish(id py.Value, status, word string, resolution []py.Value) (py.Value, error) {
	ticket, err := t.find(id)
	if err != nil {
		return nil, err
	}
	if ticket == nil {
		return ticketMissing(id), nil
	}
	have, err := field(ticket, "status")
	if err != nil {
		return nil, err
	}
	if py.Equal(have, status) {
		return fault("Ticket with ID " + py.Str(id) + " is already " + word + "."), nil
	}
	if err := py.SetItem(ticket, "status", status); err != nil {
		return nil, err
	}
	for _, r := range resolution {
		if err := py.SetItem(ticket, "resolution", r); err != nil {
			return nil, err
		}
	}
	return py.NewDict("status", "Ticket "+py.Str(id)+" has been "+word+" successfully."), nil
}

// edit updates fields of a ticket, ignoring None. One invalid field refuses all updates.
func (t *ticketAPI) edit(id, updates py.Value) (py.Value, error) {
	ticket, err := t.find(id)
	if err != nil {
		return nil, err
	}
	if ticket == nil {
		return ticketMissing(id), nil
	}
	fields, err := asDict(updates, "keys")
	if err != nil {
		return nil, err
	}
	refused, n := "", 0
	for i := range fields.Len() {
		key, _ := fields.At(i)
		name, isText := key.(string)
		switch {
		case isText && (name == "title" || name == "description" || name == "status" || name == "priority"):
			continue
		case !isText:
			return nil, py.Raise("TypeError", "sequence item %d: expected str instance, %s found", n, py.TypeName(key))
		case n > 0:
			refused += ", "
		}
		refused += name
		n++
	}
	if n > 0 {
		return fault("Invalid fields for update: " + refused), nil
	}
	for i := range fields.Len() {
		key, val := fields.At(i)
		if val == nil {
			continue
		}
		if err := py.SetItem(ticket, key.(string), val); err != nil {
			return nil, err
		}
	}
	return py.NewDict("status", "Ticket "+py.Str(id)+" has been updated successfully."), nil
}

// ofUser returns the tickets that the user created, optionally filtered by a case-insensitive
// status.
func (t *ticketAPI) ofUser(status py.Value) (py.Value, error) {
	if !py.Truthy(t.user) {
		return py.NewList(fault("User not authenticated. Please log in to view tickets.")), nil
	}
	queue, err := py.Iterate(t.queue)
	if err != nil {
		return nil, err
	}
	own := py.NewList()
	for _, ticket := range queue {
		by, err := field(ticket, "created_by")
		if err != nil {
			return nil, err
		}
		if py.Equal(by, t.user) {
			own.Append(ticket)
		}
	}
	if !py.Truthy(status) {
		return own, nil
	}
	matching := py.NewList()
	for _, ticket := range own.Items {
		have, err := field(ticket, "status")
		if err != nil {
			return nil, err
		}
		a, err := lower(have)
		if err != nil {
			return nil, err
		}
		b, err := lower(status)
		if err != nil {
			return nil, err
		}
		if a == b {
			matching.Append(ticket)
		}
	}
	return matching, nil
}
