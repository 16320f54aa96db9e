package serve

import (
	"bufio"
	"cmp"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sync/semaphore"

	"rcgrpo/internal/must"
	"rcgrpo/stages/internal/chat"
	"rcgrpo/stages/internal/token"
	"rcgrpo/stages/rl"
)

// Each of these took between 16 s and minutes, or ended the process.
func TestLargeRequestsAreAnsweredInLinearTime(t *testing.T) {
	l := newLab(t, "qwen", 4, nil, func(c *Config) { c.MaxBody = 16 << 20 })
	const head = `{"model": "tiny", "messages": [{"role": "user", "content": "Hi"}`
	repeat := func(n int, item string) string { return strings.TrimSuffix(strings.Repeat(item+",", n), ",") }
	keys := &strings.Builder{}
	for i := range 70_000 {
		fmt.Fprintf(keys, `%q: {},`, fmt.Sprint("key", i))
	}
	for name, tc := range map[string]struct{ body, want string }{
		"arguments nested 1,000,000 times": {head + `, {"role": "assistant", "tool_calls": [{"id": "1", "type": "function",
			"function": {"name": "f", "arguments": "` + strings.Repeat("[", 1_000_000) + `"}}]}]}`, "nested deeper than 100"},
		"a call with 4,000,000 numbers": {head + `, {"role": "assistant", "tool_calls": [{"function": {"name": "f",
			"arguments": "[` + repeat(4_000_000, "1") + `]"}}]}]}`, "the calls have more than 1048576 bytes"},
		"240,000 messages": {head + "," + repeat(120_000,
			`{"role": "assistant", "content": "a"},{"role": "user", "content": "b"}`) + `]}`, "context_length_exceeded"},
		"180,000 parts": {`{"model": "tiny", "messages": [{"role": "user", "content": [` +
			repeat(180_000, `{"type": "text", "text": "abcdefgh"}`) + `]}]}`, "context_length_exceeded"},
		"70,000 keys": {head + `], "tools": [{"type": "function", "function": {"name": "f", "parameters": {` +
			keys.String() + `"z": 1}}}]}`, "context_length_exceeded"},
		"4,000,000 ids that each token is compared with": {head + `], "stop_token_ids": [` + repeat(4_000_000, "1") + `]}`,
			"at most 256 stop_token_ids"},
		"a tool with 4,000,000 numbers": {head + `], "tools": [{"type": "function", "function": {"name": "f",
			"parameters": {"enum": [` + repeat(4_000_000, "1") + `]}}}]}`, "the tools have more than 1048576 bytes"},
		"a tool with a name of 1 MB": {head + `], "tools": [{"type": "function", "function": {"name": "` +
			strings.Repeat("f", 1_000_000) + `"}}]}`, "has at most 256 bytes; got 1000000"},
		"a stop string of 8 MiB": {head + `], "stop": "` + strings.Repeat("a", 8<<20) + `"}`, "at most 1000 bytes"},
	} {
		start := time.Now()
		status, text, _ := l.post("/v1/chat/completions", tc.body)
		took := time.Since(start)
		// With the race detector, a busy machine takes 20 s.
		if status != http.StatusBadRequest || !strings.Contains(text, tc.want) || took > time.Minute {
			t.Errorf("%s: got %d %.200s after %v, want 400 with %q", name, status, text, took, tc.want)
		}
	}
	status, text, _ := l.post("/v1/completions", `{"model": "tiny", "prompt": "`+strings.Repeat("a", 8<<20)+`"}`)
	if status != http.StatusBadRequest || !strings.Contains(text, "context_length_exceeded") {
		t.Errorf("a prompt of 8 MiB: got %d %.200s", status, text)
	}
	status, _, _ = l.post("/v1/completions", `{"model": "tiny", "prompt": "in the town", "max_tokens": 1}`)
	if status != 200 {
		t.Errorf("afterwards: got %d", status)
	}
}

