package bfcl

import (
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

// Episode is the execution of one task: the policy's instances, and the reference's, which are one
// turn behind. It is not safe for concurrent use; episodes are independent of each other.
type Episode struct {
	task             *Task
	settings         Settings
	model, reference *instances

	differing [][]string // per class, the attributes that differed at the last comparison

	turn   int
	steps  int // replies with calls in this turn
	called int // calls in this turn
	stop   string

	results []string    // of the policy, all turns so far
	calls   []string    // of the policy, all turns so far
	checks  []TurnCheck // of the turns completed so far
	turns   int         // turns in the policy's record

	unsupported int // calls of the policy outside the supported subset of Python
}

// Start begins an episode. It returns an error if the task's initial state cannot be loaded.
func (t *Task) Start(s Settings) (*Episode, error) {
	if s.ModelName == "" {
		s.ModelName = "model"
	}
	if s.MaxSteps == 0 {
		s.MaxSteps = OfficialMaxSteps
	}
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
	calls := 0
	for i := range t.Turns {
		calls += len(t.Turns[i].GroundTruth)
	}
	return &Episode{
		task: t, settings: s,
		model: w.start(s.ModelName), reference: w.start(s.ModelName + "_ground_truth"),
		results: make([]string, 0, calls), calls: make([]string, 0, calls), checks: make([]TurnCheck, 0, len(t.Turns)),
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
	docs := e.settings.Data.printed(e.task, turn.Revealed)
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

// StepOutcomes is Step with complete outcomes.
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

func (e *Episode) step(calls []string) []Outcome {
	limited := false
	if m := e.settings.MaxCalls; m > 0 && e.called+len(calls) > m {
		calls, limited = calls[:m-e.called], true
	}
	outcomes := make([]Outcome, 0, len(calls))
	for i, call := range calls {
		outcomes = append(outcomes, e.model.run(call))
		e.results = append(e.results, outcomes[i].Text)
		if outcomes[i].Unsupported() {
			e.unsupported++
		}
		if e.model.exhausted {
			calls, limited = calls[:i+1], true
			break
		}
	}
	e.calls = append(e.calls, calls...)
	e.called += len(calls)
	e.steps++
	if e.steps > e.settings.MaxSteps || limited {
		e.endTurn()
		e.stop = "turn_limit"
	}
	return outcomes
}

// endTurn executes the reference's turn and compares the states.
func (e *Episode) endTurn() {
	e.checks = append(e.checks, e.check(e.reference, e.turn, e.steps == 0))
	e.turn++
	e.turns = e.turn
	e.steps, e.called = 0, 0
	if e.turn == len(e.task.Turns) {
		e.stop = "done"
	}
}

// State returns the public state of the policy's instances as JSON, one object per class of the
// task, in the format of the golden trajectories (SPEC.md).
func (e *Episode) State() ([]json.RawMessage, error) { return e.encode(api.Instance.State) }

// Private returns the private attributes of the policy's instances, in the format of State.
func (e *Episode) Private() ([]json.RawMessage, error) { return e.encode(api.Instance.Private) }

func (e *Episode) encode(attrs func(api.Instance) []api.Attr) ([]json.RawMessage, error) {
	states := make([]json.RawMessage, len(e.model.list))
	for i, in := range e.model.list {
		text, err := stateJSON(attrs(in))
		if err != nil {
			return nil, fmt.Errorf("task %s: state of %s: %w", e.task.ID, e.task.Classes[i], err)
		}
		states[i] = json.RawMessage(text)
	}
	return states, nil
}

// Done reports whether the episode has ended.
func (e *Episode) Done() bool { return e.stop != "" }

// Stop returns "" while the episode runs, "done" after the last turn, "turn_limit" if it was
// abandoned: after too many steps or calls, or a call that takes too much memory.
func (e *Episode) Stop() string { return e.stop }

// Clone returns an independent copy that continues with the same random numbers.
func (e *Episode) Clone() *Episode {
	c := *e
	c.model = e.model.clone(&py.Memo{})
	c.reference = e.reference.clone(&py.Memo{})
	c.results = slices.Clone(e.results)
	c.calls = slices.Clone(e.calls)
	c.checks = slices.Clone(e.checks)
	c.differing = slices.Clone(e.differing)
	return &c
}

// equalInstances compares the public attributes of two instances of one class and returns the names
// of those that differ, in order.
func equalInstances(a, b api.Instance) (differing []string) {
	x, y := a.State(), b.State()
	for i := range x {
		if !py.Equal(x[i].Value, y[i].Value) {
			differing = append(differing, x[i].Name)
		}
	}
	return differing
}
