package bfcl

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"rcgrpo/bfcl/internal/api"
	"rcgrpo/bfcl/internal/py"
)

// RevealRequest is the user message of a reveal turn in the official driver.
const RevealRequest = "I have updated some more functions you can choose from. What about now?"

// OfficialMaxSteps is the number of executed steps per turn; the next step abandons the episode
// (bfcl/SPEC.md 9).
const OfficialMaxSteps = 20

// Settings configure the episodes of a task.
type Settings struct {
	Data      *Data     // long-context texts and official tool order; may be nil for drills
	Today     time.Time // date used by verify_traveler_information; zero means the real date
	ModelName string    // part of instance names only; "" means "model"
	MaxSteps  int       // executed steps per turn; the next one abandons the episode; 0 means 20
	MaxCalls  int       // calls per turn; more calls are not executed and abandon the episode; 0 means no limit
}

// Episode is the execution of one task. It has two sides: on the instances of the policy, Step executes the policy's
// calls; on those of the truth, the end of each turn executes the ground truth of the turn, and compares the sides.
// An episode is not safe for concurrent use; episodes are independent of each other.
type Episode struct {
	task          *Task
	settings      Settings
	policy, truth *instances

	turn      int    // index of the current turn; len(task.Turns) after the last one
	turnSteps int    // steps with calls in the current turn
	turnCalls int    // calls in the current turn
	stop      string // as Stop returns it

	calls       []string // all calls of the policy
	results     []string // all results that the policy received
	unsupported int      // calls of the policy outside the supported subset of Python

	checks    []TurnCheck // one per completed turn
	differing [][]string  // per class of the task, the attributes that differed at the last comparison

	// policyTurns counts the turns of the policy. The official checker compares it with the turns of the task. It
	// equals turn, except after Play of a trajectory with too many or too few turns.
	policyTurns int
}

// Start begins an episode. It returns an error if the task's initial state cannot be loaded.
func (t *Task) Start(s Settings) (*Episode, error) {
	s.ModelName = cmp.Or(s.ModelName, "model")
	s.MaxSteps = cmp.Or(s.MaxSteps, OfficialMaxSteps)
	today := s.Today
	if today.IsZero() {
		today = time.Now()
	}
	today = time.Date(today.Year(), today.Month(), today.Day(), 0, 0, 0, 0, time.UTC)
	w, err := s.Data.world(t, today)
	if err != nil {
		return nil, err
	}
	if len(t.Turns) == 0 {
		return nil, taskError(t, "it has no turns")
	}
	calls := 0 // expected of the policy
	for i := range t.Turns {
		calls += len(t.Turns[i].GroundTruth)
	}
	return &Episode{
		task:      t,
		settings:  s,
		policy:    w.start(s.ModelName),
		truth:     w.start(s.ModelName + "_ground_truth"),
		calls:     make([]string, 0, calls),
		results:   make([]string, 0, calls),
		checks:    make([]TurnCheck, 0, len(t.Turns)),
		differing: make([][]string, len(t.Classes)),
	}, nil
}

func taskError(t *Task, text string) error { return fmt.Errorf("task %s: %s", t.ID, text) }

// Task returns the task of the episode.
func (e *Episode) Task() *Task { return e.task }

// Turn returns the index of the current turn; after the end, of the last turn.
func (e *Episode) Turn() int { return min(e.turn, len(e.task.Turns)-1) }

// User returns the request of the current turn. A reveal turn has none; its request is the list of
// revealed tool documents as Python prints them and RevealRequest (bfcl/SPEC.md 9), because a
// conversation cannot change the tools of its system prompt. Without official data it is
// RevealRequest alone.
func (e *Episode) User() string {
	turn := e.task.Turns[e.Turn()]
	if turn.User != "" || len(turn.Revealed) == 0 {
		return turn.User
	}
	docs := e.settings.Data.printedDocs(e.task, turn.Revealed)
	if docs == "" {
		return RevealRequest
	}
	return docs + "\n" + RevealRequest
}

// Tools returns the names of the tools on offer: those of the task's classes in official order
// without the withheld ones, then those revealed so far.
func (e *Episode) Tools() []string {
	var shown, late []string
	withheld := map[string]bool{}
	for i, turn := range e.task.Turns {
		for _, name := range turn.Revealed {
			withheld[name] = true
			if i <= e.Turn() {
				late = append(late, name)
			}
		}
	}
	for _, name := range e.settings.Data.toolOrder(e.task) {
		if !withheld[name] {
			shown = append(shown, name)
		}
	}
	return append(shown, late...)
}

// ErrDone is returned by Step after the end of the episode.
var ErrDone = errors.New("the episode has ended")