// talk sends text on a connection of its own and returns what the server sends until it closes the connection.
func talk(t *testing.T, address, text string) (reply string, took time.Duration) {
	t.Helper()
	conn := must.Get(net.Dial("tcp", address))(t)
	defer conn.Close()
	start := time.Now()
	must.Get(io.WriteString(conn, text))(t)
	must.OK(t, conn.SetReadDeadline(start.Add(20*time.Second)))
	raw, err := io.ReadAll(conn)
	if errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("after %q the server keeps the connection", text)
	}
	return string(raw), time.Since(start)
}

func TestNoClientHoldsAConnection(t *testing.T) {
	l := newLab(t, "qwen", 4, nil, func(c *Config) { c.Key, c.Timeout = "secret", 300*time.Millisecond })
	h := NewHTTP(l.Server)
	for name, limit := range map[string]*time.Duration{"header": &h.ReadHeaderTimeout, "read": &h.ReadTimeout,
		"write": &h.WriteTimeout, "idle": &h.IdleTimeout} {
		if *limit <= 0 || *limit > 2*time.Minute {
			t.Errorf("the %s limit is %v", name, *limit)
		}
		*limit = 500 * time.Millisecond
	}
	h.WriteTimeout = 5 * time.Second // a reply follows the read limit of a body that nothing reads
	listener := must.Get(net.Listen("tcp", "127.0.0.1:0"))(t)
	l.Addr = listener.Addr().String()
	go h.Serve(listener)
	defer h.Close()
	const key = "Authorization: Bearer secret\r\n"
	get := "GET /health HTTP/1.1\r\nHost: " + l.Addr + "\r\n"
	post := "POST /v1/completions HTTP/1.1\r\nHost: " + l.Addr +
		"\r\nContent-Type: application/json\r\nContent-Length: 100\r\n"
	for name, tc := range map[string]struct{ text, want string }{
		"half a header":                    {"GET /health HTTP/1.1\r\nHo", ""},
		"a long header":                    {get + "X: " + strings.Repeat("x", 100<<10) + "\r\n\r\n", "431 Request Header"},
		"a body that never comes":          {get + "Content-Length: 1\r\n\r\n", "200 OK"},
		"a body without a key":             {post + "\r\n{", "401 Unauthorized"},
		"a body with a key":                {post + key + "\r\n{", "408 Request Timeout"},
		"nothing after a complete request": {get + "\r\n", "200 OK"},
	} {
		reply, _ := talk(t, l.Addr, tc.text)
		status, _ := bufio.NewReader(strings.NewReader(reply)).ReadString('\n')
		if !strings.Contains(status, tc.want) {
			t.Errorf("%s: got %q, want %s", name, status, tc.want)
		}
	}
}

func TestTemperaturesThatLoseTheDifferencesOfTokensAreRefused(t *testing.T) {
	l := newLab(t, "qwen", 4, nil, nil)
	for temperature, want := range map[string]int{"1e-30": 400, "1e-9": 400, "0.0009": 400, "0.001": 200, "0": 200,
		"101": 400} {
		status, text, _ := l.post("/v1/completions", `{"model": "tiny", "prompt": "in", "max_tokens": 1, "temperature": `+
			temperature+`}`)
		if status != want {
			t.Errorf("temperature %s: got %d %s, want %d", temperature, status, text, want)
		}
	}
}

func TestRequestForMoreRepliesThanTheServerHoldsIsAnError(t *testing.T) {
	l := newLab(t, "qwen", 2, nil, func(c *Config) { c.Queue = 3 })
	status, text, _ := l.post("/v1/completions", `{"model": "tiny", "prompt": "in", "max_tokens": 1, "n": 6}`)
	if status != 400 || !strings.Contains(text, "at most 5 replies") {
		t.Errorf("got %d %s, want 400", status, text)
	}
}

// notFinite draws with the logprob NaN where the prompt has the word weather, and +Inf where it has the word rain.
type notFinite struct{ *sampler }

func (s notFinite) Next(ctx context.Context, rs []rl.Request) ([]rl.Draw, error) {
	draws, err := s.sampler.Next(ctx, rs)
	for i, r := range rs {
		for word, logp := range map[string]float64{"weather": math.NaN(), "rain": math.Inf(1)} {
			if strings.Contains(s.tok.Decode(s.slots[r.Slot], false), word) {
				draws[i].Logp = float32(logp)
			}
		}
	}
	return draws, err
}

