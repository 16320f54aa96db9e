package rl

import (
	"context"
	"fmt"
	"math"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"

	"rcgrpo/bfcl"
)

// Expert executes the ground truth of a task and returns the trajectory, without ids: in each turn one call per
// step, then the step that yields the turn, which in a merged task is the call done(). A task without classes (a
// copy drill) has no environment: its trajectory is requests and replies with reward 1.
//
// The step limit of s does not apply. The reward may differ from 1; the caller decides what follows from that.
func Expert(task *bfcl.Task, s bfcl.Settings) (*Trajectory, error) {
	if len(task.Classes) == 0 {
		return copied(task), nil
	}
	return play(context.Background(), task, s, groundTruth(task), nil, new(int))
}

func groundTruth(task *bfcl.Task) [][]string {
	turns := make([][]string, len(task.Turns))
	for i, t := range task.Turns {
		turns[i] = t.GroundTruth
	}
	return turns
}

// copied returns the trajectory of a task without an environment.
func copied(task *bfcl.Task) *Trajectory {
	t := newTrajectory(task, OriginExpert)
	t.Reward, t.RState, t.RAction, t.Official, t.Stop = 1, 1, 1, true, StopDone
	for i, turn := range task.Turns {
		t.Messages = append(t.Messages, Message{Role: RoleUser, Turn: i, Text: turn.User},
			Message{Role: RoleAssistant, Turn: i, Text: strings.Join(turn.GroundTruth, "\n"), Calls: turn.GroundTruth})
		t.Calls += len(turn.GroundTruth)
	}
	return t
}

// play executes the given calls in an episode of the benchmark without a step limit, and adds its work. It calls watch,
// if not nil, with the episode before each call; watch may copy but not change it.
func play(ctx context.Context, task *bfcl.Task, s bfcl.Settings, turns [][]string,
	watch func(turn, call int, e *bfcl.Episode), work *int) (*Trajectory, error) {
	s.MaxSteps, s.MaxCalls = math.MaxInt/2, 0
	env, episode, err := newEnv(task, s)
	if err != nil {
		return nil, err
	}
	defer func() { *work += episode.Work() }()
	return Play(ctx, env, task, turns, func(turn, call int) {
		if watch != nil {
			watch(turn, call, episode)
		}
	})
}

// Play executes the given calls of each turn in an episode, one per step, then yields the turn, which in a merged task
// is the call done(). It calls before, if not nil, with the indices of the turn and the call before each call. It is
// an error if the episode ends earlier or has more turns.
func Play(ctx context.Context, env Env, task *bfcl.Task, turns [][]string,
	before func(turn, call int)) (*Trajectory, error) {
	t := newTrajectory(task, OriginExpert)
	t.open(env)
	for turn, calls := range turns {
		if env.Done() {
			return nil, fmt.Errorf("task %s: the episode ended before turn %d of %d", task.ID, turn+1, len(turns))
		}
		t.Messages = append(t.Messages, Message{Role: RoleUser, Turn: turn, Text: env.User()})
		for i, call := range calls {
			if before != nil {
				before(turn, i)
			}
			results, errs, err := env.Step(ctx, Reply{Calls: []Call{{Text: call}}})
			if err != nil {
				return nil, fmt.Errorf("task %s: turn %d: %s: %w", task.ID, turn, call, err)
			}
			t.Messages = append(t.Messages, Message{Role: RoleAssistant, Turn: turn, Text: call, Calls: []string{call}})
			if len(results) > 0 && !env.Done() {
				t.Messages = append(t.Messages, ToolMessage(turn, results))
			}
			t.Calls += len(results)
			t.Errors += errs
		}
		if env.Done() && turn == len(turns)-1 { // its last call ended the episode
			break
		}
		if _, _, err := env.Step(ctx, Reply{}); err != nil {
			return nil, fmt.Errorf("task %s: end of turn %d: %w", task.ID, turn, err)
		}
		last := Message{Role: RoleAssistant, Turn: turn}
		if task.Prompt == bfcl.PromptMerged {
			last.Text, last.Calls = bfcl.DoneCall, []string{bfcl.DoneCall}
		}
		t.Messages = append(t.Messages, last)
	}
	if !env.Done() {
		return nil, fmt.Errorf("task %s: the episode continues after the last of %d turns", task.ID, len(turns))
	}
	t.Stop = env.Stop()
	v, err := env.Verdict(ctx)
	if err != nil {
		return nil, fmt.Errorf("task %s: %w", task.ID, err)
	}
	t.judge(v)
	return t, nil
}

