package rl

import (
	"context"
	"errors"
	"slices"

	"rcgrpo/bfcl"
	"rcgrpo/stages/rl/blocks"
)

// Environment starts episodes: of the benchmark and its drills (Benchmark), or of a program
// (stages/internal/environment). It is safe for concurrent use.
type Environment interface {
	Start(ctx context.Context, t *bfcl.Task, o StartOptions) (Env, error)
	Close() error
}

// StartOptions are the options of one episode.
type StartOptions struct {
	Seed  uint64 // seed of the environment's random numbers; equal in a group
	Alone bool   // in a process of its own, because the environment failed with ErrAgain
}

// ErrAgain is matched by the error of an environment that may have failed because of another episode. The episode
// is played once more, alone.
var ErrAgain = errors.New("the environment failed")

// Env is an episode as a policy sees it. An error of Step or Verdict ends it without a reward.
type Env interface {
	System() string // system message; "" for that of the chat layout
	Turn() int      // index of the current turn
	User() string   // its request
	Tools() []Tool  // offered now
	// Step executes the calls of a reply; no calls yield the turn. errs counts the calls whose result is an
	// execution error.
	Step(ctx context.Context, r Reply) (results []string, errs int, err error)
	Done() bool
	Stop() string // StopDone or StopTurnLimit once Done
	Verdict(ctx context.Context) (bfcl.Verdict, error)
	Close()
}

// StartFunc is an Environment without resources of its own.
type StartFunc func(context.Context, *bfcl.Task, StartOptions) (Env, error)

// Start implements Environment.
func (f StartFunc) Start(ctx context.Context, t *bfcl.Task, o StartOptions) (Env, error) {
	return f(ctx, t, o)
}

// Close implements Environment.
func (f StartFunc) Close() error { return nil }

// Benchmark is the environment of the benchmark's tasks and drills, with the step limit of l.
func Benchmark(s bfcl.Settings, l blocks.Limits) StartFunc {
	s.MaxSteps = l.Steps
	return func(_ context.Context, t *bfcl.Task, _ StartOptions) (Env, error) {
		env, _, err := newEnv(t, s)
		return env, err
	}
}

// benchEnv is an episode of the benchmark.
type benchEnv struct{ *bfcl.Episode }

// System returns "": the layouts have the benchmark's system message.
func (e benchEnv) System() string { return "" }

// Close implements Env.
func (e benchEnv) Close() {}

// Tools returns the tools on offer.
func (e benchEnv) Tools() []Tool { return ToolsNamed(e.Episode.Tools()) }

// ToolsNamed returns tools of the benchmark.
func ToolsNamed(names []string) []Tool {
	tools := make([]Tool, len(names))
	for i, name := range names {
		tools[i].Name = name
	}
	return tools
}

// Step executes the calls of a reply.
func (e benchEnv) Step(_ context.Context, r Reply) ([]string, int, error) {
	return e.Episode.Step(texts(r.Calls))
}

func texts(calls []Call) []string {
	texts := make([]string, len(calls))
	for i, call := range calls {
		texts[i] = call.Text
	}
	return texts
}

// Verdict judges the episode. It has no error.
func (e benchEnv) Verdict(context.Context) (bfcl.Verdict, error) { return e.Episode.Verdict(), nil }

// mergedEnv is an episode of a merged task. It has one turn, which ends with a call of the tool done or with a
// step without calls. A call of done is not a call to the environment: it has no result and does not count for
// the reward.
type mergedEnv struct{ benchEnv }

// mergedTools returns the tools of the episode, then done.
func mergedTools(e *bfcl.Episode) []string { return append(e.Tools(), bfcl.DoneTool) }

// Tools returns the tools on offer.
func (m mergedEnv) Tools() []Tool { return ToolsNamed(mergedTools(m.Episode)) }

// Step executes the calls before done and ignores those after it.
func (m mergedEnv) Step(_ context.Context, r Reply) (results []string, errs int, err error) {
	calls := texts(r.Calls)
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
func (m mergedEnv) Verdict(context.Context) (bfcl.Verdict, error) {
	v := m.Episode.Verdict()
	v.Official = false
	return v, nil
}

// newEnv starts an episode in the prompt mode of its task, and also returns it as the benchmark sees it. A merged
// episode may have twice as many steps, because its one turn contains the steps of several.
func newEnv(t *bfcl.Task, s bfcl.Settings) (Env, *bfcl.Episode, error) {
	if t.Prompt == bfcl.PromptMerged {
		s.MaxSteps *= 2
	}
	e, err := t.Start(s)
	if err != nil {
		return nil, nil, err
	}
	if t.Prompt == bfcl.PromptMerged {
		return mergedEnv{benchEnv{e}}, e, nil
	}
	return benchEnv{e}, e, nil
}
