package serve

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"rcgrpo/bench/fixtures"
	"rcgrpo/internal/must"
	"rcgrpo/stages/internal/chat"
	"rcgrpo/stages/internal/token"
	"rcgrpo/stages/rl"
)

// BenchmarkChat measures what the server adds to a reply of one token: a request with 18 tools and a prompt of about
// 2,000 tokens in Qwen's vocabulary, on a sampler that costs nothing.
func BenchmarkChat(b *testing.B) {
	tok := must.Get(token.Parse(fixtures.Read(b, "hf/tokenizers/qwen2_5.tokenizer.json")))(b)
	family := must.Get(chat.NewTemplate(chat.LayoutTemplate("qwen2.5"), nil, false))(b)
	s := &sampler{tok: tok, stop: "<|im_end|>", script: func(string) string { return "<|im_end|>" },
		slots: make([][]int32, 64), reply: make([][]int32, 64)}
	server := New(Config{Name: "tiny", Batcher: rl.NewBatcher(s), Codec: must.Get(family.New(tok, nil, ""))(b),
		Tokenizer: tok, Addr: "example.com:80", MaxBody: 1 << 20, Timeout: time.Minute, Queue: 10})
	var tools []json.RawMessage
	for i := range 18 {
		tools = append(tools, json.RawMessage(fmt.Sprintf(`{"type": "function", "function": {"name": "tool_%d", "description":
			"%s", "parameters": {"type": "object", "properties": {"a": {"type": "string", "description": "The name of it."}}}}}`,
			i, strings.Repeat("Moves a file to another place. ", 6))))
	}
	list := must.Get(json.Marshal(tools))(b)
	var took []time.Duration
	tokens := 0
	for i := 0; b.Loop(); i++ {
		body := fmt.Sprintf(`{"model": "tiny", "tools": %s, "messages": [{"role": "user", "content": "Question %d"}]}`,
			list, i)
		r := httptest.NewRequest(http.MethodPost, "/v1/chat/completions", strings.NewReader(body))
		r.Header.Set("Content-Type", "application/json")
		w := httptest.NewRecorder()
		begin := time.Now()
		server.ServeHTTP(w, r)
		took = append(took, time.Since(begin))
		var got response[chatChoice]
		if err := json.Unmarshal(w.Body.Bytes(), &got); err != nil || w.Code != http.StatusOK {
			b.Fatalf("%d %s", w.Code, w.Body)
		}
		tokens = got.Usage.Prompt
	}
	slices.Sort(took)
	b.ReportMetric(float64(took[len(took)/2].Microseconds()), "p50-µs")
	b.ReportMetric(float64(took[len(took)*99/100].Microseconds()), "p99-µs")
	b.ReportMetric(float64(tokens), "prompt-tokens")
}
