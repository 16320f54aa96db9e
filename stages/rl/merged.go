package rl

import (
	"slices"

	"rcgrpo/bfcl"
)

// mergedEnv is an episode of a merged task. It has one turn, which ends with a call of the tool done or with a
// step without calls. A call of done is not a call to the environment: it has no result and does not count for
// the reward.
type mergedEnv struct{ *bfcl.Episode }

// Tools returns the tools of the episode, then done.
func (m mergedEnv) Tools() []string { return append(m.Episode.Tools(), bfcl.DoneTool) }

// Step executes the calls before done and ignores those after it.
func (m mergedEnv) Step(calls []string) (results []string, errs int, err error) {
	ends := len(calls) == 0
	if at := slices.IndexFunc(calls, bfcl.IsDone); at >= 0 {
		calls, ends = calls[:at], true
	}
	if len(calls) > 0 {
		if results, errs, err = m.Episode.Step(calls); err != nil {
			return results, errs, err
		}
	}
	if ends && !m.Done() {
		_, _, err = m.Episode.Step(nil)
	}
	return results, errs, err
}

// Verdict returns the reward without an official verdict, because the official checker compares turns.
func (m mergedEnv) Verdict() bfcl.Verdict {
	v := m.Episode.Verdict()
	v.Official = false
	return v
}

// newEnv starts an episode in the prompt mode of its task. A merged episode may have twice as many steps, because
// its one turn contains the steps of several.
func newEnv(t *bfcl.Task, s bfcl.Settings) (Env, error) {
	if t.Prompt == bfcl.PromptMerged {
		s.MaxSteps *= 2
	}
	e, err := t.Start(s)
	if err != nil {
		return nil, err
	}
	if t.Prompt == bfcl.PromptMerged {
		return mergedEnv{e}, nil
	}
	return e, nil
}
