package api

import (
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

func (a *messageAPI) Load(scenario *py.Dict, _ *Shared, _ bool) error {
	seed, ok := setting(scenario, "random_seed", int64(messageSeed)).(int64)
	if !ok {
		return py.Raise("TypeError", "random_seed of MessageAPI must be an integer of at most 64 bits")
	}
	a.random = py.NewRandom(seed)
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

func (a *messageAPI) list() (py.Value, error) {
	users, err := asDict(a.users, "keys")
	if err != nil {
		return nil, err
	}
	return py.NewDict("user_list", py.NewList(users.Keys()...)), nil
}

func (a *messageAPI) status() (py.Value, error) {
	return py.NewDict("login_status", py.Truthy(a.user)), nil
}

// loginRequired makes a method refuse if no user is logged in.
func loginRequired(m Method) Method {
	return guarded(m, func(a *messageAPI) bool { return py.Truthy(a.user) }, "No user is currently logged in.")
}

func (a *messageAPI) userID(name py.Value) (py.Value, error) {
	known, err := py.Contains(a.users, name)
	if err != nil {
		return nil, err
	}
	if !known {
		return fault("User '" + py.Str(name) + "' not found in the workspace."), nil
	}
	users, err := asDict(a.users, "get")
	if err != nil {
		return nil, err
	}
	id, _ := users.Get(name)
	return py.NewDict("user_id", id), nil
}

// knows reports whether a user has the id.
func (a *messageAPI) knows(id py.Value) (bool, error) {
	users, err := asDict(a.users, "values")
	if err != nil {
		return false, err
	}
	for i := range users.Len() {
		_, have := users.At(i)
		if same, err := py.EqualErr(have, id); same || err != nil {
			return same, err
		}
	}
	return false, nil
}

func (a *messageAPI) login(id py.Value) (py.Value, error) {
	known, err := a.knows(id)
	if err != nil {
		return nil, err
	}
	if !known {
		return py.NewDict("login_status", false, "message", "User ID '"+py.Str(id)+"' not found."), nil
	}
	a.user = id
	return py.NewDict("login_status", true, "message", "User '"+py.Str(id)+"' logged in successfully."), nil
}

func (a *messageAPI) send(receiver, text py.Value) (py.Value, error) {
	known, err := a.knows(receiver)
	if err != nil {
		return nil, err
	}
	if !known {
		return fault("Receiver ID '" + py.Str(receiver) + "' not found."), nil
	}
	id, err := a.newID()
	if err != nil {
		return nil, err
	}
	message := py.MakeDict(1)
	if err := message.SetErr(receiver, text); err != nil {
		return nil, err
	}
	inbox, err := asList(a.inbox, "append")
	if err != nil {
		return nil, err
	}
	inbox.Append(message)
	if a.count, err = increment(a.count); err != nil {
		return nil, err
	}
	return py.NewDict("sent_status", true, "message_id", py.NewDict("new_id", id),
		"message", "Message sent to '"+py.Str(receiver)+"' successfully."), nil
}

// newID draws ids until one is new, at most a million times.
func (a *messageAPI) newID() (py.Value, error) {
	for range 1_000_000 {
		id := a.random.RandInt(10000, 99999)
		used, err := py.Contains(a.ids, id)
		if err != nil {
			return nil, err
		}
		if used {
			continue
		}
		ids, ok := a.ids.(*py.Set)
		if !ok {
			return nil, py.AttributeError(a.ids, "add")
		}
		return id, ids.Add(id)
	}
	return nil, py.Raise("RuntimeError", "no message id is left")
}

// firstPair returns receiver and content of a message. An empty message is an error.
func firstPair(message py.Value) (receiver, content py.Value, err error) {
	d, err := asDict(message, "items")
	if err != nil {
		return nil, nil, err
	}
	if d.Len() == 0 {
		return nil, nil, py.Raise("IndexError", "list index out of range")
	}
	receiver, content = d.At(0)
	return receiver, content, nil
}

// delete finds the receiver's latest message and removes the first message equal to it, which may
// be another one.
func (a *messageAPI) delete(receiver py.Value) (py.Value, error) {
	inbox, ok := a.inbox.(*py.List)
	if !ok {
		return nil, py.Raise("TypeError", "'%s' object is not subscriptable", py.TypeName(a.inbox))
	}
	for i := len(inbox.Items) - 1; i >= 0; i-- {
		message := inbox.Items[i]
		have, _, err := firstPair(message)
		if err != nil {
			return nil, err
		}
		if py.Equal(have, receiver) {
			inbox.Remove(message)
			return py.NewDict("deleted_status", true, "receiver_id", have,
				"message", "Receiver "+py.Str(receiver)+"'s latest message deleted successfully."), nil
		}
	}
	return fault("Receiver ID " + py.Str(receiver) + " not found."), nil
}

// view groups all messages by receiver in order of first appearance.
func (a *messageAPI) view() (py.Value, error) {
	inbox, err := py.Iterate(a.inbox)
	if err != nil {
		return nil, err
	}
	byReceiver := py.MakeDict(len(inbox))
	for _, message := range inbox {
		receiver, content, err := firstPair(message)
		if err != nil {
			return nil, err
		}
		if texts, ok := byReceiver.Get(receiver); ok {
			texts.(*py.List).Append(content)
			continue
		}
		byReceiver.Set(receiver, py.NewList(content))
	}
	return py.NewDict("messages", byReceiver), nil
}

// addContact assigns the next id to a new name. The count advances even if the id is taken.
func (a *messageAPI) addContact(name py.Value) (py.Value, error) {
	known, err := py.Contains(a.users, name)
	if err != nil {
		return nil, err
	}
	if known {
		return fault("User name '" + py.Str(name) + "' already exists."), nil
	}
	if a.userCount, err = increment(a.userCount); err != nil {
		return nil, err
	}
	id := "USR" + zeroPadded(py.Str(a.userCount), 3)
	if known, err = a.knows(id); err != nil {
		return nil, err
	}
	if known {
		return fault("User ID '" + id + "' already exists."), nil
	}
	if err := py.SetItem(a.users, name, id); err != nil {
		return nil, err
	}
	return py.NewDict("added_status", true, "user_id", id, "message",
		"Contact '"+py.Str(name)+"' added successfully."), nil
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

// search is case-insensitive. A message that is not a string is an error.
func (a *messageAPI) search(keyword py.Value) (py.Value, error) {
	wanted, err := lower(keyword)
	if err != nil {
		return nil, err
	}
	inbox, err := py.Iterate(a.inbox)
	if err != nil {
		return nil, err
	}
	found := py.NewList()
	for _, message := range inbox {
		receiver, content, err := firstPair(message)
		if err != nil {
			return nil, err
		}
		text, err := lower(content)
		if err != nil {
			return nil, err
		}
		if strings.Contains(text, wanted) {
			found.Append(py.NewDict("receiver_id", receiver, "message", content))
		}
	}
	return py.NewDict("results", found), nil
}

func (a *messageAPI) stats() (py.Value, error) {
	inbox, err := py.Iterate(a.inbox)
	if err != nil {
		return nil, err
	}
	contacts := py.NewSet()
	for _, message := range inbox {
		receiver, _, err := firstPair(message)
		if err != nil {
			return nil, err
		}
		if err := contacts.Add(receiver); err != nil {
			return nil, err
		}
	}
	return py.NewDict("stats", py.NewDict("received_count", int64(len(inbox)), "total_contacts",
		int64(contacts.Len()))), nil
}
