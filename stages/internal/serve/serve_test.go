package serve

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"rcgrpo/bench/fixtures"
	"rcgrpo/internal/must"
	"rcgrpo/stages/internal/chat"
	"rcgrpo/stages/internal/token"
	"rcgrpo/stages/rl"
)

// sampler draws from a hash of the sequence and the uniform number, or replies to prompts by a script.
type sampler struct {
	tok    *token.Tokenizer
	stop   string // the token that ends a reply
	script func(prompt string) (reply string)
	slots  [][]int32
	reply  [][]int32 // rest of the open reply
	wait   func()    // before each batch

	mu      sync.Mutex
	prompts []string // of scripted replies
}

func (s *sampler) Slots() int     { return len(s.slots) }
func (s *sampler) MaxLen() int    { return 2000 }
func (s *sampler) Cut(i, n int)   { s.slots[i], s.reply[i] = s.slots[i][:n], nil }
func (s *sampler) Release() error { return nil }
func (s *sampler) Next(_ context.Context, rs []rl.Request) ([]rl.Draw, error) {
	if s.wait != nil {
		s.wait()
	}
	draws := make([]rl.Draw, len(rs))
	for i, r := range rs {
		old := len(s.slots[r.Slot])
		s.slots[r.Slot] = append(slices.Clone(s.slots[r.Slot]), r.Feed...)
		seq := s.slots[r.Slot]
		h := uint64(14695981039346656037)
		for _, id := range seq {
			h = (h ^ uint64(id)) * 1099511628211
		}
		next := int32((h>>20 + uint64(r.U*1e9)) % uint64(s.tok.Size()))
		if end, _ := s.tok.ID(s.stop); s.script == nil && (h>>8)%12 == 0 {
			next = end
		}
		if s.script != nil {
			if old == 0 || len(r.Feed) > 1 || len(s.reply[r.Slot]) == 0 {
				text := s.tok.Decode(seq, false)
				s.mu.Lock()
				s.prompts = append(s.prompts, text)
				s.mu.Unlock()
				s.reply[r.Slot] = s.tok.EncodeAs(s.script(text), token.Everything)
			}
			next, s.reply[r.Slot] = s.reply[r.Slot][0], s.reply[r.Slot][1:]
		}
		draws[i] = rl.Draw{Token: next, Logp: -float32(h%1000) / 100}
		if r.Given != nil {
			draws[i].Token = *r.Given
		}
		for k := range r.Top {
			draws[i].Top = append(draws[i].Top, rl.Ranked{Token: int32(k + 40), Logp: -float32(k)})
		}
	}
	return draws, nil
}

// vocabulary is a small one with the special tokens of the drills and of Qwen's layout.
var vocabulary = sync.OnceValues(func() (*token.Tokenizer, error) {
	return token.Train([]string{"the weather in the town is fine. mv(source='a', destination='b')"}, 360,
		slices.Concat(chat.DrillTokens, chat.RewardTokens, []string{"<|im_start|>", "<|im_end|>", "<|endoftext|>"}))
})

type lab struct {
	*Server
	http    *httptest.Server
	sampler *sampler
	t       testing.TB
}

// newLab serves Qwen's layout, or that of the drills, with a scripted or a hashing sampler.
func newLab(t testing.TB, layout string, slots int, script func(string) string, change func(*Config)) *lab {
	t.Helper()
	tok := must.Get(vocabulary())(t)
	var codec chat.Codec
	stop := "<|end|>"
	if layout == "drill" {
		codec = must.Get(chat.NewDrill(tok, rl.BeforeEachAction))(t)
	} else {
		family := must.Get(chat.NewTemplate(chat.LayoutTemplate("qwen2.5"), nil, false))(t)
		codec = must.Get(family.New(tok, nil, rl.FirstUser))(t)
		stop = "<|im_end|>"
	}
	s := &sampler{tok: tok, stop: stop, script: script, slots: make([][]int32, slots), reply: make([][]int32, slots)}
	h := httptest.NewUnstartedServer(nil)
	c := Config{Name: "tiny", Aliases: []string{"/models/tiny"}, Batcher: rl.NewBatcher(s), Codec: codec, Tokenizer: tok,
		Position: rl.FirstUser, Addr: h.Listener.Addr().String(), Queue: 256, MaxBody: 1 << 20, Timeout: time.Minute,
		Logf: func(format string, args ...any) { t.Logf(format, args...) }}
	if change != nil {
		change(&c)
	}
	l := &lab{New(c), h, s, t}
	h.Config.Handler = l.Server
	h.Start()
	t.Cleanup(h.Close)
	return l
}

// post sends a request and returns status and body.
func (l *lab) post(path, body string, headers ...string) (int, string, http.Header) {
	l.t.Helper()
	r := must.Get(http.NewRequestWithContext(l.t.Context(), http.MethodPost, l.http.URL+path,
		strings.NewReader(body)))(l.t)
	r.Header.Set("Content-Type", "application/json")
	for i := 0; i < len(headers); i += 2 {
		r.Header.Set(headers[i], headers[i+1])
		if headers[i] == "Host" {
			r.Host = headers[i+1]
		}
	}
	w := must.Get(http.DefaultClient.Do(r))(l.t)
	defer w.Body.Close()
	return w.StatusCode, string(must.Get(io.ReadAll(w.Body))(l.t)), w.Header
}

