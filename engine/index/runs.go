package index

import (
	"database/sql"
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"rcgrpo/engine"
	"rcgrpo/engine/artifact"
)

// Summary is the status of a run, where only nodes that run, failed, or have something to say are listed.
type Summary struct {
	engine.RunStatus
	States map[engine.EventKind]int // how many nodes there are in each state
}

// Run returns the status of a run, as engine.Status does; what the plan said of each node (RunRecord.Nodes) is left out.
func (x *Index) Run(folder string) (*engine.RunStatus, error) {
	r, err := x.read(folder, true)
	if err != nil {
		return nil, err
	}
	return r.status(func(engine.NodeStatus) bool { return true }), nil
}

// Summary returns the status of a run in short; a run of 10,000 stages costs no more than a small one.
func (x *Index) Summary(folder string) (*Summary, error) {
	r, err := x.read(folder, false)
	if err != nil {
		return nil, err
	}
	return &Summary{RunStatus: *r.status(listed), States: r.States}, nil
}

// listed says whether a summary lists a node.
func listed(n engine.NodeStatus) bool {
	return n.State == engine.EventStarted || n.State == engine.EventFailed || n.State == engine.EventPlanned && n.Note != ""
}

// record is what is known of a run: its header, and the nodes that were asked for or moved since.
type record struct {
	Status engine.RunStatus // without nodes
	States map[engine.EventKind]int
	Total  int   // nodes
	Listed int   // of them
	Read   int64 // bytes of events.jsonl that went in
	Tail   int64 // sum of the last of them, up to tailBytes

	name  string
	sum   int64 // of its row in the index
	nodes map[string]*node
	find  func(address string) *node // what the index has; nil without it
	lost  bool                       // what was known does not fit the events
}

type node struct {
	n      int // place in the plan
	status engine.NodeStatus
	moved  bool // since it was read from the index
}

// status lists the nodes that pick asks for, in the order of the plan.
func (r *record) status(pick func(engine.NodeStatus) bool) *engine.RunStatus {
	s := r.Status
	var nodes []*node
	for _, n := range r.nodes {
		if pick(n.status) {
			nodes = append(nodes, n)
		}
	}
	slices.SortFunc(nodes, func(a, b *node) int { return a.n - b.n })
	for _, n := range nodes {
		s.Nodes = append(s.Nodes, n.status)
	}
	s.FindSurvivors()
	return &s
}

// worthWriting is how much of events.jsonl is read again at most before it goes to the index.
const worthWriting = 64 << 10

// read brings what is known of a run up to date. With all, every node is there; otherwise those that a summary lists.
func (x *Index) read(folder string, all bool) (*record, error) {
	live := engine.Live(folder) // asked first: a run that ends meanwhile has said so in its events
	stamps, err := stampsOf(folder)
	if err != nil {
		return nil, err
	}
	view := x.view()
	r := x.known(view, folder, stamps, all)
	read := int64(-1)
	if r != nil {
		read = r.Read
		err = r.catchUp(folder)
	}
	if view != nil {
		view.Rollback()
	}
	if err != nil {
		return nil, err
	}
	if r == nil || r.lost {
		read = -1
		if r, err = atStart(folder); err != nil {
			return nil, err
		}
		if err := r.catchUp(folder); err != nil {
			return nil, err
		}
	}
	r.Status.Folder, r.Status.Live = folder, live && !r.Status.Ended
	if read < 0 || r.Read-read >= worthWriting || r.Read > read && r.Status.Ended {
		x.write(func(tx *sql.Tx) error { return x.writeRun(tx, r, stamps, read < 0) })
	}
	return r, nil
}

// atStart is the record of a run before its first event.
func atStart(folder string) (*record, error) {
	s, err := engine.StatusAtStart(folder)
	if err != nil {
		return nil, err
	}
	r := &record{name: engine.RunName(folder), States: map[engine.EventKind]int{}, Total: len(s.Nodes), nodes: map[string]*node{}}
	for i, n := range s.Nodes {
		r.nodes[n.Address] = &node{n: i, status: n, moved: true}
		r.States[n.State]++
		if listed(n) {
			r.Listed++
		}
	}
	r.Status = *s
	r.Status.Nodes, r.Status.RunRecord.Nodes = nil, nil
	return r, nil
}

