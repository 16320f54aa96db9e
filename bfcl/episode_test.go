package bfcl

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"rcgrpo/bfcl/internal/py"
	"rcgrpo/internal/must"
)

// filesTask returns a small task: two turns with calls, one reveal, one turn without calls.
func filesTask() *Task {
	return &Task{
		ID: "own_base_1", Category: "base", Number: 1, Family: "own_1",
		Classes: []string{"GorillaFileSystem", "MathAPI"},
		InitialConfig: json.RawMessage(`{"GorillaFileSystem": {"root": {"home": {"type": "directory", "contents": {
			"docs": {"type": "directory", "contents": {}}, "a.txt": {"type": "file", "content": "one\ntwo"}}}}}}`),
		Turns: []Turn{
			{User: "Move a.txt into docs.", GroundTruth: []string{"mv(source='a.txt', destination='docs')"}},
			{User: "How many lines has it?", GroundTruth: []string{}},
			{GroundTruth: []string{"cd(folder='docs')", "wc(file_name='a.txt')"}, Revealed: []string{"wc"}},
			{User: "Add 1 and 2.", GroundTruth: []string{"add(a=1, b=2)"}},
		},
	}
}

func start(t testing.TB, task *Task, s Settings) *Episode {
	t.Helper()
	return must.Get(task.Start(s))(t)
}

func steps(t testing.TB, e *Episode, all ...[]string) {
	t.Helper()
	for _, calls := range all {
		_, _, err := e.Step(calls)
		must.OK(t, err)
	}
}

func TestEpisodeFollowsTheDriver(t *testing.T) {
	e := start(t, filesTask(), Settings{})
	if slices.Contains(e.Tools(), "wc") {
		t.Error("wc is offered before its reveal")
	}
	results, errs, err := e.Step([]string{"mv(source='a.txt', destination='docs')", "nope()"})
	if err != nil || errs != 1 || len(results) != 2 ||
		results[1] != "Error during execution: name 'nope' is not defined" {
		t.Errorf("got results %q, %d errors, %v", results, errs, err)
	}
	steps(t, e, nil)
	if e.Turn() != 1 || e.User() != "How many lines has it?" {
		t.Errorf("after the first turn: turn %d, user %q", e.Turn(), e.User())
	}
	steps(t, e, []string{""}) // one empty call also ends the turn
	if tools := e.Tools(); e.User() != RevealRequest || tools[len(tools)-1] != "wc" {
		t.Errorf("reveal turn: user %q, tools %v", e.User(), tools)
	}
	steps(t, e, []string{"cd(folder='docs')"}, []string{"wc('a.txt')"}, nil, []string{"add(1, b=2.0)"}, nil)
	if !e.Done() || e.Stop() != "done" {
		t.Errorf("at the end: done %v, stop %q", e.Done(), e.Stop())
	}
	if _, _, err := e.Step(nil); !errors.Is(err, ErrDone) {
		t.Errorf("a step after the end: got %v, want ErrDone", err)
	}
	v := e.Verdict()
	// add(1, b=2.0) prints 3.0, so the ground truth's 3 is missing; as an action it equals add(a=1, b=2).
	if v.ErrorType != ErrResponseMismatch || v.Turn != 3 || v.RState != 1 || v.RAction != 1 || v.Reward != 1 {
		t.Errorf("got verdict %+v", v)
	}
}

