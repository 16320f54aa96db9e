package provider

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"rcgrpo/bench/fixtures"
	"rcgrpo/bfcl"
	"rcgrpo/engine/artifact"
	"rcgrpo/internal/must"
	"rcgrpo/stages/rl"
	"rcgrpo/stages/rl/blocks"
)

// first returns the path, headers and body of the first request of a conversation with the settings.
func first(t *testing.T, s Settings) (text string) {
	t.Helper()
	server := serveReplies(t)
	server.Config.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		r.Header.Del("Date")
		var b bytes.Buffer
		r.Header.Write(&b)
		text = r.URL.Path + "\n" + b.String() + string(body)
		w.WriteHeader(http.StatusUnauthorized)
	})
	server.refuses(t, s)
	return text
}

// refuses opens a conversation with the settings, whose first request must have no reply.
func (s *server) refuses(t *testing.T, set Settings) {
	t.Helper()
	m := s.open(t, set, inventedTools{"eat": json.RawMessage(`{"name": "eat", "description": "Eat.",
		"parameters": {"type": "dict", "properties": {}, "required": []}}`)})
	d := must.Get(m.Open(t.Context(), rl.Rollout{Task: &bfcl.Task{Turns: []bfcl.Turn{{User: "Eat."}}}}))(t)
	news := []rl.Message{{Role: rl.RoleUser, Text: "Eat."}}
	if _, err := d.Reply(t.Context(), news, rl.ToolsNamed([]string{"eat"})); err == nil {
		t.Error("a refused request is no reply, and no error was returned")
	}
}

func TestEverySettingOfAnEndpointIsInItsRequests(t *testing.T) {
	t.Setenv("KEY_ONE", "one-123456")
	t.Setenv("KEY_TWO", "two-123456")
	for _, api := range APIs {
		thinking := map[string]string{"anthropic": "2048", "glm": "disabled"}[api]
		if thinking == "" {
			thinking = "high"
		}
		start := Settings{API: api, Model: "o3-mini", Mode: ModeFC, Key: "KEY_ONE", Temperature: 0.5}
		if api != "openai" {
			start.Model = "m"
		}
		seen := map[string]string{first(t, start): "the first settings"}
		for name, change := range map[string]func(*Settings){
			"model":       func(s *Settings) { s.Model = "o3-large" },
			"mode":        func(s *Settings) { s.Mode = ModePrompt },
			"key":         func(s *Settings) { s.Key = "KEY_TWO" },
			"base_url":    func(s *Settings) { s.BaseURL = "/other" },
			"temperature": func(s *Settings) { s.Temperature, s.Model = 1, strings.Replace(s.Model, "o3-mini", "gpt-4.1", 1) },
			"max_tokens":  func(s *Settings) { s.MaxTokens = 77 },
			"thinking":    func(s *Settings) { s.Thinking = thinking },
			"extra":       func(s *Settings) { s.Extra = json.RawMessage(`{"generationConfig": {"topK": 5}}`) },
		} {
			s := start
			change(&s)
			request := first(t, s)
			if same := seen[request]; same != "" {
				t.Errorf("%s: the request with another %s equals that of %s:\n%s", api, name, same, request)
			}
			seen[request] = name
		}
	}
}

func TestKeysAreSentOverTLSOrToThisMachineOnly(t *testing.T) {
	for text, ok := range map[string]bool{"https://api.example.com/v1": true, "http://127.0.0.1:80": true,
		"http://localhost:8000/v1": true, "http://[::1]:1": true, "http://example.com": false, "ftp://localhost": false,
		"https://user:pass@example.com": false, "http://127.0.0.1.example.com": false, "": false, "https://": false} {
		if err := CheckURL(text); (err == nil) != ok {
			t.Errorf("%q: got %v, want allowed = %v", text, err, ok)
		}
	}
	// A redirect is not followed, so the key does not leave its server.
	other := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		t.Error("the redirect was followed")
	}))
	defer other.Close()
	s := serveReplies(t)
	s.Config.Handler = http.RedirectHandler(other.URL, http.StatusTemporaryRedirect)
	t.Setenv("KEY", "secret-123456")
	s.refuses(t, Settings{API: "openai", Model: "m", Mode: ModePrompt, Key: "KEY"})
}