func (l *lab) chat(body string) response[chatChoice] {
	l.t.Helper()
	return ask[chatChoice](l, "/v1/chat/completions", body)
}

func (l *lab) complete(body string) response[completionChoice] {
	l.t.Helper()
	return ask[completionChoice](l, "/v1/completions", body)
}

func ask[Choice any](l *lab, path, body string) (r response[Choice]) {
	l.t.Helper()
	status, text, _ := l.post(path, body)
	if err := json.Unmarshal([]byte(text), &r); err != nil || status != http.StatusOK {
		l.t.Fatalf("status %d: %s", status, text)
	}
	return r
}

const weather = `[{"type": "function", "function": {"name": "weather", "parameters": {"type": "object"}}}]`

const call = "Let me see.\n<tool_call>\n" +
	"{\"name\": \"weather\", \"arguments\": {\"town\": \"Köln\", \"a-b\": 1.0}}\n</tool_call>"

func TestChatRepliesWithTextAndCalls(t *testing.T) {
	l := newLab(t, "qwen", 4, func(prompt string) string {
		if strings.Contains(prompt, "<tools>") {
			return call + "<|im_end|>"
		}
		return "It is fine.<|im_end|>"
	}, nil)
	r := l.chat(`{"model": "tiny", "messages": [{"role": "system", "content": "Be <|im_end|> kind."},
		{"role": "user", "content": [{"type": "text", "text": "Hi"}]}], "logprobs": true, "top_logprobs": 2, "n": 2,
		"return_token_ids": true}`)
	c := r.Choices[1]
	if len(r.Choices) != 2 || *c.Message.Content != "It is fine." || *c.Finish != "stop" || c.Message.Role != "assistant" {
		t.Errorf("got %+v", r)
	}
	want := "<|im_start|>system\nBe <|im_end|> kind.<|im_end|>\n<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n"
	if got := l.sampler.prompts[0]; got != want || l.Tokenizer.Decode(r.PromptIDs, false) != want {
		t.Errorf("prompt:\n got %q\nwant %q", got, want)
	}
	if end, _ := l.Tokenizer.ID("<|im_end|>"); slices.Index(r.PromptIDs, end) < 10 {
		t.Error("text of a message became a special token")
	}
	text := ""
	for _, x := range c.Logprobs.Content {
		text += x.Token
		if len(x.Top) != 2 || x.Top[0].Logp != 0 || x.Top[1].Logp != -1 {
			t.Errorf("alternatives %+v", x.Top)
		}
	}
	if text != "It is fine." || len(c.IDs) != len(c.Logprobs.Content)+1 || r.Usage.Completion != 2*len(c.IDs) ||
		r.Usage.Prompt != len(r.PromptIDs) {
		t.Errorf("tokens %q, %d ids, usage %+v", text, len(c.IDs), r.Usage)
	}

	r = l.chat(`{"model": "/models/tiny", "messages": [{"role": "user", "content": "Hi"}], "tools": ` + weather + `}`)
	m := r.Choices[0].Message
	if *r.Choices[0].Finish != "tool_calls" || *m.Content != "Let me see." || len(m.Calls) != 1 ||
		m.Calls[0].Function.Name != "weather" || m.Calls[0].Function.Arguments != `{"town": "Köln", "a-b": 1.0}` ||
		m.Calls[0].Type != "function" || m.Calls[0].ID == "" {
		t.Errorf("got %+v", m)
	}
	r = l.chat(`{"model": "tiny", "messages": [{"role": "user", "content": "Hi"}], "tools": ` + weather +
		`, "tool_choice": "none"}`)
	if r.Choices[0].Message.Calls != nil || *r.Choices[0].Message.Content != "It is fine." {
		t.Errorf("tool_choice none: got %+v", r.Choices[0].Message)
	}
}

func TestCompletionsReadTextsAndIDs(t *testing.T) {
	l := newLab(t, "qwen", 4, func(string) string { return "abc def" }, nil)
	ids := l.Tokenizer.EncodeAs("<|im_start|>x", token.Everything)
	list := string(must.Get(json.Marshal(ids))(t))
	for _, prompt := range []string{`"<|im_start|>x"`, list, `["<|im_start|>x"]`, "[" + list + "]"} {
		r := l.complete(`{"model": "tiny", "prompt": ` + prompt + `, "max_tokens": 3, "return_token_ids": true}`)
		if c := r.Choices[0]; !strings.HasPrefix("abc def", c.Text) || *c.Finish != "length" || len(c.IDs) != 3 ||
			!slices.Equal(c.PromptIDs, ids) {
			t.Errorf("%s: got %+v", prompt, c)
		}
	}
	r := l.complete(`{"model": "tiny", "prompt": ["one", "two"], "n": 2, "stop": ["zz", "c d"], "max_tokens": 20}`)
	for i, c := range r.Choices {
		if len(r.Choices) != 4 || c.Index != i || c.Text != "ab" || c.Reason != "c d" || *c.Finish != "stop" {
			t.Errorf("got %+v", c)
		}
	}
	l.sampler.script = func(string) string { return "<|im_end|>" }
	r = l.complete(`{"model": "tiny", "prompt": "the town", "echo": true, "logprobs": 1, "max_tokens": 1}`)
	p := r.Choices[0].Logprobs
	n := len(l.Tokenizer.Encode("the town")) + 1
	if strings.Join(p.Tokens, "") != r.Choices[0].Text+"<|im_end|>" || len(p.Logps) != n || p.Logps[0] != nil ||
		p.Top[0] != nil ||
		len(p.Top[1]) != 1 || p.Offsets[1] != len(p.Tokens[0]) {
		t.Errorf("echo of %d tokens: got %q with %d logprobs, %v, %v", n, r.Choices[0].Text, len(p.Logps), p.Top, p.Offsets)
	}
}