// catchUp takes in what was appended to events.jsonl.
func (r *record) catchUp(folder string) error {
	f, err := os.Open(engine.EventsFile(folder))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer f.Close()
	tail, err := r.tail(f)
	if err != nil {
		return err
	}
	if r.Read > 0 && tail != r.Tail {
		r.lost = true
		return nil
	}
	if _, err := f.Seek(r.Read, io.SeekStart); err != nil {
		return err
	}
	n, err := engine.ReadEvents(f, r.observe)
	r.Read += n
	if err == nil {
		r.Tail, err = r.tail(f)
	}
	return err
}

// tailBytes is how much of what went in is looked at again before more is taken in: a file system gives the inode of a
// removed file to the next one.
const tailBytes = 512

func (r *record) tail(f *os.File) (int64, error) {
	b := make([]byte, min(r.Read, tailBytes))
	if _, err := f.ReadAt(b, r.Read-int64(len(b))); err != nil && err != io.EOF {
		return 0, err
	}
	return sum(string(b)), nil
}

func (r *record) observe(e engine.Event) {
	n := r.nodes[e.Address]
	if n == nil && e.Address != "" && r.find != nil {
		if n = r.find(e.Address); n == nil {
			r.lost = true
		} else {
			r.nodes[e.Address] = n
		}
	}
	if n == nil {
		r.Status.Observe(e, nil)
		return
	}
	r.count(n, -1)
	r.Status.Observe(e, &n.status)
	r.count(n, 1)
	n.moved = true
}

func (r *record) count(n *node, by int) {
	if r.States[n.status.State] += by; r.States[n.status.State] == 0 {
		delete(r.States, n.status.State)
	}
	if listed(n.status) {
		r.Listed += by
	}
}

// stamps say of which files a run's rows were read, and by which code.
type stamps struct{ Plan, Events, Code string }

func stampsOf(folder string) (s stamps, err error) {
	plan, err := os.Stat(engine.PlanFile(folder))
	if err != nil {
		return s, err
	}
	s = stamps{Plan: artifact.Stamp(plan), Code: engine.Revision()}
	events, err := os.Stat(engine.EventsFile(folder))
	if errors.Is(err, fs.ErrNotExist) {
		return s, nil
	}
	if err == nil {
		s.Events = artifact.Stamp(events)
	}
	return s, err
}

// follows says whether the files behind now are those behind had, unchanged or with events appended.
func (now stamps) follows(had stamps, read int64) bool {
	if now == had {
		return true
	}
	size, had1 := fileSize(now.Events), fileSize(had.Events)
	return now.Plan == had.Plan && now.Code == had.Code && size > had1 && size >= read &&
		(had.Events == "" || inode(now.Events) == inode(had.Events))
}

func fileSize(stamp string) (n int64) {
	size, _, _ := strings.Cut(stamp, " ")
	for _, c := range size {
		n = 10*n + int64(c-'0')
	}
	return n
}

func inode(stamp string) string { return stamp[strings.LastIndexByte(stamp, ' ')+1:] }

// known returns what the index has of a run, or nil when that does not fit the files.
func (x *Index) known(view *sql.Tx, folder string, now stamps, all bool) *record {
	if view == nil {
		return nil
	}
	name := engine.RunName(folder)
	var stamp, data string
	var s int64
	err := view.QueryRow("SELECT stamp, sum, data FROM runs WHERE name = ?", name).Scan(&stamp, &s, &data)
	if errors.Is(err, sql.ErrNoRows) {
		return nil
	}
	if err != nil {
		x.fault(err)
		return nil
	}
	r := &record{name: name, sum: s, nodes: map[string]*node{}}
	var had stamps
	if s != sum(name, stamp, data) || json.Unmarshal([]byte(stamp), &had) != nil || json.Unmarshal([]byte(data), r) != nil ||
		!now.follows(had, r.Read) {
		return nil
	}
	query, want := "SELECT n, address, sum, data FROM nodes INDEXED BY node_listed WHERE run = ? AND listed", r.Listed
	if all {
		query, want = "SELECT n, address, sum, data FROM nodes WHERE run = ?", r.Total
	}
	if !x.load(view, r, query, name) || len(r.nodes) != want {
		return nil
	}
	r.find = func(address string) *node {
		if x.load(view, r, "SELECT n, address, sum, data FROM nodes WHERE run = ? AND address = ?", name, address) {
			return r.nodes[address]
		}
		return nil
	}
	return r
}