func TestResponsesWithoutReplyAreToldApart(t *testing.T) {
	for _, c := range []struct {
		status int
		body   string
		want   string
	}{
		{429, "", OutcomeRetry}, {408, "", OutcomeRetry}, {409, "", OutcomeRetry}, {529, "", OutcomeRetry},
		{400, `{"error": {"code": "context_length_exceeded"}}`, OutcomeTooLong},
		{400, `{"type": "error", "error": {"type": "invalid_request_error", "message": "prompt is too long: 2 > 1"}}`,
			OutcomeTooLong},
		{400, `{"error": {"code": 400, "message": "The input token count exceeds the maximum number of tokens allowed"}}`,
			OutcomeTooLong},
		{400, `{"error": {"code": "1261", "message": "Prompt"}}`, OutcomeTooLong}, {413, "", OutcomeTooLong},
		{400, `{"error": {"code": "1301", "message": "unsafe"}}`, OutcomeRefused},
		{400, `{"error": {"code": "content_filter"}}`, OutcomeRefused},
		{400, `{"error": {"message": "unknown field"}}`, OutcomeRejected}, {422, "<html>", OutcomeRejected},
	} {
		if got := failure(c.status, []byte(c.body)); got != c.want {
			t.Errorf("status %d, %s: got %s, want %s", c.status, c.body, got, c.want)
		}
	}
}

func TestTheRateHoldsForAllCallsOfAStage(t *testing.T) {
	r := &Rate{Requests: 600, Logf: t.Logf} // 10 in a second, and a burst of 10
	ctx, stop := context.WithTimeout(t.Context(), time.Second)
	defer stop()
	var taken atomic.Int64
	var all sync.WaitGroup
	began := time.Now()
	for range 4 {
		all.Go(func() {
			for r.Take(ctx, 100) == nil {
				taken.Add(1)
			}
		})
	}
	all.Wait()
	if n, most := taken.Load(), 11+int64(10*time.Since(began).Seconds()); n < 10 || n > most {
		t.Errorf("got %d requests in %v, want the burst of 10 at least and at most %d", n, time.Since(began), most)
	}
}

func TestServersCanPauseCalls(t *testing.T) {
	r := &Rate{Logf: t.Logf}
	header := http.Header{"Retry-After": {"0.3"}, "Anthropic-Ratelimit-Requests-Limit": {"60000"}}
	r.Learn(header, retryAfter(header))
	began := time.Now()
	must.OK(t, r.Take(t.Context(), 1))
	must.OK(t, r.Take(t.Context(), 1))
	if d := time.Since(began); d < 290*time.Millisecond || d > 5*time.Second {
		t.Errorf("the next requests started after %v, want the pause that the API requests", d)
	}
}

// A server can neither stop the calls of a stage for longer than 10 minutes nor limit them to fewer than one in 10
// minutes, and the log shows the requested pause.
func TestLimitsOfServersAreBoundedAndShown(t *testing.T) {
	for _, tc := range []struct {
		header, value string
		wait          time.Duration // of the second request
		log           string
	}{
		{"Retry-After", "Fri, 31 Dec 9999 23:59:59 GMT", 10 * time.Minute, "a pause of 10m0s"},
		{"Retry-After", "1e300", 10 * time.Minute, "a pause of 10m0s"},
		{"Retry-After", "inf", 10 * time.Minute, "a pause of 10m0s"},
		{"Retry-After", "-5", 0, ""},
		{"Retry-After", "nan", 0, ""},
		{"X-Ratelimit-Limit-Requests", "1e-300", 10 * time.Minute, "allows 0.1 requests per minute"},
		{"X-Ratelimit-Limit-Requests", "-3", 0, ""},
		{"X-Ratelimit-Limit-Requests", "1e300", 0, ""},
		{"X-Ratelimit-Limit-Requests", "nan", 0, ""},
		{"X-Ratelimit-Limit-Tokens", "1e-300", 20 * time.Minute, // two calls
			"allows 0.1 tokens per minute"},
		{"X-Ratelimit-Limit-Tokens", "6000", 19 * time.Second, "allows 6000 tokens per minute"}, // 100 in store
		{"X-Ratelimit-Limit-Tokens", "inf", 0, ""},
	} {
		synctest.Test(t, func(t *testing.T) {
			var log strings.Builder
			r := &Rate{Logf: func(format string, args ...any) { fmt.Fprintf(&log, format, args...) }}
			began := time.Now()
			must.OK(t, r.Take(t.Context(), 1000))
			header := http.Header{tc.header: {tc.value}}
			r.Learn(header, retryAfter(header))
			must.OK(t, r.Take(t.Context(), 1000))
			must.OK(t, r.Take(t.Context(), 1000))
			if got := time.Since(began).Round(time.Second); got != tc.wait || log.String() != "" != (tc.log != "") ||
				!strings.Contains(log.String(), tc.log) {
				t.Errorf("%s: %s: waited %v, log %q; want %v and %q", tc.header, tc.value, got, &log, tc.wait, tc.log)
			}
		})
	}
}

