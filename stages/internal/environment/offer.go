package environment

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"rcgrpo/bfcl"
	"rcgrpo/stages/rl"
)

// Offer is an episode whose tools a client of the Model Context Protocol calls, one call per step. Start with NewOffer.
type Offer struct {
	*mcp.Server
	Documents []json.RawMessage // of the tools, in OpenAI's form
	ctx       context.Context   // of the calls
	env       rl.Env
	data      *bfcl.Data // documents of the benchmark's tools; may be nil
	known     map[string]bool
	over      atomic.Bool // the client has ended

	mu    sync.Mutex
	err   error
	calls int
	errs  int
}

// NewOffer offers the tools of an episode until ctx ends. The caller closes the episode after the server.
func NewOffer(ctx context.Context, env rl.Env, data *bfcl.Data) (*Offer, error) {
	s := &Offer{Server: mcp.NewServer(&mcp.Implementation{Name: "rcgrpo", Version: "1"},
		&mcp.ServerOptions{PageSize: maxTools}), ctx: ctx, env: env, data: data, known: map[string]bool{}}
	s.AddReceivingMiddleware(onePage, s.callAny)
	for _, t := range env.Tools() {
		s.known[t.Name] = true
		tool, err := s.document(t)
		if err == nil {
			err = s.add(tool)
		}
		if err != nil {
			return nil, fmt.Errorf("tool %s: %w", t.Name, err)
		}
	}
	return s, nil
}

// onePage refuses lists from a cursor on, because all lists have one page: the SDK decodes cursors, and a cursor of 136
// bytes held it for ever.
func onePage(next mcp.MethodHandler) mcp.MethodHandler {
	return func(ctx context.Context, method string, r mcp.Request) (mcp.Result, error) {
		if strings.HasSuffix(method, "/list") {
			if text, err := json.Marshal(r.GetParams()); err != nil || bytes.Contains(text, []byte(`"cursor"`)) {
				return nil, &jsonrpc.Error{Code: jsonrpc.CodeInvalidParams, Message: "this list has one page, and no cursor"}
			}
		}
		return next(ctx, method, r)
	}
}

// callAny executes calls of tools that are not on offer, as in our own episodes: the ground truth of
// multi_turn_miss_func_49 calls a tool before it is revealed, and a policy reads the environment's own error.
func (s *Offer) callAny(next mcp.MethodHandler) mcp.MethodHandler {
	return func(ctx context.Context, method string, r mcp.Request) (mcp.Result, error) {
		if call, ok := r.(*mcp.CallToolRequest); ok && !s.known[call.Params.Name] {
			return s.call(ctx, call)
		}
		return next(ctx, method, r)
	}
}

// Calls returns the number of executed calls and of those with an error. The client has ended: calls that wait for
// others are not executed, which the environment may not survive, because it is closed soon.
func (s *Offer) Calls() (calls, errs int) {
	s.over.Store(true)
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.calls, s.errs
}

// Verdict ends the only request of an episode with the last text of the client, and judges it. Later calls are refused.
func (s *Offer) Verdict(ctx context.Context, last string) (bfcl.Verdict, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.err == nil && !s.env.Done() {
		_, _, s.err = s.env.Step(ctx, rl.Reply{Text: last})
	}
	if s.err == nil && !s.env.Done() {
		s.err = errors.New("the task has several requests, and an agent plays tasks with one; tasks of the benchmark and " +
			"drills have one with prompt = \"merged\"")
	}
	if s.err != nil {
		return bfcl.Verdict{}, s.err
	}
	v, err := s.env.Verdict(ctx)
	s.err = cmp.Or(err, errEnded)
	return v, err
}

var errEnded = errors.New("the episode has ended")

// document returns a tool in the form of the protocol.
func (s *Offer) document(t rl.Tool) (*mcp.Tool, error) {
	raw := json.RawMessage(t.JSON)
	var err error
	if raw == nil && s.data == nil {
		raw = fmt.Appendf(nil, `{"type":"function","function":{"name":%q}}`, t.Name)
	} else if raw == nil {
		raw, err = s.data.Function(t.Name, bfcl.OpenAIChat, false)
	}
	s.Documents = append(s.Documents, raw)
	var f struct {
		Function struct {
			Description string                     `json:"description"`
			Parameters  map[string]json.RawMessage `json:"parameters"`
		} `json:"function"`
	}
	if err = cmp.Or(err, decode(raw, &f)); err != nil {
		return nil, err
	}
	schema := map[string]json.RawMessage{"type": json.RawMessage(`"object"`)}
	maps.Copy(schema, f.Function.Parameters)
	return &mcp.Tool{Name: t.Name, Description: f.Function.Description, InputSchema: schema}, nil
}

// add offers a tool. The SDK panics about documents that the protocol does not allow.
func (s *Offer) add(t *mcp.Tool) (err error) {
	defer func() {
		if cause := recover(); cause != nil {
			err = fmt.Errorf("%v", cause)
		}
	}()
	s.AddTool(t, s.call)
	return nil
}

// call executes a call. Its result is that of the environment, an execution error with isError. A client that cancels
// the call does not read it, but cannot end the step: an error of a step is one of the episode.
func (s *Offer) call(_ context.Context, r *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	arguments := r.Params.Arguments
	if len(arguments) == 0 || string(arguments) == "null" {
		arguments = json.RawMessage("{}")
	}
	text, err := bfcl.CallText(r.Params.Name, arguments)
	if err = cmp.Or(err, s.ended()); err != nil {
		return toolResult(err.Error(), true), nil
	}
	results, errs, err := s.env.Step(s.ctx, rl.Reply{Calls: []rl.Call{{Text: text}}})
	if err != nil {
		s.err = err
		return nil, err
	}
	s.calls += len(results)
	s.errs += errs
	if len(results) == 0 { // the call ended the episode
		return toolResult("", false), nil
	}
	return toolResult(results[0], errs > 0), nil
}

func (s *Offer) ended() error {
	if s.err == nil && (s.env.Done() || s.over.Load()) {
		return errEnded
	}
	return s.err
}

func toolResult(text string, failed bool) *mcp.CallToolResult {
	return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: text}}, IsError: failed}
}
