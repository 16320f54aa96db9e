package drill

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
)

// The generator models just enough of each class's state to request only possible actions. A test
// replays the ground truth of every drill on the real classes.

// object is a JSON object with ordered keys, because the classes print them in order.
type object []member

// member is one entry of an object.
type member struct {
	key   string
	value any
}

func (o object) MarshalJSON() ([]byte, error) {
	var b bytes.Buffer
	b.WriteByte('{')
	for i, m := range o {
		if i > 0 {
			b.WriteByte(',')
		}
		key, err := json.Marshal(m.key)
		if err != nil {
			return nil, err
		}
		value, err := json.Marshal(m.value)
		if err != nil {
			return nil, err
		}
		b.Write(key)
		b.WriteByte(':')
		b.Write(value)
	}
	b.WriteByte('}')
	return b.Bytes(), nil
}

// noun draws a word.
func noun(rng *rand.Rand) string { return nouns()[rng.IntN(len(nouns()))] }

// stem draws the name of a file or folder: one word, or two in 15 % of cases.
func stem(rng *rand.Rand) string {
	if rng.Float64() < 0.15 {
		return noun(rng) + "_" + noun(rng)
	}
	return noun(rng)
}

// text draws one or two words.
func text(rng *rand.Rand) string {
	if rng.IntN(2) == 0 {
		return noun(rng)
	}
	return noun(rng) + " " + noun(rng)
}

// folder is a directory of the draft's file system.
type folder struct {
	name    string
	parent  *folder
	folders []*folder
	files   []*file
}

// file is a file of a folder; lines is nil after touch.
type file struct {
	name  string
	lines []string
}

func (f *folder) has(name string) bool {
	return slices.ContainsFunc(f.files, func(x *file) bool { return x.name == name }) ||
		slices.ContainsFunc(f.folders, func(x *folder) bool { return x.name == name })
}

func (f *folder) file(name string) *file {
	for _, x := range f.files {
		if x.name == name {
			return x
		}
	}
	return nil
}

func (f *folder) remove(name string) {
	f.files = slices.DeleteFunc(f.files, func(x *file) bool { return x.name == name })
}

// fileSystem models GorillaFileSystem.
type fileSystem struct {
	root, here *folder // here is the current folder
	it         string  // file of the current folder that "it" means in a request: the previous turn's; "" if none
	original   any     // scenario before the first turn
}

// newFileSystem returns a root with files and one or two subfolders with files.
func newFileSystem(rng *rand.Rand) *fileSystem {
	root := &folder{name: noun(rng)}
	root.populate(rng)
	for range 1 + rng.IntN(2) {
		name := stem(rng)
		if root.has(name) {
			continue
		}
		sub := &folder{name: name, parent: root}
		sub.populate(rng)
		root.folders = append(root.folders, sub)
	}
	fs := &fileSystem{root: root, here: root}
	fs.original = object{{"root", object{{root.name, root.encode()}}}}
	return fs
}

// populate adds two or three files with distinct extensions.
func (f *folder) populate(rng *rand.Rand) {
	order := rng.Perm(len(extensions))
	for _, e := range order[:2+rng.IntN(2)] {
		name := stem(rng) + extensions[e]
		if f.has(name) {
			continue
		}
		lines := []string{text(rng)}
		if rng.IntN(2) == 0 {
			lines = append(lines, text(rng))
		}
		f.files = append(f.files, &file{name, lines})
	}
}

// encode returns the folder in the form of a scenario.
func (f *folder) encode() any {
	contents := object{}
	for _, x := range f.files {
		contents = append(contents, member{x.name, object{{"type", "file"}, {"content", strings.Join(x.lines, "\n")}}})
	}
	for _, x := range f.folders {
		contents = append(contents, member{x.name, x.encode()})
	}
	return object{{"type", "directory"}, {"contents", contents}}
}

func (fs *fileSystem) scenario() any { return fs.original }

// freshName returns a name that is unused in the current folder, with the given extension ("" for a
// folder).
func (fs *fileSystem) freshName(rng *rand.Rand, extension string) string {
	for {
		if name := stem(rng) + extension; !fs.here.has(name) {
			return name
		}
	}
}

