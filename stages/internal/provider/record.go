package provider

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync"

	"rcgrpo/engine/journal"
)

// Files of the artifact of the port calls.
const (
	CallsFile = "calls.jsonl.gz" // rows of Row
	CostFile  = "cost.json"      // Cost
)

// Outcomes of an attempt.
const (
	OutcomeSent     = "sent"     // no answer is recorded: the process was killed
	OutcomeReply    = "reply"    // the API replied
	OutcomeTooLong  = "too_long" // the request exceeds the context of the model
	OutcomeRefused  = "refused"  // the API refused to reply to this content
	OutcomeRetry    = "retry"    // the attempt failed and may be repeated
	OutcomeRejected = "rejected" // the API rejects the request
)

// Call names a recorded call: the reply of a step.
type Call struct {
	Task   string `json:"task"`
	Prompt string `json:"prompt,omitempty"` // prompt mode of the task
	Member int    `json:"member"`
	Turn   int    `json:"turn"`
	Step   int    `json:"step"` // index in the turn
}

// String names the call in a sentence.
func (c Call) String() string {
	return fmt.Sprintf("%s, member %d, turn %d, step %d", c.Task, c.Member, c.Turn, c.Step)
}

// Row is an attempt of a call.
type Row struct {
	Call
	Attempt  int     `json:"attempt"` // 1 for the first
	Request  string  `json:"request"` // SHA-256 of the body
	Outcome  string  `json:"outcome"` // one of the Outcome constants
	Status   int     `json:"status,omitempty"`
	Response string  `json:"response,omitempty"` // the body
	Error    string  `json:"error,omitempty"`
	Usage    Usage   `json:"usage"`
	Dollars  float64 `json:"dollars"` // expected if the API reports no usage and may have charged
	Model    string  `json:"model,omitempty"`
	Stop     string  `json:"stop,omitempty"` // reason of the API
	Date     string  `json:"date"`           // when it was sent, RFC 3339, UTC
}

// final reports whether the row ends its call.
func (r *Row) final() bool {
	return r.Outcome == OutcomeReply || r.Outcome == OutcomeTooLong || r.Outcome == OutcomeRefused
}

// Cost sums up the rows of a stage.
type Cost struct {
	Dollars  float64  `json:"dollars"`
	Attempts int      `json:"attempts"`
	Replies  int      `json:"replies"`
	Input    int      `json:"input"` // tokens, cached ones included
	Output   int      `json:"output"`
	Models   []string `json:"models"` // returned names, sorted
	First    string   `json:"first"`  // date of the first attempt
	Last     string   `json:"last"`   // date of the last attempt
	Price    Price    `json:"price"`  // dollars for a million tokens
}

// Sum sums up rows.
func Sum(rows []Row, p Price) Cost {
	c := Cost{Price: p, Models: []string{}}
	for _, r := range rows {
		c.Dollars += r.Dollars
		c.Attempts++
		if r.Outcome == OutcomeReply {
			c.Replies++
		}
		c.Input += r.Usage.Input + r.Usage.CacheRead + r.Usage.CacheWrite
		c.Output += r.Usage.Output
		if r.Model != "" {
			c.Models = append(c.Models, r.Model)
		}
		if c.First == "" || r.Date < c.First {
			c.First = r.Date
		}
		c.Last = max(c.Last, r.Date)
	}
	slices.Sort(c.Models)
	c.Models = slices.Compact(c.Models) // each row of a stranger may name another model
	return c
}

// callRecord contains the rows of a stage, in memory and in the journal to which a running stage appends them. A row
// replaces an earlier one of the same attempt.
type callRecord struct {
	mu    sync.Mutex
	rows  map[Call][]Row   // by attempt
	asked map[Call]string  // digests of the requests that find has looked up
	read  map[Call]int     // attempts whose rows find has returned
	spent float64          // dollars of all rows; a call in flight counts with the estimate of `plan`
	bytes int              // size of responses and trajectories
	file  *journal.Journal // nil for a replay
}

func newCallRecord(rows []Row) *callRecord {
	r := &callRecord{rows: map[Call][]Row{}, asked: map[Call]string{}, read: map[Call]int{}}
	for _, row := range rows {
		r.put(row)
	}
	return r
}