// load adds the nodes of a query to r and says whether every one is whole.
func (x *Index) load(view *sql.Tx, r *record, query string, args ...any) bool {
	rows, err := view.Query(query, args...)
	if err != nil {
		x.fault(err)
		return false
	}
	defer rows.Close()
	for rows.Next() {
		var n node
		var s int64
		var address, data string
		if err := rows.Scan(&n.n, &address, &s, &data); err != nil {
			return false
		}
		if s != nodeSum(r.name, n.n, data) || json.Unmarshal([]byte(data), &n.status) != nil || n.status.Address != address {
			return false
		}
		r.nodes[address] = &n
	}
	if err := rows.Err(); err != nil {
		rows.Close()
		x.fault(err)
		return false
	}
	return true
}

func nodeSum(run string, n int, data string) int64 {
	return sum(run, strconv.Itoa(n), data)
}

// errOvertaken says that another process has brought the run up to date meanwhile.
var errOvertaken = errors.New("overtaken")

// writeRun puts a run's header and the nodes that moved into the index; anew: also what was there before goes.
func (x *Index) writeRun(tx *sql.Tx, r *record, s stamps, anew bool) error {
	if anew {
		if err := x.forgetRuns(tx, r.name); err != nil {
			return err
		}
	} else { // what moved belongs to the header it was read with
		var s int64
		if err := tx.QueryRow("SELECT sum FROM runs WHERE name = ?", r.name).Scan(&s); err != nil || s != r.sum {
			return errOvertaken
		}
	}
	stamp, err := json.Marshal(s)
	if err != nil {
		return err
	}
	data, err := json.Marshal(r)
	if err != nil {
		return err
	}
	_, err = tx.Exec("INSERT OR REPLACE INTO runs (name, stamp, sum, data) VALUES (?, ?, ?, ?)", r.name, string(stamp),
		sum(r.name, string(stamp), string(data)), string(data))
	if err != nil {
		return err
	}
	put, err := tx.Prepare("INSERT OR REPLACE INTO nodes (run, n, address, listed, sum, data) VALUES (?, ?, ?, ?, ?, ?)")
	if err != nil {
		return err
	}
	defer put.Close()
	for address, n := range r.nodes {
		if !n.moved {
			continue
		}
		data, err := json.Marshal(n.status)
		if err != nil {
			return err
		}
		if _, err := put.Exec(r.name, n.n, address, listed(n.status), nodeSum(r.name, n.n, string(data)), string(data)); err != nil {
			return err
		}
	}
	return nil
}

// forgetRuns removes the rows of one run, and of those whose folders are gone.
func (x *Index) forgetRuns(tx *sql.Tx, name string) error {
	forget := []string{name}
	rows, err := tx.Query("SELECT name FROM runs")
	if err != nil {
		return err
	}
	defer rows.Close()
	for rows.Next() {
		var other string
		if err := rows.Scan(&other); err != nil {
			return err
		}
		if _, err := os.Stat(filepath.Join(x.store.Runs(""), other)); errors.Is(err, fs.ErrNotExist) {
			forget = append(forget, other)
		}
	}
	if err := rows.Err(); err != nil {
		return err
	}
	for _, name := range forget {
		for _, statement := range []string{"DELETE FROM nodes WHERE run = ?", "DELETE FROM runs WHERE name = ?"} {
			if _, err := tx.Exec(statement, name); err != nil {
				return err
			}
		}
	}
	return nil
}
