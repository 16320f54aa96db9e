package provider

import (
	"cmp"
	"encoding/json"
	"maps"
)

// anthropic is the form of Anthropic's Messages API.
type anthropic struct{}

// claudeTokens is the limit that the official handler gives its models.
const claudeTokens = 64_000

// body marks the system prompt, the last tool and the last two user messages for the cache. The marks are not part of
// the conversation.
func (anthropic) body(s *Settings, c *conversation) object {
	messages, left := append([]any{}, c.messages...), 2
	for i := len(messages) - 1; i >= 0 && left > 0; i-- {
		if m, ok := messages[i].(object); ok && m["role"] == "user" {
			messages[i] = marked(m)
			left--
		}
	}
	body := object{"model": s.Model, "max_tokens": cmp.Or(s.MaxTokens, claudeTokens), "messages": messages}
	if s.Thinking == "" {
		body["temperature"] = s.Temperature
	} else { // Claude refuses a temperature beside thinking
		body["thinking"] = object{"type": "enabled", "budget_tokens": json.Number(s.Thinking)}
	}
	if c.system != "" {
		body["system"] = []any{object{"type": "text", "text": c.system, "cache_control": ephemeral()}}
	}
	if s.Mode == ModeFC {
		tools := append([]json.RawMessage{}, c.tools...)
		if n := len(tools); n > 0 {
			last := string(tools[n-1])
			tools[n-1] = json.RawMessage(last[:len(last)-1] + `, "cache_control": {"type": "ephemeral"}}`)
		}
		body["tools"] = tools
	}
	return body
}

func ephemeral() object { return object{"type": "ephemeral"} }

// marked returns a copy of a user message whose first part is marked for the cache.
func marked(m object) object {
	parts := append([]any{}, m["content"].([]any)...)
	first := maps.Clone(parts[0].(object))
	first["cache_control"] = ephemeral()
	parts[0] = first
	return object{"role": "user", "content": parts}
}

func (anthropic) user(text string) any {
	return object{"role": "user", "content": []any{object{"type": "text", "text": text}}}
}

func (anthropic) results(calls []call, results []string) []any {
	var parts []any
	for i, c := range calls {
		parts = append(parts, object{"type": "tool_result", "content": results[i], "tool_use_id": c.id})
	}
	return []any{object{"role": "user", "content": parts}}
}

func (anthropic) read(body []byte) (a answer, err error) {
	var r struct {
		Model   string
		Stop    string `json:"stop_reason"`
		Content []json.RawMessage
	}
	if err := json.Unmarshal(body, &r); err != nil {
		return a, err
	}
	texts := 0
	for _, raw := range r.Content {
		var part struct {
			Type, Text, ID, Name string
			Input                json.RawMessage
		}
		if err := json.Unmarshal(raw, &part); err != nil {
			return a, err
		}
		switch part.Type {
		case "text": // without tool calls, the official handler reads the first
			if texts++; texts == 1 {
				a.text = part.Text
			}
		case "tool_use":
			a.calls = append(a.calls, call{part.ID, part.Name, part.Input})
		}
	}
	a.model, a.stop = r.Model, r.Stop
	if len(r.Content) > 0 {
		a.history = []any{object{"role": "assistant", "content": r.Content}}
	}
	return a, nil
}

func (anthropic) written(a answer) []any {
	if a.text == "" {
		return nil
	}
	return []any{object{"role": "assistant", "content": a.text}}
}