// put adds a row, or replaces the row of the same attempt.
func (r *callRecord) put(row Row) {
	list := r.rows[row.Call]
	r.spent += row.Dollars
	r.bytes += len(row.Response)
	if at := row.Attempt - 1; 0 <= at && at < len(list) {
		r.spent -= list[at].Dollars
		r.bytes -= len(list[at].Response)
		list[at] = row
	} else {
		list = append(list, row)
	}
	r.rows[row.Call] = list
}

// openCallRecord opens a journal and reads its rows. It computes the cost of replies at the price of this attempt,
// which the user may have corrected since the last one.
func openCallRecord(path string, p Price) (*callRecord, error) {
	r := newCallRecord(nil)
	_, err := journal.Read(path, 0, func(text []byte) error {
		var row Row
		err := json.Unmarshal(text, &row)
		if row.Outcome == OutcomeReply {
			row.Dollars = p.cost(row.Usage)
		}
		if row.Dollars < 0 { // a copied store may come from anyone, and the budget would be larger
			err = fmt.Errorf("%s: the row records $%g", row.Call, row.Dollars)
		}
		r.put(row)
		return err
	})
	if err != nil {
		return nil, err
	}
	r.spent = Sum(r.all(), Price{}).Dollars // exact, whatever the rows that others have replaced
	r.file, err = journal.Open(path)
	return r, err
}

// find returns the final row of a call with a request.
func (r *callRecord) find(c Call, request string) (Row, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.asked[c] = request
	for _, row := range r.rows[c] {
		if row.Request == request && row.final() {
			r.read[c] = row.Attempt
			return row, true
		}
	}
	return Row{}, false
}

// differences returns a sentence for each row of another request than find has looked up, in the order of calls.
func (r *callRecord) differences() (found []string) {
	for _, row := range r.all() {
		if asked, ok := r.asked[row.Call]; ok && asked != row.Request {
			found = append(found, fmt.Sprintf("%s, attempt %d: the digest of the request is %.16s, that of the recorded one "+
				"%.16s", row.Call, row.Attempt, asked, row.Request))
		}
	}
	return found
}

// unread returns the rows that end a call and were never found, in the order of calls.
func (r *callRecord) unread() []Row {
	return slices.DeleteFunc(r.all(), func(row Row) bool { return !row.final() || r.read[row.Call] == row.Attempt })
}

// begin returns the number of the next attempt of a call.
func (r *callRecord) begin(c Call) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.rows[c]) + 1
}

// write appends a row.
func (r *callRecord) write(row Row) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.put(row)
	return r.file.Append(row)
}

// Bounds of what a stage, or a replay, has in memory until it ends: responses, and trajectories with results of tools.
const (
	mostBytes = 256 << 20
	meanBytes = 64 << 10 // mean size of a call, for a stage of many calls
)

// check counts the bytes of a trajectory, or of a conversation in progress, negative at its end. It returns an error if
// the budget is used up, unless it is 0, or if there are too many bytes for a further call.
func (r *callRecord) check(budget float64, bytes int) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.bytes += bytes
	if budget > 0 && r.spent >= budget {
		return fmt.Errorf("the budget of $%s is used up: $%.2f are spent; raise calls.budget and run again, which "+
			"repeats no finished call", strings.TrimSuffix(fmt.Sprintf("%.2f", budget), ".00"), r.spent)
	}
	if most := max(mostBytes, meanBytes*len(r.rows)); r.bytes > most {
		return fmt.Errorf("the replies and episodes of %d calls have %d bytes, more than %d: lower calls.parallel, or "+
			"use a server that sends fewer bytes, or fewer tasks or samples per stage", len(r.rows), r.bytes, most)
	}
	return nil
}

// all returns the rows in the order of calls and attempts.
func (r *callRecord) all() []Row {
	r.mu.Lock()
	defer r.mu.Unlock()
	var rows []Row
	for _, list := range r.rows {
		rows = append(rows, list...)
	}
	slices.SortFunc(rows, func(a, b Row) int {
		return cmp.Or(cmp.Compare(a.Task, b.Task), cmp.Compare(a.Prompt, b.Prompt), a.Member-b.Member, a.Turn-b.Turn,
			a.Step-b.Step, a.Attempt-b.Attempt)
	})
	return rows
}

func (r *callRecord) close() error { return r.file.Close() }
