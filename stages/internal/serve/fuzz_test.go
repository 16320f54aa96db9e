package serve

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"
)

// A request of any client is answered soon, and neither ends the process nor fails the policy.
func FuzzRequests(f *testing.F) {
	const messages = `"messages": [{"role": "system", "content": "s"}, {"role": "user",
		"content": [{"type": "text", "text": "a"}]},
		{"role": "assistant", "content": null, "tool_calls": [{"id": "1", "type": "function",
		"function": {"name": "mv", "arguments": "{\"source\": [1, {\"a\": 1e400}]}"}}]}, {"role": "tool", "content": "x"}]`
	for _, fields := range []string{messages,
		messages + `, "stream": true, "stream_options": {"include_usage": true}, "logprobs": true, "top_logprobs": 3`,
		messages + `, "tools": [{"type": "function", "function": {"name": "mv", "parameters": {"type": "object"}}}]`,
		messages + `, "n": 2, "stop": ["a", ""], "stop_token_ids": [5], "seed": -1, "reward_token": "high", "logit_bias": {}`,
	} {
		f.Add(true, []byte(`{"model": "tiny", "max_tokens": 3, `+fields+`}`))
	}
	for _, prompt := range []string{`"a"`, `[1, 2]`, `["a", "b"]`, `[[1], [2]]`} {
		f.Add(false, []byte(`{"model": "tiny:low", "max_tokens": 2, "echo": true, "logprobs": 2, "prompt": `+prompt+`}`))
	}
	labs := []*lab{newLab(f, "qwen", 4, nil, nil), newLab(f, "drill", 4, nil, nil)}
	f.Fuzz(func(t *testing.T, chat bool, body []byte) {
		path := "/v1/completions"
		if chat {
			path = "/v1/chat/completions"
		}
		for _, l := range labs {
			r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, path, strings.NewReader(string(body)))
			r.Host = l.Addr
			r.Header.Set("Content-Type", "application/json")
			w := httptest.NewRecorder()
			start := time.Now()
			l.ServeHTTP(w, r)
			if took := time.Since(start); took > 5*time.Second {
				t.Errorf("%.1000q took %v", body, took)
			}
			if w.Code != http.StatusOK && (w.Code < 400 || w.Code > 499) {
				t.Errorf("%.1000q has status %d: %s", body, w.Code, w.Body)
			}
			text := w.Body.String()
			if !strings.HasPrefix(text, "data: ") && !json.Valid([]byte(text)) {
				t.Errorf("%.1000q has the reply %q", body, text)
			}
			if n := l.replies.Load(); n != 0 {
				t.Errorf("%.1000q leaves %d replies", body, n)
			}
		}
	})
}