func TestATornRecordLosesItsLastLineOnly(t *testing.T) {
	path := filepath.Join(t.TempDir(), "calls.jsonl")
	r := must.Get(openCallRecord(path, Price{}))(t)
	row := Row{Call: Call{Task: "a"}, Attempt: 1, Request: "x", Outcome: OutcomeSent, Dollars: 2}
	must.OK(t, r.write(row))
	row.Outcome, row.Dollars, row.Usage = OutcomeReply, 1, Usage{Input: 1e6}
	must.OK(t, r.write(row))
	must.OK(t, r.close())
	f := must.Get(os.OpenFile(path, os.O_APPEND|os.O_WRONLY, 0))(t)
	must.Get(f.WriteString("\n00000000 {\"task\": \"b\", \"att"))(t)
	must.OK(t, f.Close())
	r = must.Get(openCallRecord(path, Price{Input: 3}))(t)
	defer r.close()
	if c := Sum(r.all(), Price{}); c.Attempts != 1 || c.Replies != 1 || c.Dollars != 3 {
		t.Errorf("got %+v, want the one reply at the new price", c)
	}
	if _, ok := r.find(Call{Task: "a"}, "x"); !ok {
		t.Error("the reply is not found")
	}
	if _, ok := r.find(Call{Task: "a"}, "y"); ok {
		t.Error("another request got the reply")
	}
}

// sent returns the row and the error of a request that the handler answers. The key is sk-Secret/0815.
func sent(t *testing.T, handler http.HandlerFunc) (row Row, log string, err error) {
	t.Helper()
	t.Setenv("TEST_KEY", "sk-Secret/0815")
	s := serveReplies(t)
	s.Config.Handler = handler
	var text strings.Builder
	c := must.Get(newClient(&Settings{API: "openai-chat", Model: "m", BaseURL: s.URL, Key: "TEST_KEY"},
		&Calls{Parallel: 1, Attempts: 1, Timeout: time.Minute}, Price{Input: 1, Output: 1}, &Rate{Logf: t.Logf},
		filepath.Join(t.TempDir(), "calls.jsonl"), func(f string, args ...any) { fmt.Fprintf(&text, f, args...) }))(t)
	defer c.calls.file.Close()
	_, err = c.send(t.Context(), Call{}, []byte(`{}`))
	rows := c.calls.all()
	return rows[len(rows)-1], text.String(), err
}

func TestTheKeyIsInNothingThatAServerSends(t *testing.T) {
	for name, handler := range map[string]http.HandlerFunc{
		"a body": func(w http.ResponseWriter, r *http.Request) {
			http.Error(w, "no sk-Secret/0815", http.StatusInternalServerError)
		},
		"an escaped body": func(w http.ResponseWriter, r *http.Request) {
			http.Error(w, `"\u0073k-Secret\/0815"`, http.StatusBadRequest)
		},
		"a percent-code body": func(w http.ResponseWriter, r *http.Request) {
			http.Error(w, `sk-Secret%2F0815`, http.StatusUnauthorized)
		},
		"a malformed header": func(w http.ResponseWriter, r *http.Request) {
			conn, _, _ := w.(http.Hijacker).Hijack()
			io.WriteString(conn, "HTTP/1.1 200 OK\r\n"+r.Header.Get("Authorization")+" is no header\r\n\r\n")
			conn.Close()
		},
	} {
		row, log, err := sent(t, handler)
		all := fmt.Sprint(row, err, log)
		if err == nil || strings.Contains(all, "Secret") || !strings.Contains(all, "***") {
			t.Errorf("%s: got %s", name, all)
		}
	}
}

