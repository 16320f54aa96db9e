package bfcl

import (
	"fmt"
	"time"

	"rcgrpo/bfcl/internal/py"
)

// Error types of the official checker.
const (
	ErrForceTerminated  = "multi_turn:force_terminated"
	ErrEmptyTurn        = "multi_turn:empty_turn_model_response"
	ErrStateMismatch    = "multi_turn:instance_state_mismatch"
	ErrResponseMismatch = "multi_turn:execution_response_mismatch"
)

// Verdict is the result of one episode: the official checker's decision and the paper's reward.
type Verdict struct {
	Official  bool     `json:"official"`             // the official checker accepts the episode
	ErrorType string   `json:"error_type,omitempty"` // the first failure, one of the Err constants
	Message   string   `json:"message,omitempty"`    // the checker's message for it
	Turn      int      `json:"turn"`                 // index of the failed turn; -1 without one
	Class     string   `json:"class,omitempty"`      // state mismatch: the first class that differs
	Attrs     []string `json:"attrs,omitempty"`      // state mismatch: the attributes that differ, in order
	Missing   []string `json:"missing,omitempty"`    // response mismatch: the results that never came

	RState           float64 `json:"r_state"`            // 1 if the final states agree (bfcl/SPEC.md 11)
	RAction          float64 `json:"r_action"`           // 1 if every ground-truth call was made
	RActionInjective float64 `json:"r_action_injective"` // 1 if a different call was made for every ground-truth call
	Reward           float64 `json:"reward"`             // RState * RAction

	UnsupportedCalls int `json:"unsupported_calls,omitempty"` // calls outside the supported subset of Python (SPEC.md)

	Turns []TurnCheck `json:"turns"` // every turn of the task, also after the first failure
}

// TurnCheck is the comparison after one turn.
type TurnCheck struct {
	GroundTruthEmpty bool        `json:"gt_empty"`
	ModelEmpty       bool        `json:"model_empty"` // the policy executed nothing in this turn
	State            bool        `json:"state"`       // both sides have the same state in every class
	Diff             []ClassDiff `json:"diff,omitempty"`
	Response         bool        `json:"response"`          // the policy has received every ground-truth result
	Missing          []string    `json:"missing,omitempty"` // the results that are not
}

// ClassDiff names the attributes of one class that differ, in the order of the class.
type ClassDiff struct {
	Class string   `json:"class"`
	Attrs []string `json:"attrs"`
}

// check executes turn k of the ground truth on the truth's instances and compares them with the policy's. truth is
// e.truth, or a clone of it, on which Verdict executes the turns that the policy has not reached. policyEmpty says that
// the policy executed nothing in turn k.
func (e *Episode) check(truth *instances, k int, policyEmpty bool) TurnCheck {
	calls := e.task.Turns[k].GroundTruth
	c := TurnCheck{GroundTruthEmpty: len(calls) == 0, ModelEmpty: policyEmpty, State: true}
	var expected []string
	for _, call := range calls {
		expected = append(expected, truth.run(call).Text)
	}
	for i, class := range e.task.Classes {
		attrs := e.differing[i] // The last comparison holds until a call touches one of the two instances.
		if !e.policy.untouched(i) || !truth.untouched(i) {
			e.policy.counted = time.Now()
			attrs = differingAttrs(truth.list[i], e.policy.list[i])
			if truth == e.truth { // A comparison with a clone says nothing about the episode itself.
				e.policy.work += e.policy.weights[i]
				e.policy.spend()
				e.differing[i] = attrs
				e.policy.touched[i], truth.touched[i] = false, false
			}
		}
		if attrs != nil {
			c.State = false
			c.Diff = append(c.Diff, ClassDiff{class, attrs})
		}
	}
	c.Missing = missingResults(expected, e.results)
	c.Response = c.Missing == nil
	return c
}

// missingResults returns the results of expected that got lacks, counted as multisets; nil if there is none.
func missingResults(expected, got []string) (missing []string) {
	used := make([]bool, len(got))
	for _, want := range expected {
		found := false
		for i := len(got) - 1; i >= 0; i-- {
			if !used[i] && got[i] == want {
				used[i], found = true, true
				break
			}
		}
		if !found {
			missing = append(missing, want)
		}
	}
	return missing
}

// Verdict judges the episode in its current state. Turns not reached count as missing, which the
// official checker calls force-terminated; an episode abandoned in its last turn is judged
// normally. The episode may continue afterwards.
func (e *Episode) Verdict() Verdict {
	v := Verdict{Turn: -1, Turns: e.checks, UnsupportedCalls: e.unsupported}
	truth := e.truth
	turns := e.policyTurns
	if e.turn < len(e.task.Turns) {
		// The episode may continue, so the rest of the ground truth is executed on a copy.
		truth = e.truth.clone(&py.Memo{})
		v.Turns = append([]TurnCheck(nil), e.checks...)
		for k := e.turn; k < len(e.task.Turns); k++ {
			v.Turns = append(v.Turns, e.check(truth, k, k > e.turn || e.turnSteps == 0))
		}
		if e.turnSteps > 0 {
			turns++ // The policy has begun the current turn.
		}
	}
	v.official(e.task, turns)
	if e.equalStates(truth) {
		v.RState = 1
	}
	v.RAction, v.RActionInjective = actionReward(e.task, e.calls)
	v.Reward = v.RState * v.RAction
	return v
}

// equalStates reports whether both sides have the same final state. truth has executed the complete ground truth.
func (e *Episode) equalStates(truth *instances) bool {
	if n := len(e.checks); n == len(e.task.Turns) {
		return e.checks[n-1].State
	}
	for i := range truth.list {
		if differingAttrs(truth.list[i], e.policy.list[i]) != nil {
			return false
		}
	}
	return true
}

// official finds the first failure in the official order (bfcl/SPEC.md 8). turns is the number of turns of the policy.
func (v *Verdict) official(t *Task, turns int) {
	if turns != len(t.Turns) {
		v.ErrorType = ErrForceTerminated
		v.Message = fmt.Sprintf("Model was force-terminated during inference phase. The length of the "+
			"model result turns (%d) does not match the length of the ground truth turns (%d).", turns, len(t.Turns))
		return
	}
	for k, c := range v.Turns {
		switch {
		case c.GroundTruthEmpty:
			continue
		case c.ModelEmpty:
			v.ErrorType = ErrEmptyTurn
			v.Message = fmt.Sprintf("Model response list is empty for turn %d", k)
		case !c.State:
			v.ErrorType = ErrStateMismatch
			v.Class, v.Attrs = c.Diff[0].Class, c.Diff[0].Attrs
			v.Message = fmt.Sprintf("Model instance for %s does not match the state with ground truth instance.", v.Class)
		case !c.Response:
			v.ErrorType = ErrResponseMismatch
			v.Missing = c.Missing
			v.Message = fmt.Sprintf("Model response execution results so far does not contain all the "+
				"ground truth response execution results for turn %d.", k)
		default:
			continue
		}
		v.Turn = k
		return
	}
	v.Official = true
}