func TestVerdictsOfSmallTrajectories(t *testing.T) {
	const mv, cd = "mv(source='a.txt', destination='docs')", "cd(folder='docs')"
	const wc, add = "wc(file_name='a.txt')", "add(a=1, b=2)"
	for name, tc := range map[string]struct {
		turns     [][][]string
		errorType string
		turn      int
		reward    float64
	}{
		"ground truth":               {[][][]string{{{mv}}, {}, {{cd, wc}}, {{add}}}, "", -1, 1},
		"call in the empty turn":     {[][][]string{{{mv}}, {{"pwd()"}}, {{cd}, {wc}}, {{add}}}, "", -1, 1},
		"everything early":           {[][][]string{{{mv, cd, wc, add}}, {}, {}, {}}, ErrEmptyTurn, 2, 1},
		"read early, turn not empty": {[][][]string{{{mv, cd, wc, add}}, {}, {{"pwd()"}}, {{"pwd()"}}}, "", -1, 1},
		"nothing":                    {[][][]string{{}, {}, {}, {}}, ErrEmptyTurn, 0, 0},
		"state differs": {[][][]string{{{mv, "touch(file_name='x')"}}, {}, {{cd, wc}}, {{add}}},
			ErrStateMismatch, 0, 0},
		"state differs and is mended": {[][][]string{{{mv, "touch(file_name='x')"}}, {},
			{{"rm(file_name='x')", cd, wc}}, {{add}}}, ErrStateMismatch, 0, 1},
		"last result missing": {[][][]string{{{mv}}, {}, {{cd, wc}}, {{"add(a=1, b=1)"}}},
			ErrResponseMismatch, 3, 0},
		"too few turns": {[][][]string{{{mv}}}, ErrForceTerminated, -1, 0},
		"too many turns": {[][][]string{{{mv}}, {}, {{cd, wc}}, {{add}}, {}}, ErrForceTerminated,
			-1, 1},
		"qualified name is no action": {[][][]string{{{mv}}, {}, {{cd, wc}},
			{{"add(a=1, b=2)", "MathAPI.add(a=1, b=2)"}}}, "", -1, 1},
		"argument beyond the signature": {[][][]string{{{mv}}, {}, {{cd, wc}}, {{"add(1, 2, 3)"}}},
			ErrResponseMismatch, 3, 1},
		"equal value of another kind": {[][][]string{{{mv}}, {}, {{cd, wc}}, {{"add(a=True, b=2.0)"}}},
			ErrResponseMismatch, 3, 1},
		"unsupported expression": {[][][]string{{{mv}}, {}, {{cd, wc}}, {{"add(a=1, b=1+1)"}}},
			ErrResponseMismatch, 3, 0},
	} {
		t.Run(name, func(t *testing.T) {
			e, _, err := filesTask().Play(Settings{}, tc.turns)
			must.OK(t, err)
			v := e.Verdict()
			if want := strings.Count(name, "unsupported"); v.UnsupportedCalls != want {
				t.Errorf("got %d unsupported calls, want %d", v.UnsupportedCalls, want)
			}
			if v.ErrorType != tc.errorType || v.Official != (tc.errorType == "") || v.Turn != tc.turn ||
				v.Reward != tc.reward {
				t.Errorf("got official %v, %q, turn %d, reward %v (state %v, action %v); want %q, turn %d, reward %v",
					v.Official, v.ErrorType, v.Turn, v.Reward, v.RState, v.RAction, tc.errorType, tc.turn, tc.reward)
			}
		})
	}
}

func TestStepLimitAbandonsExceptInTheLastTurn(t *testing.T) {
	e := start(t, filesTask(), Settings{})
	for range OfficialMaxSteps {
		steps(t, e, []string{"pwd()"})
	}
	if e.Done() {
		t.Fatalf("abandoned after %d steps, want one more", OfficialMaxSteps)
	}
	steps(t, e, []string{"pwd()"})
	if e.Stop() != "turn_limit" || e.Verdict().ErrorType != ErrForceTerminated {
		t.Errorf("after %d steps: stop %q, verdict %+v", OfficialMaxSteps+1, e.Stop(), e.Verdict())
	}

	e = start(t, filesTask(), Settings{MaxSteps: 2})
	steps(t, e, []string{"mv(source='a.txt', destination='docs')"}, nil, nil,
		[]string{"cd(folder='docs')", "wc(file_name='a.txt')"}, nil,
		[]string{"add(a=1, b=2)"}, []string{"pwd()"}, []string{"pwd()"})
	if v := e.Verdict(); e.Stop() != "turn_limit" || !v.Official {
		t.Errorf("abandoned in the last turn: stop %q, verdict %+v, want it judged normally", e.Stop(), v)
	}

	e = start(t, filesTask(), Settings{MaxCalls: 2})
	results, _, err := e.Step([]string{"pwd()", "pwd()", "pwd()"})
	if err != nil || len(results) != 2 || e.Stop() != "turn_limit" {
		t.Errorf("three calls where two are allowed: got %d results, stop %q, %v", len(results), e.Stop(), err)
	}
}

