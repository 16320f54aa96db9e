package environment

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/iotest"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"rcgrpo/bfcl"
	"rcgrpo/internal/must"
	"rcgrpo/stages/internal/environment/faults"
	"rcgrpo/stages/rl"
)

// serveNotes is an MCP server, written without the SDK so that it can fail. Its file notes.txt is in its folder. The
// variable FAULT is METHOD-KIND, and a note with the text KIND has that fault. With the variable PLAN, a list of
// METHOD-KIND, every third process has the next fault of the list, and writes its name to the standard error.
func serveNotes(in io.Reader) {
	fault, announced := os.Getenv("FAULT"), false
	if plan := strings.Fields(os.Getenv("PLAN")); len(plan) > 0 {
		n := 0
		for faults.Once(fmt.Sprint("process ", n)) {
			n++
		}
		if n%3 == 2 {
			fault = plan[n/3%len(plan)]
		}
	}
	lines := bufio.NewScanner(in)
	lines.Buffer(nil, maxLine)
	for lines.Scan() {
		var r struct {
			ID     *int64
			Method string
			Params struct {
				ProtocolVersion string
				Name            string
				Arguments       struct{ Text string }
			}
		}
		if err := json.Unmarshal(lines.Bytes(), &r); err != nil {
			panic(err)
		}
		if r.ID == nil {
			continue
		}
		kind, here := strings.CutPrefix(fault, r.Method+"-")
		if !here {
			kind = ""
		}
		text := r.Params.Arguments.Text
		var result any
		switch r.Method {
		case "initialize":
			result = map[string]any{"protocolVersion": r.Params.ProtocolVersion, "capabilities": map[string]any{
				"tools": map[string]any{}}, "serverInfo": map[string]any{"name": "notes", "version": "1"}}
		case "tools/list":
			schema := map[string]any{"type": "object", "properties": map[string]any{"text": map[string]any{"type": "string"}}}
			result = map[string]any{"tools": []any{
				map[string]any{"name": "add-note", "description": os.Getenv("DOCUMENT"), "inputSchema": schema},
				map[string]any{"name": "fail", "inputSchema": schema}}}
		case "tools/call":
			if _, ok := sessionErrors[text]; ok || text == "error" {
				kind = text
			}
			f, err := os.OpenFile("notes.txt", os.O_APPEND|os.O_CREATE|os.O_RDWR, 0o600)
			if err != nil {
				panic(err)
			}
			fmt.Fprintln(f, text)
			f.Close()
			all, _ := os.ReadFile("notes.txt")
			result = map[string]any{"content": []any{map[string]any{"type": "text",
				"text": strings.ReplaceAll(string(all), "\n", ";")}}, "isError": r.Params.Name == "fail"}
		}
		time.Sleep(time.Duration(rand.IntN(300)) * time.Microsecond)
		if kind != "" && os.Getenv("PLAN") != "" && !announced {
			announced = true // after two answers, the next call may arrive before the session ends
			fmt.Fprintln(os.Stderr, "fault", r.Method+"-"+kind)
		}
		faults.Answer(kind, *r.ID, result)
	}
}

// sessionErrors are the faults of one answer of a server and the text of their error.
var sessionErrors = map[string]string{"garbage": "invalid character 'H'", "silence": "within",
	"flood": "exceeded the configured maximum", "fork": "", "death": "exited with code 3", "killed": "signal",
	"list": "cannot unmarshal", "null": "", "half": "", "deaf": "within",
	"notices": "", "questions": ""} // these two end by number or by time

// says reports whether a failure has the text of its fault. On a busy machine a flood may end by time.
func says(failure, fault string) bool {
	return strings.Contains(failure, sessionErrors[fault]) || fault == "flood" && strings.Contains(failure, "within")
}