// replies is the part of a response that a seed determines.
func replies(t *testing.T, text string) string {
	t.Helper()
	var r response[chatChoice]
	if err := json.Unmarshal([]byte(text), &r); err != nil || len(r.Choices) == 0 {
		t.Fatalf("%v: %s", err, text)
	}
	return string(must.Get(json.Marshal(r.Choices))(t))
}

func TestSeededRepliesAreEqualUnderAnyLoad(t *testing.T) {
	const requests = 500
	var body []string
	for i := range requests {
		body = append(body, fmt.Sprintf(`{"model": "tiny", "messages": [{"role": "user", "content": "question %d"}],
			"seed": %d, "n": %d, "logprobs": true, "max_tokens": 30, "temperature": 0.7, "tools": %s}`, i%40, i%7,
			1+i%2, weather))
	}
	first := make([]string, requests)
	one := newLab(t, "qwen", 1, nil, nil)
	for i := range requests {
		_, text, _ := one.post("/v1/chat/completions", body[i])
		first[i] = replies(t, text)
	}
	many := newLab(t, "qwen", 8, nil, nil)
	var all sync.WaitGroup
	order := rand.New(rand.NewPCG(1, 1)).Perm(requests)
	for clients := range 16 {
		all.Go(func() {
			for at := clients; at < requests; at += 16 {
				i := order[at]
				if _, text, _ := many.post("/v1/chat/completions", body[i]); replies(t, text) != first[i] {
					t.Errorf("request %d: got %s\nwant %s", i, text, first[i])
				}
			}
		})
	}
	all.Wait()
	a := one.chat(`{"model": "tiny", "messages": [{"role": "user", "content": "q"}], "max_tokens": 30}`)
	b := one.chat(fmt.Sprintf(`{"model": "tiny", "messages": [{"role": "user", "content": "q"}], "max_tokens": 30,
		"seed": %d}`, a.Seed))
	if *a.Choices[0].Message.Content != *b.Choices[0].Message.Content {
		t.Errorf("the seed of the response does not repeat it: %+v, %+v", a, b)
	}
}

// events reads the chunks of a stream.
func chunks[T any](t *testing.T, text string) (all []T) {
	t.Helper()
	body, ok := strings.CutSuffix(text, "data: [DONE]\n\n")
	if !ok {
		t.Fatalf("the stream does not end with [DONE]: %s", text)
	}
	for event := range strings.SplitSeq(strings.TrimSuffix(body, "\n\n"), "\n\n") {
		var c T
		must.OK(t, json.Unmarshal([]byte(strings.TrimPrefix(event, "data: ")), &c))
		all = append(all, c)
	}
	return all
}

