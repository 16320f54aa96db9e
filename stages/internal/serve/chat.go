package serve

import (
	"crypto/rand"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"time"

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
	// response is the answer of both endpoints, and each event of a stream.
	response[Choice any] struct {
		ID        string   `json:"id"`
		Object    string   `json:"object"`
		Created   int64    `json:"created"`
		Model     string   `json:"model"`
		Seed      uint64   `json:"seed"`
		Choices   []Choice `json:"choices"`
		Usage     *usage   `json:"usage,omitempty"`
		PromptIDs []int32  `json:"prompt_token_ids,omitempty"` // of a chat
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
		Bytes []int   `json:"bytes"`
	}
)

// newResponse returns the response to a request without its choices.
func newResponse[Choice any](q *request, prefix, object string) response[Choice] {
	return response[Choice]{ID: prefix + rand.Text(), Object: object, Created: time.Now().Unix(), Model: q.model,
		Seed: q.seed}
}

// chat answers /v1/chat/completions.
func (s *Server) chat(w http.ResponseWriter, q *request) error {
	conversation, err := readChat(q)
	if err != nil {
		return err
	}
	conversation.Token, q.conversation = q.reward, conversation
	prompt, err := chat.Prompt(s.Layout, *conversation, s.memory.Turn)
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
	if q.returnIDs {
		head.PromptIDs = prompt
	}
	if q.stream {
		return s.streamChat(w, q, choices, head)
	}
	if err := s.run(q, choices, nil); err != nil {
		return err
	}
	for _, c := range choices {
		head.Choices = append(head.Choices, c.chatChoice())
	}
	head.Usage = usageOf(choices, len(choices))
	writeJSON(w, http.StatusOK, head)
	return nil
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
		return 0, bad("messages", "context_length_exceeded", "the prompt has %d tokens, and the context of this server has "+
			"%d, at least one of which belongs to the reply", len(prompt), longest)
	}
	if wanted == 0 {
		wanted = longest
	}
	return min(wanted, longest-len(prompt)), nil
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
		if outside, parsed := c.s.Layout.Answer(sampled); parsed != nil {
			text, functions = outside, parsed
		}
	}
	for i, f := range functions {
		call := toolCall{Type: "function",
			ID: fmt.Sprintf("call_%016x", rl.Serving(c.q.seed, c.index).With(uint64(i)).Bits(len(c.prompt)))}
		call.Function.Name, call.Function.Arguments = f.Name, string(f.Arguments)
		calls = append(calls, call)
	}
	if last := len(c.draws) - 1; last >= 0 && c.s.Layout.Stop(c.draws[last].Token) { // a cut reply is written again
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
	out := ranked{Token: s.spell(q, r.Token), Logp: finite(r.Logp), Bytes: []int{}}
	for _, b := range s.Tokenizer.Bytes(r.Token) {
		out.Bytes = append(out.Bytes, int(b))
	}
	return out
}

// finite replaces the logprob of an impossible token, which JSON cannot represent, by OpenAI's lower bound.
func finite(logp float32) float32 { return max(logp, -9999) }

// streamChat answers with events.
func (s *Server) streamChat(w http.ResponseWriter, q *request, choices []*choice, head response[chatChoice]) error {
	head.Object = "chat.completion.chunk"
	events := &events{w: w}
	send := func(c chatChoice) error {
		chunk := head
		chunk.Choices = []chatChoice{c}
		head.PromptIDs = nil
		return events.send(chunk)
	}
	empty := ""
	opened := map[int]bool{}
	err := s.run(q, choices, func(c *choice, p piece) error {
		part := chatChoice{Index: c.index, Delta: &delta{}, Logprobs: c.chatLogprobs(p.draws)}
		if q.returnIDs {
			part.IDs = ids(p.draws)
		}
		if !opened[c.index] {
			opened[c.index] = true
			if err := send(chatChoice{Index: c.index, Delta: &delta{Role: rl.RoleAssistant, Content: &empty}}); err != nil {
				return err
			}
		}
		if !p.ended {
			part.Delta.Content = &p.text
			return send(part)
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
			if err := send(part); err != nil {
				return err
			}
			part.Logprobs, part.IDs = nil, nil
		}
		part.Delta, part.Finish, part.Reason = &delta{}, c.finished(calls), c.reason
		return send(part)
	})
	if err == nil && q.usage {
		head.Choices, head.Usage = []chatChoice{}, usageOf(choices, len(choices))
		err = events.send(head)
	}
	return events.end(err)
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
	for i, tool := range tools {
		var t struct {
			Type     string
			Function struct{ Name string }
		}
		if err := json.Unmarshal(tool, &t); err != nil || t.Type != "function" || t.Function.Name == "" {
			return nil, bad(fmt.Sprintf("tools[%d]", i), "", "a tool is {\"type\": \"function\", \"function\": {\"name\": …}}")
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
	for i, p := range parts {
		if p.Type != "text" {
			return "", bad(fmt.Sprintf("%s.content[%d]", at, i), "unsupported_value", "only parts of type text are supported; "+
				"got %.80q", p.Type)
		}
		text += p.Text
	}
	return text, nil
}

// events writes server-sent events.
type events struct {
	w     http.ResponseWriter
	begun bool
}

func (e *events) send(v any) error {
	text, err := json.Marshal(v)
	if err != nil {
		return err
	}
	return e.write(string(text))
}

func (e *events) write(text string) error {
	if !e.begun {
		e.begun = true
		e.w.Header().Set("Content-Type", "text/event-stream")
		e.w.Header().Set("Cache-Control", "no-cache")
	}
	if _, err := fmt.Fprintf(e.w, "data: %s\n\n", text); err != nil {
		return err
	}
	return http.NewResponseController(e.w).Flush()
}

// end ends the stream, after an error with an event that contains it. An error before the first event is returned.
func (e *events) end(err error) error {
	if err == nil {
		return e.write("[DONE]")
	}
	if !e.begun {
		return err
	}
	_ = e.send(map[string]any{"error": apiError{Type: "server_error", Message: "the reply was interrupted"}})
	return nil
}