// Step executes one step of the policy. It returns one result per executed call and the number of
// exceptions. A step without calls, or with one empty call, ends the turn. A step beyond the limit
// abandons the episode.
func (e *Episode) Step(calls []string) (results []string, errs int, err error) {
	outcomes, err := e.StepOutcomes(calls)
	if len(outcomes) > 0 {
		results = make([]string, len(outcomes))
	}
	for i, o := range outcomes {
		results[i] = o.Text
		if o.Exception != "" {
			errs++
		}
	}
	return results, errs, err
}

// StepOutcomes is Step with the complete outcome of each call. The error is nil or ErrDone.
func (e *Episode) StepOutcomes(calls []string) ([]Outcome, error) {
	if e.stop != "" {
		return nil, ErrDone
	}
	if EmptyStep(calls) {
		e.endTurn()
		return nil, nil
	}
	return e.step(calls), nil
}

// EmptyStep reports whether the official code treats a step as no response: no call, or one empty
// call.
func EmptyStep(calls []string) bool {
	return len(calls) == 0 || len(calls) == 1 && calls[0] == ""
}

// step executes the calls of a step that is not empty. It abandons the episode after the last call that MaxCalls
// admits, after a call that takes too much memory, and after a step beyond MaxSteps. It never refuses a step.
func (e *Episode) step(calls []string) []Outcome {
	abandon := false
	if m := e.settings.MaxCalls; m > 0 && e.turnCalls+len(calls) > m {
		calls = calls[:m-e.turnCalls]
		abandon = true
	}
	outcomes := make([]Outcome, 0, len(calls))
	for _, call := range calls {
		o := e.policy.run(call)
		outcomes = append(outcomes, o)
		e.calls = append(e.calls, call)
		e.results = append(e.results, o.Text)
		if o.Unsupported() {
			e.unsupported++
		}
		if e.policy.exhausted {
			abandon = true
			break
		}
	}
	e.turnCalls += len(outcomes)
	e.turnSteps++
	if e.turnSteps > e.settings.MaxSteps || abandon {
		e.endTurn()
		e.stop = "turn_limit"
	}
	return outcomes
}

// endTurn executes the ground truth of the turn, compares the two sides and begins the next turn.
func (e *Episode) endTurn() {
	e.checks = append(e.checks, e.check(e.truth, e.turn, e.turnSteps == 0))
	e.turn++
	e.policyTurns = e.turn
	e.turnSteps, e.turnCalls = 0, 0
	if e.turn == len(e.task.Turns) {
		e.stop = "done"
	}
}

// State returns the public state of the policy's instances as JSON, one object per class of the task. Values that JSON
// lacks have the encoding of encodeValue. The error is a value without a JSON form.
func (e *Episode) State() ([]json.RawMessage, error) { return e.encode(api.Instance.State) }

// Private returns the private attributes of the policy's instances (bfcl/SPEC.md 7), in the format of State.
func (e *Episode) Private() ([]json.RawMessage, error) { return e.encode(api.Instance.Private) }

func (e *Episode) encode(attrs func(api.Instance) []api.Attr) ([]json.RawMessage, error) {
	states := make([]json.RawMessage, len(e.policy.list))
	for i, in := range e.policy.list {
		text, err := attrsJSON(attrs(in))
		if err != nil {
			return nil, fmt.Errorf("task %s: state of %s: %w", e.task.ID, e.task.Classes[i], err)
		}
		states[i] = json.RawMessage(text)
	}
	return states, nil
}

// Work returns the bytes that the calls so far and the comparisons have read and written. An official ground truth
// takes less than 3 MB; an episode that takes more than 128 MiB, or ten seconds, is abandoned.
func (e *Episode) Work() int { return e.policy.total() }

// Done reports whether the episode has ended.
func (e *Episode) Done() bool { return e.stop != "" }

// Stop returns "" while the episode runs, "done" after the last turn, "turn_limit" if it was
// abandoned: after too many steps or calls, or a call that takes too much memory.
func (e *Episode) Stop() string { return e.stop }

// Clone returns an independent copy that continues with the same random numbers.
func (e *Episode) Clone() *Episode {
	c := *e
	c.policy = e.policy.clone(&py.Memo{})
	c.truth = e.truth.clone(&py.Memo{})
	c.results = slices.Clone(e.results)
	c.calls = slices.Clone(e.calls)
	c.checks = slices.Clone(e.checks)
	c.differing = slices.Clone(e.differing)
	return &c
}

// differingAttrs compares the public attributes of two instances of one class. It returns the names of those that
// differ, in the order of the class, and nil if the states are equal.
func differingAttrs(a, b api.Instance) (differing []string) {
	x, y := a.State(), b.State()
	for i := range x {
		if !py.Equal(x[i].Value, y[i].Value) {
			differing = append(differing, x[i].Name)
		}
	}
	return differing
}