func TestStreamsContainTheSameReply(t *testing.T) {
	scripts := []string{"", "fine é 天気 🙂!", "a\nSTOP b", "one STO", call, "a <tool_call> b",
		"<tool_call>\n{\n</tool_call>",
		"Hi.\n<tool_call>\n{\"name\": \"f\", \"arguments\": {}}\n</tool_call>\n" +
			"<tool_call>\n{\"name\": \"g\", \"arguments\": {}}\n</tool_call>"}
	for _, layout := range []string{"qwen", "drill"} {
		for i, script := range append(scripts, "mv(source='a', destination='b')<|call|>") {
			end := map[string]string{"qwen": "<|im_end|>", "drill": "<|end|>"}[layout]
			l := newLab(t, layout, 2, func(string) string { return script + end }, nil)
			for _, tools := range []string{"null", weather} {
				body := `{"model": "tiny", "messages": [{"role": "user", "content": "q"}], "stop": "STOP", "seed": 1,
					"logprobs": true, "return_token_ids": true, "tools": ` + tools
				whole := l.chat(body + "}")
				_, text, h := l.post("/v1/chat/completions", body+`, "stream": true, "stream_options": {"include_usage": true}}`)
				var got answer
				var tokens []tokenLogprob
				var sampled []int32
				content, finish := "", ""
				all := chunks[response[chatChoice]](t, text)
				for _, c := range all[:len(all)-1] {
					d := c.Choices[0]
					if d.Delta.Content != nil {
						content += *d.Delta.Content
					}
					got.Calls = append(got.Calls, d.Delta.Calls...)
					sampled = append(sampled, d.IDs...)
					if d.Logprobs != nil {
						tokens = append(tokens, d.Logprobs.Content...)
					}
					if d.Finish != nil {
						finish = *d.Finish
					}
				}
				for i := range got.Calls {
					got.Calls[i].Index = nil
				}
				want := whole.Choices[0]
				if want.Message.Content == nil {
					want.Message.Content = new(string)
				}
				if content != *want.Message.Content || finish != *want.Finish ||
					fmt.Sprint(got.Calls) != fmt.Sprint(want.Message.Calls) || !slices.Equal(sampled, want.IDs) ||
					fmt.Sprint(tokens) != fmt.Sprint(want.Logprobs.Content) ||
					*all[len(all)-1].Usage != *whole.Usage && i > len(scripts) || h.Get("Content-Type") != "text/event-stream" {
					t.Errorf("%s %q, tools %.10s: got %q %v %s %d ids, want %q %v %s %d", layout, script, tools, content,
						got.Calls, finish, len(sampled), *want.Message.Content, want.Message.Calls, *want.Finish, len(want.IDs))
				}
			}
			whole := l.complete(`{"model": "tiny", "prompt": "q", "stop": "STOP", "max_tokens": 50}`)
			_, text, _ := l.post("/v1/completions", `{"model": "tiny", "prompt": "q", "stop": "STOP", "max_tokens": 50,
				"stream": true}`)
			content := ""
			for _, c := range chunks[response[completionChoice]](t, text) {
				content += c.Choices[0].Text
			}
			if content != whole.Choices[0].Text {
				t.Errorf("%s %q: a streamed completion is %q, want %q", layout, script, content, whole.Choices[0].Text)
			}
		}
	}
}

// The official Go client of OpenAI, in a module of its own (bench/openai_go).
func TestTheGoClient(t *testing.T) {
	must.Long(t) // compiles the client
	const key = "sk-local"
	l := newLab(t, "qwen", 4, func(prompt string) string {
		if strings.Contains(prompt, "<tools>") && !strings.Contains(prompt, "<tool_response>") {
			return "<tool_call>\n{\"name\": \"weather\", \"arguments\": {\"town\": \"Köln\"}}\n</tool_call><|im_end|>"
		}
		return "It is fine.<|im_end|>"
	}, func(c *Config) { c.Key = key })
	run := func(args ...string) ([]byte, error) {
		c := exec.CommandContext(t.Context(), "go", args...)
		c.Dir = filepath.Join(fixtures.Root(t), "bench", "openai_go")
		c.Env = append(os.Environ(), "RCGRPO_URL="+l.http.URL, "RCGRPO_KEY="+key, "GOFLAGS=")
		return c.CombinedOutput()
	}
	if out, err := run("mod", "download"); err != nil {
		t.Skipf("the client cannot be downloaded: %v\n%s", err, out)
	}
	out, err := run("test", "-vet=off", "-count=1", "-v", ".")
	if passed := bytes.Count(out, []byte("--- PASS")); err != nil || passed != 5 {
		t.Errorf("%v, %d of 5 tests passed\n%s", err, passed, out)
	}
}

// A stream sends text before the reply has ended.
func TestTextLeavesAsSoonAsItIsCertain(t *testing.T) {
	hold := make(chan bool, 100)
	l := newLab(t, "qwen", 1, func(string) string { return "fine STOB<|im_end|>" }, nil)
	l.sampler.wait = func() { <-hold }
	r := must.Get(http.NewRequestWithContext(t.Context(), http.MethodPost, l.http.URL+"/v1/completions",
		strings.NewReader(`{"model": "tiny", "prompt": "q", "stream": true, "stop": "STOP"}`)))(t)
	r.Header.Set("Content-Type", "application/json")
	go func() { hold <- true }()
	w := must.Get(http.DefaultClient.Do(r))(t)
	defer w.Body.Close()
	first := make([]byte, 1000)
	n := must.Get(w.Body.Read(first))(t)
	if text := string(first[:n]); !strings.Contains(text, `"text":"f`) || strings.Contains(text, "STO") {
		t.Errorf("after the first token: %s", text)
	}
	for range 20 {
		hold <- true
	}
	if rest := string(must.Get(io.ReadAll(w.Body))(t)); !strings.Contains(rest, "[DONE]") {
		t.Errorf("the stream ends with %q", rest)
	}
}

