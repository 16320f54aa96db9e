package api

import (
	"slices"
	"strings"

	"rcgrpo/bfcl/internal/py"
)

var messageMethods = []Method{
	on0("list_users", (*messageAPI).list),
	on1("get_user_id", (*messageAPI).userID, Required("user")),
	on1("message_login", (*messageAPI).login, Required("user_id")),
	on0("message_get_login_status", (*messageAPI).status),
	loginRequired(on2("send_message", (*messageAPI).send, Required("receiver_id"), Required("message"))),
	loginRequired(on1("delete_message", (*messageAPI).delete, Required("receiver_id"))),
	loginRequired(on0("view_messages_sent", (*messageAPI).view)),
	on1("add_contact", (*messageAPI).addContact, Required("user_name")),
	loginRequired(on1("search_messages", (*messageAPI).search, Required("keyword"))),
	loginRequired(on0("get_message_stats", (*messageAPI).stats)),
}

// messageSeed seeds the generator of message ids.
const messageSeed = 200191

// messageAPI implements MessageAPI (bfcl/SPEC.md 13.3). A message is a dict from receiver to text,
// of which only the first entry counts.
type messageAPI struct {
	random    *py.Random
	ids       py.Value // set of the message ids drawn so far
	userCount py.Value // number of the last contact's id
	users     py.Value // dict from name to id
	inbox     py.Value // list of messages, oldest first
	count     py.Value // messages ever sent, including deleted ones
	user      py.Value // None, or the id of the logged-in user
}

func newMessageAPI() Instance { return &messageAPI{} }

func (a *messageAPI) Load(scenario *py.Dict, _ *Shared, _ bool) (err error) {
	defer catch(&err)
	a.random = seeded(scenario, messageSeed)
	a.ids = setting(scenario, "generated_ids", py.NewSet())
	a.userCount = setting(scenario, "user_count", int64(4))
	a.users = setting(scenario, "user_map", py.NewDict("Alice", "USR001", "Bob", "USR002", "Catherine",
		"USR003", "Daniel", "USR004"))
	a.inbox = setting(scenario, "inbox", py.NewList(
		py.NewDict("USR002", "My name is Alice. I want to connect."),
		py.NewDict("USR003", "Could you upload the file?"),
		py.NewDict("USR004", "Could you upload the file?")))
	a.count = setting(scenario, "message_count", int64(3))
	a.user = setting(scenario, "current_user", nil)
	return nil
}

func (a *messageAPI) State() []Attr {
	return []Attr{{"generated_ids", a.ids}, {"user_count", a.userCount}, {"user_map", a.users}, {"inbox", a.inbox},
		{"message_count", a.count}, {"current_user", a.user}}
}

func (a *messageAPI) Private() []Attr { return nil }

func (a *messageAPI) Clone(m *py.Memo) Instance {
	return &messageAPI{
		random:    a.random.Clone(),
		ids:       py.Clone(a.ids, m),
		userCount: py.Clone(a.userCount, m),
		users:     py.Clone(a.users, m),
		inbox:     py.Clone(a.inbox, m),
		count:     py.Clone(a.count, m),
		user:      py.Clone(a.user, m),
	}
}

func (a *messageAPI) list() py.Value {
	users := asDict(a.users, "keys")
	return py.NewDict("user_list", py.NewList(users.Keys()...))
}

func (a *messageAPI) status() py.Value {
	return py.NewDict("login_status", py.Truthy(a.user))
}

// loginRequired makes a method refuse if no user is logged in.
func loginRequired(m Method) Method {
	return guarded(m, func(a *messageAPI) bool { return py.Truthy(a.user) }, "No user is currently logged in.")
}

func (a *messageAPI) userID(name py.Value) py.Value {
	if !try(py.Contains(a.users, name)) {
		return errorReply("User '" + py.Str(name) + "' not found in the workspace.")
	}
	id, _ := asDict(a.users, "get").Get(name)
	return py.NewDict("user_id", id)
}

// knows reports whether a user has the id.
func (a *messageAPI) knows(id py.Value) bool {
	users := asDict(a.users, "values")
	return slices.ContainsFunc(users.Values(), func(have py.Value) bool { return try(py.EqualErr(have, id)) })
}

func (a *messageAPI) login(id py.Value) py.Value {
	if !a.knows(id) {
		return py.NewDict("login_status", false, "message", "User ID '"+py.Str(id)+"' not found.")
	}
	a.user = id
	return py.NewDict("login_status", true, "message", "User '"+py.Str(id)+"' logged in successfully.")
}