// anyFile draws a file of the current folder.
func (fs *fileSystem) anyFile(rng *rand.Rand) (*file, bool) {
	if len(fs.here.files) == 0 {
		return nil, false
	}
	return fs.here.files[rng.IntN(len(fs.here.files))], true
}

// anyFolder draws a subfolder without an entry of that name; any subfolder if name is "".
func (fs *fileSystem) anyFolder(rng *rand.Rand, name string) (*folder, bool) {
	fit := slices.DeleteFunc(slices.Clone(fs.here.folders), func(x *folder) bool { return name != "" && x.has(name) })
	if len(fit) == 0 {
		return nil, false
	}
	return fit[rng.IntN(len(fit))], true
}

// uniqueExtension draws an extension that exactly one file of the current folder has. It returns the file, and the
// extension without its dot.
func (fs *fileSystem) uniqueExtension(rng *rand.Rand) (*file, string, bool) {
	for _, e := range rng.Perm(len(extensions)) {
		found := slices.DeleteFunc(slices.Clone(fs.here.files),
			func(x *file) bool { return !strings.HasSuffix(x.name, extensions[e]) })
		if len(found) == 1 {
			return found[0], extensions[e][1:], true
		}
	}
	return nil, "", false
}

// ticketDesk models TicketAPI.
type ticketDesk struct {
	user    string
	next    int // id of the next ticket
	tickets []*ticket
	last    *ticket // the ticket that "it" means, or nil
}

type ticket struct {
	id       int
	title    string
	closed   bool
	resolved bool
	priority int
}

func newTicketDesk(rng *rand.Rand) *ticketDesk {
	first := 10 + rng.IntN(891) // id of the first of two tickets
	user := people()[rng.IntN(len(people()))]
	next := first + 4 + rng.IntN(88) // leaves a gap after the ids of the initial tickets
	d := &ticketDesk{user: user, next: next}
	for i := range 2 {
		d.tickets = append(d.tickets, &ticket{id: first + i, title: text(rng), priority: 1 + rng.IntN(5)})
	}
	return d
}

func (d *ticketDesk) scenario() any {
	queue := []any{}
	for _, t := range d.tickets {
		queue = append(queue, object{{"id", t.id}, {"title", t.title}, {"description", ""}, {"status", "Open"},
			{"priority", t.priority}, {"created_by", d.user}})
	}
	return object{{"ticket_queue", queue}, {"ticket_counter", d.next}, {"current_user", d.user}}
}

// mailbox models MessageAPI.
type mailbox struct {
	names    []string          // known users, in order
	ids      map[string]string // name -> id
	me       string            // id of the user
	count    int               // number of users, from which the class numbers new contacts
	receiver string            // id of the latest message's receiver; "" without one
	deleted  bool              // the latest message was deleted
}

func newMailbox(rng *rand.Rand) *mailbox {
	m := &mailbox{ids: map[string]string{}}
	n := 3 + rng.IntN(3)
	order := rng.Perm(len(people()))
	// The class numbers new contacts from the number of users, so initial ids start above that.
	for i, number := range rng.Perm(998 - 20)[:n] { // ids 21 to 998
		name := people()[order[i]]
		m.names = append(m.names, name)
		m.ids[name] = fmt.Sprintf("USR%03d", 20+number+1)
	}
	m.me, m.count = m.ids[m.names[0]], n
	return m
}

func (m *mailbox) scenario() any {
	users := object{}
	for _, name := range m.names {
		users = append(users, member{name, m.ids[name]})
	}
	return object{{"user_count", m.count}, {"user_map", users}, {"inbox", []any{}}, {"message_count", 0},
		{"current_user", m.me}}
}

// stranger draws the name of a person who is not yet a contact.
func (m *mailbox) stranger(rng *rand.Rand) string {
	for {
		if name := people()[rng.IntN(len(people()))]; m.ids[name] == "" {
			return name
		}
	}
}

// other draws the name of a contact other than the user.
func (m *mailbox) other(rng *rand.Rand) string { return m.names[1+rng.IntN(len(m.names)-1)] }

// add creates a contact and returns its id.
func (m *mailbox) add(name string) string {
	m.count++
	id := fmt.Sprintf("USR%03d", m.count)
	m.names = append(m.names, name)
	m.ids[name] = id
	return id
}