func TestMistakesInRequestsAreNamed(t *testing.T) {
	l := newLab(t, "qwen", 2, func(string) string { return "ok<|im_end|>" }, nil)
	say := func(messages string) string { return `{"model": "tiny", "messages": [` + messages + "]}" }
	chat := func(fields string) string {
		return `{"model": "tiny", "messages": [{"role": "user", "content": "q"}]` + fields + `}`
	}
	long := func(text string, n int) string {
		return `{"model": "tiny", "prompt": "` + strings.Repeat(text, n) + `"}`
	}
	const chats, texts = "/v1/chat/completions", "/v1/completions"
	for name, tc := range map[string]struct {
		path, body string
		status     int
		want       string
	}{
		"no JSON":       {chats, `{"model": `, 400, "must be a JSON object"},
		"a list":        {chats, `[]`, 400, "must be a JSON object"},
		"deep":          {chats, strings.Repeat("[", 65) + strings.Repeat("]", 65), 400, "deeper than 64"},
		"unknown field": {chats, chat(`, "temprature": 1`), 400, "temprature"},
		"wrong type":    {chats, chat(`, "temperature": "hot"`), 400, "temperature has the wrong type: got string"},
		"another model": {chats, `{"model": "gpt-5", "messages": []}`, 404, "model_not_found"},
		"no messages":   {chats, `{"model": "tiny"}`, 400, "must contain a user message"},
		"tool first":    {chats, say(`{"role": "tool", "content": "x"}`), 400, "first message"},
		"late system": {chats, say(`{"role": "user", "content": "x"}, {"role": "system", "content": "x"}`),
			400, "messages[1]"},
		"role":  {chats, say(`{"role": "wizard", "content": "x"}`), 400, "wizard"},
		"image": {chats, say(`{"role": "user", "content": [{"type": "image_url"}]}`), 400, "image_url"},
		"arguments": {chats, say(`{"role": "user", "content": "x"}, {"role": "assistant", "tool_calls":
			[{"function": {"name": "f", "arguments": "3"}}]}`), 400, "arguments of f must be a JSON object"},
		"forced tool":           {chats, chat(`, "tool_choice": "required"`), 400, "unsupported_value"},
		"tool":                  {chats, chat(`, "tools": [{"type": "web_search"}]`), 400, "tools[0]"},
		"format":                {chats, chat(`, "response_format": {"type": "json_object"}`), 400, "response_format"},
		"n":                     {chats, chat(`, "n": 9`), 400, "between 1 and 8"},
		"stops":                 {chats, chat(`, "stop": ["a", "b", "c", "d", "e"]`), 400, "at most 4"},
		"temperature":           {chats, chat(`, "temperature": -1`), 400, "temperature"},
		"top_p":                 {chats, chat(`, "top_p": 0`), 400, "top_p"},
		"max_tokens":            {chats, chat(`, "max_tokens": 0`), 400, "max_tokens"},
		"max_completion_tokens": {chats, chat(`, "max_completion_tokens": 0`), 400, "max_completion_tokens"},
		"top_logprobs":          {chats, chat(`, "logprobs": true, "top_logprobs": 21`), 400, "top_logprobs"},
		"reward token":          {chats, chat(`, "reward_token": "medium"`), 400, "reward_token"},
		"too long":              {texts, long("q ", 2000), 400, "context_length_exceeded"},
		"no prompt":             {texts, `{"model": "tiny"}`, 400, "prompt is required"},
		"empty prompt":          {texts, `{"model": "tiny", "prompt": ""}`, 400, "at least one token"},
		"unknown id":            {texts, `{"model": "tiny", "prompt": [100000]}`, 400, "no token 100000"},
		"negative id":           {texts, `{"model": "tiny", "prompt": [-1]}`, 400, "no token -1"},
		"logprobs":              {texts, `{"model": "tiny", "prompt": "q", "logprobs": 6}`, 400, "between 0 and 5"},
		"large":                 {texts, long("q", 1<<20), 413, "longer than"},
		"unknown path":          {"/v1/embeddings", `{}`, 404, "there is no POST /v1/embeddings"},
		"path, not a POST":      {"/health", `{}`, 404, "there is no POST /health"},
	} {
		status, text, _ := l.post(tc.path, tc.body)
		var e struct{ Error apiError }
		if err := json.Unmarshal([]byte(text), &e); err != nil || status != tc.status || !strings.Contains(text, tc.want) ||
			e.Error.Message == "" || e.Error.Type == "" {
			t.Errorf("%s: got %d %s, want %d with %q", name, status, text, tc.status, tc.want)
		}
	}
	status, text, h := l.post(chats, chat(`, "user": "me", "store": true, "top_k": -1, "presence_penalty": 0.0,
		"seed": null`))
	if got := h.Get("X-Rcgrpo-Ignored"); status != 200 || got != "presence_penalty, store, top_k, user" {
		t.Errorf("fields without effect: got %d %s, ignored %q", status, text, got)
	}
}

