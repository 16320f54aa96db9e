package chat

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"rcgrpo/bfcl"
	"rcgrpo/stages/internal/token"
	"rcgrpo/stages/rl"
)

// Conversation is a conversation in the form of chat APIs.
type Conversation struct {
	System *string // nil: the default of the layout
	Tools  []rl.Tool
	Turns  []Turn
	Token  string // reward token
}

// Turn is a message after the system message.
type Turn struct {
	Role  string // one of the rl.Role constants
	Text  string
	Calls []FunctionCall // of the assistant
}

// FunctionCall is a call of a tool with a JSON object of arguments.
type FunctionCall struct {
	Name      string
	Arguments json.RawMessage
}

// Python returns the call as Python text, or its name if the arguments are no JSON object.
func (c FunctionCall) Python() string {
	text, err := bfcl.CallText(c.Name, c.Arguments)
	if err != nil {
		return c.Name
	}
	return text
}

// Talk is a codec for conversations in the form of chat APIs.
type Talk interface {
	rl.Codec
	// Answer decodes a reply into the text outside calls and the calls. A reply whose calls cannot be read is a text.
	Answer(ids []int32) (text string, calls []FunctionCall)
	// Visible returns the length of the prefix of a reply's text that cannot belong to a call.
	Visible(text string) int
	// Insert returns a rendered prompt of this layout with the reward token in its place. A prompt that has one, or
	// that is of another layout, is unchanged.
	Insert(prompt, token string) string

	begin(system *string, tools []rl.Tool) []int32
	write(text string, calls []FunctionCall) ([]int32, error)
}

var _, _ Talk = (*Chat)(nil), (*Drill)(nil)

// Prompt returns the ids before the next reply. known returns the ids of an earlier reply, given all ids before it,
// or nil if they are unknown; then the layout writes the reply. A prompt of more than longest ids is cut after the
// message that exceeds them, so that a long conversation costs no more than one that fits.
func Prompt(c Talk, v Conversation, longest int, known func(before []int32, t Turn) []int32) ([]int32, error) {
	if len(v.Turns) == 0 || v.Turns[0].Role != rl.RoleUser {
		return nil, errors.New("the first message after a system message must be a user message")
	}
	ids := slices.Clone(c.begin(v.System, v.Tools))
	for i := 0; i < len(v.Turns) && len(ids) <= longest; i++ {
		switch t := v.Turns[i]; t.Role {
		case rl.RoleUser:
			ids = append(ids, c.User(t.Text, i == 0, v.Token)...)
		case rl.RoleTool:
			results := []string{t.Text}
			for ; i+1 < len(v.Turns) && v.Turns[i+1].Role == rl.RoleTool; i++ {
				results = append(results, v.Turns[i+1].Text)
			}
			ids = append(ids, c.Tool(results)...)
		default:
			ids = append(ids, c.Header(v.Token)...)
			reply := known(ids, t)
			if reply == nil {
				var err error
				if reply, err = c.write(t.Text, t.Calls); err != nil {
					return nil, fmt.Errorf("message %d after the system message: %w", i+1, err)
				}
			}
			ids = append(append(ids, reply...), c.Between()...)
		}
	}
	return append(ids, c.Header(v.Token)...), nil
}

// written describes how a family writes calls.
type written struct {
	key         string // of the arguments
	open, close string // around a call; "": the whole reply is calls, separated by semicolons
	marks       bool   // text may precede calls
}

func (c *Chat) write(text string, calls []FunctionCall) ([]int32, error) {
	parts := []token.Part{plainly(c.trim(text))}
	if len(calls) > 0 && (text == "" || !c.written.marks) {
		parts = nil
	} else if len(calls) > 0 {
		parts = []token.Part{plainly(text + "\n")}
	}
	for i, call := range calls {
		arguments, err := parseJSON(call.Arguments)
		if err != nil {
			return nil, fmt.Errorf("the arguments of %s must be a JSON object: %w", call.Name, err)
		}
		if _, ok := arguments.(object); !ok {
			return nil, fmt.Errorf("the arguments of %s must be a JSON object; got %.80q", call.Name, call.Arguments)
		}
		if i > 0 {
			parts = append(parts, plainly(c.between))
		}
		parts = append(parts, c.call(call.Name, arguments)...)
	}
	return c.tokens.EncodeParts(append(parts, all(c.stops[0]))...), nil
}

