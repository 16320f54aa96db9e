package provider

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"rcgrpo/bfcl"
	"rcgrpo/engine/artifact"
	"rcgrpo/internal/must"
	"rcgrpo/stages/rl"
)

// conversationRow is a row of invented.jsonl (bench/api_requests.py).
type conversationRow struct {
	Tools                  []json.RawMessage
	System                 string
	API, Model, Mode, Name string
	Late                   []string // turns that reveal the last tool
	Users                  []*string
	Results                [][]string
	Replies                []json.RawMessage
	Bodies                 []map[string]json.RawMessage
}

// server plays replies in order and records the bodies of the requests.
type server struct {
	*httptest.Server
	mu      sync.Mutex
	replies [][]byte
	bodies  [][]byte
}

func serveReplies(t *testing.T) *server {
	s := &server{}
	s.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		s.mu.Lock()
		defer s.mu.Unlock()
		s.bodies = append(s.bodies, body)
		if len(s.bodies) > len(s.replies) {
			w.WriteHeader(http.StatusNotFound)
			return
		}
		w.Write(s.replies[len(s.bodies)-1])
	}))
	t.Cleanup(s.Close)
	return s
}

// open returns a model at the server.
func (s *server) open(t *testing.T, set Settings, documents Documents) *Model {
	t.Helper()
	if set.Temperature == 0 {
		set.Temperature = 0.001
	}
	set.BaseURL = s.URL + set.BaseURL
	dir := t.TempDir()
	c := must.Get(newClient(&set, &Calls{Parallel: 1, Attempts: 1, Timeout: time.Minute}, Price{},
		&Rate{Logf: t.Logf}, filepath.Join(dir, "calls.jsonl"), t.Logf))(t)
	m := &Model{client: c, documents: documents}
	t.Cleanup(func() { m.Close() })
	return m
}

// inventedTools provides the documents of invented tools.
type inventedTools map[string]json.RawMessage

func (d inventedTools) Function(name, api string, late bool) (json.RawMessage, error) {
	return bfcl.Function(d[name], api, late)
}

func (d inventedTools) SystemPrompt(names []string) (string, error) {
	var docs []json.RawMessage
	for _, name := range names {
		docs = append(docs, d[name])
	}
	return bfcl.SystemPrompt(docs)
}

// inventedEnv is an episode that answers with recorded results.
type inventedEnv struct {
	row  conversationRow
	docs inventedTools
	turn int
	step int
}

func (e *inventedEnv) Turn() int      { return min(e.turn, len(e.row.Users)-1) }
func (e *inventedEnv) Done() bool     { return e.turn == len(e.row.Users) }
func (e *inventedEnv) Stop() string   { return rl.StopDone }
func (e *inventedEnv) System() string { return "" }
func (e *inventedEnv) Close()         {}
func (e *inventedEnv) Verdict(context.Context) (bfcl.Verdict, error) {
	return bfcl.Verdict{Reward: 1}, nil
}

func (e *inventedEnv) late() bool {
	return slices.ContainsFunc(e.row.Late, func(turn string) bool { return fmt.Sprint(e.turn) >= turn })
}

func (e *inventedEnv) User() string {
	if u := e.row.Users[e.Turn()]; u != nil {
		return *u
	}
	return pythonDocument + "\n" + bfcl.RevealRequest
}

// pythonDocument is the document of the late tool as Python prints it.
const pythonDocument = `[{'name': 'sell', 'description': 'Sell a cake.', 'parameters': {'type': 'dict', ` +
	`'required': ['price'], 'properties': {'price': {'type': 'float', 'description': 'Price.'}}}, ` +
	`'response': {'type': 'dict', 'properties': {}}}]`

func (e *inventedEnv) Tools() []rl.Tool {
	names := []string{"bake", "eat"}
	if e.late() {
		names = append(names, "sell")
	}
	return rl.ToolsNamed(names)
}

func (e *inventedEnv) Step(_ context.Context, r rl.Reply) ([]string, int, error) {
	if len(r.Calls) == 0 {
		e.turn++
		return nil, 0, nil
	}
	e.step++
	return e.row.Results[e.step-1], 0, nil
}

// canonical returns JSON with sorted keys and the numbers as they are written.
func canonical(t *testing.T, text []byte) string {
	t.Helper()
	var v any
	must.OK(t, decodeNumbers(text, &v))
	return string(must.Get(encode(v))(t))
}