func TestWhatAServerWritesForOneCallIsLimited(t *testing.T) {
	const most = maxLine + maxLine/2
	for text, n := range map[string]int{"{},": most / perObject, "[],": most / perArray, "1,": most / perValue,
		`"_meta":{}`: most / perLarge, `"inp\u0075t":{}`: most / perLarge} {
		o := &session{most: most}
		o.left.Store(most)
		read := iotest.OneByteReader(strings.NewReader(strings.Repeat(text, n)))
		_, err := io.Copy(io.Discard, &metered{Reader: read, session: o})
		must.Match(t, err, "more than 25165824 bytes")
	}
	var messages []string
	for i := range 9 {
		messages = append(messages, fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"method":"x"}`, i))
	}
	for _, text := range []string{strings.Join(messages, "\n"), strings.Join(messages, "\r"),
		"[" + strings.Join(messages, ",") + "]"} {
		o, n := &session{}, 0
		o.left.Store(4 * perMessage)
		c := must.Get(counted{IOTransport: mcp.IOTransport{Reader: io.NopCloser(strings.NewReader(text))},
			session: o}.Connect(t.Context()))(t)
		for _, err := c.Read(t.Context()); err == nil; _, err = c.Read(t.Context()) {
			n++
		}
		if n != 4 {
			t.Errorf("%.40q: %d messages were read, want 4", text, n)
		}
	}
	s, log := notes(t, map[string]string{}, Server{})
	must.OK(t, s.check(t.Context()))
	s.places = make(chan struct{}, 4096) // all sessions together may write as much; 15.9 MB in 64 of them took 3.4 GB
	must.Match(t, errors.New(played(t, s, tasksOf(t, s, "notices"))[0].Failure), "more than 98304 bytes")
	if said := log(); !strings.Contains(said, "more than 98304 bytes") {
		t.Errorf("the log is %s", said)
	}
}

// notes returns an environment of servers, and its log.
func notes(t *testing.T, env map[string]string, server Server) (*Servers, func() string) {
	t.Helper()
	dir, scratch := t.TempDir(), t.TempDir()
	env["NOTES"], env[faults.Marks] = "1", scratch
	p := &Description{Command: []string{must.Get(os.Executable())(t)}, Env: env, Start: 20 * time.Second,
		Step: 15 * time.Second, Score: 5 * time.Second, Server: &server}
	must.OK(t, p.Write(dir, filepath.Join("testdata", "notes"), nil))
	var log printed
	o := Options{Steps: 4, Scratch: scratch, Log: log.print}
	must.OK(t, o.clear())
	t.Cleanup(func() {
		if left, _ := filepath.Glob(filepath.Join(o.folder(), "program-*")); len(left) > 0 {
			t.Errorf("folders of sessions are left: %v", left)
		}
		wantNoProcess(t, o)
	})
	return newServers(p, bfcl.ProgramRef{Dir: dir, Processes: 8}, o), log.said
}

// writer is a policy that writes the notes of its task, then yields.
type writer struct{}

func (writer) Width() int     { return 8 }
func (writer) Release() error { return nil }
func (writer) Open(_ context.Context, ask rl.Rollout) (rl.Dialogue, error) {
	r, err := readRow(ask.Task)
	return &writing{calls: r.Expert}, err
}

type writing struct {
	calls [][]call
	turn  int
	made  bool
}

func (w *writing) Close() {}
func (w *writing) Reply(context.Context, []rl.Message, []rl.Tool) (rl.Reply, error) {
	if w.made = !w.made; !w.made {
		w.turn++
		return rl.Reply{Text: "Done."}, nil
	}
	var r rl.Reply
	for _, c := range w.calls[w.turn] {
		text, err := bfcl.CallText(c.Name, c.Arguments)
		if err != nil {
			return r, err
		}
		r.Calls = append(r.Calls, rl.Call{Text: text})
	}
	return r, nil
}

// tasksOf writes one task per text and reads them back.
func tasksOf(t *testing.T, s *Servers, texts ...string) []*bfcl.Task {
	t.Helper()
	path := filepath.Join(t.TempDir(), "tasks.jsonl")
	var file strings.Builder
	for i, text := range texts {
		fmt.Fprintf(&file, `{"id": "t%d", "user": ["Note it.", "And this."], "expected": [[{"name": "add-note", `+
			`"arguments": {"text": %q}}], [{"name": "add_note", "arguments": {"text": "b"}}]]}`+"\n", i, text)
	}
	must.OK(t, os.WriteFile(path, []byte(file.String()), 0o600))
	return must.Get(s.Tasks(path))(t)
}

func played(t *testing.T, e rl.Environment, tasks []*bfcl.Task) []*rl.Trajectory {
	t.Helper()
	return collect(t, writer{}, e, tasks)
}

func collect(t *testing.T, p rl.Policy, e rl.Environment, tasks []*bfcl.Task) []*rl.Trajectory {
	t.Helper()
	var asks []rl.Rollout
	for _, task := range tasks {
		asks = append(asks, rl.Rollout{Task: task})
	}
	got, _, err := (&rl.Collector{Policy: p, Environment: e}).Collect(t.Context(), asks, nil)
	must.OK(t, err)
	return got
}

// faulty returns a text for each kind of fault and further plain ones. The server never counts as broken.
func faulty(s *Servers, kinds map[string]string) []string {
	s.most = 1 << 30
	texts := slices.Sorted(maps.Keys(kinds))
	for i := range 20 {
		texts = append(texts, fmt.Sprint("plain ", i))
	}
	return texts
}

// Each episode has its own session in its own copy of the folder. A fault that persists leaves its episode without a
// reward, and no other.
func TestSessionsOfServersAndTheirFaults(t *testing.T) {
	t.Parallel()
	s, log := notes(t, map[string]string{}, Server{})
	must.OK(t, s.check(t.Context()))
	texts := append(faulty(s, sessionErrors), "error")
	for i, e := range played(t, s, tasksOf(t, s, texts...)) {
		_, bad := sessionErrors[texts[i]]
		switch {
		case texts[i] == "error":
			if e.Reward != 0 || e.Errors != 1 || !strings.Contains(e.Messages[2].Text, "sold out") {
				t.Errorf("a refused call: reward %v, %d errors, %q", e.Reward, e.Errors, e.Messages[2].Text)
			}
		case bad != e.Reward.Missing() || !bad && e.Reward != 1 || bad && !says(e.Failure, texts[i]):
			t.Errorf("%q: reward %v (%s)", texts[i], e.Reward, e.Failure)
		case !bad && (e.Messages[2].Text != "milk;"+texts[i]+";" || e.Messages[6].Text != "milk;"+texts[i]+";b;"):
			t.Errorf("%q: its notes are %q, then %q", texts[i], e.Messages[2].Text, e.Messages[6].Text)
		}
	}
	if said := log(); !strings.Contains(said, "the shelf broke") || !strings.Contains(said, "has no reward") {
		t.Errorf("the log names no standard error and no outcome: %.1000s", said)
	}
}

// Every third session has a fault, each kind at each method. Each fault has an error in the log, an episode whose
// second session fails too has no reward, and all others have the reward 1. RCGRPO_CRASH is the number of episodes
// (make crash).
func TestFaultsOfServersAtEveryMethod(t *testing.T) {
	t.Parallel()
	var plan []string
	for _, method := range []string{"initialize", "tools/list", "tools/call"} {
		for kind := range sessionErrors {
			plan = append(plan, method+"-"+kind)
		}
	}
	episodes := 2 * len(plan)
	fmt.Sscan(os.Getenv("RCGRPO_CRASH"), &episodes) // keeps the default if the variable is not set
	s, log := notes(t, map[string]string{}, Server{})
	must.OK(t, s.check(t.Context()))
	s.described.Env["PLAN"] = strings.Join(plan, " ")
	s.most = 1 << 30 // these faults are on purpose
	texts := make([]string, episodes)
	for i := range texts {
		texts[i] = fmt.Sprint("plain ", i)
	}
	missing := 0
	for i, e := range played(t, s, tasksOf(t, s, texts...)) {
		at := strings.LastIndex(e.Failure, "fault ")
		kind, _, _ := strings.Cut(e.Failure[strings.LastIndex(e.Failure, "-")+1:], "\n")
		switch {
		case !e.Reward.Missing() && e.Reward != 1:
			t.Errorf("%s: reward %v", texts[i], e.Reward)
		case e.Reward.Missing() && (at < 0 || !says(e.Failure, kind)):
			t.Errorf("%s: the failure %q does not say %q", texts[i], e.Failure, sessionErrors[kind])
		case e.Reward.Missing():
			missing++
		}
	}
	made, logged := strings.Count(log(), "program: fault "), strings.Count(log(), "the program failed in ")
	if made < episodes/3 || logged != made {
		t.Errorf("%d faults have %d errors in the log", made, logged)
	}
	t.Logf("%d episodes: %d with reward 1, %d without a reward after two faults; %d faults, %d errors", episodes,
		episodes-missing, missing, made, logged)
}

func TestServersThatCannotBeUsedAreRefused(t *testing.T) {
	t.Parallel()
	for fault, want := range map[string]string{"initialize-silence": "no answer to initialize within 20s",
		"initialize-death":   "exited with code 3; the last lines of its standard error:\n  the shelf broke",
		"tools/list-garbage": "in initialize", "tools/list-error": "sold out", "tools/list-flood": "in initialize",
		"initialize-error": "sold out"} {
		s, _ := notes(t, map[string]string{"FAULT": fault}, Server{})
		must.Match(t, s.check(t.Context()), want)
	}
	s, _ := notes(t, map[string]string{}, Server{})
	must.OK(t, s.check(t.Context()))
	s.described.Env["DOCUMENT"] = "Adds."
	must.Match(t, s.check(t.Context()), "add_note has another document")
	s.described.Env["DOCUMENT"] = ""
	s.described.Server.Tools = s.described.Server.Tools[1:]
	must.Match(t, s.check(t.Context()), "add_note is new")
	s.described.Server.Tools = append(s.described.Server.Tools, json.RawMessage(`{"name": "add_note"}`),
		json.RawMessage(`{"name": "gone"}`))
	if err := s.check(t.Context()); err == nil {
		t.Error("a server without a stored tool is accepted")
	}
}

// The reward counts calls with equal arguments in their turn; an error or a call too few earns nothing.
func TestExpectedCalls(t *testing.T) {
	r := &row{taskSpec: taskSpec{Expert: [][]call{{{"a", json.RawMessage(`{"x": 1, "y": [2]}`)}},
		{{"b", json.RawMessage(`{}`)}, {"b", json.RawMessage(`{}`)}}}}}
	a := madeCall{0, call{"a", json.RawMessage(`{"y": [2.0], "x": 1}`)}, "", false}
	b := madeCall{1, call{"b", json.RawMessage(`{}`)}, "", false}
	failed, early := b, b
	failed.Error, early.Turn = true, 0
	for name, tc := range map[string]struct {
		made []madeCall
		want bool
	}{
		"all":                 {[]madeCall{a, b, b}, true},
		"in another order":    {[]madeCall{b, b, a}, true},
		"and more":            {[]madeCall{a, a, b, b, b}, true},
		"one too few":         {[]madeCall{a, b}, false},
		"one with an error":   {[]madeCall{a, b, failed}, false},
		"one in another turn": {[]madeCall{a, b, early}, false},
		"none":                {nil, false},
	} {
		if got := r.reached(tc.made); got != tc.want {
			t.Errorf("%s: got %v", name, got)
		}
	}
}

// A command scores in the folder of the session, after its server has ended.
func TestCommandsThatScore(t *testing.T) {
	t.Parallel()
	for script, want := range map[string]string{
		`grep -q "^a$" notes.txt && echo '{"reward": 0.5}'`: "",
		`cat >in; grep -q '"calls":\[{"turn":0,"name":"add_note","arguments":{"text":"a"},"result":"milk;a;","error":f' ` +
			`in && echo '{"reward": 0.5}'`: "",
		`echo no >&2; exit 3`: "exited with code 3",
		`echo '{}'`:           "no finite reward",
		`sleep 20`:            "no reward within 5s",
	} {
		s, log := notes(t, map[string]string{}, Server{Score: []string{"sh", "-c", script}})
		must.OK(t, s.check(t.Context()))
		got := played(t, s, tasksOf(t, s, "a"))[0]
		if want == "" && got.Reward != 0.5 || want != "" && (!got.Reward.Missing() || !strings.Contains(got.Failure, want)) {
			t.Errorf("%s: reward %v (%s)\n%s", script, got.Reward, got.Failure, log())
		}
	}
}

// addressed returns a server over HTTP with the tool add_note, whose requests pass through before: it reports whether
// it has answered.
func addressed(t *testing.T, before func(w http.ResponseWriter, r *http.Request, body string) bool) Server {
	t.Helper()
	server := mcp.NewServer(&mcp.Implementation{Name: "notes", Version: "1"}, nil)
	server.AddTool(&mcp.Tool{Name: "add_note", InputSchema: json.RawMessage(`{"type":"object"}`)},
		func(_ context.Context, r *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
			return toolResult("noted", false), nil
		})
	handler := mcp.NewStreamableHTTPHandler(func(*http.Request) *mcp.Server { return server }, nil)
	web := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		r.Body = io.NopCloser(bytes.NewReader(body))
		if !before(w, r, string(body)) {
			handler.ServeHTTP(w, r)
		}
	}))
	t.Cleanup(web.Close)
	return Server{URL: web.URL}
}

func TestServersWithAddress(t *testing.T) {
	at := addressed(t, func(w http.ResponseWriter, r *http.Request, _ string) bool {
		strange := r.Header.Get("Authorization") != "Bearer hush"
		if strange {
			http.Error(w, "who are you?", http.StatusUnauthorized)
		}
		return strange
	})
	at.Headers = map[string]string{"Authorization": "NOTES_TOKEN"}
	s, _ := notes(t, map[string]string{}, at)
	must.Match(t, s.check(t.Context()), "no variable NOTES_TOKEN")
	t.Setenv("NOTES_TOKEN", "wrong")
	s, _ = notes(t, map[string]string{}, at)
	must.Match(t, s.check(t.Context()), "Unauthorized")
	t.Setenv("NOTES_TOKEN", "Bearer hush")
	s, _ = notes(t, map[string]string{}, at)
	must.OK(t, s.check(t.Context()))
	for _, e := range played(t, s, tasksOf(t, s, "a", "c")) {
		if e.Reward != 1 {
			t.Errorf("reward %v (%s)", e.Reward, e.Failure)
		}
	}
}

func TestResultsOfAStepAreLimited(t *testing.T) {
	s, _ := notes(t, map[string]string{}, addressed(t, answers("tools/call", `{"content": [{"type": "text", "text": "`+
		strings.Repeat("a", 700_000)+`"}]}`)))
	must.OK(t, s.check(t.Context()))
	env := must.Get(s.Start(t.Context(), tasksOf(t, s, "a")[0], rl.StartOptions{}))(t)
	defer env.Close()
	for range 2 { // each step has its own limit
		calls := slices.Repeat([]rl.Call{{Text: "add_note(text='a')"}}, 5)
		results, errs, err := env.Step(t.Context(), rl.Reply{Calls: calls})
		must.OK(t, err)
		if errs != 4 || len(results[0]) != 700_000 || !strings.Contains(results[4], "at most 1048576") {
			t.Errorf("got %d errors, results of %d and %d bytes", errs, len(results[0]), len(results[4]))
		}
	}
}

// A server of the later version 2026-07-28 asks for input in its result, and the SDK then calls the tool again.
func TestAToolActsOnceForACall(t *testing.T) {
	acted, act := 0, answers("tools/call", `{"inputRequests": {}, "content": [{"type": "text", "text": "noted"}]}`)
	s, _ := notes(t, map[string]string{}, addressed(t, func(w http.ResponseWriter, r *http.Request, body string) bool {
		called := act(w, r, body)
		if called {
			acted++
		}
		return called
	}))
	must.OK(t, s.check(t.Context()))
	env := must.Get(s.Start(t.Context(), tasksOf(t, s, "a")[0], rl.StartOptions{}))(t)
	defer env.Close()
	results, errs, err := env.Step(t.Context(), rl.Reply{Calls: []rl.Call{{Text: "add_note(text='a')"}}})
	if must.OK(t, err); errs != 0 || !slices.Equal(results, []string{"noted"}) || acted != 1 {
		t.Errorf("the tool acted %d times, with %d errors: %q", acted, errs, results)
	}
}

func TestSecretsOfHeadersStayWithTheirServer(t *testing.T) {
	t.Setenv("NOTES_TOKEN", "Bearer hush-hush/1")
	stolen := ""
	other := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		stolen += r.Header.Get("Authorization")
	}))
	defer other.Close()
	for name, tc := range map[string]struct {
		before func(w http.ResponseWriter, r *http.Request, _ string) bool
		want   string
	}{
		"a redirect": {func(w http.ResponseWriter, r *http.Request, _ string) bool {
			http.Redirect(w, r, other.URL, http.StatusTemporaryRedirect)
			return true
		}, "redirects to " + other.URL},
		"an error with the header": {func(w http.ResponseWriter, r *http.Request, _ string) bool {
			w.Header().Set("Content-Type", "application/json")
			fmt.Fprintf(w, `{"jsonrpc": "2.0", "id": 1, "error": {"code": 1, "message": %q}}`,
				"bad "+strings.ReplaceAll(r.Header.Get("Authorization"), "h", "\\u0068"))
			return true
		}, "***"},
		"an error with the token": {func(w http.ResponseWriter, r *http.Request, _ string) bool {
			w.Header().Set("Content-Type", "application/json")
			fmt.Fprintf(w, `{"jsonrpc": "2.0", "id": 1, "error": {"code": 1, "message": %q}}`,
				strings.TrimPrefix(r.Header.Get("Authorization"), "Bearer "))
			return true
		}, "***"},
		"a type of content": {func(w http.ResponseWriter, r *http.Request, _ string) bool {
			w.Header().Set("Content-Type", strings.TrimPrefix(r.Header.Get("Authorization"), "Bearer "))
			return true
		}, `unsupported content type "***"`},
		"another session": {func(w http.ResponseWriter, r *http.Request, _ string) bool {
			w.Header().Set("Mcp-Session-Id", r.Header.Get("Authorization"))
			return false
		}, `and "***"`},
		"a redirect to itself": {func(w http.ResponseWriter, r *http.Request, _ string) bool {
			http.Redirect(w, r, "/"+url.PathEscape(r.Header.Get("Authorization")), http.StatusTemporaryRedirect)
			return true
		}, `Post "/***": the server redirects more`},
		"a malformed header": {func(w http.ResponseWriter, r *http.Request, _ string) bool {
			conn, _, _ := w.(http.Hijacker).Hijack()
			io.WriteString(conn, "HTTP/1.1 200 OK\r\n"+r.Header.Get("Authorization")+" is no header\r\n\r\n")
			conn.Close()
			return true
		}, "***"},
	} {
		at := addressed(t, tc.before)
		at.Headers = map[string]string{"Authorization": "NOTES_TOKEN"}
		s, log := notes(t, map[string]string{}, at)
		err := s.check(t.Context())
		must.Match(t, err, tc.want, name)
		if text := fmt.Sprint(err, log()); strings.Contains(text, "hush") || stolen != "" {
			t.Errorf("%s: got %s, and another server received %q", name, text, stolen)
		}
	}
}