func TestLogprobThatIsNotFiniteFailsItsReplyOnly(t *testing.T) {
	log := must.Get(NewLog(filepath.Join(t.TempDir(), rl.TrajectoriesFile)))(t)
	l := newLab(t, "qwen", 2, nil, func(c *Config) { c.Log = log })
	l.Batcher = rl.NewBatcher(notFinite{l.sampler})
	for prompt, want := range map[string]int{"in the town": 200, "the weather": 500, "the rain": 500} {
		status, text, _ := l.post("/v1/completions", `{"model": "tiny", "max_tokens": 2, "seed": 1, "prompt": "`+prompt+`"}`)
		if status != want {
			t.Errorf("%s: got %d %s, want %d", prompt, status, text, want)
		}
	}
	must.OK(t, log.Close())
	if rows := logRows(t, log.path); len(rows) != 1 {
		t.Errorf("got %d rows, want that of the finite reply", len(rows))
	}
}

// logRows returns the lines of a log.
func logRows(t *testing.T, path string) []string {
	t.Helper()
	f := must.Get(os.Open(path))(t)
	defer f.Close()
	text := must.Get(io.ReadAll(must.Get(gzip.NewReader(f))(t)))(t)
	return strings.Split(strings.TrimSuffix(string(text), "\n"), "\n")
}

// Without Close, as after a kill.
func TestLogIsReadableAtAnyTimeAndOneRowHarmsNoOther(t *testing.T) {
	path := filepath.Join(t.TempDir(), rl.TrajectoriesFile)
	synctest.Test(t, func(t *testing.T) {
		l := must.Get(NewLog(path))(t)
		for i, logp := range []float32{-1, float32(math.Inf(1)), -2} {
			e := &logged{at: time.Now()}
			e.Task, e.IDs, e.Mask, e.Logp = fmt.Sprint("served_", i), []int32{1}, []bool{true}, []float32{logp}
			e.Reward, e.RState, e.RAction = rl.MissingReward(), rl.MissingReward(), rl.MissingReward()
			l.open = append(l.open, e)
		}
		l.expire()
		if got := logRows(t, path); len(l.open) != 3 || len(got) != 1 || got[0] != "" {
			t.Errorf("within a minute: got %d open, rows %q, want 3 and none", len(l.open), got)
		}
		time.Sleep(openFor)
		l.expire()
		got := logRows(t, path)
		if len(got) != 2 || !strings.Contains(got[0], "served_0") || !strings.Contains(got[1], "served_2") {
			t.Errorf("after a minute: got %q, want the rows that JSON can represent", got)
		}
		must.Match(t, l.Close(), "served_1 is not in the log", "the lost row")
	})
}

// counted counts the requests that become prompts at once.
type counted struct {
	chat.Codec
	now, most atomic.Int64
}

func (c *counted) Header(reward string) []int32 {
	n := c.now.Add(1)
	for most := c.most.Load(); n > most && !c.most.CompareAndSwap(most, n); most = c.most.Load() {
	}
	time.Sleep(20 * time.Millisecond) // for the others to come
	c.now.Add(-1)
	return c.Codec.Header(reward)
}

// Forty requests of 8 MiB took 11 GB when all became prompts at once, and one for each of 8 agents 4 GB.
func TestFewRequestsBecomePromptsAtOnce(t *testing.T) {
	for bytes, most := range map[int]int64{0: mostPrompts, 600 << 10: 1} { // of a body of at most 1 MiB
		codec, shared := &counted{}, semaphore.NewWeighted(1<<20)
		var servers [2]*lab
		for i := range servers {
			servers[i] = newLab(t, "qwen", 4, nil, func(c *Config) {
				codec.Codec, c.Codec, c.Prompts = cmp.Or(codec.Codec, c.Codec), codec, shared
			})
		}
		body := `{"model": "tiny", "max_tokens": 1, "messages": [{"role": "user", "content": "Hi"}], "user": "` +
			strings.Repeat("a", bytes) + `"}`
		var clients sync.WaitGroup
		for i := range 8 * mostPrompts {
			clients.Go(func() {
				if status, text, _ := servers[i%2].post("/v1/chat/completions", body); status != 200 {
					t.Errorf("got %d %s", status, text)
				}
			})
		}
		clients.Wait()
		if got := codec.most.Load(); got > most {
			t.Errorf("%d requests with %d bytes more became prompts at once, want at most %d", got, bytes, most)
		}
	}
}

