package drill

import (
	"fmt"
	"slices"
	"strings"
	"sync"
)

// intent is the purpose of one turn.
type intent struct {
	name       string
	class      string
	refersBack bool // the request refers to a file, ticket or message of an earlier turn
	// phrases are four wordings of the request for training and, last, the held-out one, with {name} placeholders.
	phrases [5]string
	// vague is a request without the file's name (category miss_param); "" for an intent that always has its values.
	vague string
	// draw draws the values and applies the intent to the draft's model of the state. It returns
	// false, with nothing changed, if the state does not admit the intent.
	draw func(d *draft) (drawn, bool)
}

// call writes a call string from pairs of parameter name and Python literal.
func call(name string, args ...string) string {
	var b strings.Builder
	b.WriteString(name + "(")
	for i := 0; i+1 < len(args); i += 2 {
		if i > 0 {
			b.WriteString(", ")
		}
		b.WriteString(args[i] + "=" + args[i+1])
	}
	b.WriteString(")")
	return b.String()
}

// quote quotes a name identically in requests and calls, so that both have the same tokens. Names
// and texts consist of letters, underscores, dots and blanks.
func quote(s string) string { return "'" + s + "'" }

func number(n int) string { return fmt.Sprint(n) }

// values returns the values of placeholders from pairs of name and value.
func values(pairs ...string) map[string]string {
	m := map[string]string{}
	for i := 0; i+1 < len(pairs); i += 2 {
		m[pairs[i]] = pairs[i+1]
	}
	return m
}

// intents returns the intents of all classes. Another order or number would change all drills, because choose shuffles
// them.
var intents = sync.OnceValue(func() []intent { return slices.Concat(fileIntents, ticketIntents, messageIntents) })

// onFile returns an intent of one call on a file of the current folder, which becomes "it".
func onFile(tool, parameter string) func(d *draft) (drawn, bool) {
	return func(d *draft) (drawn, bool) {
		f, ok := d.files.anyFile(d.rng)
		if !ok {
			return drawn{}, false
		}
		d.files.it = f.name
		return drawn{values("f", quote(f.name)), []string{call(tool, parameter, quote(f.name))}}, true
	}
}

const files = "GorillaFileSystem"