// A server lists tools in pages without end.
func TestListsOfToolsAreLimited(t *testing.T) {
	page, name, property := 0, "f", "{}"
	at := addressed(t, func(w http.ResponseWriter, _ *http.Request, body string) bool {
		var q struct {
			ID     json.RawMessage
			Method string
		}
		if json.Unmarshal([]byte(body), &q); q.Method != "tools/list" {
			return false
		}
		page++
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprintf(w, `{"jsonrpc": "2.0", "id": %s, "result": {"nextCursor": "%d", "tools": [{"name": "%s%d",
			"inputSchema": {"type": "object", "properties": %s}, "description": %q}]}}`, q.ID, page, name, page, property,
			strings.Repeat("x", 100<<10))
		return true
	})
	s, _ := notes(t, map[string]string{}, at)
	s.described.Start = time.Minute
	const most = "more than 10000 tools, or 1048576 bytes"
	must.Match(t, s.check(t.Context()), most)
	if page > 11 {
		t.Errorf("%d pages of 100 KiB were read", page)
	}
	// A property of 12 MB with 490 below it took 11 GB in the SDK, for the paths of all.
	property = `{"q": {}}`
	for range 489 {
		property = `{"p": {"properties": ` + property + `}}`
	}
	property = `{"` + strings.Repeat("p", 1<<20) + `": {"properties": ` + property + `}}`
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	must.Match(t, s.check(t.Context()), "is nested deeper than 100")
	runtime.ReadMemStats(&after)
	if got := after.TotalAlloc - before.TotalAlloc; got > 200<<20 {
		t.Errorf("the list took %d MiB", got>>20)
	}
	name, property = strings.Repeat("n", 257), "{}"
	must.Match(t, s.check(t.Context()), "the name of a tool has 259 bytes, want at most 256")

	for tools, want := range map[string]string{
		strings.Repeat(`{"function": `, 5000) + `{"name": "f"}` + strings.Repeat("}", 5000): "a tool without a name",
		`{"name": "` + name + `"}`: "the name of a tool has 257 bytes",
		`{"name": "f", "parameters": {"properties": {"` + strings.Repeat("p", 700_000) + `": {"properties": {"q": {}` +
			strings.Repeat(`, "q": {}`, 18_000) + `}}}}}`: "too many properties with too long names",
		`{"name": "f", "parameters": {"enum": [1` + strings.Repeat(",1", 600_000) + `]}}`: most,
		// The description of a server took 1.7 GB to write 1 MB of numbers below 980 brackets.
		`{"name": "f", "x": ` + strings.Repeat("[", 200) + strings.Repeat("]", 200) + `}`: "the tool f is nested deeper",
	} {
		dir := t.TempDir()
		file := filepath.Join(dir, "answer.json")
		answer := `{"jsonrpc": "2.0", "id": 1, "result": {"episodes": 1, "tools": [` + tools + `]}}` + "\n"
		must.OK(t, os.WriteFile(file, []byte(answer), 0o600))
		p := &Description{Command: []string{"sh", "-c", "cat answer.json; read line; read line"}, Start: time.Minute,
			Step: time.Second, Score: time.Second}
		must.OK(t, p.Write(dir, dir, []string{ProgramFile}))
		_, err := OpenProgram(t.Context(), bfcl.ProgramRef{Dir: dir, Processes: 1},
			Options{Scratch: t.TempDir(), Log: t.Logf})
		must.Match(t, err, want)
	}
}

