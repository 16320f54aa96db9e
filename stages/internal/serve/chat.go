package serve

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"

	"rcgrpo/stages/internal/chat"
	"rcgrpo/stages/internal/token"
	"rcgrpo/stages/rl"
)

// Messages of requests and responses.
type (
	message struct {
		Role       string          `json:"role"`
		Content    json.RawMessage `json:"content"`
		Calls      []toolCall      `json:"tool_calls,omitempty"`
		Name       *string         `json:"name,omitempty"`
		ToolCallID string          `json:"tool_call_id,omitempty"`
	}
	toolCall struct {
		Index    *int   `json:"index,omitempty"` // in streams
		ID       string `json:"id"`
		Type     string `json:"type"`
		Function struct {
			Name      string `json:"name"`
			Arguments string `json:"arguments"`
		} `json:"function"`
	}
	// answer is a message of the assistant, or its delta in a stream.
	answer struct {
		Role    string     `json:"role,omitempty"`
		Content *string    `json:"content"`
		Calls   []toolCall `json:"tool_calls,omitempty"`
	}
	delta struct {
		Role    string     `json:"role,omitempty"`
		Content *string    `json:"content,omitempty"`
		Calls   []toolCall `json:"tool_calls,omitempty"`
	}
	chatChoice struct {
		Index    int           `json:"index"`
		Message  *answer       `json:"message,omitempty"`
		Delta    *delta        `json:"delta,omitempty"`
		Logprobs *chatLogprobs `json:"logprobs"`
		Finish   *string       `json:"finish_reason"`
		Reason   any           `json:"stop_reason,omitempty"`
		IDs      []int32       `json:"token_ids,omitempty"`
	}
	chatLogprobs struct {
		Content []tokenLogprob `json:"content"`
	}
	tokenLogprob struct {
		ranked
		Top []ranked `json:"top_logprobs"`
	}
	ranked struct {
		Token string  `json:"token"`
		Logp  float32 `json:"logprob"`
		Bytes numbers `json:"bytes"`
	}
	// numbers are bytes that JSON has as numbers.
	numbers []byte
)

// MarshalJSON writes a list of numbers, which takes a fraction of the memory of a []int.
func (n numbers) MarshalJSON() ([]byte, error) {
	text := []byte("[")
	for i, b := range n {
		if i > 0 {
			text = append(text, ',')
		}
		text = strconv.AppendUint(text, uint64(b), 10)
	}
	return append(text, ']'), nil
}

// chat answers /v1/chat/completions.
func (s *Server) chat(w http.ResponseWriter, q *request) error {
	conversation, err := readChat(q)
	if err != nil {
		return err
	}
	conversation.Token, q.conversation = q.reward, conversation
	prompt, err := chat.Prompt(s.Codec, *conversation, s.Batcher.MaxLen(), s.memory.Turn)
	if errors.Is(err, chat.ErrLong) {
		return bad("messages", "context_length_exceeded", "%v", err)
	}
	if err != nil {
		return bad("messages", "", "%v", err)
	}
	room, err := s.room(prompt, q.max)
	if err != nil {
		return err
	}
	var choices []*choice
	for i := range q.choices {
		choices = append(choices, &choice{s: s, q: q, index: i, prompt: prompt, room: room,
			tools: len(conversation.Tools) > 0})
	}
	head := newResponse[chatChoice](q, "chatcmpl-", "chat.completion")
	if q.stream {
		head.Object = "chat.completion.chunk"
	}
	if q.returnIDs {
		head.PromptIDs = prompt
	}
	return respond(s, w, q, choices, head, (*choice).chatChoice, (*choice).chatParts)
}

// chatChoice returns the whole reply.
func (c *choice) chatChoice() chatChoice {
	text, calls := c.answer()
	message := answer{Role: rl.RoleAssistant, Content: &text, Calls: calls}
	if text == "" && calls != nil {
		message.Content = nil
	}
	done := chatChoice{Index: c.index, Message: &message, Finish: c.finished(calls), Reason: c.reason,
		Logprobs: c.chatLogprobs(c.draws)}
	if c.q.returnIDs {
		done.IDs = ids(c.draws)
	}
	return done
}