// TestCallsThatTakeTooMuchAbandonTheEpisode plays calls that double a text or a tree, or that need much time.
func TestCallsThatTakeTooMuchAbandonTheEpisode(t *testing.T) {
	repeat := func(n int, calls ...string) (all []string) {
		for range n {
			all = append(all, calls...)
		}
		return all
	}
	doubled := func(n int) (all []string) { // a tree of 2^n directories
		for i := range n {
			d, next := fmt.Sprint("'d", i, "'"), fmt.Sprint("'d", i+1, "'")
			all = append(all, "mkdir("+next+")", "cp("+d+",'e')", "cp("+d+","+next+")", "cp('e',"+next+")", "rm('e')")
		}
		return all
	}
	letters := "'" + strings.Repeat("a", 1000) + "'"
	for name, tc := range map[string]struct {
		class string
		calls []string
	}{
		"a sum of texts": {"GorillaFileSystem", append([]string{"echo(content=" + letters + ", file_name='a.txt')"},
			repeat(14, "echo(add(cat('a.txt')['file_content'],cat('a.txt')['file_content'])['result'], 'a.txt')")...)},
		"a list in itself": {"GorillaFileSystem",
			repeat(20, "echo(content=[cat('a.txt'), cat('a.txt')], file_name='a.txt')")},
		"a tree": {"GorillaFileSystem", append(repeat(24,
			"cp('docs', 'b')", "mkdir('c')", "mv('docs', 'c')", "mv('b', 'c')", "mv('c', 'docs')"), "find()")},
		"directories that share tables": {"GorillaFileSystem", append([]string{"mkdir('a0')"}, shared(60)...)},
		"directories that share tables, far below": {"GorillaFileSystem", slices.Concat(
			repeat(50, "mkdir('d')", "cd('d')"), []string{"mkdir('a0')"}, shared(60))},
		"directories that the root does not contain": {"GorillaFileSystem", append([]string{"mkdir('A')", "cd('A')",
			"mkdir('B')", "cd('..')", "cp('A', 'C')", "rm('A')", "cd('C')", "cd('B')", "cd('..')", "mkdir('d0')"},
			doubled(30)...)},
		"deep directories": {"GorillaFileSystem", repeat(70, "mkdir('d')", "cd('d')")},
		"letters": {"TwitterAPI", append([]string{"authenticate_twitter('john', 'john123')", "post_tweet('t')"}, repeat(3,
			"mention(0, '"+strings.Repeat("a", 20_000)+"')", "get_tweet(0)", "get_tweet(0)", "get_tweet(0)")...)},
		"many results": {"GorillaFileSystem", []string{"echo('" + strings.Repeat("a", 400_000) + "', 'a.txt')",
			"add([" + strings.Repeat("cat('a.txt'),", 30) + "], 1)"}},
		"deep paths": {"GorillaFileSystem", append(repeat(30, "mkdir("+letters[:600]+"')", "cd("+letters[:600]+"')"),
			append(files(1000), "cd('/')", "cd('..')", "find('/')")...)},
		"deep lists": {"GorillaFileSystem", append(repeat(9,
			"echo("+strings.Repeat("[", 180)+"cat('a.txt')"+strings.Repeat("]", 180)+", 'a.txt')"), "cat('a.txt')")},
		"a message": {"MessageAPI", append([]string{"message_login('USR001')"}, repeat(20,
			"send_message('USR002', [view_messages_sent(), view_messages_sent()])")...)},
		"a ticket": {"TicketAPI", append([]string{"ticket_login('a', 'b')", "create_ticket(title='t')"}, repeat(20,
			"edit_ticket(1, {'description': [get_ticket(1)['description'], get_ticket(1)['description']]})")...)},
		"a tweet": {"TwitterAPI", append([]string{"authenticate_twitter('john', 'john123')"}, repeat(20,
			"post_tweet([get_user_tweets('john'), get_user_tweets('john')])")...)},
		"errors that quote the state": {"GorillaFileSystem", append([]string{"mkdir('" + strings.Repeat("d", 130_000) + "')",
			"cd(ls()['current_directory_content'][-1])", "mkdir('.')", "touch('x')"}, repeat(100, "cp('x', '.')")...)},
		"an error that is too long": {"MathAPI", []string{"absolute_value(1)['" + strings.Repeat("\x01", 200_000) + "']"}},
		"a text that is too long":   {"MathAPI", []string{"add('" + strings.Repeat("a", 5<<20) + "', 'b')"}},
		"long results":              {"GorillaFileSystem", repeat(10, "echo('"+strings.Repeat("a", 1<<20)+"')")},
		"many calls":                {"MathAPI", repeat(130, "absolute_value('"+strings.Repeat("a", 1<<20)+"')")},
	} {
		t.Run(name, func(t *testing.T) {
			task := filesTask()
			task.Classes = []string{tc.class}
			if tc.class == "GorillaFileSystem" {
				task.Classes = append(task.Classes, "MathAPI")
			}
			e := start(t, task, Settings{})
			outcomes, err := e.StepOutcomes(tc.calls)
			must.OK(t, err)
			last := outcomes[len(outcomes)-1]
			if e.Stop() != "turn_limit" || last.Exception != "MemoryError" || !strings.Contains(last.Text, " more than ") {
				t.Errorf("stop %q after %d of %d calls, the last replied %.200q", e.Stop(), len(outcomes), len(tc.calls), last.Text)
			}
			e.Verdict()
			if _, err := e.State(); err != nil {
				t.Error(err)
			}
			if _, _, err := task.Play(Settings{}, [][][]string{{tc.calls, {"pwd()"}}, {{"pwd()"}}}); err != nil {
				t.Error(err)
			}
		})
	}
}