func TestRequestsWhoseBodiesAreReadCountAsReplies(t *testing.T) {
	l := newLab(t, "qwen", 2, nil, func(c *Config) { c.Queue = 0 })
	const body = `{"model": "tiny", "prompt": "in", "max_tokens": 1}`
	var slow []net.Conn
	for i := range 2 {
		conn := must.Get(net.Dial("tcp", l.Addr))(t)
		defer conn.Close()
		slow = append(slow, conn)
		fmt.Fprintf(conn, "POST /v1/completions HTTP/1.1\r\nHost: %s\r\nContent-Type: application/json\r\n"+
			"Connection: close\r\nContent-Length: %d\r\n\r\n%s", l.Addr, len(body), body[:5])
		for l.requests.Load() <= int64(i) {
			time.Sleep(time.Millisecond)
		}
	}
	if status, text, _ := l.post("/v1/completions", body); status != 429 || !strings.Contains(text, "queue_full") {
		t.Errorf("a third one: got %d %s, want 429", status, text)
	}
	for _, conn := range slow {
		must.Get(io.WriteString(conn, body[5:]))(t)
		if reply := must.Get(io.ReadAll(conn))(t); !strings.Contains(string(reply), "200 OK") {
			t.Errorf("got %.200s, want 200", reply)
		}
	}
	if status, _, _ := l.post("/v1/completions", body); status != 200 {
		t.Errorf("afterwards: got %d, want 200", status)
	}
}

// A disk that is full in the middle of a row.
func TestATornRowOfALogHidesNoOther(t *testing.T) {
	path := filepath.Join(t.TempDir(), rl.TrajectoriesFile)
	l := must.Get(NewLog(path))(t)
	var was syscall.Rlimit
	must.OK(t, syscall.Getrlimit(syscall.RLIMIT_FSIZE, &was))
	signal.Ignore(syscall.SIGXFSZ)
	t.Cleanup(func() { signal.Reset(syscall.SIGXFSZ) })
	for i := range 3 {
		limit := was
		if i == 1 {
			limit.Cur = uint64(must.Get(os.Stat(path))(t).Size()) + 20
		}
		must.OK(t, syscall.Setrlimit(syscall.RLIMIT_FSIZE, &limit))
		err := l.write(&rl.Trajectory{Task: fmt.Sprint("served_", i)})
		must.OK(t, syscall.Setrlimit(syscall.RLIMIT_FSIZE, &was))
		if (err != nil) != (i == 1) {
			t.Errorf("row %d: got %v, want an error of the second row", i, err)
		}
	}
	if got := logRows(t, path); len(got) != 2 || !strings.Contains(got[1], "served_2") {
		t.Errorf("got %q, want the rows before and after the torn one", got)
	}
}

// The server may be killed hours after its last request.
func TestAConversationIsWrittenAMinuteAfterItsLastReply(t *testing.T) {
	s := newLab(t, "qwen", 1, nil, nil).Server
	synctest.Test(t, func(t *testing.T) {
		l := must.Get(NewLog(filepath.Join(t.TempDir(), rl.TrajectoriesFile)))(t)
		must.OK(t, l.add(&choice{s: s, q: &request{}, prompt: []int32{1}, draws: []rl.Draw{{Token: 2}}}))
		time.Sleep(openFor + time.Second)
		synctest.Wait()
		if got := logRows(t, l.path); !strings.Contains(got[0], "served_1") {
			t.Errorf("got %q, want the row of the conversation", got)
		}
	})
}