// A server puts the key together: of parts of the text in OpenAI's Responses API, strings of Python, folders of a path.
func TestAnEpisodeInWhichPartsMakeTheKeyIsNone(t *testing.T) {
	t.Setenv("TEST_KEY", "sk-Secret/0815")
	folder := fixtures.Benchmark(t)
	asks := []rl.Rollout{{Task: must.Get(bfcl.LoadData(folder))(t).Task("multi_turn_base_0")}}
	for _, text := range []string{`sk-Sec"}, {"type": "output_text", "text": "ret/0815`,
		`[echo(content='sk-Sec' 'ret/0815')]`, `[echo(content='sk-Sec\\\nret/0815')]`,
		`[mkdir(dir_name='sk-Secret'), cd(folder='sk-Secret'), mkdir(dir_name='0815'), cd(folder='0815'), pwd()]`} {
		s := serveReplies(t)
		for _, text := range append([]string{text}, slices.Repeat([]string{"Done."}, 10)...) {
			s.replies = append(s.replies, fmt.Appendf(nil, `{"output": [{"type": "message", "content": [{"type": "output_text",
				"text": "%s"}]}], "usage": {}}`, text))
		}
		m := s.open(t, Settings{API: "openai", Model: "m", Mode: ModePrompt, Key: "TEST_KEY"}, inventedTools{})
		_, err := play(t.Context(), m, folder, blocks.DefaultLimits(), asks, func(*rl.Trajectory) {})
		must.Match(t, err, "replies or results contain the key in TEST_KEY", text)
	}
}

func TestRepliesAreLimitedAfterDecompression(t *testing.T) {
	var packed bytes.Buffer
	z := gzip.NewWriter(&packed)
	for range 100 {
		z.Write(make([]byte, 1<<20))
	}
	must.OK(t, z.Close())
	for _, status := range []int{200, 500} {
		row, _, err := sent(t, func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Encoding", "gzip")
			w.WriteHeader(status)
			w.Write(packed.Bytes())
		})
		line := must.Get(encode(row))(t)
		if err == nil || len(line) > 1<<20 || !strings.Contains(row.Error, "more than 2097152 bytes") {
			t.Errorf("status %d: got a row of %d bytes, %.200s and %v", status, len(line), row.Error, err)
		}
	}
}

// A server cannot hold a call beyond its time, and what it writes into errors and names stays short.
func TestServersNeitherHoldCallsNorFillTheLog(t *testing.T) {
	for name, tc := range map[string]struct {
		handler http.HandlerFunc
		want    string
	}{
		"another protocol": {func(w http.ResponseWriter, r *http.Request) {
			conn, _, _ := w.(http.Hijacker).Hijack()
			io.WriteString(conn, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: x\r\n\r\n")
			io.Copy(io.Discard, conn) // until the client hangs up
		}, "another protocol"},
		"long headers": {func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("X-Long", strings.Repeat("x", 2<<20))
		}, "exceeded 1048576 bytes"},
		"a long number": {func(w http.ResponseWriter, r *http.Request) {
			fmt.Fprintf(w, `{"usage": {"prompt_tokens": %s}}`, strings.Repeat("9", 1<<20))
		}, "cannot be read"},
		"a long model": {func(w http.ResponseWriter, r *http.Request) {
			fmt.Fprintf(w, `{"model": %q, "choices": [{"message": {}}], "usage": {}}`, strings.Repeat("m", 1<<20))
		}, "1048576 bytes"},
	} {
		row, log, err := sent(t, tc.handler)
		text := fmt.Sprint(row.Error, row.Model, log, err)
		if !errors.Is(err, errExhausted) || len(text) > 10_000 || !strings.Contains(text, tc.want) {
			t.Errorf("%s: got %d bytes: %.300s; want %q", name, len(text), text, tc.want)
		}
	}
}

// The requests that follow a reply are those of its record, whatever bytes the server sends, so that a later run reads
// the record and a replay finds no difference.
func TestRepliesThatAreNoUTF8AreThoseOfTheirRecord(t *testing.T) {
	row, _, err := sent(t, func(w http.ResponseWriter, r *http.Request) {
		io.WriteString(w, "{\"choices\": [{\"message\": {\"content\": \"a\xff\xfe\xed\xa0\x80b\"}}], \"usage\": {}}")
	})
	must.OK(t, err)
	var recorded Row
	must.OK(t, json.Unmarshal(must.Get(json.Marshal(row))(t), &recorded))
	if recorded.Response != row.Response || !strings.Contains(row.Response, "a\ufffdb") {
		t.Errorf("the reply is %q, its record %q", row.Response, recorded.Response)
	}
}