func TestADirectoryMayContainItself(t *testing.T) {
	e := start(t, filesTask(), Settings{})
	outcomes, err := e.StepOutcomes([]string{"cp('a.txt', 'docs')", "mkdir('b')", "mv('b', 'docs')", "cp('docs', 'docs')",
		"ls()", "du()"})
	must.OK(t, err)
	if last := outcomes[len(outcomes)-1]; len(outcomes) != 6 || last.Exception != "RecursionError" {
		t.Errorf("after %d calls: %+v", len(outcomes), last)
	}
}

// shared returns calls after which the last of n directories has 2^n paths. Another class is called between them.
func shared(n int) (calls []string) {
	for i := range n {
		calls = append(calls, fmt.Sprintf("cp('a%d', 'a%d')", i, i+1), fmt.Sprintf("mv('a%d', 'a%d')", i, i+1), "add(1, 2)",
			"add(1, 2)")
	}
	return calls
}

func files(n int) (calls []string) {
	for i := range n {
		calls = append(calls, "touch('"+strings.Repeat("b", i%50)+fmt.Sprint(i)+"')")
	}
	return calls
}

// A ground truth is not abandoned. A call of 60 kB, 200 times, made 200 lists of 500,000 letters.
func TestAnExhaustedGroundTruthExecutesNothing(t *testing.T) {
	task := filesTask()
	task.Classes = []string{"TwitterAPI"}
	e := start(t, task, Settings{})
	for range 20 {
		e.truth.run("authenticate_twitter('john', 'john123')")
		e.truth.run("post_tweet('t')")
		e.truth.run("mention(0, '" + strings.Repeat("a", 60_000) + "')")
	}
	before := e.truth.work
	o := e.truth.run("post_tweet('t')")
	work := e.truth.work - before
	if o.Exception != "MemoryError" || work > 2*callWork+textWork*len(o.Text) {
		t.Errorf("a call after the limit replies %q, its work is %d", o.Text, work)
	}
}