func TestOnlyTheKeyAndTheOwnHostAreAccepted(t *testing.T) {
	l := newLab(t, "qwen", 2, func(string) string { return "ok<|im_end|>" }, func(c *Config) { c.Key = "s3cret" })
	const body = `{"model": "tiny", "messages": [{"role": "user", "content": "q"}]}`
	_, port, _ := net.SplitHostPort(l.Addr)
	for name, tc := range map[string]struct {
		headers []string
		want    int
	}{
		"no key":       {nil, 401},
		"wrong key":    {[]string{"Authorization", "Bearer s3cre"}, 401},
		"the key":      {[]string{"Authorization", "Bearer s3cret"}, 200},
		"localhost":    {[]string{"Authorization", "Bearer s3cret", "Host", "localhost:" + port}, 200},
		"another host": {[]string{"Authorization", "Bearer s3cret", "Host", "evil.example:" + port}, 403},
		"a form":       {[]string{"Authorization", "Bearer s3cret", "Content-Type", "text/plain"}, 400},
	} {
		status, text, _ := l.post("/v1/chat/completions", body, tc.headers...)
		if status != tc.want || strings.Contains(text, "s3cre") {
			t.Errorf("%s: got %d %s, want %d", name, status, text, tc.want)
		}
	}
	for path, want := range map[string]int{"/v1/models": 200, "/v1/models/tiny": 200,
		"/v1/models/%2Fmodels%2Ftiny:low": 200,
		"/v1/models/other":                404, "/health": 200} {
		w := must.Get(http.Get(l.http.URL + path))(t)
		w.Body.Close()
		if w.StatusCode != want {
			t.Errorf("%s without a key: got %d, want %d", path, w.StatusCode, want)
		}
	}
}

// The second turn of a conversation contains exactly the sampled ids, even those that the tokenizer would not write.
func TestContinuedConversationsContainTheSampledIDs(t *testing.T) {
	l := newLab(t, "qwen", 4, nil, nil)
	rnd := 0
	for seed := range 40 {
		ask := fmt.Sprintf(`{"model": "tiny", "max_tokens": 60, "return_token_ids": true, "seed": %d,
			"messages": [{"role": "user", "content": "q"}`, seed)
		first := l.chat(ask + "]}")
		c := first.Choices[0]
		if *c.Finish != "stop" {
			continue
		}
		rnd++
		said := string(must.Get(json.Marshal(*c.Message.Content))(t))
		second := l.chat(ask + `, {"role": "assistant", "content": ` + said + `}, {"role": "user", "content": "r"}]}`)
		if want := append(first.PromptIDs, c.IDs...); len(second.PromptIDs) < len(want) ||
			!slices.Equal(second.PromptIDs[:len(want)], want) || second.Usage.Details.Cached < len(want)-1 {
			t.Errorf("seed %d: the second prompt does not start with the %d ids of the first turn; %d were cached", seed,
				len(want), second.Usage.Details.Cached)
		}
		prompt := l.Tokenizer.Decode(first.PromptIDs, false)
		text := l.complete(fmt.Sprintf(`{"model": "tiny", "seed": %d, "max_tokens": 60, "return_token_ids": true,
			"skip_special_tokens": false, "prompt": %s}`, seed, must.Get(json.Marshal(prompt))(t)))
		more := l.complete(fmt.Sprintf(`{"model": "tiny", "max_tokens": 1, "return_token_ids": true, "prompt": %s}`,
			must.Get(json.Marshal(prompt+text.Choices[0].Text+"<|im_end|>\n"))(t)))
		want := append(text.Choices[0].PromptIDs, text.Choices[0].IDs...)
		if !slices.Equal(more.Choices[0].PromptIDs[:len(want)], want) {
			t.Errorf("seed %d: a continued text has other ids", seed)
		}
	}
	if rnd < 20 {
		t.Errorf("only %d conversations had a second turn", rnd)
	}
}

func TestRewardTokenComesFromRequestNameOrServer(t *testing.T) {
	l := newLab(t, "qwen", 2, func(string) string { return "ok<|im_end|>" }, func(c *Config) { c.Token = rl.TokenHigh })
	last := func(path, body string) string {
		status, text, _ := l.post(path, body)
		if status != 200 {
			t.Fatalf("%d %s", status, text)
		}
		return l.sampler.prompts[len(l.sampler.prompts)-1]
	}
	const goal = "\n[Reward Goal: %s]<|im_end|>"
	high, low := fmt.Sprintf(goal, chat.HighReward), fmt.Sprintf(goal, chat.LowReward)
	for name, want := range map[string]string{
		`"tiny"`:                               high,
		`"tiny:low"`:                           low,
		`"tiny:none"`:                          "",
		`"tiny", "reward_token": "low"`:        low,
		`"tiny:low", "reward_token": "high"`:   high,
		`"tiny", "reward_token": "checkpoint"`: high,
	} {
		chatted := last("/v1/chat/completions", `{"model": `+name+`, "messages": [{"role": "user", "content": "q"}]}`)
		completed := last("/v1/completions", `{"model": `+name+`,
			"prompt": "<|im_start|>user\nq<|im_end|>\n<|im_start|>assistant\n"}`)
		for _, got := range []string{chatted, completed} {
			if strings.Contains(got, "Reward Goal") != (want != "") || !strings.Contains(got, "q"+want) {
				t.Errorf("%s: got %q, want the goal %q", name, got, want)
			}
		}
	}
	own := last("/v1/completions", `{"model": "tiny:low", "prompt":
		"<|im_start|>user\nq `+chat.HighReward+`<|im_end|>\n"}`)
	if strings.Contains(own, chat.LowReward) {
		t.Errorf("a prompt with a reward token was changed: %q", own)
	}
}

