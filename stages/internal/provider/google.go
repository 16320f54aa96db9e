package provider

import (
	"cmp"
	"encoding/json"
	"strings"
)

// google is the form of Google's generateContent API.
type google struct{}

func (google) body(s *Settings, c *conversation) object {
	thinking := object{"include_thoughts": true} // as Google's Python package writes it
	if s.Thinking != "" {
		thinking["thinking_level"] = s.Thinking
	}
	config := object{"temperature": s.Temperature, "thinkingConfig": thinking}
	if s.MaxTokens > 0 {
		config["maxOutputTokens"] = s.MaxTokens
	}
	body := object{"contents": c.messages, "generationConfig": config}
	if c.system != "" {
		body["systemInstruction"] = content("user", c.system)
	}
	if len(c.tools) > 0 {
		declarations := make([]any, len(c.tools))
		for i, raw := range c.tools {
			declarations[i] = declaration(raw)
		}
		body["tools"] = []any{object{"functionDeclarations": declarations}}
	}
	return body
}

// declaration writes a tool document as Google's Python package does: names of types in capitals, bounds as floats.
func declaration(raw json.RawMessage) any {
	var tool object
	if decodeNumbers(raw, &tool) != nil {
		return raw
	}
	if parameters, ok := tool["parameters"].(object); ok {
		schema(parameters)
	}
	return tool
}

func schema(s object) {
	if name, ok := s["type"].(string); ok {
		s["type"] = strings.ToUpper(name)
	}
	for _, bound := range []string{"minimum", "maximum"} {
		if n, ok := s[bound].(json.Number); ok && !strings.ContainsAny(n.String(), ".eE") {
			s[bound] = n + ".0"
		}
	}
	if items, ok := s["items"].(object); ok {
		schema(items)
	}
	if properties, ok := s["properties"].(object); ok {
		for _, p := range properties {
			if p, ok := p.(object); ok {
				schema(p)
			}
		}
	}
}

func content(role, text string) object {
	return object{"role": role, "parts": []any{object{"text": text}}}
}

func (google) user(text string) any { return content("user", text) }

func (google) results(calls []call, results []string) []any {
	var parts []any
	for i, c := range calls {
		parts = append(parts, object{"functionResponse": object{"name": c.name, "response": object{"result": results[i]}}})
	}
	return []any{object{"role": "user", "parts": parts}}
}

// noResponse stands for a reply without parts in the history, as in the official handler.
const noResponse = "The model did not return any response."

func (google) read(body []byte) (a answer, err error) {
	var r struct {
		Candidates []struct {
			Content json.RawMessage
			Finish  string `json:"finishReason"`
		}
		Version string `json:"modelVersion"`
		Block   struct {
			Reason string `json:"blockReason"`
		} `json:"promptFeedback"`
	}
	if err := json.Unmarshal(body, &r); err != nil {
		return a, err
	}
	if len(r.Candidates) == 0 && r.Block.Reason == "" {
		return a, errNoReply
	}
	a.model = r.Version
	a.stop = r.Block.Reason
	var c struct{ Parts []json.RawMessage }
	if len(r.Candidates) > 0 {
		a.stop = r.Candidates[0].Finish
		if raw := r.Candidates[0].Content; len(raw) > 0 {
			if err := json.Unmarshal(raw, &c); err != nil {
				return a, err
			}
			a.history = []any{raw}
		}
	}
	for _, raw := range c.Parts {
		var part struct {
			Text     string
			Thought  bool
			Function *struct {
				ID, Name string
				Args     json.RawMessage
			} `json:"functionCall"`
		}
		if err := json.Unmarshal(raw, &part); err != nil {
			return a, err
		}
		switch f := part.Function; {
		case f != nil && f.Name != "":
			if len(f.Args) == 0 || string(f.Args) == "null" {
				f.Args = json.RawMessage("{}")
			}
			a.calls = append(a.calls, call{f.ID, f.Name, f.Args})
		case !part.Thought:
			a.text = part.Text // without tool calls, the official handler reads the last
		}
	}
	if len(c.Parts) == 0 {
		a.history = []any{content("model", noResponse)}
	}
	return a, nil
}

func (google) written(a answer) []any {
	return []any{content("model", cmp.Or(a.text, noResponse))}
}