// The executor writes the id of the task before each name of a tool, which is parsed then. Stocks can be a list.
func TestTextsAndSearchesOfCallsAreWork(t *testing.T) {
	task := filesTask()
	task.ID = strings.Repeat("i", 256)
	e := start(t, task, Settings{})
	e.policy.run("[" + strings.Repeat("ls(),", 1000) + "!")
	if got := e.policy.work; got < 1000*256*parseWork {
		t.Errorf("a call whose text becomes 256 kB has the work %d", got)
	}
	e.policy.counted = time.Now().Add(-time.Hour) // the process was stopped
	e.policy.spend()
	if got := e.Work(); got < maxWork/11 || got > maxWork/9 {
		t.Errorf("a call of an hour has the work %d, want a tenth of the limit", got)
	}
	numbers := make([]int, 3000)
	task.Classes = []string{"TradingBot"}
	task.InitialConfig = must.Get(json.Marshal(map[string]any{"TradingBot": map[string]any{"stocks": numbers}}))(t)
	o := start(t, task, Settings{}).policy.run("notify_price_change('" + strings.Repeat("a", 400) + "', 1)")
	if o.Exception != "MemoryError" {
		t.Errorf("a search for 400 symbols among 3,000 replies %.100q", o.Text)
	}
}

// TestLongCallsTakeLittleTime evaluates calls that took a minute or 2 GiB, and the work of those with many digits.
func TestLongCallsTakeLittleTime(t *testing.T) {
	task := filesTask()
	task.Classes = []string{"TicketAPI", "MathAPI"}
	var keywords, fields strings.Builder
	for i := range 140_000 {
		fmt.Fprintf(&keywords, "k%x=1,", i)
	}
	for i := range 8_000 {
		fmt.Fprintf(&fields, "'%x':1,", i)
	}
	tuples := "{" + strings.Repeat("(", 190) + "'a'" + strings.Repeat(",)", 190) + ": 1}"
	e := start(t, task, Settings{})
	tickets := append([]string{"ticket_login('a', 'b')"}, slices.Repeat([]string{"create_ticket('t')"}, 500)...)
	steps(t, e, append(tickets, "get_user_tickets('"+strings.Repeat("Ä", 250_000)+"')"))
	for call, want := range map[string]string{
		"logout(" + tuples + ")":                    "takes 1 positional argument",
		"logout(" + keywords.String() + ")":         "unexpected keyword argument 'k0'",
		"edit_ticket(1, {" + fields.String() + "})": "Invalid fields for update: 0, 1,",
	} {
		if got := e.policy.run(call); !strings.Contains(got.Text, want) {
			t.Errorf("%.20s replies %.100q, want %q", call, got.Text, want)
		}
	}
	before := e.policy.work
	e.policy.run("square_root(2, 5000)")
	if work := e.policy.work - before; work < 1_000_000 {
		t.Errorf("a root of 5,000 digits is work of %d bytes, want 1,000,000", work)
	}
}

// TestLongNumbersTakeLittleTime evaluates calls that took from 3 seconds to minutes: their numbers end early.
func TestLongNumbersTakeLittleTime(t *testing.T) {
	task := filesTask()
	for call, want := range map[string]string{
		"add(1.5, 0o" + strings.Repeat("7", 8_000_000) + ")":                                 "Exceeds the limit",
		"round_number(0x" + strings.Repeat("f", 1_000_000) + ", -1000000)":                   "Exceeds the limit",
		"divide(1, 0b1" + strings.Repeat("01", 4_000_000) + ")":                              "Exceeds the limit",
		"logarithm(2.5, 3, 20000)":                                                           `"error"`,
		"round_number(5, -4000000000000000000)":                                              `{"result": 0}`,
		"round_number(5, -9223372036854775808)":                                              `{"result": 0}`,
		"tail(file_name='a.txt', lines=-9223372036854775808)":                                `{"last_lines": ""}`,
		"tail(file_name='a.txt', lines=-9223372036854775807)":                                `{"last_lines": ""}`,
		"divide(power(10, 5000)['result'], power(10, 4999)['result'])":                       `{"result": 10.0}`,
		"divide(0x1" + strings.Repeat("0", 9000) + ", 0x1" + strings.Repeat("0", 8999) + ")": `{"result": 16.0}`,
	} {
		got := start(t, task, Settings{}).policy.run(call)
		if !strings.Contains(got.Text, want) {
			t.Errorf("%.60s: got %.100q, want %q", call, got.Text, want)
		}
	}
	begin := time.Now() // 18 ms a call, to reduce a fraction, which made 6 seconds of an episode
	for range 200 {
		for _, call := range []string{"round_number(power(131071, 7700)['result'], -39000)",
			"divide(power(131071, 7700)['result'], power(131069, 7700)['result'])"} {
			start(t, task, Settings{}).policy.run(call)
		}
	}
	if took := time.Since(begin); took > 5*time.Second {
		t.Errorf("400 calls with fractions of long numbers took %v", took)
	}
}

