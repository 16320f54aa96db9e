package rl

import (
	"slices"

	"rcgrpo/bfcl"
)

// mergedEnv is an episode of a merged task: one turn, in which the tool done, documented last, ends the episode, as does
// a step without a call. A call of done is no call to the environment: it has no result and counts in no reward.
type mergedEnv struct{ *bfcl.Episode }

// Tools are those of the episode, and done.
func (m mergedEnv) Tools() []string { return append(m.Episode.Tools(), bfcl.DoneTool) }

// Step executes the calls before done; those after it are not executed.
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

// Verdict is the reward alone: the official checker compares turns.
func (m mergedEnv) Verdict() bfcl.Verdict {
	v := m.Episode.Verdict()
	v.Official = false
	return v
}

// start begins an episode in the prompt mode of its task. A merged episode may have twice as many steps, because its one
// turn holds the steps of several.
func start(t *bfcl.Task, s bfcl.Settings) (Env, error) {
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
