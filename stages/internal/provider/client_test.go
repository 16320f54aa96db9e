package provider

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"rcgrpo/bfcl"
	"rcgrpo/internal/must"
	"rcgrpo/stages/rl"
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

// 4 processes are 4 Rates with one file.
func TestTheRateHoldsForAllProcessesWithOneKey(t *testing.T) {
	path := filepath.Join(t.TempDir(), "rate")
	var taken int
	var mu sync.Mutex
	ctx, stop := context.WithTimeout(t.Context(), time.Second)
	defer stop()
	var all sync.WaitGroup
	began := time.Now()
	for range 4 {
		all.Go(func() {
			r := &Rate{Path: path, Requests: 600} // 10 in a second, and a burst of 10
			for r.Take(ctx, 100) == nil {
				mu.Lock()
				taken++
				mu.Unlock()
			}
		})
	}
	all.Wait()
	if most := 11 + int(10*time.Since(began).Seconds()); taken < 10 || taken > most {
		t.Errorf("got %d requests in %v, want the burst of 10 at least and at most %d", taken, time.Since(began), most)
	}
	r := &Rate{Path: path}
	header := http.Header{"Retry-After": {"0.3"}, "Anthropic-Ratelimit-Requests-Limit": {"60000"}}
	must.OK(t, r.Learn(header, retryAfter(header)))
	started := time.Now()
	must.OK(t, (&Rate{Path: path}).Take(t.Context(), 1))
	if d := time.Since(started); d < 290*time.Millisecond {
		t.Errorf("the next request started after %v, want the pause that the API requests", d)
	}
}

func TestATornRecordLosesItsLastLineOnly(t *testing.T) {
	path := filepath.Join(t.TempDir(), "calls.jsonl")
	r := must.Get(openRecord(path))(t)
	row := Row{Call: Call{Task: "a"}, Attempt: 1, Request: "x", Outcome: OutcomeSent, Dollars: 2}
	must.OK(t, r.write(row))
	row.Outcome, row.Dollars = OutcomeReply, 1
	must.OK(t, r.write(row))
	must.OK(t, r.close())
	f := must.Get(os.OpenFile(path, os.O_APPEND|os.O_WRONLY, 0))(t)
	must.Get(f.WriteString(`{"task": "b", "att`))(t)
	must.OK(t, f.Close())
	r = must.Get(openRecord(path))(t)
	defer r.close()
	if c := Sum(r.all(), Price{}); c.Attempts != 1 || c.Replies != 1 || c.Dollars != 1 {
		t.Errorf("got %+v, want the one reply", c)
	}
	if _, ok := r.find(Call{Task: "a"}, "x"); !ok {
		t.Error("the reply is not found")
	}
	if _, ok := r.find(Call{Task: "a"}, "y"); ok {
		t.Error("another request got the reply")
	}
}