// Eighty requests of 128 kB for eight replies to the id of a long token held 4.4 GB for a minute. Messages without a
// text count, too: 16 MiB of requests for them took a gigabyte more.
func TestOpenConversationsHaveALimitOfBytes(t *testing.T) {
	s := newLab(t, "qwen", 1, nil, nil).Server
	l := must.Get(NewLog(filepath.Join(t.TempDir(), rl.TrajectoriesFile)))(t)
	const others = openBytes - 600
	l.bytes = others
	add := func(id int32) error {
		return l.add(&choice{s: s, q: &request{}, prompt: []int32{id}, draws: []rl.Draw{{Token: 9}}})
	}
	synctest.Test(t, func(t *testing.T) {
		for id := range int32(3) {
			must.OK(t, add(id))
			synctest.Wait()
		}
	})
	if got := logRows(t, l.path); len(got) != 2 || len(l.open) != 1 || l.bytes != others+l.open[0].bytes {
		t.Errorf("got %q, %d open conversations and %d bytes, want the rows of two and the bytes of the third", got,
			len(l.open), l.bytes-others)
	}
	l.writing.Lock() // by a slow writer, for which no reply waits
	l.bytes += openBytes
	must.OK(t, add(4))
	must.Match(t, add(5), "is not written, because 2 before it are not written yet")
	l.bytes -= openBytes
	l.writing.Unlock()
	must.OK(t, l.Close())
	if l.bytes != others {
		t.Errorf("%d bytes are left of no conversation", l.bytes-others)
	}
}

// An episode that refuses a prompt has a reply without draws for each prompt before it, so that nothing seems to be
// sampled for ever.
func TestARefusedPromptEndsThoseBeforeIt(t *testing.T) {
	streams, replies := 0, 0
	l := newLab(t, "qwen", 4, nil, func(c *Config) {
		c.Sampling = &Sampling{Temperature: 1, TopP: 1, Reply: 5, Stream: func(prompt []int32) (s rl.Stream, err error) {
			if streams++; streams == 3 {
				err = errors.New("the episode has had its 2 requests")
			}
			return s, err
		}, Sampled: func(r Reply) { replies += 1 + len(r.Draws) }}
	})
	status, text, _ := l.post("/v1/completions", `{"model": "tiny", "prompt": ["a", "b", "c"]}`)
	if status != http.StatusTooManyRequests || replies != 2 {
		t.Errorf("got status %d %s and %d replies or draws, want 429 and 2", status, text, replies)
	}
}

// Ten requests of 115 bytes for eight replies with 20 alternatives held 3 GB until their clients read them. One request
// of 1.1 MB for 280 echoes took 1.8 GB, 4.3 GB in half the bytes if each character of the token is escaped in JSON.
func TestLogprobsInMemoryHaveALimit(t *testing.T) {
	shared := new(atomic.Int64) // by the servers of the episodes of an agent
	l := newLab(t, "qwen", 4, nil, func(c *Config) { c.Queue, c.Logprobs = 600, shared })
	const plain, withLogprobs = `{"model": "tiny", "prompt": "in", "max_tokens": 9}`,
		`{"model": "tiny", "prompt": "in", "max_tokens": 9, "logprobs": 1, "n": 2}` // 36
	many := `{"model": "tiny", "max_tokens": 1, "logprobs": 5, "n": 8, "echo": true, "prompt": [` + strings.TrimSuffix(
		strings.Repeat("["+strings.TrimSuffix(strings.Repeat("40,", 1900), ",")+"],", 50), ",") + `]}`
	const echo = `{"model": "tiny", "prompt": "in the town", "max_tokens": 1, "echo": true, "n": 8}` // 8, for 88 bytes
	for _, tc := range []struct {
		others       int64
		body, reason string
		want         int
	}{
		{0, many, "may get 2097152 logprobs", http.StatusBadRequest},
		{mostLogprobs - 35, withLogprobs, "may get 2097152 logprobs", http.StatusTooManyRequests},
		{mostLogprobs - 36, withLogprobs, "", http.StatusOK},
		{mostLogprobs, plain, "", http.StatusOK},
		{mostLogprobs - 7, echo, "may get 2097152 logprobs", http.StatusTooManyRequests},
		{mostLogprobs - 8, echo, "", http.StatusOK},
	} {
		shared.Store(tc.others)
		status, text, _ := l.post("/v1/completions", tc.body)
		if status != tc.want || !strings.Contains(text, tc.reason) {
			t.Errorf("%.60s: got %d %.300s, want %d with %q", tc.body, status, text, tc.want, tc.reason)
		}
		for l.requests.Load() > 0 { // its reply is read before it ends
			time.Sleep(time.Millisecond)
		}
		if got := shared.Load(); got != tc.others {
			t.Errorf("%.60s: %d logprobs are counted afterwards, want %d", tc.body, got, tc.others)
		}
	}
}