// Answer implements Talk.
func (c *Chat) Answer(ids []int32) (text string, calls []FunctionCall) {
	if n := len(ids); n > 0 && c.Stop(ids[n-1]) {
		ids = ids[:n-1]
	}
	text = c.tokens.Decode(ids, false)
	w := c.written
	if w.open == "" {
		for _, pieces := range [][]string{{text}, strings.Split(text, ";")} {
			if calls = readCalls(w.key, pieces); calls != nil {
				return "", calls
			}
		}
		return text, nil
	}
	var outside, pieces []string
	for rest := text; ; {
		before, after, ok := strings.Cut(rest, w.open)
		call, next, closed := strings.Cut(after, w.close)
		if !ok || !closed {
			outside = append(outside, rest)
			break
		}
		outside, pieces, rest = append(outside, before), append(pieces, call), next
	}
	if calls = readCalls(w.key, pieces); calls == nil {
		return text, nil
	}
	return strings.TrimRightFunc(strings.Join(outside, ""), pySpace), calls
}

// readCalls reads a JSON object per piece, or returns nil.
func readCalls(key string, pieces []string) (calls []FunctionCall) {
	for _, piece := range pieces {
		v, err := parseJSON([]byte(strings.ReplaceAll(piece, "<|python_tag|>", "")))
		if err != nil {
			return nil
		}
		o, _ := v.(object)
		name, named := o.get("name").(string)
		arguments := o.get(key)
		if text, ok := arguments.(string); ok {
			arguments, _ = parseJSON([]byte(text))
		}
		if _, ok := arguments.(object); !ok || !named {
			return nil
		}
		calls = append(calls, FunctionCall{name, json.RawMessage(oneLine(arguments))})
	}
	return calls
}

// Visible implements Talk.
func (c *Chat) Visible(text string) int {
	if c.written.open == "" { // the first character decides
		trimmed := strings.TrimLeftFunc(text, pySpace)
		if trimmed == "" || trimmed[0] == '{' || strings.HasPrefix("<|python_tag|>", trimmed[:min(len(trimmed), 14)]) {
			return 0
		}
		return len(text)
	}
	tag := strings.TrimSpace(c.written.open)
	if at := strings.Index(text, tag); at >= 0 {
		text = text[:at]
	} else {
		text = text[:len(text)-Partial(text, tag)]
	}
	return len(strings.TrimRightFunc(text, pySpace))
}

// Partial returns the length of the longest suffix of text that is a proper prefix of word.
func Partial(text, word string) int {
	for n := min(len(text), len(word)-1); n > 0; n-- {
		if strings.HasSuffix(text, word[:n]) {
			return n
		}
	}
	return 0
}

// Insert implements Talk.
func (c *Chat) Insert(prompt, reward string) string {
	return insert(prompt, reward, c.position, c.user, c.userEnd, c.header)
}

func insert(prompt, reward, position, user, userEnd, header string) string {
	name := map[string]string{rl.TokenHigh: HighReward, rl.TokenLow: LowReward}[reward]
	if name == "" || strings.Contains(prompt, HighReward) || strings.Contains(prompt, LowReward) {
		return prompt
	}
	switch position {
	case rl.BeforeEachAction:
		return strings.ReplaceAll(prompt, header, header+name)
	case rl.FirstUser:
		before, request, ok := strings.Cut(prompt, user)
		text, after, ended := strings.Cut(request, userEnd)
		if ok && ended {
			return before + user + text + rl.GoalBefore + name + rl.GoalAfter + userEnd + after
		}
	}
	return prompt
}

func (d *Drill) begin(*string, []rl.Tool) []int32 { return nil } // the layout has neither

func (d *Drill) write(text string, calls []FunctionCall) ([]int32, error) {
	if len(calls) == 0 {
		return append(d.tokens.Encode(text), d.end), nil
	}
	var lines []string
	for _, call := range calls {
		line, err := bfcl.CallText(call.Name, call.Arguments)
		if err != nil {
			return nil, err
		}
		lines = append(lines, line)
	}
	return d.Reply(lines), nil
}

// Answer implements Talk.
func (d *Drill) Answer(ids []int32) (text string, calls []FunctionCall) {
	text, parsed := d.Parse(ids)
	for _, call := range parsed {
		name, arguments, err := bfcl.CallJSON(call.Text)
		if err != nil {
			return text, nil
		}
		calls = append(calls, FunctionCall{name, arguments})
	}
	if calls != nil {
		text = ""
	}
	return text, calls
}

// Visible implements Talk. Only the last id shows whether a reply is a text or calls.
func (d *Drill) Visible(string) int { return 0 }

// Insert implements Talk.
func (d *Drill) Insert(prompt, reward string) string {
	return insert(prompt, reward, d.position, user, assistant, assistant)
}