func TestVerdictOfARunningEpisodeChangesNothing(t *testing.T) {
	e := start(t, filesTask(), Settings{})
	steps(t, e, []string{"mv(source='a.txt', destination='docs')"})
	if v := e.Verdict(); v.ErrorType != ErrForceTerminated {
		t.Errorf("in the first turn: got %+v", v)
	}
	steps(t, e, nil, nil, []string{"cd(folder='docs')", "wc(file_name='a.txt')"}, nil,
		[]string{"add(a=1, b=2)"}, nil)
	if v := e.Verdict(); !v.Official || v.Reward != 1 {
		t.Errorf("at the end: got %+v", v)
	}
}

func TestTaskRoundTripsThroughJSON(t *testing.T) {
	task := filesTask()
	raw := must.Get(json.Marshal(task))(t)
	var back Task
	must.OK(t, json.Unmarshal(raw, &back))
	again, err := json.Marshal(back)
	if err != nil || string(again) != string(raw) {
		t.Errorf("got %s, want %s (%v)", again, raw, err)
	}
}

func TestErrorsOfTaskStartNameTheReason(t *testing.T) {
	for name, tc := range map[string]struct {
		change func(*Task)
		says   string
	}{
		"unknown class":     {func(t *Task) { t.Classes = []string{"Nope"} }, "unknown class Nope"},
		"broken config":     {func(t *Task) { t.InitialConfig = json.RawMessage(`{`) }, "initial_config"},
		"config not a dict": {func(t *Task) { t.InitialConfig = json.RawMessage(`[]`) }, "want an object"},
		"scenario a text": {func(t *Task) { t.InitialConfig = json.RawMessage(`{"GorillaFileSystem": "x"}`) },
			"want an object"},
		"root without name": {func(t *Task) {
			t.InitialConfig = json.RawMessage(`{"GorillaFileSystem": {"root": {}}}`)
		}, "IndexError"},
		"large config": {func(t *Task) {
			t.InitialConfig = json.RawMessage(`{"TicketAPI": {"ticket_queue": [` + strings.Repeat("{},", 1<<17) + `{}]}}`)
		}, "initial_config has more than 262144 bytes"},
		"long id": {func(t *Task) { t.ID = strings.Repeat("a", 257) }, "has more than 256 bytes"},
		"many calls": {func(t *Task) { t.Turns[0].GroundTruth = slices.Repeat([]string{"ls()"}, 256) },
			"it has more than 256 turns, calls and revealed tools"},
		"many revealed": {func(t *Task) { t.Turns[0].Revealed = make([]string, 256) }, "turns, calls and revealed tools"},
		"long truth": {func(t *Task) { t.Turns[0].GroundTruth = []string{"f(" + strings.Repeat("f(),", 1<<15) + ")"} },
			"its ground truth has more than 131072 bytes"},
		"no turns":      {func(t *Task) { t.Turns = nil }, "no turns"},
		"long, no data": {func(t *Task) { t.Category = "long_context" }, "long-context constant"},
	} {
		t.Run(name, func(t *testing.T) {
			task := filesTask()
			tc.change(task)
			_, err := task.Start(Settings{})
			must.Match(t, err, tc.says)
			must.Match(t, err, task.ID[:min(40, len(task.ID))])
		})
	}
}

// A file of one letter in a row has 3,251 bytes in a state: 800 rows of 20 kB took 2.9 GB.
func TestStatesOfLongContextsAreLimited(t *testing.T) {
	data, files := official(t), map[string]any{}
	for i := range 560 {
		files[fmt.Sprint("f", i)] = map[string]any{"type": "file", "content": "a"}
	}
	task := filesTask()
	task.ID, task.Category = "multi_turn_long_context_1", "long_context"
	task.InitialConfig = must.Get(json.Marshal(map[string]any{"GorillaFileSystem": map[string]any{"root": map[string]any{
		"home": map[string]any{"type": "directory", "contents": files}}}}))(t)
	_, err := task.Start(Settings{Data: data, Today: ReleaseDate})
	must.Match(t, err, "its classes have more than 524288 bytes of state")
}

