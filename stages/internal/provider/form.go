package provider

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"rcgrpo/internal/nesting"
)

// form writes the requests of an API and reads its replies.
type form interface {
	// body returns a request for the next reply of a conversation.
	body(s *Settings, c *conversation) object
	// user returns the message with a request of the user.
	user(text string) any
	// results returns the messages with the results of the calls of a reply.
	results(calls []call, results []string) []any
	// read reads the body of a response.
	read(body []byte) (answer, error)
	// written returns the messages of a reply in the mode without tool calls.
	written(a answer) []any
}

type object = map[string]any

// conversation is the content of the next request.
type conversation struct {
	system   string // system prompt in the mode without tool calls, else ""
	messages []any
	tools    []json.RawMessage
}

// call is a call of a tool in a reply.
type call struct {
	id, name  string
	arguments json.RawMessage
}

// answer is a reply as an API returns it.
type answer struct {
	text    string
	calls   []call
	history []any // messages of the reply, as the next request contains them
	model   string
	stop    string // the API's reason for the end of the reply
	usage   Usage
}

// Usage counts the tokens of a call.
type Usage struct {
	Input      int `json:"input"`                 // input, without the cached parts below
	CacheRead  int `json:"cache_read,omitempty"`  // input read from a cache with a price of its own
	CacheWrite int `json:"cache_write,omitempty"` // input written to a cache with a price of its own
	Output     int `json:"output"`                // with hidden reasoning
}

// Bounds of the numbers, names and values in a reply.
const (
	mostCommas  = 1 << 13 // between values: a part of two bytes takes 700 until the next request is written
	mostTokens  = 1 << 30
	longestName = 256 // bytes of the model's name and of the reason of the end, which are in every row
)

// readReply reads a reply. The cost of a call follows from its usage, so an impossible usage is an error. With another
// error the usage is still that of the body, which the server may charge.
func readReply(f form, body []byte) (a answer, err error) {
	usage, err := readUsage(body)
	if err != nil {
		return a, err
	}
	if _, n := nesting.JSON(body); n > mostCommas {
		return answer{usage: usage}, fmt.Errorf("it has %d commas between values, more than any model writes", n)
	}
	a, err = f.read(body)
	a.usage = usage
	if n := max(len(a.model), len(a.stop)); err == nil && n > longestName {
		err = fmt.Errorf("it names its model, or the reason of its end, with %d bytes", n)
	}
	return a, err
}

// readUsage reads the usage in a body of any API, whatever else it contains: the server may charge it.
func readUsage(body []byte) (Usage, error) {
	var r struct {
		Usage, UsageMetadata *struct {
			Prompt   int `json:"prompt_tokens"` // Chat Completions
			Reply    int `json:"completion_tokens"`
			Input    int `json:"input_tokens"` // Responses, Anthropic
			Output   int `json:"output_tokens"`
			Read     int `json:"cache_read_input_tokens"`
			Write    int `json:"cache_creation_input_tokens"`
			Question int `json:"promptTokenCount"` // Google
			Answer   int `json:"candidatesTokenCount"`
			Thoughts int `json:"thoughtsTokenCount"`
		}
	}
	err := json.Unmarshal(body, &r)
	u := cmp.Or(r.Usage, r.UsageMetadata)
	if err != nil || u == nil {
		return Usage{}, cmp.Or(err, errNoReply)
	}
	for _, n := range []int{u.Prompt, u.Reply, u.Input, u.Output, u.Read, u.Write, u.Question, u.Answer, u.Thoughts} {
		if n < 0 || n > mostTokens {
			return Usage{}, fmt.Errorf("it reports the usage of %d tokens", n)
		}
	}
	return Usage{max(u.Prompt, u.Input, u.Question), u.Read, u.Write, max(u.Reply, u.Output, u.Answer+u.Thoughts)}, nil
}

// errNoReply is the error of a body that contains no reply.
var errNoReply = errors.New("the body contains no reply")

// encode writes a request. The texts of models must not be escaped for HTML.
func encode(v any) ([]byte, error) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		return nil, err
	}
	return bytes.TrimSuffix(b.Bytes(), []byte("\n")), nil
}

// decodeNumbers reads JSON without changing its numbers.
func decodeNumbers(text []byte, v any) error {
	d := json.NewDecoder(bytes.NewReader(text))
	d.UseNumber()
	return d.Decode(v)
}

// merge adds the fields of extra to a request. An object is merged field by field.
func merge(into object, extra json.RawMessage) error {
	if len(extra) == 0 {
		return nil
	}
	var fields object
	if err := decodeNumbers(extra, &fields); err != nil {
		return fmt.Errorf("extra: %w", err)
	}
	mergeObject(into, fields)
	return nil
}

func mergeObject(into, fields object) {
	for k, v := range fields {
		inner, ok := v.(object)
		if old, both := into[k].(object); ok && both {
			mergeObject(old, inner)
			continue
		}
		into[k] = v
	}
}

// temperatureRefused reports whether the model refuses a temperature, by the rule of the official handlers.
func temperatureRefused(model string) bool {
	return strings.Contains(model, "o3") || strings.Contains(model, "o4-mini") || strings.Contains(model, "gpt-5")
}
