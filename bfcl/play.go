package bfcl

import "math"

// Play executes a complete trajectory: turns of steps of calls, as decoded from model output. The outcomes have the
// same shape, with nil for skipped empty steps. A trajectory whose number of turns differs from the task's is
// force-terminated; extra turns are not executed. The step limit does not apply, because the steps are already
// recorded. The error is that of Start.
func (t *Task) Play(s Settings, turns [][][]string) (*Episode, [][][]Outcome, error) {
	s.MaxSteps, s.MaxCalls = math.MaxInt, 0
	e, err := t.Start(s)
	if err != nil {
		return nil, nil, err
	}
	var played [][][]Outcome
	for _, steps := range turns {
		if e.Done() {
			break
		}
		outcomes := make([][]Outcome, len(steps))
		for i, calls := range steps {
			if !EmptyStep(calls) && !e.Done() {
				outcomes[i] = e.step(calls)
			}
		}
		if !e.Done() {
			e.endTurn()
		}
		played = append(played, outcomes)
	}
	e.policyTurns = len(turns)
	return e, played, nil
}

// GroundTruthSteps returns the ground truth as a trajectory for Play: one step per turn, none in an
// empty turn.
func (t *Task) GroundTruthSteps() [][][]string {
	turns := make([][][]string, len(t.Turns))
	for i, turn := range t.Turns {
		if len(turn.GroundTruth) > 0 {
			turns[i] = [][]string{turn.GroundTruth}
		}
	}
	return turns
}