// One conversation of 200,000 messages held the log, and so all replies, for 50 seconds.
func TestManyMessagesAreLoggedInLinearTime(t *testing.T) {
	e, begin := &logged{}, time.Now()
	e.say(rl.Message{Role: rl.RoleUser})
	for range 500_000 {
		e.say(rl.Message{Role: rl.RoleTool})
	}
	e.say(rl.Message{Role: rl.RoleUser})
	if took, turn := time.Since(begin), e.Messages[len(e.Messages)-1].Turn; took > 20*time.Second || turn != 1 {
		t.Errorf("500,000 messages took %v; the last one is of turn %d", took, turn)
	}
}

// A row of 8 MB was compressed for seconds, while all replies waited for the log.
func TestALongConversationIsNotLogged(t *testing.T) {
	l, log := newLab(t, "qwen", 1, nil, nil), must.Get(NewLog(filepath.Join(t.TempDir(), "log.gz")))(t)
	const long = "is not written, because its context has at most"
	for _, tc := range []struct {
		text, tool, want string
	}{
		{strings.Repeat("a", 50_000), "", ""},
		{strings.Repeat("a", 100_000), "", long},
		{"", strings.Repeat("b", 100_000), long}, // 300 such rows held all replies, too
	} {
		v := &chat.Conversation{Turns: []chat.Turn{{Role: rl.RoleUser, Text: tc.text}}, Tools: []rl.Tool{{Name: tc.tool}}}
		must.Match(t, log.add(&choice{s: l.Server, prompt: make([]int32, 9), q: &request{conversation: v}}), tc.want)
	}
	turns := []chat.Turn{{Role: rl.RoleUser}, {Role: rl.RoleAssistant},
		{Role: rl.RoleUser, Text: strings.Repeat("a", 99_000)}}
	must.Match(t, log.add(&choice{s: l.Server, prompt: make([]int32, 11),
		q: &request{conversation: &chat.Conversation{Turns: turns}}}), long)
	must.OK(t, log.Close())
	if got := logRows(t, log.path); len(got) != 1 || len(got[0]) < 50_000 {
		t.Errorf("got %d rows, want the conversation that the last one continued", len(got))
	}
}

// 24 chats with a model that always samples a token of a kilobyte took 4.8 GB.
func TestRepliesEndAtALimitOfBytes(t *testing.T) {
	l := newLab(t, "qwen", 1, nil, nil)
	c := &choice{s: l.Server, q: &request{}, text: make([]byte, rl.LongestReply-1)}
	one := rl.Draw{Token: l.Tokenizer.Encode("a")[0]}
	if c.add(one) || !c.add(one) || c.finish != "length" {
		t.Errorf("a reply of %d bytes ends with %q", len(c.text), c.finish)
	}
	// 40 chats at once in each episode of an agent took 5 GB.
	long := strings.Repeat("x", rl.BytesPerToken+10)
	l.Tokenizer = must.Get(token.Train([]string{"a text"}, 300, []string{long}))(t)
	l.Sampling = &Sampling{Left: new(atomic.Int64)}
	l.Sampling.Left.Store(19)
	one.Token = l.Tokenizer.EncodeAs(long, token.Everything)[0]
	first, second := &choice{s: l.Server, q: &request{}}, &choice{s: l.Server, q: &request{}}
	if first.add(one) || !second.add(one) || second.finish != "length" {
		t.Errorf("replies with %d bytes too many in all end with %q and %q", -l.Sampling.Left.Load(), first.finish,
			second.finish)
	}
}

