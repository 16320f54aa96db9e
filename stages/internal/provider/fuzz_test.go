package provider

import (
	"encoding/json"
	"math"
	"net/http"
	"testing"
	"time"

	"rcgrpo/bfcl"
	"rcgrpo/engine/proc"
	"rcgrpo/stages/rl"
)

// A response of any server becomes a row that JSON can represent, a cost and a pause within their bounds, and a next
// request that is JSON.
func FuzzReplies(f *testing.F) {
	const usage = `"usage": {"input_tokens": 1, "output_tokens": 2}`
	for i, body := range []string{
		`{"model": "m", "status": "completed", "output": [{"type": "function_call", "call_id": "1", "name": "f",
			"arguments": "{\"a\": [1]}"}, {"type": "message", "content": [{"type": "output_text", "text": "x"}]}],
			` + usage + `}`,
		`{"model": "m", "choices": [{"finish_reason": "stop", "message": {"role": "assistant", "content": "x",
			"tool_calls": [{"id": "1", "type": "function", "function": {"name": "f", "arguments": "{}"}}]}}],
			"usage": {"prompt_tokens": 3, "completion_tokens": 1, "prompt_tokens_details": {"cached_tokens": 4}}}`,
		`{"model": "m", "stop_reason": "tool_use", "content": [{"type": "text", "text": "[f(a=1)]"},
			{"type": "tool_use", "id": "1", "name": "f", "input": {}}], ` + usage + `}`,
		`{"candidates": [{"content": {"parts": [{"text": "x"}, {"functionCall": {"name": "f", "args": {"a": 1}}}]},
			"finishReason": "STOP"}], "usageMetadata": {"promptTokenCount": 1, "candidatesTokenCount": -1,
			"thoughtsTokenCount": 2}}`,
		`{"error": {"code": "context_length_exceeded"}}`,
	} {
		f.Add(uint16(200), "1", "60", []byte(body))
		f.Add(uint16(400+i), "Fri, 31 Dec 9999 23:59:59 GMT", "1e-300", []byte(body))
	}
	f.Fuzz(func(t *testing.T, status uint16, retry, limit string, body []byte) {
		for _, api := range APIs {
			for _, mode := range []string{ModeFC, ModePrompt} {
				s := &Settings{API: api, Model: "m", Mode: mode}
				c := &Client{settings: s, price: Price{Input: 1, Output: 1}, secrets: proc.NewSecrets()}
				header := http.Header{"Retry-After": {retry}, "X-Ratelimit-Limit-Requests": {limit}}
				var row Row
				c.complete(&row, &http.Response{StatusCode: int(status), Header: header}, body, nil)
				if _, err := json.Marshal(row); err != nil || !(row.Dollars >= 0) || math.IsInf(row.Dollars, 0) {
					t.Errorf("%s: the row %+v: %v", api, row, err)
				}
				rate := &Rate{Logf: func(string, ...any) {}}
				pause := retryAfter(header)
				rate.Learn(header, pause)
				wait := max(rate.requests.take(1), time.Until(rate.until))
				if pause < 0 || pause > longestPause || wait > longestPause {
					t.Errorf("the pause is %v and then %v", pause, wait)
				}
				a, err := readReply(apis[api], body)
				if err != nil {
					continue
				}
				d := &dialogue{Model: &Model{client: c}, task: &bfcl.Task{Turns: make([]bfcl.Turn, 1)}}
				reply := d.addReply(apis[api], a)
				d.addMessage(apis[api], rl.Message{Role: rl.RoleUser, Text: "next"})
				next, err := encode(apis[api].body(s, &d.conversation))
				if err != nil || !json.Valid(next) {
					t.Errorf("%s: the request after the reply is %q: %v", api, next, err)
				}
				if len(reply.Calls) > len(body) {
					t.Errorf("%s: %d calls of %d bytes", api, len(reply.Calls), len(body))
				}
			}
		}
	})
}