// A server whose replies cost nothing cannot fill the memory.
func TestWhatAStageHasInMemoryHasALimit(t *testing.T) {
	s := serveReplies(t)
	s.replies = [][]byte{[]byte(`{"choices": [{"message": {}}], "usage": {}}`)}
	m := s.open(t, Settings{API: "glm", Model: "m"}, inventedTools{})
	reply := Row{Outcome: OutcomeReply, Response: strings.Repeat("x", maxResponse)}
	for reply.Attempt = 1; reply.Attempt <= mostBytes/maxResponse; reply.Attempt++ {
		m.client.calls.put(Row{Attempt: reply.Attempt, Outcome: OutcomeSent})
		m.client.calls.put(reply)
	}
	must.Get(m.client.send(t.Context(), Call{Task: "at the limit"}, []byte(`{}`)))(t)
	_, err := m.client.send(t.Context(), Call{Task: "beyond"}, []byte(`{}`))
	if err == nil || !strings.Contains(err.Error(), "fewer bytes") || len(s.bodies) != 1 {
		t.Errorf("%d requests were sent, want 1, and the error is %v", len(s.bodies), err)
	}
	for i := range mostBytes/meanBytes + 1 { // a stage of many calls
		m.client.calls.put(Row{Call: Call{Member: i}})
	}
	must.OK(t, m.client.calls.check(0, 0))
	m.client.calls.bytes = mostBytes - 5<<19 // room for one conversation, not for another beside the first episode
	s.replies = append(s.replies, s.replies...)
	task := &bfcl.Task{ID: "long", Classes: []string{"TicketAPI"}, Turns: []bfcl.Turn{{User: strings.Repeat("x", 1<<20)}}}
	_, err = play(t.Context(), m, fixtures.Benchmark(t), blocks.DefaultLimits(), []rl.Rollout{{Task: task}, {Task: task}},
		func(*rl.Trajectory) {})
	if err == nil || !strings.Contains(err.Error(), "fewer bytes") || len(s.bodies) != 2 {
		t.Errorf("a long episode: %d requests were sent, want 2, and the error is %v", len(s.bodies), err)
	}
}

// A reply of 2 kB, packed, can have 700,000 calls or parts. Each became an object of the next request: 5 GB of memory
// in the eight conversations of a stage.
func TestRepliesHaveAtMostAsManyValuesAsAModelWrites(t *testing.T) {
	for api, around := range map[string][2]string{
		"openai-chat": {`{"choices": [{"message": {"tool_calls": [`, `{}]}}], "usage": {}}`},
		"openai":      {`{"output": [`, `{}], "usage": {}}`},
		"anthropic":   {`{"content": [`, `{}], "usage": {}}`},
		"google":      {`{"candidates": [{"content": {"parts": [`, `{}]}}], "usageMetadata": {}}`},
	} {
		for n, ok := range map[int]bool{mostCommas - 10: true, mostCommas + 1: false} {
			body := around[0] + strings.Repeat("{},", n) + around[1]
			if _, err := readReply(apis[api], []byte(body)); (err == nil) != ok {
				t.Errorf("%s, %d parts: got %v, want a reply = %v", api, n, err, ok)
			}
		}
	}
	text := strings.Repeat(`,\"`, 2*mostCommas) // of a model that repeats itself
	_, err := readReply(apis["openai-chat"], []byte(`{"choices": [{"message": {"content": "`+text+`"}}], "usage": {}}`))
	must.OK(t, err)
}

// Eight replies of 2 MiB, 2 kB each when packed, took 4.7 GB: their calls are inside of a text, so the values of the
// reply do not count them.
func TestAReplyWithMoreCallsThanAModelWritesYields(t *testing.T) {
	m := serveReplies(t).open(t, Settings{API: "openai-chat", Model: "m"}, inventedTools{})
	list := func(n int, item string) string { return strings.TrimSuffix(strings.Repeat(item+",", n), ",") }
	below, above := strings.Repeat("x", 120<<10), strings.Repeat("x", longestCalls)
	for name, tc := range map[string]struct {
		prompt, arguments string
		want              int
	}{
		"8,000 calls": {"[" + list(8000, "f()") + "]", "{}", 8000},
		"9,000 calls": {"[" + list(9000, "f()") + "]", `{"a": [` + list(9000, "0") + "]}", 0},
		"a text":      {"[f(a='" + below + "')]", `{"a": "` + below + `"}`, 1},
		"a long text": {"[f(a='" + above + "')]", `{"a": "` + above + `"}`, 0},
	} {
		for mode, a := range map[string]answer{ModePrompt: {text: tc.prompt},
			ModeFC: {calls: slices.Repeat([]call{{"1", "f", json.RawMessage(tc.arguments)}}, max(1, tc.want))}} {
			m.client.settings.Mode = mode
			d := &dialogue{Model: m}
			if got := len(d.addReply(apis["openai-chat"], a).Calls); got != tc.want {
				t.Errorf("%s, %s: got %d calls, want %d", mode, name, got, tc.want)
			}
		}
	}
	m.client.settings.Mode = ModeFC
	d := &dialogue{Model: m}
	a := answer{calls: []call{{"1", "f(a='" + above + "') #", json.RawMessage("{}")}}}
	if got := d.addReply(apis["openai-chat"], a).Calls; got != nil {
		t.Errorf("a long name: got %d calls", len(got))
	}
}

