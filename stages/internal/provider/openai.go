package provider

import (
	"cmp"
	"encoding/json"
	"strings"
)

// openAI has the methods that the forms of OpenAI's APIs share.
type openAI struct{}

func (openAI) user(text string) any { return object{"role": "user", "content": text} }

func (openAI) written(a answer) []any { return a.history }

// responses is the form of OpenAI's Responses API.
type responses struct{ openAI }

func (responses) body(s *Settings, c *conversation) object {
	input := c.messages
	if c.system != "" {
		input = append([]any{object{"role": "developer", "content": c.system}}, input...)
	}
	body := object{"model": s.Model, "input": input, "store": false}
	if temperatureRefused(s.Model) {
		reasoning := object{"summary": "auto"}
		if s.Thinking != "" {
			reasoning["effort"] = s.Thinking
		}
		body["include"], body["reasoning"] = []string{"reasoning.encrypted_content"}, reasoning
	} else {
		body["temperature"] = s.Temperature
	}
	if s.MaxTokens > 0 {
		body["max_output_tokens"] = s.MaxTokens
	}
	if len(c.tools) > 0 {
		body["tools"] = c.tools
	}
	return body
}

func (responses) results(calls []call, results []string) []any {
	var list []any
	for i, c := range calls {
		list = append(list, object{"type": "function_call_output", "call_id": c.id, "output": results[i]})
	}
	return list
}

func (responses) read(body []byte) (a answer, err error) {
	var r struct {
		Model  string
		Status string
		Output []json.RawMessage
	}
	if err := json.Unmarshal(body, &r); err != nil {
		return a, err
	}
	a.model, a.stop = r.Model, r.Status
	var text strings.Builder
	for _, raw := range r.Output {
		var item struct {
			Type, Name, Arguments string
			Call                  string `json:"call_id"`
			Content               []struct{ Type, Text string }
		}
		if err := json.Unmarshal(raw, &item); err != nil {
			return a, err
		}
		switch item.Type {
		case "function_call":
			a.calls = append(a.calls, call{item.Call, item.Name, json.RawMessage(item.Arguments)})
		case "message":
			for _, part := range item.Content {
				if part.Type == "output_text" {
					text.WriteString(part.Text)
				}
			}
		}
		a.history = append(a.history, raw)
	}
	a.text = text.String()
	return a, nil
}

// chat is the form of OpenAI's Chat Completions API, which other vendors imitate.
type chat struct {
	openAI
	glm bool
}

func (f chat) body(s *Settings, c *conversation) object {
	messages := c.messages
	if c.system != "" {
		messages = append([]any{object{"role": "system", "content": c.system}}, messages...)
	}
	body := object{"model": s.Model, "messages": messages, "store": false}
	thinking := s.Thinking
	if f.glm && s.Mode == ModeFC && strings.Contains(s.Model, "glm-4.6") {
		thinking = cmp.Or(thinking, "enabled")
	} else {
		body["temperature"] = s.Temperature
	}
	switch {
	case f.glm && thinking != "":
		body["thinking"] = object{"type": thinking}
	case thinking != "":
		body["reasoning_effort"] = thinking
	}
	if s.MaxTokens > 0 {
		body["max_tokens"] = s.MaxTokens
	}
	if len(c.tools) > 0 {
		body["tools"] = c.tools
	}
	return body
}

func (chat) results(calls []call, results []string) []any {
	var list []any
	for i, c := range calls {
		list = append(list, object{"role": "tool", "content": results[i], "tool_call_id": c.id})
	}
	return list
}

func (chat) read(body []byte) (a answer, err error) {
	var r struct {
		Model   string
		Choices []struct {
			Finish  string          `json:"finish_reason"`
			Message json.RawMessage `json:"message"`
		}
	}
	if err := json.Unmarshal(body, &r); err != nil {
		return a, err
	}
	if len(r.Choices) == 0 {
		return a, errNoReply
	}
	var m struct {
		Content string
		Calls   []struct {
			ID       string
			Function struct{ Name, Arguments string }
		} `json:"tool_calls"`
	}
	if err := json.Unmarshal(r.Choices[0].Message, &m); err != nil {
		return a, err
	}
	for _, c := range m.Calls {
		a.calls = append(a.calls, call{c.ID, c.Function.Name, json.RawMessage(c.Function.Arguments)})
	}
	a.text, a.model, a.stop = m.Content, r.Model, r.Choices[0].Finish
	a.history = []any{r.Choices[0].Message}
	return a, nil
}