func TestTooManyRequestsAreRefused(t *testing.T) {
	release := make(chan bool)
	l := newLab(t, "qwen", 1, func(string) string { return "ok<|im_end|>" }, func(c *Config) { c.Queue = 2 })
	l.sampler.wait = func() { <-release }
	var all sync.WaitGroup
	counts := make(chan int, 10)
	for range 3 {
		all.Go(func() {
			status, _, _ := l.post("/v1/completions", `{"model": "tiny", "prompt": "q"}`)
			counts <- status
		})
	}
	for l.replies.Load() < 3 {
		time.Sleep(time.Millisecond)
	}
	status, text, h := l.post("/v1/completions", `{"model": "tiny", "prompt": "q"}`)
	if status != 429 || h.Get("Retry-After") == "" {
		t.Errorf("the fourth of 1 + 2: got %d %s", status, text)
	}
	close(release)
	all.Wait()
	for range 3 {
		if status := <-counts; status != 200 {
			t.Errorf("a request within the limits got %d", status)
		}
	}
}

// A client that leaves frees its slot and its place in the queue within 100 ms: 1,000 clients do. On a machine with
// other work, the scheduler may delay some.
func TestHangUpsFreeTheirSlots(t *testing.T) {
	l := newLab(t, "qwen", 4, nil, func(c *Config) { c.Queue = 4 })
	l.sampler.stop = "<|pad|>" // the replies do not end by themselves
	l.sampler.wait = func() { time.Sleep(100 * time.Microsecond) }
	late := 0
	for range 250 {
		var all sync.WaitGroup
		for range 4 {
			all.Go(func() {
				ctx, leave := context.WithCancel(t.Context())
				r := must.Get(http.NewRequestWithContext(ctx, http.MethodPost, l.http.URL+"/v1/completions", strings.NewReader(
					`{"model": "tiny", "prompt": "q", "stream": true, "max_tokens": 1900}`)))(t)
				r.Header.Set("Content-Type", "application/json")
				w, err := http.DefaultClient.Do(r)
				if err == nil {
					_, _ = w.Body.Read(make([]byte, 10))
					w.Body.Close()
				}
				leave()
			})
		}
		all.Wait()
		began := time.Now()
		for l.replies.Load() > 0 {
			if time.Since(began) > 10*time.Second {
				t.Fatalf("%d replies are still sampled", l.replies.Load())
			}
			time.Sleep(time.Millisecond)
		}
		if time.Since(began) > 100*time.Millisecond {
			late++
		}
	}
	if late > 125 {
		t.Errorf("in %d of 250 rounds slots were in use for more than 100 ms", late)
	}
	if status, text, _ := l.post("/v1/completions", `{"model": "tiny", "prompt": "q", "max_tokens": 2}`); status != 200 {
		t.Errorf("after the hang-ups: %d %s", status, text)
	}
}

// Mutated requests get an answer of status 200 or 4xx, never a failure of the server.
func TestMalformedRequestsNeverFailTheServer(t *testing.T) {
	l := newLab(t, "qwen", 4, nil, nil)
	seeds := []string{
		`{"model":"tiny","messages":[{"role":"system","content":"s"},{"role":"user","content":[{"type":"text","text":"q"}]},
			{"role":"assistant","tool_calls":[{"id":"1","type":"function","function":{"name":"f","arguments":"{\"a\":1}"}}]},
			{"role":"tool","content":"r","tool_call_id":"1"}],"tools":` + weather + `,
			"max_tokens":3,"stop":["a"],"n":2,"logprobs":true,"top_logprobs":3,"seed":5,"stream":false}`,
		`{"model":"tiny","prompt":["a","b"],"max_tokens":2,"logprobs":2,"echo":true,"temperature":0.5,"top_p":0.9,
			"stop_token_ids":[3],"stream":true,"stream_options":{"include_usage":true}}`,
		`{"model":"tiny","prompt":[[1,2],[3]],"max_tokens":2,"return_token_ids":true,"reward_token":"low"}`,
	}
	words := []string{"null", "{}", "[]", "-1", "1e309", `"\ud800"`, "\x00", `"`, "true", "[[",
		"99999999999999999999", "\xff", ","}
	r := rand.New(rand.NewPCG(7, 7))
	statuses := map[int]int{}
	for range 10_000 {
		body := []byte(seeds[r.IntN(len(seeds))])
		for range 1 + r.IntN(2) {
			at, end := r.IntN(len(body)), 0
			end = min(len(body), at+r.IntN(6))
			body = slices.Concat(body[:at], []byte(words[r.IntN(len(words))]), body[end:])
		}
		req := httptest.NewRequest(http.MethodPost, []string{"/v1/completions", "/v1/chat/completions"}[r.IntN(2)],
			bytes.NewReader(body))
		req.Header.Set("Content-Type", "application/json")
		req.Host = l.Addr
		w := httptest.NewRecorder()
		l.ServeHTTP(w, req)
		statuses[w.Code]++
		if w.Code >= 500 {
			t.Fatalf("got %d %s for %q", w.Code, w.Body, body)
		}
	}
	if statuses[200] < 100 || statuses[400] < 1000 {
		t.Errorf("statuses %v: the requests are too much alike", statuses)
	}
}