var fileIntents = []intent{
	{name: "enter", class: files, phrases: [5]string{
		"Go into the folder {d}.", "Change to {d}.", "Open the directory {d}.", "Step into {d}.",
		"Move on into the directory {d}."},
		draw: func(d *draft) (drawn, bool) {
			sub, ok := d.files.anyFolder(d.rng, "")
			if !ok {
				return drawn{}, false
			}
			d.files.here, d.files.it = sub, ""
			return drawn{values("d", quote(sub.name)), []string{call("cd", "folder", quote(sub.name))}}, true
		}},
	{name: "up", class: files, phrases: [5]string{
		"Go back up one folder.", "Return to the folder above.", "Leave this directory.",
		"Step out of this folder.", "Go up to the directory above."},
		draw: func(d *draft) (drawn, bool) {
			if d.files.here.parent == nil {
				return drawn{}, false
			}
			d.files.here, d.files.it = d.files.here.parent, ""
			return drawn{nil, []string{call("cd", "folder", quote(".."))}}, true
		}},
	{name: "mkdir", class: files, phrases: [5]string{
		"Make a folder {d}.", "Create a directory called {d}.", "I need a new folder {d}.",
		"Set up the directory {d}.", "Make me a new directory {d}."},
		draw: func(d *draft) (drawn, bool) {
			sub := &folder{name: d.files.freshName(d.rng, ""), parent: d.files.here}
			d.files.here.folders = append(d.files.here.folders, sub)
			d.files.it = ""
			return drawn{values("d", quote(sub.name)), []string{call("mkdir", "dir_name", quote(sub.name))}}, true
		}},
	{name: "touch", class: files, phrases: [5]string{
		"Create an empty file {f}.", "Start a blank file called {f}.", "Add a new empty file {f}.",
		"I need an empty file {f}.", "Make a new blank file {f}."},
		draw: func(d *draft) (drawn, bool) {
			name := d.newFile()
			return drawn{values("f", quote(name)), []string{call("touch", "file_name", quote(name))}}, true
		}},
	{name: "write", class: files, phrases: [5]string{
		"Write {t} into {f}.", "Put the text {t} in {f}.", "Fill {f} with {t}.", "Let {f} contain {t}.",
		"Set the text of {f} to {t}."},
		draw: func(d *draft) (drawn, bool) {
			f, ok := d.files.anyFile(d.rng)
			if !ok {
				return drawn{}, false
			}
			words := text(d.rng)
			f.lines = []string{words}
			d.files.it = f.name
			return drawn{values("f", quote(f.name), "t", quote(words)),
				[]string{call("echo", "content", quote(words), "file_name", quote(f.name))}}, true
		}},
	{name: "move", class: files, phrases: [5]string{
		"Move {f} into the folder {d}.", "Shift {f} over to {d}.", "File {f} away under {d}.",
		"Put {f} in the directory {d}.", "Move the file {f} over to {d}."},
		draw: func(d *draft) (drawn, bool) { return d.intoFolder("mv") }},
	{name: "copy", class: files, phrases: [5]string{
		"Copy {f} into the folder {d}.", "Place a copy of {f} in {d}.", "Duplicate {f} into {d}.",
		"Back up {f} to the directory {d}.", "Put a copy of {f} under {d}."},
		draw: func(d *draft) (drawn, bool) { return d.intoFolder("cp") }},
	{name: "rename", class: files, phrases: [5]string{
		"Rename {f} to {g}.", "Change the name of {f} to {g}.", "Call {f} {g} from here on.",
		"Give {f} the name {g}.", "Let {f} have the name {g}."},
		draw: func(d *draft) (drawn, bool) {
			f, ok := d.files.anyFile(d.rng)
			if !ok {
				return drawn{}, false
			}
			old, name := f.name, d.files.freshName(d.rng, f.name[strings.LastIndex(f.name, "."):])
			d.files.here.remove(old)
			d.files.here.files = append(d.files.here.files, &file{name, f.lines})
			d.files.it = name
			return drawn{values("f", quote(old), "g", quote(name)),
				[]string{call("mv", "source", quote(old), "destination", quote(name))}}, true
		}},
	{name: "remove", class: files, vague: "Delete one of the files.", phrases: [5]string{
		"Delete {f}.", "Remove the file {f}.", "Get rid of {f}.", "Erase {f}.", "Take the file {f} out."},
		draw: func(d *draft) (drawn, bool) {
			f, ok := d.files.anyFile(d.rng)
			if !ok {
				return drawn{}, false
			}
			d.files.here.remove(f.name)
			d.files.it = ""
			return drawn{values("f", quote(f.name)), []string{call("rm", "file_name", quote(f.name))}}, true
		}},
	{name: "show", class: files, vague: "Show one of the files.", phrases: [5]string{
		"Show {f}.", "Print the contents of {f}.", "Open {f} for reading.", "What does {f} say?",
		"Show me what the file {f} says."},
		draw: onFile("cat", "file_name")},
	{name: "grep", class: files, phrases: [5]string{
		"Find the lines with {t} in {f}.", "Search {f} for {t}.", "Which lines of {f} mention {t}?",
		"Look for {t} in {f}.", "Search for the text {t} in the file {f}."},
		draw: func(d *draft) (drawn, bool) {
			f, ok := d.files.anyFile(d.rng)
			if !ok || len(f.lines) == 0 {
				return drawn{}, false
			}
			words := strings.Fields(f.lines[d.rng.IntN(len(f.lines))])
			word := words[d.rng.IntN(len(words))]
			d.files.it = f.name
			return drawn{values("f", quote(f.name), "t", quote(word)),
				[]string{call("grep", "file_name", quote(f.name), "pattern", quote(word))}}, true
		}},
	{name: "sort", class: files, vague: "Sort one of the files.", phrases: [5]string{
		"Sort {f}.", "Put the lines of {f} in order.", "Show {f} sorted.", "Order the lines of {f}.",
		"Give me the lines of {f} sorted."},
		draw: onFile("sort", "file_name")},
	{name: "count", class: files, phrases: [5]string{
		"Count the {u} of {f}.", "How many {u} does {f} have?", "Tell me the number of {u} in {f}.",
		"Give the count of {u} in {f}.", "How many {u} does the file {f} contain?"},
		draw: func(d *draft) (drawn, bool) {
			f, ok := d.files.anyFile(d.rng)
			if !ok {
				return drawn{}, false
			}
			unit := [...][2]string{{"lines", "l"}, {"words", "w"}, {"characters", "c"}}[d.rng.IntN(3)]
			d.files.it = f.name
			return drawn{values("f", quote(f.name), "u", unit[0]),
				[]string{call("wc", "file_name", quote(f.name), "mode", quote(unit[1]))}}, true
		}},
	{name: "tail", class: files, phrases: [5]string{
		"Show the last {n} lines of {f}.", "Print the final {n} lines of {f}.",
		"Read the last {n} lines of {f}.", "Give the bottom {n} lines of {f}.", "Show me the final {n} lines in {f}."},
		draw: func(d *draft) (drawn, bool) {
			f, ok := d.files.anyFile(d.rng)
			if !ok {
				return drawn{}, false
			}
			n := number(2 + d.rng.IntN(8))
			d.files.it = f.name
			return drawn{values("f", quote(f.name), "n", n),
				[]string{call("tail", "file_name", quote(f.name), "lines", n)}}, true
		}},
	{name: "diff", class: files, phrases: [5]string{
		"Compare {f} with {g}.", "Show how {f} differs from {g}.", "What differs between {f} and {g}?",
		"Check {f} against {g}.", "Show what differs in {f} and {g}."},
		draw: func(d *draft) (drawn, bool) {
			n := len(d.files.here.files)
			if n < 2 {
				return drawn{}, false
			}
			order := d.rng.Perm(n)
			a, b := d.files.here.files[order[0]].name, d.files.here.files[order[1]].name
			d.files.it = "" // "it" would be ambiguous
			return drawn{values("f", quote(a), "g", quote(b)),
				[]string{call("diff", "file_name1", quote(a), "file_name2", quote(b))}}, true
		}},
	{name: "newwith", class: files, phrases: [5]string{
		"Create {f} with the text {t}.", "Start a file {f} that says {t}.", "Make {f} and write {t} into it.",
		"I need {f} containing {t}.", "Add a new file {f} with {t} in it."},
		draw: func(d *draft) (drawn, bool) {
			name, words := d.newFile(), text(d.rng)
			d.files.here.file(name).lines = []string{words}
			return drawn{values("f", quote(name), "t", quote(words)), []string{call("touch", "file_name", quote(name)),
				call("echo", "content", quote(words), "file_name", quote(name))}}, true
		}},
	{name: "newmove", class: files, phrases: [5]string{
		"I need {f} in a new directory {d}.", "Make a folder {d} and move {f} there.",
		"Create {d} and put {f} into it.", "Set up {d} and file {f} under it.", "Move {f} into a new folder {d}."},
		draw: func(d *draft) (drawn, bool) {
			f, ok := d.files.anyFile(d.rng)
			if !ok {
				return drawn{}, false
			}
			sub := &folder{name: d.files.freshName(d.rng, ""), parent: d.files.here, files: []*file{f}}
			d.files.here.remove(f.name)
			d.files.here.folders = append(d.files.here.folders, sub)
			d.files.it = ""
			return drawn{values("f", quote(f.name), "d", quote(sub.name)), []string{call("mkdir", "dir_name", quote(sub.name)),
				call("mv", "source", quote(f.name), "destination", quote(sub.name))}}, true
		}},
	{name: "lsshow", class: files, phrases: [5]string{
		"See what is here and show me the {e} file.", "Look around and print the {e} file.",
		"List the files and open the {e} one.", "Check the folder and read the {e} file.",
		"List what is here and show the {e} one."},
		draw: func(d *draft) (drawn, bool) {
			f, e, ok := d.files.uniqueExtension(d.rng)
			if !ok {
				return drawn{}, false
			}
			d.files.it = f.name
			return drawn{values("e", e), []string{"ls()", call("cat", "file_name", quote(f.name))}}, true
		}},
	{name: "lsremove", class: files, phrases: [5]string{
		"See what is here and delete the {e} file.", "Look around and remove the {e} file.",
		"List the files and erase the {e} one.", "Check the folder and get rid of the {e} file.",
		"List what is here and remove the {e} one."},
		draw: func(d *draft) (drawn, bool) {
			f, e, ok := d.files.uniqueExtension(d.rng)
			if !ok {
				return drawn{}, false
			}
			d.files.here.remove(f.name)
			d.files.it = ""
			return drawn{values("e", e), []string{"ls()", call("rm", "file_name", quote(f.name))}}, true
		}},
	{name: "itshow", class: files, refersBack: true, phrases: [5]string{
		"Show it to me.", "Print that file.", "What does it say?", "Open it for reading.", "Show me what that file says."},
		draw: func(d *draft) (drawn, bool) {
			it := d.files.it
			if it == "" {
				return drawn{}, false
			}
			return drawn{nil, []string{call("cat", "file_name", quote(it))}}, true
		}},
	{name: "itremove", class: files, refersBack: true, phrases: [5]string{
		"Now delete it.", "Remove that file.", "Get rid of it.", "Erase it again.", "Delete that file again."},
		draw: func(d *draft) (drawn, bool) {
			it := d.files.it
			if it == "" {
				return drawn{}, false
			}
			d.files.here.remove(it)
			d.files.it = ""
			return drawn{nil, []string{call("rm", "file_name", quote(it))}}, true
		}},
	{name: "itmove", class: files, refersBack: true, phrases: [5]string{
		"Move it into the folder {d}.", "Shift that file over to {d}.", "File it away under {d}.",
		"Put it in the directory {d}.", "Move that file into {d}."},
		draw: func(d *draft) (drawn, bool) {
			it := d.files.it
			sub, ok := d.files.anyFolder(d.rng, it)
			if it == "" || !ok {
				return drawn{}, false
			}
			sub.files = append(sub.files, d.files.here.file(it))
			d.files.here.remove(it)
			d.files.it = ""
			return drawn{values("d", quote(sub.name)), []string{call("mv", "source", quote(it), "destination",
				quote(sub.name))}}, true
		}},
}