// A server asks the client, in a call or at the start, and takes none of its answers. The SDK waits for them.
func TestServersThatTakeNoAnswersHoldNoEpisode(t *testing.T) {
	var answers atomic.Int64
	method := "tools/call"
	at := addressed(t, func(w http.ResponseWriter, r *http.Request, body string) bool {
		answer := strings.Contains(body, `"result"`)
		if !answer && !strings.Contains(body, `"`+method+`"`) {
			return false
		}
		if answer {
			answers.Add(1)
		} else {
			w.Header().Set("Content-Type", "text/event-stream")
			io.WriteString(w, strings.Repeat(`data: {"jsonrpc": "2.0", "id": 9, "method": "ping"}`+"\n\n", 1000))
			w.(http.Flusher).Flush()
		}
		<-r.Context().Done()
		return true
	})
	s, _ := notes(t, map[string]string{}, at)
	must.OK(t, s.check(t.Context()))
	s.described.Step = time.Second
	must.Match(t, errors.New(played(t, s, tasksOf(t, s, "a"))[0].Failure), "no answer to tools/call")
	s.described.Start, method = time.Second, "initialize"
	must.Match(t, s.check(t.Context()), "no answer to initialize")
	if n := answers.Load(); n > 100 {
		t.Errorf("%d answers were sent at once", n)
	}
}