// servedAndHeld serves a policy on a port, whose replies wait until hold is closed. After stop the server waits for
// them as long as drain, and sends its error.
func servedAndHeld(t *testing.T, drain time.Duration) (l *lab, hold chan bool, stop func(), ended chan error) {
	hold, ended = make(chan bool), make(chan error, 1)
	l = newLab(t, "qwen", 1, func(string) string { return "ok<|im_end|>" }, nil)
	l.sampler.wait = func() { <-hold }
	listener := must.Get(net.Listen("tcp", "127.0.0.1:0"))(t)
	l.Addr = listener.Addr().String()
	l.http.URL = "http://" + l.Addr
	ctx, stop := context.WithCancel(t.Context())
	go func() { ended <- l.Serve(ctx, listener, drain) }()
	return l, hold, stop, ended
}

func TestShutDownLetsRepliesEnd(t *testing.T) {
	l, hold, stop, ended := servedAndHeld(t, time.Minute)
	status := make(chan int, 1)
	go func() {
		s, _, _ := l.post("/v1/completions", `{"model": "tiny", "prompt": "q"}`)
		status <- s
	}()
	for l.replies.Load() < 1 {
		time.Sleep(time.Millisecond)
	}
	stop()
	for !l.draining.Load() {
		time.Sleep(time.Millisecond)
	}
	if s, text, _ := l.post("/v1/completions", `{"model": "tiny", "prompt": "q"}`); s != 503 {
		t.Errorf("while draining: got %d %s", s, text)
	}
	close(hold)
	if s := <-status; s != 200 {
		t.Errorf("the reply in progress got %d", s)
	}
	must.OK(t, <-ended)
}

// A reply that the end of the server cuts is an error, not a reply of status 200 without a body.
func TestRepliesThatAreCutAreErrors(t *testing.T) {
	l, hold, stop, ended := servedAndHeld(t, time.Millisecond)
	answer := make(chan string, 1)
	go func() {
		status, text, _ := l.post("/v1/completions", `{"model": "tiny", "prompt": "q"}`)
		answer <- fmt.Sprint(status, " ", text)
	}()
	for l.replies.Load() < 1 {
		time.Sleep(time.Millisecond)
	}
	stop()
	time.AfterFunc(time.Second, func() { close(hold) }) // long after the server has cut the reply
	if got := <-answer; !strings.HasPrefix(got, "503 ") || !strings.Contains(got, "shutting down") {
		t.Errorf("got %q, want status 503", got)
	}
	<-ended
}

func TestLogHasOneTrajectoryPerConversation(t *testing.T) {
	path := filepath.Join(t.TempDir(), rl.TrajectoriesFile)
	log := must.Get(NewLog(path))(t)
	l := newLab(t, "qwen", 4, func(prompt string) string {
		if strings.Contains(prompt, "<tool_response>") {
			return "Fine.<|im_end|>"
		}
		return call + "<|im_end|>"
	}, func(c *Config) { c.Log = log })
	message := must.Get(json.Marshal(l.chat(`{"model": "tiny", "messages": [{"role": "user", "content": "Hi"}],
		"tools": ` + weather + `}`).Choices[0].Message))(t)
	asked := fmt.Sprintf(`{"model": "tiny", "tools": %s, "messages": [{"role": "user", "content": "Hi"}, %s,
		{"role": "tool", "content": "sun"}, {"role": "tool", "content": "rain"}]`, weather, message)
	for _, end := range []string{`, "n": 2}`, `, "stream": true}`} {
		if status, text, _ := l.post("/v1/chat/completions", asked+end); status != http.StatusOK {
			t.Fatal(text)
		}
	}
	l.complete(`{"model": "tiny", "prompt": "in the town", "max_tokens": 3}`)
	must.OK(t, log.Close())
	f := must.Get(os.Open(path))(t)
	defer f.Close()
	var got []string
	for rows := json.NewDecoder(must.Get(gzip.NewReader(f))(t)); ; {
		var e rl.Trajectory
		if err := rows.Decode(&e); errors.Is(err, io.EOF) {
			break
		} else {
			must.OK(t, err)
		}
		text := e.Stop
		for _, m := range e.Messages {
			text += fmt.Sprintf(" | %s %d %d", m.Role, m.Turn, len(m.Calls))
			if own := e.Mask[m.From:m.To]; slices.Contains(own, true) != (m.Role == rl.RoleAssistant) {
				t.Errorf("%s has the mask %v", m.Role, own)
			}
		}
		if got = append(got, text); len(e.IDs) != len(e.Mask) || len(e.IDs) != len(e.Logp) || !e.Reward.Missing() {
			t.Errorf("%d ids, a mask of %d, %d logprobs, reward %v", len(e.IDs), len(e.Mask), len(e.Logp), e.Reward)
		}
	}
	long := "done | user 0 0 | assistant 0 1 | tool 0 0 | tool 0 0 | assistant 0 0"
	if want := []string{long, long, long, "step | user 0 0 | assistant 0 0"}; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
	if _, err := NewLog(t.TempDir()); err == nil {
		t.Error("a folder was accepted as the file")
	}
}