// newFile adds an empty file with a new name, which becomes "it".
func (d *draft) newFile() string {
	name := d.files.freshName(d.rng, extensions[d.rng.IntN(len(extensions))])
	d.files.here.files = append(d.files.here.files, &file{name: name})
	d.files.it = name
	return name
}

// intoFolder moves (mv) or copies (cp) a file of the current folder into one of its subfolders.
func (d *draft) intoFolder(tool string) (drawn, bool) {
	f, ok := d.files.anyFile(d.rng)
	if !ok {
		return drawn{}, false
	}
	sub, ok := d.files.anyFolder(d.rng, f.name)
	if !ok {
		return drawn{}, false
	}
	sub.files = append(sub.files, &file{f.name, f.lines})
	d.files.it = f.name
	if tool == "mv" {
		d.files.here.remove(f.name)
		d.files.it = ""
	}
	return drawn{values("f", quote(f.name), "d", quote(sub.name)),
		[]string{call(tool, "source", quote(f.name), "destination", quote(sub.name))}}, true
}

const tickets = "TicketAPI"

// namedTicket draws one of the tickets that fit, applies change to it and returns the call of a tool with its id.
func (d *draft) namedTicket(tool string, fits func(*ticket) bool, change func(*ticket)) (drawn, bool) {
	fit := slices.DeleteFunc(slices.Clone(d.tickets.tickets), func(t *ticket) bool { return !fits(t) })
	if len(fit) == 0 {
		return drawn{}, false
	}
	t := fit[d.rng.IntN(len(fit))]
	change(t)
	d.tickets.last = t
	return drawn{values("i", number(t.id)), []string{call(tool, "ticket_id", number(t.id))}}, true
}