// The SDK sends some requests of a server back to it, and waited for the answer after the session.
func TestRequestsOfServersAreNotSentBack(t *testing.T) {
	const request = `data: {"jsonrpc":"2.0","id":77,"method":"completion/complete","params":{"ref":{"type":"ref/prompt",` +
		`"name":"x"},"argument":{"name":"a","value":"b"}}}` + "\n\n"
	back := false
	at := addressed(t, func(w http.ResponseWriter, _ *http.Request, body string) bool {
		var q struct {
			ID     json.RawMessage
			Method string
		}
		json.Unmarshal([]byte(body), &q)
		switch q.Method {
		case "tools/list":
			w.Header().Set("Content-Type", "text/event-stream")
			io.WriteString(w, request)
			w.(http.Flusher).Flush()
			time.Sleep(300 * time.Millisecond) // the client sends it back, or has answered
			fmt.Fprintf(w, `data: {"jsonrpc":"2.0","id":%s,"result":{"tools":[{"name":"a",`+
				`"inputSchema":{"type":"object"}}]}}`+"\n\n", q.ID)
		case "completion/complete":
			back = true
			w.Header().Set("Content-Type", "application/json")
			io.WriteString(w, `{"jsonrpc":"2.0","id":9999,"result":{}}`)
		}
		return q.Method == "tools/list" || q.Method == "completion/complete"
	})
	s, _ := notes(t, map[string]string{}, at)
	ended := make(chan error)
	go func() { ended <- s.check(t.Context()) }()
	select {
	case err := <-ended:
		must.OK(t, err)
	case <-time.After(20 * time.Second):
		t.Error("the session does not end")
	}
	if back {
		t.Error("the client sent a request of the server back")
	}
}