// Shares of mistakes in a spoilt episode (docs/training.md 5). In a fifth of the episodes a whole turn is
// skipped. In the others one or two calls are omitted (30 %), made with another tool (35 %) or made with another
// value (35 %).
const (
	shareSkipped = 0.20
	shareLeftOut = 0.30
	shareTool    = 0.35
)

// spoilAttempts bounds the plans of mistakes per task and variant, and spoilWork the work of a task: 64 variants of an
// official one take 380 MB at most.
const spoilAttempts, spoilWork = 24, 512 << 20

// Spoil makes a failure from the ground truth of a task: it plans mistakes and executes the changed calls. The
// result has reward 0 and describes the mistakes in Spoilt. variant numbers the failures of one task; equal
// arguments give equal trajectories. Spoil returns nil without an error if no plan gives reward 0, as for a task
// without classes or calls, or if the work of all variants of the task, which it adds, is too much.
func Spoil(ctx context.Context, task *bfcl.Task, s bfcl.Settings, seed uint64, variant int, work *int) (*Trajectory,
	error) {
	truth := groundTruth(task)
	if len(task.Classes) == 0 || len(slices.Concat(truth...)) == 0 {
		return nil, nil
	}
	if _, err := play(ctx, task, s, truth, nil, work); err != nil {
		return nil, err
	}
	// before returns the episode from before a call of the ground truth, which is played again for it: copies from
	// before all calls would take memory in the square of their number.
	before := func(turn, call int) (copied *bfcl.Episode) {
		play(ctx, task, s, truth, func(t, c int, e *bfcl.Episode) {
			if t == turn && c == call {
				copied = e.Clone()
			}
		}, work)
		return copied
	}
	for attempt := 0; attempt < spoilAttempts && *work < spoilWork; attempt++ {
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		d := &dice{work: work, stream: newStream(forSpoiling, seed, hash(task.ID), uint64(variant), uint64(attempt))}
		turns, what := d.plan(truth, before)
		if what == "" {
			continue
		}
		t, err := play(ctx, task, s, turns, nil, work)
		if err != nil {
			return nil, err
		}
		if t.Reward == 0 {
			t.Origin, t.Spoilt = OriginSpoilt, what
			return t, nil
		}
	}
	return nil, nil
}

type dice struct {
	stream Stream
	n      int
	work   *int // of the calls that are tried
}

func (d *dice) float() float64 {
	d.n++
	return d.stream.At(d.n - 1)
}

func (d *dice) below(n int) int { return int(d.float() * float64(n)) }