// readChat reads the conversation and the settings of a chat.
func readChat(q *request) (*chat.Conversation, error) {
	conversation, err := readConversation(q)
	if err != nil {
		return nil, err
	}
	top, most := 0, 0
	limited := q.has("max_completion_tokens")
	err = q.take(field{"max_completion_tokens", &most}, field{"logprobs", &q.logprobs}, field{"top_logprobs", &top})
	if err != nil {
		return nil, err
	}
	switch {
	case limited && most < 1:
		return nil, bad("max_completion_tokens", "unsupported_value", "max_completion_tokens must be at least 1; "+
			"got %d", most)
	case top < 0 || top > 20 || top > 0 && !q.logprobs:
		return nil, bad("top_logprobs", "unsupported_value", "top_logprobs lies between 0 and 20 and needs "+
			"logprobs; got %d", top)
	case limited:
		q.max = most
	}
	q.top = top
	return conversation, q.done()
}

// room returns the number of tokens that a reply may have.
func (s *Server) room(prompt []int32, wanted int) (int, error) {
	longest := s.Batcher.MaxLen()
	if len(prompt) >= longest {
		return 0, bad("messages", "context_length_exceeded", "the prompt has at least %d tokens, and the context of this "+
			"server has %d, at least one of which belongs to the reply", len(prompt), longest)
	}
	return min(cmp.Or(wanted, longest), longest-len(prompt)), nil
}

// answer returns the text and the calls of a reply, and remembers its ids.
func (c *choice) answer() (text string, calls []toolCall) {
	var functions []chat.FunctionCall
	text = token.Text(c.text)
	sampled := ids(c.draws)
	if _, cut := c.reason.(string); c.tools && !cut { // a stop string cuts the calls too
		if c.reason != nil { // a stop_token_id
			sampled = sampled[:len(sampled)-1]
		}
		if outside, parsed := c.s.Codec.Answer(sampled); parsed != nil {
			text, functions = outside, parsed
		}
	}
	for i, f := range functions {
		call := toolCall{Type: "function",
			ID: fmt.Sprintf("call_%016x", rl.Serving(c.q.seed, c.index).With(uint64(i)).Bits(len(c.prompt)))}
		call.Function.Name, call.Function.Arguments = f.Name, string(f.Arguments)
		calls = append(calls, call)
	}
	if last := len(c.draws) - 1; last >= 0 && c.s.Codec.Stop(c.draws[last].Token) { // a cut reply is written again
		c.s.memory.KeepTurn(c.prompt, chat.Turn{Text: text, Calls: functions}, ids(c.draws))
	}
	return text, calls
}

func (c *choice) finished(calls []toolCall) *string {
	reason := c.finish
	if calls != nil {
		reason = "tool_calls"
	}
	return &reason
}

// chatLogprobs returns the logprobs of draws, nil if the request wants none.
func (c *choice) chatLogprobs(draws []rl.Draw) *chatLogprobs {
	if !c.q.logprobs {
		return nil
	}
	out := &chatLogprobs{Content: []tokenLogprob{}}
	for _, d := range c.visible(draws) {
		l := tokenLogprob{ranked: c.s.ranked(c.q, rl.Ranked{Token: d.Token, Logp: d.Logp}), Top: []ranked{}}
		for _, r := range d.Top {
			l.Top = append(l.Top, c.s.ranked(c.q, r))
		}
		out.Content = append(out.Content, l)
	}
	return out
}

func (s *Server) ranked(q *request, r rl.Ranked) ranked {
	return ranked{Token: s.spell(q, r.Token), Logp: finite(r.Logp), Bytes: s.Tokenizer.Bytes(r.Token)}
}

// finite replaces the logprob of an impossible token, which JSON cannot represent, by OpenAI's lower bound.
func finite(logp float32) float32 { return max(logp, -9999) }