// Short replies can make results of megabytes, in a thousand conversations at once.
func TestConversationsInProgressCount(t *testing.T) {
	s := serveReplies(t)
	reply := []byte(`{"choices": [{"message": {}}], "usage": {}}`)
	s.replies = [][]byte{reply, reply}
	m := s.open(t, Settings{API: "glm", Model: "m", Mode: ModeFC}, inventedTools{})
	calls := m.client.calls
	for _, tc := range []struct {
		before int
		want   string
	}{{0, ""}, {mostBytes - 2000, "lower calls.parallel"}, {mostBytes - 4000, ""}} {
		calls.bytes = tc.before
		d := must.Get(m.Open(t.Context(), rl.Rollout{Task: &bfcl.Task{Turns: []bfcl.Turn{{User: "Go on."}}}}))(t)
		_, err := d.Reply(t.Context(), []rl.Message{{Role: rl.RoleUser, Text: strings.Repeat("x", 1001)}}, nil)
		must.Match(t, err, tc.want)
		d.Close()
		if left := calls.bytes - tc.before; left != 0 && left != len(reply) {
			t.Errorf("%d bytes are left of a conversation", left)
		}
	}
}

func TestALongConversationEndsItsEpisode(t *testing.T) {
	s := serveReplies(t)
	m := s.open(t, Settings{API: "glm", Model: "m", Mode: ModeFC}, inventedTools{})
	d := must.Get(m.Open(t.Context(), rl.Rollout{Task: &bfcl.Task{Turns: []bfcl.Turn{{User: "Go on."}}}}))(t)
	long := []rl.Message{{Role: rl.RoleUser, Text: strings.Repeat("x", maxRequest)}}
	reply, err := d.Reply(t.Context(), long, nil)
	if err != nil || reply.Stop != rl.StopLength || len(s.bodies) > 0 {
		t.Errorf("%d requests were sent, and the episode ended with %q: %v", len(s.bodies), reply.Stop, err)
	}
}

// A stranger's manifest can record a file of any size.
func TestALargeEndpointIsNotRead(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, EndpointFile)
	must.OK(t, os.WriteFile(file, nil, 0o600))
	must.OK(t, os.Truncate(file, 1<<40))
	_, err := ReadSettings(&artifact.Artifact{Dir: dir})
	must.Match(t, err, "1099511627776 bytes; at most")
}

func TestUsageThatCannotBeIsNoReply(t *testing.T) {
	for usage, want := range map[string]string{`-1000000`: "usage of -1000000", `99999999999`: "usage of 99999999999",
		`3`: ""} {
		row, _, err := sent(t, func(w http.ResponseWriter, r *http.Request) {
			fmt.Fprintf(w, `{"model": "m", "choices": [{"message": {"content": "Hi"}, "finish_reason": "stop"}],
				"usage": {"prompt_tokens": %s, "completion_tokens": 1}}`, usage)
		})
		if row.Dollars < 0 || (err == nil) != (want == "") || !strings.Contains(row.Error, want) {
			t.Errorf("%s tokens: got %+v and %v, want %q", usage, row, err, want)
		}
	}
}

// Of a server whose replies cannot be read, or that closes connections, a budget would allow any number of calls.
func TestAttemptsWithoutAReplyCost(t *testing.T) {
	for _, rest := range []string{`"choices": []}`, `"x": [` + strings.Repeat("0,", mostCommas+2) + `0]}`, ""} {
		row, _, err := sent(t, func(w http.ResponseWriter, _ *http.Request) {
			if rest == "" {
				panic(http.ErrAbortHandler)
			}
			io.WriteString(w, `{"usage": {"prompt_tokens": 1000000, "completion_tokens": 1000000}, `+rest)
		})
		if err == nil || row.Dollars != 2 && (rest != "" || row.Dollars != 0.0003) {
			t.Errorf("%.60s: got $%g and %v, want $2, or $0.0003 without a body, and an error", rest, row.Dollars, err)
		}
	}
}