func (a *messageAPI) send(receiver, text py.Value) py.Value {
	if !a.knows(receiver) {
		return errorReply("Receiver ID '" + py.Str(receiver) + "' not found.")
	}
	id := a.newID()
	message := py.MakeDict(1)
	check(message.SetErr(receiver, text))
	asList(a.inbox, "append").Append(message)
	a.count = increment(a.count)
	return py.NewDict("sent_status", true, "message_id", py.NewDict("new_id", id),
		"message", "Message sent to '"+py.Str(receiver)+"' successfully.")
}

// newID draws ids until one is new, at most a million times.
func (a *messageAPI) newID() py.Value {
	for range 1_000_000 {
		id := a.random.RandInt(10000, 99999)
		if !try(py.Contains(a.ids, id)) {
			check(receiver[*py.Set](a.ids, "add").Add(id))
			return id
		}
	}
	panic(py.Raise("RuntimeError", "no message id is left"))
}

// firstPair returns receiver and content of a message. An empty message raises an IndexError.
func firstPair(message py.Value) (receiver, content py.Value) {
	d := asDict(message, "items")
	if d.Len() == 0 {
		panic(py.Raise("IndexError", "list index out of range"))
	}
	receiver, content = d.At(0)
	return receiver, content
}

// delete finds the receiver's latest message and removes the first message equal to it, which may
// be another one.
func (a *messageAPI) delete(receiver py.Value) py.Value {
	inbox, ok := a.inbox.(*py.List)
	if !ok {
		panic(py.Raise("TypeError", "'%s' object is not subscriptable", py.TypeName(a.inbox)))
	}
	for i := len(inbox.Items) - 1; i >= 0; i-- {
		message := inbox.Items[i]
		have, _ := firstPair(message)
		if py.Equal(have, receiver) {
			inbox.Remove(message)
			return py.NewDict("deleted_status", true, "receiver_id", have,
				"message", "Receiver "+py.Str(receiver)+"'s latest message deleted successfully.")
		}
	}
	return errorReply("Receiver ID " + py.Str(receiver) + " not found.")
}

// view groups all messages by receiver in order of first appearance.
func (a *messageAPI) view() py.Value {
	inbox := try(py.Iterate(a.inbox))
	byReceiver := py.MakeDict(len(inbox))
	for _, message := range inbox {
		receiver, content := firstPair(message)
		if texts, ok := byReceiver.Get(receiver); ok {
			texts.(*py.List).Append(content)
			continue
		}
		byReceiver.Set(receiver, py.NewList(content))
	}
	return py.NewDict("messages", byReceiver)
}

// addContact assigns the next id to a new name. The count advances even if the id is taken.
func (a *messageAPI) addContact(name py.Value) py.Value {
	if try(py.Contains(a.users, name)) {
		return errorReply("User name '" + py.Str(name) + "' already exists.")
	}
	a.userCount = increment(a.userCount)
	id := "USR" + zeroPadded(py.Str(a.userCount), 3)
	if a.knows(id) {
		return errorReply("User ID '" + id + "' already exists.")
	}
	check(py.SetItem(a.users, name, id))
	return py.NewDict("added_status", true, "user_id", id, "message",
		"Contact '"+py.Str(name)+"' added successfully.")
}

// zeroPadded is str.zfill: it inserts zeros between sign and digits.
func zeroPadded(s string, width int) string {
	missing := width - py.RuneLen(s)
	if missing <= 0 {
		return s
	}
	sign := ""
	if s != "" && (s[0] == '-' || s[0] == '+') {
		sign, s = s[:1], s[1:]
	}
	return sign + strings.Repeat("0", missing) + s
}

// search ignores case. It raises an AttributeError if the text of a message is not a string.
func (a *messageAPI) search(keyword py.Value) py.Value {
	wanted := lower(keyword)
	inbox := try(py.Iterate(a.inbox))
	found := py.NewList()
	for _, message := range inbox {
		receiver, content := firstPair(message)
		text := lower(content)
		if strings.Contains(text, wanted) {
			found.Append(py.NewDict("receiver_id", receiver, "message", content))
		}
	}
	return py.NewDict("results", found)
}

func (a *messageAPI) stats() py.Value {
	inbox := try(py.Iterate(a.inbox))
	contacts := py.NewSet()
	for _, message := range inbox {
		receiver, _ := firstPair(message)
		check(contacts.Add(receiver))
	}
	return py.NewDict("stats", py.NewDict("received_count", int64(len(inbox)), "total_contacts",
		int64(contacts.Len())))
}
