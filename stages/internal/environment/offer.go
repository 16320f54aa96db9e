package environment

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"rcgrpo/bfcl"
	"rcgrpo/stages/rl"
)

// NextRequest is the tool by which a client of an Offer with turns reads the requests of the user.
const NextRequest = "next_request"

// Offer is an episode whose tools a client of the Model Context Protocol calls, one call per step. Start with NewOffer.
type Offer struct {
	*mcp.Server
	Documents []json.RawMessage // of the tools at the start, in OpenAI's form
	env       rl.Env
	data      *bfcl.Data // documents of tools without one; may be nil
	late      bool       // tools from now on are revealed late

	mu    sync.Mutex
	begun bool // the first request was read
	known map[string]bool
	err   error
	calls int
	errs  int
}

// OfferOptions describe an offer.
type OfferOptions struct {
	Data     *bfcl.Data // for the documents of the benchmark's tools
	Turns    bool       // offer NextRequest
	Versions []string   // of the protocol; nil: all
}

// SessionVersions returns the versions of the protocol that have sessions over HTTP.
func SessionVersions() []string { return []string{sessionVersion, "2025-06-18", "2025-03-26"} }

// NewOffer offers the tools of an episode. The caller closes the episode after the server.
func NewOffer(env rl.Env, o OfferOptions) (*Offer, error) {
	options := &mcp.ServerOptions{SupportedProtocolVersions: o.Versions, Capabilities: &mcp.ServerCapabilities{
		Tools: &mcp.ToolCapabilities{ListChanged: true}}}
	if o.Turns {
		options.Instructions = "Call " + NextRequest + " for the first request of the user and, when a request is done, " +
			"for the next one. The last call returns the verdict."
	}
	s := &Offer{Server: mcp.NewServer(&mcp.Implementation{Name: "rcgrpo", Version: "1"}, options), env: env, data: o.Data,
		known: map[string]bool{}}
	if o.Turns {
		s.AddTool(&mcp.Tool{Name: NextRequest, InputSchema: anyObject, Description: "Ends the " +
			"current request of the user and returns the next one, at the start the first. After the last request it returns " +
			"the verdict of the episode."}, s.next)
	}
	s.AddReceivingMiddleware(s.callAny)
	err := s.reveal()
	s.late = true
	return s, err
}

// callAny makes tools that are not on offer callable, as in our own episodes: the ground truth of
// multi_turn_miss_func_49 calls a tool before it is revealed, and a policy reads the environment's own error. Lists do
// not contain them.
func (s *Offer) callAny(next mcp.MethodHandler) mcp.MethodHandler {
	return func(ctx context.Context, method string, r mcp.Request) (mcp.Result, error) {
		if call, ok := r.(*mcp.CallToolRequest); ok && !s.isKnown(call.Params.Name) {
			if err := s.add(&mcp.Tool{Name: call.Params.Name, InputSchema: anyObject}); err != nil {
				return nil, err
			}
		}
		result, err := next(ctx, method, r)
		if list, ok := result.(*mcp.ListToolsResult); ok && err == nil {
			list.Tools = slices.DeleteFunc(list.Tools, func(t *mcp.Tool) bool { return !s.isKnown(t.Name) })
		}
		return result, err
	}
}

func (s *Offer) isKnown(name string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.known[name] || name == NextRequest
}

// anyObject is the schema of a tool without a document.
var anyObject = json.RawMessage(`{"type":"object"}`)

// Calls returns the number of executed calls and of those with an error.
func (s *Offer) Calls() (calls, errs int) {
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

// reveal offers the tools of the environment that are not offered yet.
func (s *Offer) reveal() error {
	for _, t := range s.env.Tools() {
		if s.known[t.Name] {
			continue
		}
		s.known[t.Name] = true
		tool, err := s.document(t)
		if err == nil {
			err = s.add(tool)
		}
		if err != nil {
			return fmt.Errorf("tool %s: %w", t.Name, err)
		}
	}
	return nil
}

// document returns a tool in the form of the protocol.
func (s *Offer) document(t rl.Tool) (*mcp.Tool, error) {
	raw := json.RawMessage(t.JSON)
	if raw == nil && s.data == nil {
		raw = fmt.Appendf(nil, `{"type":"function","function":{"name":%q}}`, t.Name)
	} else if raw == nil {
		var err error
		if raw, err = s.data.Function(t.Name, bfcl.OpenAIChat, s.late); err != nil {
			return nil, err
		}
	}
	if !s.late {
		s.Documents = append(s.Documents, raw)
	}
	var f struct {
		Function struct {
			Description string                     `json:"description"`
			Parameters  map[string]json.RawMessage `json:"parameters"`
		} `json:"function"`
	}
	if err := decode(raw, &f); err != nil {
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

// call executes a call. Its result is that of the environment, an execution error with isError.
func (s *Offer) call(ctx context.Context, r *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	arguments := r.Params.Arguments
	if len(arguments) == 0 || string(arguments) == "null" {
		arguments = json.RawMessage("{}")
	}
	text, err := bfcl.CallText(r.Params.Name, arguments)
	if err != nil {
		return toolResult(err.Error(), true), nil
	}
	if err := s.ended(); err != nil {
		return toolResult(err.Error(), true), nil
	}
	results, errs, err := s.env.Step(ctx, rl.Reply{Calls: []rl.Call{{Text: text}}})
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
	if s.err == nil && s.env.Done() {
		return errEnded
	}
	return s.err
}

func toolResult(text string, failed bool) *mcp.CallToolResult {
	return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: text}}, IsError: failed}
}

// next ends the current request and returns the next one with the tools that it reveals, or the verdict.
func (s *Offer) next(ctx context.Context, _ *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.begun && s.ended() == nil {
		if _, _, s.err = s.env.Step(ctx, rl.Reply{}); s.err != nil {
			return nil, s.err
		}
	}
	s.begun = true
	if s.err != nil {
		return toolResult(s.err.Error(), true), nil
	}
	if s.env.Done() {
		v, err := s.env.Verdict(ctx)
		if err != nil {
			return nil, err
		}
		text, err := json.Marshal(v)
		return toolResult(string(text), false), err
	}
	if err := s.reveal(); err != nil {
		return nil, err
	}
	return toolResult(s.env.User(), false), nil
}