// plan changes a copy of the ground truth and describes the change; what is "" if nothing was changed.
func (d *dice) plan(truth [][]string, before func(turn, call int) *bfcl.Episode) (
	turns [][]string, what string) {
	turns = make([][]string, len(truth))
	type place struct{ turn, call int }
	var places []place
	var full []int // turns with calls
	for i, calls := range truth {
		turns[i] = slices.Clone(calls)
		for j := range calls {
			places = append(places, place{i, j})
		}
		if len(calls) > 0 {
			full = append(full, i)
		}
	}
	if d.float() < shareSkipped {
		i := full[d.below(len(full))]
		turns[i] = nil
		return turns, fmt.Sprintf("turn %d skipped", i+1)
	}
	mistakes := min(1+d.below(2), len(places))
	var done []string
	for range mistakes {
		k := d.below(len(places))
		p := places[k]
		places = slices.Delete(places, k, k+1)
		call := truth[p.turn][p.call]
		note := func(text string) { done = append(done, fmt.Sprintf("turn %d: %s", p.turn+1, text)) }
		other := ""
		switch kind := d.float(); {
		case kind < shareLeftOut:
			turns[p.turn][p.call] = ""
			note("left out " + call)
		case kind < shareLeftOut+shareTool:
			other = d.otherTool(call, before(p.turn, p.call))
		default:
			other = d.otherValue(call, truth)
		}
		if other != "" {
			turns[p.turn][p.call] = other
			note(other + " instead of " + call)
		}
	}
	for i := range turns {
		turns[i] = slices.DeleteFunc(turns[i], func(call string) bool { return call == "" })
	}
	return turns, strings.Join(done, "; ")
}

// otherTool returns the call under the name of another offered tool, preferably one that accepts its arguments.
// The result is "" if the call has no plain name or no other tool is offered.
func (d *dice) otherTool(call string, e *bfcl.Episode) string {
	open := strings.IndexByte(call, '(')
	if open <= 0 {
		return ""
	}
	name := call[:open]
	tools := slices.DeleteFunc(e.Tools(), func(tool string) bool { return tool == name })
	other := ""
	for range 6 {
		if len(tools) == 0 {
			break
		}
		k := d.below(len(tools))
		other = tools[k] + call[open:]
		tools = slices.Delete(tools, k, k+1)
		tried := e.Clone()
		_, errs, err := tried.Step([]string{other})
		*d.work += tried.Work() - e.Work()
		if err == nil && errs == 0 {
			return other
		}
	}
	return other
}

// otherValue returns the call with one literal replaced: a text by another text of the task's ground truth or by
// itself with an added letter, a number by a near number. The result is "" if the call has no literal.
func (d *dice) otherValue(call string, truth [][]string) string {
	own := literals(call)
	if len(own) == 0 {
		return ""
	}
	l := own[d.below(len(own))]
	text := call[l.from:l.to]
	if l.number {
		whole, _, _ := strings.Cut(text, ".")
		n, err := strconv.Atoi(whole)
		if err != nil {
			return "" // a number of more than 18 digits
		}
		return call[:l.from] + strconv.Itoa(n+1+d.below(9)) + text[len(whole):] + call[l.to:]
	}
	var others []string
	seen := map[string]bool{text: true}
	for _, c := range slices.Concat(truth...) {
		for _, o := range literals(c) {
			if v := c[o.from:o.to]; !o.number && !seen[v] {
				seen[v], others = true, append(others, v)
			}
		}
	}
	replaced := text[:len(text)-1] + "s" + text[len(text)-1:]
	if len(others) > 0 && d.float() < 0.8 {
		replaced = others[d.below(len(others))]
	}
	return call[:l.from] + replaced + call[l.to:]
}

// literal is a quoted text (with its quotes) or a number in a call.
type literal struct {
	from, to int
	number   bool
}

// words finds quoted texts, numbers and names, which may contain digits. A quote that never closes is one word with all
// behind it: otherwise the search would read to the end again for each number there.
var words = sync.OnceValue(func() *regexp.Regexp {
	return regexp.MustCompile(
		`(?s)'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*"|[0-9][0-9.]*|[A-Za-z_][A-Za-z0-9_]*|(['"].*)`)
})

// literals finds the literals of a call's text, from left to right.
func literals(call string) []literal {
	var out []literal
	for _, at := range words().FindAllStringSubmatchIndex(call, -1) {
		switch c := call[at[0]]; {
		case at[2] >= 0:
		case c == '\'' || c == '"':
			out = append(out, literal{at[0], at[1], false})
		case c >= '0' && c <= '9':
			out = append(out, literal{at[0], at[1], true})
		}
	}
	return out
}