// isOpen reports whether a ticket can still be closed or resolved.
func isOpen(t *ticket) bool { return !t.closed && !t.resolved }

var ticketIntents = []intent{
	{name: "tcreate", class: tickets, phrases: [5]string{
		"Open a ticket {t} with priority {p}.", "File a new ticket called {t}, priority {p}.",
		"Create a priority {p} ticket about {t}.", "Report {t} as a ticket of priority {p}.",
		"Start a new ticket {t} of priority {p}."},
		draw: func(d *draft) (drawn, bool) {
			t := &ticket{id: d.tickets.next, title: text(d.rng), priority: 1 + d.rng.IntN(5)}
			d.tickets.next++
			d.tickets.tickets, d.tickets.last = append(d.tickets.tickets, t), t
			return drawn{values("t", quote(t.title), "p", number(t.priority)),
				[]string{call("create_ticket", "title", quote(t.title), "priority", number(t.priority))}}, true
		}},
	{name: "tcloseid", class: tickets, phrases: [5]string{
		"Close ticket {i}.", "Mark ticket {i} as closed.", "Shut ticket {i}.", "Ticket {i} can be closed.",
		"Close the ticket with number {i}."},
		draw: func(d *draft) (drawn, bool) {
			return d.namedTicket("close_ticket", isOpen, func(t *ticket) { t.closed = true })
		}},
	{name: "tgetid", class: tickets, phrases: [5]string{
		"Show ticket {i}.", "Get the details of ticket {i}.", "Look up ticket {i}.",
		"What is ticket {i} about?", "Show me the ticket with number {i}."},
		draw: func(d *draft) (drawn, bool) {
			return d.namedTicket("get_ticket", func(*ticket) bool { return true }, func(*ticket) {})
		}},
	{name: "tclose", class: tickets, refersBack: true, phrases: [5]string{
		"Close that ticket.", "Mark this ticket as closed.", "That ticket can be closed.", "Shut the ticket.",
		"Close the same ticket."},
		draw: func(d *draft) (drawn, bool) {
			t := d.tickets.last
			if t == nil || !isOpen(t) {
				return drawn{}, false
			}
			t.closed = true
			return drawn{nil, []string{call("close_ticket", "ticket_id", number(t.id))}}, true
		}},
	{name: "tget", class: tickets, refersBack: true, phrases: [5]string{
		"Show me that ticket.", "Get the details of this ticket.", "Look the ticket up.",
		"What does the ticket say?", "Show the same ticket."},
		draw: func(d *draft) (drawn, bool) {
			t := d.tickets.last
			if t == nil {
				return drawn{}, false
			}
			return drawn{nil, []string{call("get_ticket", "ticket_id", number(t.id))}}, true
		}},
	{name: "tresolve", class: tickets, refersBack: true, phrases: [5]string{
		"Resolve that ticket with {t}.", "Mark the ticket as resolved: {t}.",
		"Settle this ticket with the note {t}.", "The ticket is resolved by {t}.",
		"Resolve the same ticket with the note {t}."},
		draw: func(d *draft) (drawn, bool) {
			t := d.tickets.last
			if t == nil || !isOpen(t) {
				return drawn{}, false
			}
			t.resolved = true
			note := text(d.rng)
			return drawn{values("t", quote(note)),
				[]string{call("resolve_ticket", "ticket_id", number(t.id), "resolution", quote(note))}}, true
		}},
	{name: "tedit", class: tickets, refersBack: true, phrases: [5]string{
		"Set its priority to {p}.", "Change the priority of that ticket to {p}.",
		"Give the ticket priority {p}.", "Raise or lower this ticket to priority {p}.",
		"Let the same ticket have priority {p}."},
		draw: func(d *draft) (drawn, bool) {
			t := d.tickets.last
			if t == nil {
				return drawn{}, false
			}
			t.priority = 1 + (t.priority+d.rng.IntN(4))%5 // different from the current one
			return drawn{values("p", number(t.priority)),
				[]string{call("edit_ticket", "ticket_id", number(t.id), "updates", "{'priority': "+number(t.priority)+"}")}}, true
		}},
}

