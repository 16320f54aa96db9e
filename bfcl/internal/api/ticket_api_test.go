package api

import (
	"testing"

	"rcgrpo/bfcl/internal/py"
)

func TestTicketLife(t *testing.T) {
	p := start(t, "TicketAPI", `{"current_user": "ann"}`)
	p.want(`{"id": 1, "title": "t1", "description": "", "status": "Open", "priority": 1, "created_by": "ann"}`, "create_ticket", "t1")
	p.want(`{"error": "Invalid priority. Priority must be between 1 and 5."}`, "create_ticket", "t2", "", int64(6))
	p.want(`TypeError: '<' not supported between instances of 'str' and 'int'`, "create_ticket", "t2", "", "3")
	p.want(`{"error": "Ticket with ID 1 not found."}`, "get_ticket", "1")
	p.want(`{"status": "Ticket 1.0 has been closed successfully."}`, "close_ticket", 1.0)
	p.want(`{"error": "Ticket with ID 1 is already closed."}`, "close_ticket", int64(1))
	p.want(`{"status": "Ticket 1 has been resolved successfully."}`, "resolve_ticket", int64(1), "r")
	p.want(`{"error": "Ticket with ID 1 is already resolved."}`, "resolve_ticket", int64(1), "again")
	p.want(`{"status": "Ticket 1 has been closed successfully."}`, "close_ticket", int64(1))
	p.want(`[{'id': 1, 'title': 't1', 'description': '', 'status': 'Closed', 'priority': 1, 'created_by': 'ann', 'resolution': 'r'}]`,
		"get_user_tickets", "CLOSED")
	p.want(`[]`, "get_user_tickets", "open")
	p.want(`{"success": true}`, "logout")
	p.want(`{"success": false}`, "logout")
	p.want(`[{'error': 'User not authenticated. Please log in to view tickets.'}]`, "get_user_tickets")
	p.want(`{"error": "User not authenticated. Please log in to create a ticket."}`, "create_ticket", "t")
	p.want(`{"success": false}`, "ticket_login", "", "p")
	p.want(`{"success": true}`, "ticket_login", "bob", "p")
	p.want(`{"login_status": true}`, "ticket_get_login_status")
}

func TestTicketEditIsAllOrNothing(t *testing.T) {
	p := start(t, "TicketAPI", `{"ticket_queue": [{"id": 7, "status": "Open"}]}`)
	p.want(`{"error": "Invalid fields for update: owner"}`, "edit_ticket", int64(7), py.NewDict("title", "new", "owner", "x"))
	p.want(`{"id": 7, "status": "Open"}`, "get_ticket", int64(7))
	p.want(`{"status": "Ticket 7 has been updated successfully."}`, "edit_ticket", int64(7), py.NewDict("title", nil, "priority", int64(9)))
	p.want(`{"id": 7, "status": "Open", "priority": 9}`, "get_ticket", int64(7))
	p.want(`AttributeError: 'list' object has no attribute 'keys'`, "edit_ticket", int64(7), py.NewList("title"))
	p.want(`TypeError: sequence item 0: expected str instance, int found`, "edit_ticket", int64(7), py.NewDict(int64(1), "x"))
}

func TestTicketsOfAnIrregularQueue(t *testing.T) {
	p := start(t, "TicketAPI", `{"current_user": "u", "ticket_queue": [{"ticket_001": {}}]}`)
	p.want(`KeyError: 'id'`, "get_ticket", int64(1))
	p.want(`KeyError: 'created_by'`, "get_user_tickets")
	p.want(`{"id": 1, "title": "t", "description": "", "status": "Open", "priority": 1, "created_by": "u"}`, "create_ticket", "t")
	p.want(`KeyError: 'id'`, "close_ticket", int64(1)) // the ticket without an id stands before it
}