func TestErrorsOfServersAreShort(t *testing.T) {
	at := addressed(t, func(w http.ResponseWriter, _ *http.Request, body string) bool {
		var q struct{ ID json.RawMessage }
		_ = json.Unmarshal([]byte(body), &q)
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprintf(w, `{"jsonrpc": "2.0", "id": %s, "result": {"protocolVersion": %q}}`, q.ID, strings.Repeat("9", 1<<20))
		return true
	})
	s, _ := notes(t, map[string]string{}, at)
	err := s.check(t.Context())
	must.Match(t, err, "unsupported protocol version")
	if len(err.Error()) > 2000 {
		t.Errorf("the error has %d bytes", len(err.Error()))
	}
}

// The SDK makes hundreds of bytes of an object, forty of a number, and takes 15 microseconds for a tool; 16 MiB have
// millions of them, and as gzip they are a few kilobytes.
func TestAnswersHaveAtMostAsManyObjectsAsTheirLimit(t *testing.T) {
	objects := strings.Repeat("{},", maxLine/perObject) + "{}"
	for _, tc := range []struct{ method, result string }{
		{"tools/list", `{"tools":[` + objects + `]}`},
		{"tools/list", `{"tools":[` + strings.Repeat(`{"_meta":{}},`, maxLine/perLarge) + `{}]}`},   // 2.7 MB took 2.8 GB
		{"tools/list", `{"tools":[` + strings.Repeat(`{"icons":[{}]},`, maxLine/perLarge) + `{}]}`}, // 3.8 GB
		{"tools/call", `{"content":[` + objects + `]}`},
		{"tools/call", `{"content":[],"structuredContent":[` + strings.Repeat("1,", maxLine/perValue) + `1]}`},
	} {
		s, _ := notes(t, map[string]string{}, addressed(t, answers(tc.method, tc.result)))
		err := s.check(t.Context())
		if tc.method == "tools/call" {
			must.OK(t, err)
			err = errors.New(played(t, s, tasksOf(t, s, "a"))[0].Failure)
		}
		must.Match(t, err, "the server has sent more than 16777216 bytes, or too many objects")
	}
	s, _ := notes(t, map[string]string{}, addressed(t, answers("tools/call", `{"content":[{"type":"text","text":"`+
		strings.Repeat("a", 5<<20)+`"}]}`)))
	s.places = make(chan struct{}, 64) // all sessions may get one
	must.OK(t, s.check(t.Context()))
	must.Match(t, errors.New(played(t, s, tasksOf(t, s, "a"))[0].Failure),
		"the server has sent more than 4194304 bytes, or too many objects or messages, for one call (the limit is lower")
}