// The alternatives of 8,150 tokens, each of a kilobyte, took over 9 GB.
func TestNamesOfLogprobsHaveALimit(t *testing.T) {
	name := "<|" + strings.Repeat("x", 40) + "|>"
	tok := must.Get(token.Train([]string{"a text"}, 300, []string{name}))(t)
	l := newLab(t, "qwen", 1, nil, func(c *Config) { c.Tokenizer = tok })
	long := tok.EncodeAs(name, token.Everything)[0]
	one := slices.Repeat([]rl.Draw{{Token: long, Top: []rl.Ranked{{Token: long}}}}, 1600)
	short := slices.Repeat([]rl.Draw{{Token: tok.Encode("a")[0]}}, 1600)
	for _, tc := range []struct {
		logprobs bool
		text     int
		draws    []rl.Draw
		want     int
	}{
		{true, 0, one, 3200 * (44 - nameOfLogprob)},
		{true, 0, short, 0},
		{false, 51_200, one, 51_200}, // 320 replies of 256 KiB, of one request, took 2.6 GB
	} {
		c := &choice{s: l.Server, q: &request{logprobs: tc.logprobs}}
		if got := c.textBytes(tc.text, tc.draws); got != tc.want {
			t.Errorf("%d draws with logprobs %v, and a text of %d bytes, have %d bytes, want %d",
				len(tc.draws), tc.logprobs, tc.text, got, tc.want)
		}
	}
	q := &request{ctx: t.Context()}
	_, err := l.write(q, MostText+1)
	must.Match(t, err, "33554432 are written at once")
	written := must.Get(l.write(q, MostText))(t)
	must.Get(l.write(q, 64<<10-1))(t)
	var cancel func()
	q.ctx, cancel = context.WithTimeout(q.ctx, 50*time.Millisecond)
	defer cancel()
	_, err = l.write(q, 64<<10)
	must.Match(t, err, "deadline exceeded")
	written()
	q.ctx = t.Context()
	must.Get(l.write(q, MostText))(t)()
}

// unreadable is a response whose client reads nothing, or takes a while for each event.
type unreadable struct {
	http.ResponseWriter
	until  time.Time
	while  time.Duration
	writes int
}

func (u *unreadable) SetWriteDeadline(t time.Time) error { u.until = t; return nil }
func (u *unreadable) Flush()                             {}

func (u *unreadable) Write(b []byte) (int, error) {
	u.writes++
	time.Sleep(u.while)
	return u.ResponseWriter.Write(b)
}

// Before, it held the reply for the timeout of the request.
func TestAReplyIsReadWithinAMinute(t *testing.T) {
	for _, stream := range []bool{false, true} {
		l := newLab(t, "qwen", 4, nil, func(c *Config) { c.Timeout = time.Hour })
		body := fmt.Sprintf(`{"model": "tiny", "prompt": "in", "max_tokens": 9, "n": 2, "stream": %v}`, stream)
		r := httptest.NewRequest(http.MethodPost, "http://"+l.Addr+"/v1/completions", strings.NewReader(body))
		r.Header.Set("Content-Type", "application/json")
		u := &unreadable{ResponseWriter: httptest.NewRecorder()}
		l.ServeHTTP(u, r)
		if left := time.Until(u.until); left <= 0 || left > time.Minute {
			t.Errorf("stream %v: the client has %v to read the reply, want a minute", stream, left)
		}
	}

	l := newLab(t, "qwen", 64, nil, func(c *Config) { c.Timeout = time.Hour })
	l.unread = 100 * time.Millisecond
	prompts := strings.Repeat(`"in",`, 63) + `"in"`
	r := httptest.NewRequest(http.MethodPost, "http://"+l.Addr+"/v1/completions",
		strings.NewReader(`{"model": "tiny", "prompt": [`+prompts+`], "max_tokens": 1, "stream": true}`))
	r.Header.Set("Content-Type", "application/json")
	u := &unreadable{ResponseWriter: httptest.NewRecorder(), while: l.unread}
	if l.ServeHTTP(u, r); u.writes > 8 { // a timer may be late
		t.Errorf("the client had %d of 64 events, each for the time that it has for all of them, want two", u.writes)
	}
}