// chatParts returns the events of a piece of the reply.
func (c *choice) chatParts(p piece) (parts []chatChoice) {
	part := chatChoice{Index: c.index, Delta: &delta{}, Logprobs: c.chatLogprobs(p.draws)}
	if c.q.returnIDs {
		part.IDs = ids(p.draws)
	}
	if !c.opened {
		c.opened = true
		parts = append(parts, chatChoice{Index: c.index, Delta: &delta{Role: rl.RoleAssistant, Content: new(string)}})
	}
	if !p.ended {
		part.Delta.Content = &p.text
		return append(parts, part)
	}
	text, calls := c.answer()
	if rest, ok := strings.CutPrefix(text, c.shown); ok && rest != "" {
		part.Delta.Content = &rest
	}
	for i := range calls {
		calls[i].Index = &i
	}
	part.Delta.Calls = calls
	if part.Delta.Content != nil || calls != nil {
		parts = append(parts, part)
		part.Logprobs, part.IDs = nil, nil
	}
	part.Delta, part.Finish, part.Reason = &delta{}, c.finished(calls), c.reason
	return append(parts, part)
}

// readConversation reads the messages and tools of a request.
func readConversation(q *request) (*chat.Conversation, error) {
	var messages []message
	var tools []json.RawMessage
	var choice string
	if err := q.take(field{"messages", &messages}, field{"tools", &tools}); err != nil {
		return nil, err
	}
	if q.has("tool_choice") {
		if json.Unmarshal(q.fields["tool_choice"], &choice) != nil || choice != "auto" && choice != "none" {
			return nil, bad("tool_choice", "unsupported_value", "tool_choice is supported as \"auto\" or \"none\"")
		}
	}
	delete(q.fields, "tool_choice")
	c := &chat.Conversation{}
	size, calls := 0, 0
	for i, tool := range tools {
		if size += len(tool); size > maxTools {
			return nil, bad("tools", "", "the tools have more than %d bytes", maxTools)
		}
		var t struct {
			Type     string
			Function struct{ Name string }
		}
		if err := json.Unmarshal(tool, &t); err != nil || t.Type != "function" || t.Function.Name == "" {
			return nil, bad(fmt.Sprintf("tools[%d]", i), "", "a tool is {\"type\": \"function\", \"function\": {\"name\": …}}")
		}
		if len(t.Function.Name) > maxToolName {
			return nil, bad(fmt.Sprintf("tools[%d].function.name", i), "", "the name of a tool has at most %d bytes; got %d",
				maxToolName, len(t.Function.Name))
		}
		if choice != "none" {
			c.Tools = append(c.Tools, rl.Tool{Name: t.Function.Name, JSON: tool})
		}
	}
	for i, m := range messages {
		at := fmt.Sprintf("messages[%d]", i)
		text, err := readContent(at, m.Content)
		if err != nil {
			return nil, err
		}
		turn := chat.Turn{Role: m.Role, Text: text}
		switch m.Role {
		case "system":
			if i > 0 {
				return nil, bad(at, "unsupported_value", "only the first message may be a system message")
			}
			c.System = &text
			continue
		case rl.RoleUser, rl.RoleTool:
		case rl.RoleAssistant:
			for _, call := range m.Calls {
				if calls += 16 + len(call.Function.Name) + len(call.Function.Arguments); calls > maxCalls {
					return nil, bad(at+".tool_calls", "", "the calls have more than %d bytes", maxCalls)
				}
				turn.Calls = append(turn.Calls, chat.FunctionCall{Name: call.Function.Name,
					Arguments: json.RawMessage(call.Function.Arguments)})
			}
		default:
			return nil, bad(at+".role", "unsupported_value", "role is system, user, assistant or tool; got %.80q", m.Role)
		}
		c.Turns = append(c.Turns, turn)
	}
	if len(c.Turns) == 0 {
		return nil, bad("messages", "", "messages must contain a user message")
	}
	return c, nil
}

// readContent reads a text, or the texts of a list of parts. null is the empty text.
func readContent(at string, raw json.RawMessage) (string, error) {
	if raw == nil || string(raw) == "null" {
		return "", nil
	}
	var text string
	if json.Unmarshal(raw, &text) == nil {
		return text, nil
	}
	var parts []struct{ Type, Text string }
	if err := json.Unmarshal(raw, &parts); err != nil {
		return "", bad(at+".content", "", "content is a string or a list of parts")
	}
	var all strings.Builder
	for i, p := range parts {
		if p.Type != "text" {
			return "", bad(fmt.Sprintf("%s.content[%d]", at, i), "unsupported_value", "only parts of type text are supported; "+
				"got %.80q", p.Type)
		}
		all.WriteString(p.Text)
	}
	return all.String(), nil
}
