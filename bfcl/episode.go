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

// OfficialMaxSteps is how many executed steps one turn may have; the step after it abandons the episode (bfcl/SPEC.md 9).
const OfficialMaxSteps = 20

// Settings are what the episodes of a task depend on besides the task.
type Settings struct {
	Data      *Data     // where the long-context texts and the official tool order come from; may be nil for drills
	Today     time.Time // the date verify_traveler_information goes by; zero is the real date
	ModelName string    // shows only in instance names; "" is "model"
	MaxSteps  int       // executed steps a turn may have before the next one abandons the episode; 0 is the official 20
	MaxCalls  int       // calls a turn may have; further ones are not executed and abandon the episode; 0 is no limit
}

// Episode is one task being played: the policy's side as it goes, and the reference's side one turn behind. It is not
// safe for concurrent use; different episodes are independent of each other.
type Episode struct {
	task             *Task
	settings         Settings
	model, reference *side

	differing [][]string // per class, the attributes that differed at the last comparison

	turn   int
	steps  int // executed in this turn
	called int // calls executed in this turn
	stop   string

	results []string    // of the policy, all turns so far
	calls   []string    // of the policy, all turns so far
	checks  []TurnCheck // of the turns played so far
	turns   int         // turns that the record of the policy has

	unsupported int // calls of the policy outside the supported subset of Python
}

// Start begins an episode. It fails when the task's initial state cannot be loaded.
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
	sc, err := s.Data.scene(t, today)
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
		task: t, settings: s, model: sc.side(s.ModelName), reference: sc.side(s.ModelName + "_ground_truth"),
		results: make([]string, 0, calls), calls: make([]string, 0, calls), checks: make([]TurnCheck, 0, len(t.Turns)),
		differing: make([][]string, len(t.Classes)),
	}, nil
}

func taskError(t *Task, text string) error { return fmt.Errorf("task %s: %s", t.ID, text) }

// Task is the task being played.
func (e *Episode) Task() *Task { return e.task }

// Turn is the index of the current turn; after the end, of the last one played.
func (e *Episode) Turn() int { return min(e.turn, len(e.task.Turns)-1) }

// User is the request of the current turn. At a reveal turn, which has none, it is what the official driver sends to models
// that are prompted with their tools: the documents of the revealed ones as Python prints them, and a fixed sentence
// (bfcl/SPEC.md 9). A conversation that goes on cannot change the tools at its beginning. Without the benchmark's data
// it is the sentence alone.
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

// Tools lists the names of the tools offered now: the involved classes' in official order without those withheld; those
// revealed so far stand at the end.
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

// ErrDone is what Step gives after the episode has ended.
var ErrDone = errors.New("the episode has ended")

// Step executes one step of the policy. It returns one result text per executed call and how many calls raised an
// exception. No calls, or one empty call, yield the turn. A step beyond the limit abandons the episode.
func (e *Episode) Step(calls []string) (results []string, errs int, err error) {
	outcomes, err := e.Execute(calls)
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

// Execute is Step with whole outcomes. It returns ErrDone after the end of the episode.
func (e *Episode) Execute(calls []string) ([]Outcome, error) {
	if e.stop != "" {
		return nil, ErrDone
	}
	if EmptyStep(calls) {
		e.endTurn()
		return nil, nil
	}
	return e.step(calls), nil
}

// EmptyStep reports whether the official code treats a step as no response: no call, or one empty call.
func EmptyStep(calls []string) bool {
	return len(calls) == 0 || len(calls) == 1 && calls[0] == ""
}

// step executes calls; an empty call gets the error that Python raises for it.
func (e *Episode) step(calls []string) []Outcome {
	limited := false
	if m := e.settings.MaxCalls; m > 0 && e.called+len(calls) > m {
		calls, limited = calls[:m-e.called], true
	}
	outcomes := make([]Outcome, len(calls))
	for i, call := range calls {
		outcomes[i] = e.model.run(call)
		e.results = append(e.results, outcomes[i].Text)
		if outcomes[i].Unsupported() {
			e.unsupported++
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

// endTurn plays the reference's turn and compares.
func (e *Episode) endTurn() {
	e.checks = append(e.checks, e.check(e.reference, e.turn, e.steps == 0))
	e.turn++
	e.turns = e.turn
	e.steps, e.called = 0, 0
	if e.turn == len(e.task.Turns) {
		e.stop = "done"
	}
}

// State returns the public state of the policy's side as JSON, one object per class of the task, in the form of the
// golden trajectories (SPEC.md).
func (e *Episode) State() ([]json.RawMessage, error) { return e.encode(api.Instance.State) }

// Private returns the private attributes of the policy's side, in the form of State.
func (e *Episode) Private() ([]json.RawMessage, error) { return e.encode(api.Instance.Private) }

func (e *Episode) encode(attrs func(api.Instance) []api.Attr) ([]json.RawMessage, error) {
	states := make([]json.RawMessage, len(e.model.instances))
	for i, in := range e.model.instances {
		text, err := stateJSON(attrs(in))
		if err != nil {
			return nil, fmt.Errorf("task %s: state of %s: %w", e.task.ID, e.task.Classes[i], err)
		}
		states[i] = json.RawMessage(text)
	}
	return states, nil
}

// Done is true once no step may follow.
func (e *Episode) Done() bool { return e.stop != "" }

// Stop is "" while the episode runs, "done" after the last turn, "turn_limit" when it was abandoned.
func (e *Episode) Stop() string { return e.stop }

// Clone copies the episode. Both go on independently, with the same random numbers.
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

// untouched is true when instance i is as it was at the last comparison.
func (s *side) untouched(i int) bool { return !s.touched[i] && !s.entangled }

// equalInstances compares the public attributes of two instances of one class and names those that differ, in order.
func equalInstances(a, b api.Instance) (differing []string) {
	x, y := a.State(), b.State()
	for i := range x {
		if !py.Equal(x[i].Value, y[i].Value) {
			differing = append(differing, x[i].Name)
		}
	}
	return differing
}
