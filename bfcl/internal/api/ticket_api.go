package api

import (
	"strings"
	"sync"

	"rcgrpo/bfcl/internal/py"
)

var ticketMethods = []Method{
	on3("create_ticket", (*ticketAPI).create,
		Required("title"), Optional("description", ""), Optional("priority", int64(1))),
	on1("get_ticket", (*ticketAPI).get, Required("ticket_id")),
	on1("close_ticket", (*ticketAPI).close, Required("ticket_id")),
	on2("resolve_ticket", (*ticketAPI).resolve, Required("ticket_id"), Required("resolution")),
	on2("edit_ticket", (*ticketAPI).edit, Required("ticket_id"), Required("updates")),
	on2("ticket_login", (*ticketAPI).login, Required("username"), Required("password")),
	on0("ticket_get_login_status", (*ticketAPI).status),
	on0("logout", (*ticketAPI).logout),
	on1("get_user_tickets", (*ticketAPI).ofUser, Optional("status", nil)),
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

func (t *ticketAPI) create(title, description, priority py.Value) py.Value {
	if !py.Truthy(t.user) {
		return errorReply("User not authenticated. Please log in to create a ticket.")
	}
	if try(py.Compare("<", priority, int64(1))) || try(py.Compare(">", priority, int64(5))) {
		return errorReply("Invalid priority. Priority must be between 1 and 5.")
	}
	ticket := py.NewDict("id", t.counter, "title", title, "description", description, "status", "Open",
		"priority", priority, "created_by", t.user)
	asList(t.queue, "append").Append(ticket)
	t.counter = increment(t.counter)
	return ticket
}

// increment returns v += 1.
func increment(v py.Value) py.Value { return inPlace("+", v, int64(1)) }

// find returns the first ticket with that id, or None. A preceding ticket without an id raises a KeyError.
func (t *ticketAPI) find(id py.Value) py.Value {
	for _, ticket := range try(py.Iterate(t.queue)) {
		if try(py.EqualErr(field(ticket, "id"), id)) {
			return ticket
		}
	}
	return nil
}

func ticketMissing(id py.Value) py.Value {
	return errorReply("Ticket with ID " + py.Str(id) + " not found.")
}

func (t *ticketAPI) get(id py.Value) py.Value {
	ticket := t.find(id)
	if ticket == nil {
		return ticketMissing(id)
	}
	return ticket
}

func (t *ticketAPI) close(id py.Value) py.Value {
	return t.finish(id, "Closed", "closed")
}

func (t *ticketAPI) resolve(id, resolution py.Value) py.Value {
	return t.finish(id, "Resolved", "resolved", resolution)
}

func (t *ticketAPI) login(name, password py.Value) py.Value {
	success := py.Truthy(name) && py.Truthy(password)
	if success {
		t.user = name
	}
	return py.NewDict("success", success)
}

func (t *ticketAPI) status() py.Value {
	return py.NewDict("login_status", py.Truthy(t.user))
}

func (t *ticketAPI) logout() py.Value {
	was := py.Truthy(t.user)
	if was {
		t.user = nil
	}
	return py.NewDict("success", was)
}

// finish sets a ticket's final status and an optional resolution. It refuses only a ticket that
// already has this status. word is the status in replies.
func (t *ticketAPI) finish(id py.Value, status, word string, resolution ...py.Value) py.Value {
	ticket := t.find(id)
	if ticket == nil {
		return ticketMissing(id)
	}
	if py.Equal(field(ticket, "status"), status) {
		return errorReply("Ticket with ID " + py.Str(id) + " is already " + word + ".")
	}
	check(py.SetItem(ticket, "status", status))
	for _, r := range resolution {
		check(py.SetItem(ticket, "resolution", r))
	}
	return py.NewDict("status", "Ticket "+py.Str(id)+" has been "+word+" successfully.")
}

// edit updates fields of a ticket, ignoring None. One invalid field refuses all updates.
func (t *ticketAPI) edit(id, updates py.Value) py.Value {
	ticket := t.find(id)
	if ticket == nil {
		return ticketMissing(id)
	}
	fields := asDict(updates, "keys")
	var refused []string
	for key := range fields.All() {
		name, isText := key.(string)
		switch {
		case isText && (name == "title" || name == "description" || name == "status" || name == "priority"):
			continue
		case !isText:
			panic(py.Raise("TypeError", "sequence item %d: expected str instance, %s found", len(refused), py.TypeName(key)))
		}
		refused = append(refused, name)
	}
	if len(refused) > 0 {
		return errorReply("Invalid fields for update: " + strings.Join(refused, ", "))
	}
	for key, val := range fields.All() {
		if val == nil {
			continue
		}
		check(py.SetItem(ticket, key.(string), val))
	}
	return py.NewDict("status", "Ticket "+py.Str(id)+" has been updated successfully.")
}

// ofUser returns the tickets that the user created, optionally filtered by a case-insensitive
// status.
func (t *ticketAPI) ofUser(status py.Value) py.Value {
	if !py.Truthy(t.user) {
		return py.NewList(errorReply("User not authenticated. Please log in to view tickets."))
	}
	own := py.NewList()
	for _, ticket := range try(py.Iterate(t.queue)) {
		if py.Equal(field(ticket, "created_by"), t.user) {
			own.Append(ticket)
		}
	}
	if !py.Truthy(status) {
		return own
	}
	matching := py.NewList()
	wanted := sync.OnceValue(func() string { return lower(status) }) // it may have megabytes
	for _, ticket := range own.Items {
		if lower(field(ticket, "status")) == wanted() {
			matching.Append(ticket)
		}
	}
	return matching
}