func TestRequestsEqualThoseOfTheOfficialHandlers(t *testing.T) {
	var first conversationRow
	docs, shapes := inventedTools{}, map[string]int{}
	for row, err := range artifact.ReadRows[conversationRow]("testdata/invented.jsonl") {
		must.OK(t, err)
		if row.API == "" {
			first = row
			for i, name := range []string{"bake", "eat", "sell"} {
				docs[name] = row.Tools[i]
			}
			continue
		}
		shapes[row.API+" "+row.Mode]++
		t.Run(row.Model+" "+row.Mode+" "+row.Name, func(t *testing.T) {
			task := &bfcl.Task{ID: "multi_turn_base_0"}
			for i, u := range row.Users {
				turn := bfcl.Turn{}
				if u != nil {
					turn.User = *u
				}
				if slices.Contains(row.Late, fmt.Sprint(i)) {
					turn.Revealed = []string{"sell"}
				}
				task.Turns = append(task.Turns, turn)
			}
			s := serveReplies(t)
			for _, reply := range row.Replies {
				s.replies = append(s.replies, reply)
			}
			collector := rl.Collector{Policy: s.open(t, Settings{API: row.API, Model: row.Model, Mode: row.Mode}, docs),
				Environment: rl.StartFunc(func(context.Context, *bfcl.Task, rl.StartOptions) (rl.Env, error) {
					return &inventedEnv{row: row, docs: docs}, nil
				})}
			got, _, err := collector.Collect(t.Context(), []rl.Rollout{{Task: task}}, nil)
			must.OK(t, err)
			if got[0].Stop != rl.StopDone || len(s.bodies) != len(row.Bodies) {
				t.Fatalf("got %d requests and the end %q, want %d", len(s.bodies), got[0].Stop, len(row.Bodies))
			}
			whole := map[string]json.RawMessage{}
			for i, body := range row.Bodies {
				maps.Copy(whole, body)
				text := bytes.ReplaceAll(must.Get(encode(whole))(t), []byte(`"SYSTEM"`), must.Get(encode(first.System))(t))
				if got, want := canonical(t, s.bodies[i]), canonical(t, text); got != want {
					t.Fatalf("request %d:\ngot  %s\nwant %s", i+1, got, want)
				}
			}
		})
	}
	if len(shapes) != 2*len(APIs) {
		t.Errorf("got conversations of %v, want both modes of %v", shapes, APIs)
	}
}

// scripted returns the body of reply n of an API, as bench/api_requests.py does.
func scripted(t *testing.T, api, model string, n int, text string, calls [][2]string) []byte {
	id := func(i int) string { return fmt.Sprintf("call_%d_%d", n, i) }
	var body any
	switch api {
	case "openai":
		output := []any{object{"id": fmt.Sprintf("rs_%d", n), "type": "reasoning", "encrypted_content": "c2VjcmV0",
			"summary": []any{object{"type": "summary_text", "text": "I think."}}}}
		if text != "" {
			output = append(output, object{"id": fmt.Sprintf("msg_%d", n), "type": "message", "role": "assistant",
				"status": "completed", "content": []any{object{"type": "output_text", "text": text, "annotations": []any{}}}})
		}
		for i, c := range calls {
			output = append(output, object{"id": fmt.Sprintf("fc_%d_%d", n, i), "type": "function_call", "call_id": id(i),
				"name": c[0], "arguments": c[1], "status": "completed"})
		}
		body = object{"model": model, "status": "completed", "output": output,
			"usage": object{"input_tokens": 100, "output_tokens": 10}}
	case "anthropic":
		content := []any{}
		if text != "" {
			content = append(content, object{"type": "text", "text": text})
		}
		for i, c := range calls {
			content = append(content, object{"type": "tool_use", "id": id(i), "name": c[0], "input": json.RawMessage(c[1])})
		}
		body = object{"model": model, "content": content, "stop_reason": "end_turn",
			"usage": object{"input_tokens": 100, "output_tokens": 10}}
	case "google":
		parts := []any{object{"text": "I think.", "thought": true}}
		if text != "" {
			parts = append(parts, object{"text": text, "thoughtSignature": "c2lnbmVk"})
		}
		for _, c := range calls {
			parts = append(parts, object{"thoughtSignature": "c2lnbmVk",
				"functionCall": object{"name": c[0], "args": json.RawMessage(c[1])}})
		}
		body = object{"modelVersion": model, "usageMetadata": object{"promptTokenCount": 100, "candidatesTokenCount": 10},
			"candidates": []any{object{"content": object{"role": "model", "parts": parts}, "finishReason": "STOP"}}}
	default:
		message := object{"role": "assistant", "content": nil}
		if text != "" {
			message["content"] = text
		}
		if api == "glm" {
			message["reasoning_content"] = "I think."
		}
		var list []any
		for i, c := range calls {
			list = append(list, object{"id": id(i), "type": "function",
				"function": object{"name": c[0], "arguments": c[1]}})
		}
		if list != nil {
			message["tool_calls"] = list
		}
		body = object{"model": model, "choices": []any{object{"finish_reason": "stop", "message": message}},
			"usage": object{"prompt_tokens": 100, "completion_tokens": 10}}
	}
	return must.Get(encode(body))(t)
}

// script returns the replies for a task: in each turn the ground truth in one reply, then a text.
func script(t *testing.T, api, model, mode string, task *bfcl.Task) (replies [][]byte) {
	add := func(text string, calls [][2]string) {
		replies = append(replies, scripted(t, api, model, len(replies), text, calls))
	}
	for i, turn := range task.Turns {
		var calls [][2]string
		var texts []string
		for _, c := range turn.GroundTruth {
			name, arguments, err := bfcl.CallJSON(c)
			must.OK(t, err)
			calls = append(calls, [2]string{name, string(arguments)})
			spaced := must.Get(bfcl.DecodePrompt(must.Get(bfcl.CallText(name, arguments))(t)))(t)
			texts = append(texts, spaced...)
		}
		switch {
		case len(calls) > 0 && mode == ModeFC:
			add("", calls)
		case len(calls) > 0:
			add("["+strings.Join(texts, ", ")+"]", nil)
		}
		add(fmt.Sprintf("Turn %d is done.", i), nil)
	}
	return replies
}