const messages = "MessageAPI"

// send returns a call that sends a message to a user id, which becomes the latest receiver.
func (d *draft) send(id, words string) string {
	d.mail.receiver, d.mail.deleted = id, false
	return call("send_message", "receiver_id", quote(id), "message", quote(words))
}

var messageIntents = []intent{
	{name: "msend", class: messages, phrases: [5]string{
		"Send {n} the message {t}.", "Tell {n} {t}.", "Write {t} to {n}.", "Let {n} know {t}.", "Send the text {t} to {n}."},
		draw: func(d *draft) (drawn, bool) {
			name, words := d.mail.other(d.rng), text(d.rng)
			return drawn{values("n", quote(name), "t", quote(words)),
				[]string{call("get_user_id", "user", quote(name)), d.send(d.mail.ids[name], words)}}, true
		}},
	{name: "maddsend", class: messages, phrases: [5]string{
		"Add {n} and send the message {t}.", "Make {n} a contact and write {t}.",
		"Put {n} into the contacts and say {t}.", "Add the contact {n}, then send {t}.",
		"Make a new contact {n} and send the text {t}."},
		draw: func(d *draft) (drawn, bool) {
			name, words := d.mail.stranger(d.rng), text(d.rng)
			id := d.mail.add(name)
			return drawn{values("n", quote(name), "t", quote(words)),
				[]string{call("add_contact", "user_name", quote(name)), d.send(id, words)}}, true
		}},
	{name: "madd", class: messages, phrases: [5]string{
		"Add {n} to the contacts.", "Make {n} a contact.", "Put {n} on the contact list.",
		"Register {n} as a contact.", "Make a new contact {n}."},
		draw: func(d *draft) (drawn, bool) {
			name := d.mail.stranger(d.rng)
			d.mail.add(name)
			return drawn{values("n", quote(name)), []string{call("add_contact", "user_name", quote(name))}}, true
		}},
	{name: "magain", class: messages, refersBack: true, phrases: [5]string{
		"Send the same person {t} as well.", "Write {t} to them too.", "Tell them {t} also.",
		"Let them know {t} too.", "Send {t} to the same contact."},
		draw: func(d *draft) (drawn, bool) {
			if d.mail.receiver == "" {
				return drawn{}, false
			}
			words := text(d.rng)
			return drawn{values("t", quote(words)), []string{d.send(d.mail.receiver, words)}}, true
		}},
	{name: "mdelete", class: messages, refersBack: true, phrases: [5]string{
		"Delete that message.", "Take the message back.", "Remove the message again.", "Erase that message.",
		"Get rid of that message."},
		draw: func(d *draft) (drawn, bool) {
			if d.mail.receiver == "" || d.mail.deleted {
				return drawn{}, false
			}
			d.mail.deleted = true
			return drawn{nil, []string{call("delete_message", "receiver_id", quote(d.mail.receiver))}}, true
		}},
}