// Eight answers with a link of 15 MiB, each of whose characters is escaped in JSON, took 4.6 GB.
func TestOneResultIsWrittenAtATime(t *testing.T) {
	called, ended := make(chan bool, 9), make(chan bool)
	s, _ := notes(t, map[string]string{}, addressed(t, func(_ http.ResponseWriter, _ *http.Request, body string) bool {
		if strings.Contains(body, `"tools/call"`) {
			called <- true
		}
		return false
	}))
	must.OK(t, s.check(t.Context()))
	s.writing.Lock() // as another session
	go func() {
		played(t, s, tasksOf(t, s, "a"))
		close(ended)
	}()
	<-called
	select {
	case <-called: // of the second turn
		t.Error("a result was written beside another")
	case <-time.After(50 * time.Millisecond):
	}
	s.writing.Unlock()
	<-ended
}

// In the version after SessionVersion, the SDK keeps lists: a page without tools that is its own next page never ends.
func TestServersWithoutSessionsAreRefused(t *testing.T) {
	at := addressed(t, answers("initialize", `{"protocolVersion": "2026-07-28", "capabilities": {}, "serverInfo": {}}`))
	s, _ := notes(t, map[string]string{}, at)
	must.Match(t, s.check(t.Context()), "version 2026-07-28 of the protocol, later than 2025-11-25")
}

// answers answers the requests of a method with a result.
func answers(method, result string) func(http.ResponseWriter, *http.Request, string) bool {
	return func(w http.ResponseWriter, _ *http.Request, body string) bool {
		var q struct {
			ID     json.RawMessage
			Method string
		}
		if json.Unmarshal([]byte(body), &q) != nil || q.Method != method {
			return false
		}
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprintf(w, `{"jsonrpc": "2.0", "id": %s, "result": %s}`, q.ID, result)
		return true
	}
}

// addressErrors are the faults of an answer over HTTP and the text of their error.
var addressErrors = map[string]string{"garbage": "unsupported content type", "silence": "no answer to",
	"flood": "the server has sent more than 16777216 bytes", "death": "EOF",
	"half": "EOF", "packed": "invalid character",
	"busy": "rejected by transport", "forgotten": "no session", "upgrade": "another protocol"}