// A tweet kept the list of moving averages that all episodes share, and mention doubled it: 1.8 kB of calls took
// 7.7 GB.
func TestCallsDoNotChangeConstants(t *testing.T) {
	data, task := official(t), filesTask()
	task.Classes, task.Category = []string{"TradingBot", "TwitterAPI"}, "long_context"
	constant := data.long["MA_5_EXTENSION"].(*py.List)
	before := len(constant.Items)
	calls := append([]string{"authenticate_twitter('john', 'john123')",
		"post_tweet(content='x', tags=[], mentions=get_stock_info(symbol='NVDA')['MA(5)'])"},
		slices.Repeat([]string{"mention(0, get_tweet(0)['mentions'])"}, 20)...)
	e := start(t, task, Settings{Data: data, Today: ReleaseDate})
	outcomes := must.Get(e.StepOutcomes(calls))(t)
	if last := outcomes[len(outcomes)-1]; last.Exception != "MemoryError" || e.Stop() != "turn_limit" {
		t.Errorf("stop %q, the last call replied %.200q", e.Stop(), last.Text)
	}
	if after := len(constant.Items); after != before {
		t.Errorf("the constant has %d values, before the calls %d", after, before)
	}
}

// playTruth executes the rest of the ground truth.
func playTruth(t testing.TB, e *Episode) Verdict {
	t.Helper()
	for !e.Done() {
		if truth := e.Task().Turns[e.Turn()].GroundTruth; len(truth) > 0 {
			steps(t, e, truth)
		}
		steps(t, e, nil)
	}
	return e.Verdict()
}

func stateText(t testing.TB, e *Episode) string {
	t.Helper()
	return fmt.Sprintf("%s", must.Get(e.State())(t))
}

// Invalid calls on a clone of any turn leave the original unchanged, and both reach the ground truth's
// verdict.
func TestClonesAreIndependentAndComplete(t *testing.T) {
	data := official(t)
	settings := Settings{Data: data, Today: ReleaseDate}
	for i, task := range data.Tasks() {
		if i%7 != 0 {
			continue
		}
		e := start(t, task, settings)
		for !e.Done() {
			before := stateText(t, e)
			c := e.Clone()
			for _, other := range data.Tasks()[(i+41)%len(data.Tasks())].Turns {
				if len(other.GroundTruth) > 0 && !c.Done() {
					steps(t, c, other.GroundTruth)
				}
			}
			if got := stateText(t, e); got != before {
				t.Fatalf("%s turn %d: calls on a clone changed the original", task.ID, e.Turn())
			}
			if v := playTruth(t, e.Clone()); !v.Official || v.Reward != 1 {
				t.Fatalf("%s: a clone made in turn %d fails on the ground truth: %s", task.ID, e.Turn(), v.Message)
			}
			if truth := task.Turns[e.Turn()].GroundTruth; len(truth) > 0 {
				steps(t, e, truth)
			}
			steps(t, e, nil)
		}
		if v := e.Verdict(); !v.Official {
			t.Fatalf("%s: %s", task.ID, v.Message)
		}
	}
}

// A thousand concurrent episodes, several per task, have the results of sequential ones.
func TestConcurrentEpisodesAreIndependent(t *testing.T) {
	data := official(t)
	settings := Settings{Data: data, Today: ReleaseDate}
	tasks := data.Tasks()
	var group sync.WaitGroup
	begin := make(chan struct{})
	for i := range 1000 {
		task := tasks[i*13%len(tasks)]
		if i%4 > 0 { // three of four share a few tasks
			task = tasks[i%4*29%len(tasks)]
		}
		group.Go(func() {
			<-begin
			e, err := task.Start(settings)
			if err != nil {
				t.Error(err)
				return
			}
			if i%5 == 0 {
				_, _, _ = e.Step([]string{"post_tweet(content='x')", "touch(file_name='y')", "get_current_speed()"})
				e = e.Clone()
			}
			for !e.Done() {
				for _, call := range task.Turns[e.Turn()].GroundTruth {
					if _, _, err := e.Step([]string{call}); err != nil && !e.Done() {
						t.Error(err)
						return
					}
				}
				if !e.Done() {
					_, _, _ = e.Step(nil)
				}
			}
			if v := e.Verdict(); i%5 != 0 && !v.Official && e.Stop() == "done" {
				t.Errorf("%s: %s", task.ID, v.Message)
			}
		})
	}
	close(begin)
	group.Wait()
}