// breakAnswer answers a request over HTTP with a fault.
func breakAnswer(fault string, w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	switch fault {
	case "garbage":
		w.Header().Set("Content-Type", "text/plain")
		io.WriteString(w, "Hello, world!")
	case "silence":
		<-r.Context().Done()
	case "flood":
		io.WriteString(w, `{"jsonrpc": "2.0", "id": "`)
		for err := error(nil); err == nil; { // until the client hangs up
			_, err = io.WriteString(w, strings.Repeat("x", 1<<20))
		}
	case "busy":
		w.WriteHeader(http.StatusServiceUnavailable)
	case "forgotten":
		w.WriteHeader(http.StatusNotFound)
		io.WriteString(w, `{"jsonrpc": "2.0", "id": "x", "error": {"code": -32600, "message": "no session"}}`)
	case "half":
		io.WriteString(w, `{"jsonrpc"`)
		w.(http.Flusher).Flush()
		panic(http.ErrAbortHandler)
	case "packed": // 3000 results of 1 kB took 5 GB
		w.Header().Set("Content-Encoding", "gzip")
		gzip.NewWriter(w).Close()
	case "death":
		panic(http.ErrAbortHandler)
	case "upgrade":
		conn, _, _ := w.(http.Hijacker).Hijack()
		io.WriteString(conn, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: x\r\n\r\n")
		io.Copy(io.Discard, conn) // until the client hangs up
	}
}

// The answers of a server with an address have the same faults at every method, and no fault is a tool error.
func TestFaultsOfServersWithAddress(t *testing.T) {
	t.Parallel()
	var fault atomic.Value // METHOD-KIND of all sessions
	fault.Store("")
	at := addressed(t, func(w http.ResponseWriter, r *http.Request, body string) bool {
		method, kind, _ := strings.Cut(fault.Load().(string), "-")
		for known := range addressErrors {
			if strings.Contains(body, fmt.Sprintf("%q", known)) { // the text of a note
				method, kind = "tools/call", known
			}
		}
		here := method != "" && strings.Contains(body, fmt.Sprintf("%q", method))
		if here {
			breakAnswer(kind, w, r)
		}
		return here
	})
	s, log := notes(t, map[string]string{}, at)
	must.OK(t, s.check(t.Context()))
	s.described.Start, s.described.Step = 15*time.Second, 15*time.Second
	texts := faulty(s, addressErrors)
	for i, e := range played(t, s, tasksOf(t, s, texts...)) {
		want, bad := addressErrors[texts[i]]
		if bad != e.Reward.Missing() || !bad && e.Reward != 1 || !strings.Contains(e.Failure, want) {
			t.Errorf("%q: reward %v (%s), want the failure %q", texts[i], e.Reward, e.Failure, want)
		}
	}
	for kind, want := range addressErrors {
		for _, method := range []string{"initialize", "tools/list"} {
			if want == "no answer to" && must.Short(t, 0, 1) == 0 { // which takes all of the time
				continue
			}
			fault.Store(method + "-" + kind)
			err := s.check(t.Context())
			if _, ok := errors.AsType[*Fault](err); !ok || !strings.Contains(err.Error(), want) {
				t.Errorf("%s in %s: got %v, want a fault that says %q", kind, method, err, want)
			}
		}
	}
	if !strings.Contains(log(), "has no reward") {
		t.Errorf("the log does not say so: %.1000s", log())
	}
}

func TestFilesOfTasksAreChecked(t *testing.T) {
	t.Parallel()
	s, _ := notes(t, map[string]string{}, Server{})
	must.OK(t, s.check(t.Context()))
	path := filepath.Join(t.TempDir(), "tasks.jsonl")
	for line, want := range map[string]string{
		"": "has no task", "nonsense": "line 1: it is no such JSON", `{"id": "a"}`: `"user" is its request`,
		`{"user": "x"}`: "it has no id", `{"id": "a", "user": []}`: `"user" is its request`,
		`{"id": "a", "user": ["x", "y"], "expected": [[]]}`:                                "each of the 2 requests",
		`{"id": "a", "user": "x", "expected": [{"name": "gone", "arguments": {}}]}`:        "the tool gone, which the server",
		`{"id": "a", "user": "x", "tools": ["gone"]}`:                                      "the tool gone, which the server",
		`{"id": "a", "user": "x", "expected": [{"name": "fail"}]}`:                         "has no arguments",
		`{"id": "a", "user": "x", "expected": [[{"name": "add-note", "arguments": {}}]]}`:  "",
		"\n" + `{"id": "a", "user": "x", "expected": [{"name": "fail", "arguments": {}}]}`: "",
	} {
		must.OK(t, os.WriteFile(path, []byte(line), 0o600))
		tasks, err := s.Tasks(path)
		if want == "" {
			must.OK(t, err)
			if len(tasks) != 1 || !HasExpert(tasks[0]) {
				t.Errorf("%s: got %+v", line, tasks)
			}
			continue
		}
		must.Match(t, err, want)
	}
}

func FuzzFilesOfTasks(f *testing.F) {
	f.Add([]byte(`{"id": "a", "user": "x", "expected": [{"name": "f-g", "arguments": {"a": 1}}]}`))
	f.Add([]byte(`{"id": "a", "user": ["x", ""], "expected": [[], [{"name": "f", "arguments": {}}]], "tools": []}`))
	f.Fuzz(func(t *testing.T, line []byte) {
		spec, err := normalize(line)
		if err != nil {
			return
		}
		task, err := newTask(spec)
		if err != nil {
			return
		}
		r, err := readRow(task)
		if err != nil {
			return
		}
		again, err := normalize(spec)
		if err != nil || string(again) != string(spec) {
			t.Errorf("%s is normal, and becomes %s (%v)", spec, again, err)
		}
		var made []madeCall
		for turn, calls := range r.Expert {
			for _, c := range calls {
				made = append(made, madeCall{turn, c, "", false})
			}
		}
		if !r.reached(made) {
			t.Errorf("%s: its expected calls earn nothing", spec)
		}
	})
}

// A server that writes anything is refused or used; nothing panics or hangs.
func FuzzServers(f *testing.F) {
	const hello = `{"jsonrpc":"2.0","id":1,"result":{"protocolVersion":"2025-11-25","capabilities":{},` +
		`"serverInfo":{"name":"s","version":"1"}}}` + "\n"
	const tools = `{"jsonrpc":"2.0","id":2,"result":{"tools":[{"name":"a","inputSchema":{"type":"object"}}]}}` + "\n"
	for _, text := range []string{"", "x\n", hello, hello + tools,
		hello + `{"jsonrpc":"2.0","id":2,"error":{"code":1}}` + "\n",
		hello + `{"jsonrpc":"2.0","id":2,"result":{"tools":[null]}}` + "\n",
		`{"jsonrpc":"2.0","method":"ping","id":1}` + "\n" + hello} {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		transport := &mcp.IOTransport{Reader: io.NopCloser(strings.NewReader(string(text))), Writer: discard{},
			MaxLineLength: 1 << 16}
		s, err := newClient().Connect(ctx, transport, &mcp.ClientSessionOptions{ProtocolVersion: SessionVersion})
		if err == nil {
			o := &session{ClientSession: s}
			if err := o.readTools(ctx); err == nil && len(o.tools.all) == 0 {
				t.Error("a server without tools is used")
			}
			s.Close()
		}
		if ctx.Err() != nil {
			t.Errorf("%q: the session hangs", text)
		}
	})
}

type discard struct{}

func (discard) Write(b []byte) (int, error) { return len(b), nil }
func (discard) Close() error                { return nil }