func TestIndexedLogarithmPrintsWithItsOwnDigits(t *testing.T) {
	e := start(t, mathTask(), Settings{})
	for call, want := range map[string]string{
		"logarithm(100, 5, 2)":             "{'result': mpf('2.8594')}",
		"logarithm(100, 5, 2)['result']":   "2.9",
		"[logarithm(100, 5, 2)['result']]": "[mpf('2.8594')]",
	} {
		if got := e.policy.run(call).Text; got != want {
			t.Errorf("%s: got %s, want %s", call, got, want)
		}
	}
}

func TestEpisodesOfOneTaskShareNothing(t *testing.T) {
	task := &Task{ID: "tweets", Category: "base", Classes: []string{"TwitterAPI"},
		InitialConfig: json.RawMessage(`{}`),
		Turns:         []Turn{{User: "x", GroundTruth: []string{}}}}
	const login = "authenticate_twitter(username='john', password='john123')"
	a, b := start(t, task, Settings{}), start(t, task, Settings{})
	first, _, err := a.Step([]string{login, "post_tweet(content='x')",
		"mention(tweet_id=0, mentioned_usernames=['@a'])", "post_tweet(content='y')"})
	must.OK(t, err)
	second, _, err := b.Step([]string{login, "post_tweet(content='x')", "post_tweet(content='y')"})
	must.OK(t, err)
	if !strings.Contains(first[3], `"mentions": ["@a"]`) {
		t.Errorf("within an episode tweets without mentions share one list; got %s", first[3])
	}
	if !strings.Contains(second[2], `"mentions": []`) {
		t.Errorf("mentions of another episode show: %s", second[2])
	}
}

func TestRevealTurnsContainTheDocumentsOfTheirTools(t *testing.T) {
	data := &Data{docs: map[string][]ToolDoc{"GorillaFileSystem": {
		{"ls", json.RawMessage(`{"name": "ls"}`)},
		{"wc", json.RawMessage(`{"name": "wc", "parameters": {"type": "dict", "required": ["file"], ` +
			`"default": null, "a": "it's"}}`)},
	}}}
	e := start(t, filesTask(), Settings{Data: data})
	steps(t, e, nil, nil)
	want := `[{'name': 'wc', 'parameters': {'type': 'dict', 'required': ['file'], 'default': None, ` +
		`'a': "it's"}}]` + "\n" + RevealRequest
	if got := e.User(); got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

// Each of 255 searches asked for each of 35,000 calls whether it serves each ground-truth call: 95 s.
func TestManyCallsAreMatchedInLittleTime(t *testing.T) {
	var truth []string
	for i := range 255 {
		truth = append(truth, "ls(a=True"+strings.Repeat(" ", i)+")")
	}
	made := append(slices.Repeat([]string{"a()"}, 35_000), slices.Repeat([]string{"ls(a=1)"}, 255)...)
	dict := "{"
	for i := range 47 {
		dict += fmt.Sprintf("(%d,1):1,", i)
	}
	var large []string
	for i := range 255 {
		large = append(large, "ls(a="+dict+"},b=1"+strings.Repeat(" ", i)+")")
	}
	for name, calls := range map[string][2][]string{"many": {truth, made}, "dicts": {large, append(slices.Repeat(
		[]string{"ls(b=2,a=" + dict + "})"}, 10_000), slices.Repeat([]string{"ls(b=1,a=" + dict + "})"}, 255)...)}} {
		begin := time.Now()
		plain, injective := actionReward(&Task{Turns: []Turn{{GroundTruth: calls[0]}}}, calls[1])
		if took := time.Since(begin); plain != 1 || injective != 1 || took > time.Minute {
			t.Errorf("%s: got %v and %v after %v", name, plain, injective, took)
		}
	}
}
