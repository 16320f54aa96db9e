package chat

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"rcgrpo/bfcl"
	"rcgrpo/stages/rl"
)

// Conversation is a conversation in the form of chat APIs.
type Conversation struct {
	System *string // system message; nil: the default of the layout
	Tools  []rl.Tool
	Turns  []Turn
	Token  string // reward token
}

// Turn is one message after the system message. A turn of an episode (rl.Message.Turn) has several.
type Turn struct {
	Role  string // one of the rl.Role constants
	Text  string
	Calls []FunctionCall // calls of the assistant
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

// Codec is an rl.Codec that also converts conversations in the form of chat APIs.
type Codec interface {
	rl.Codec
	// Answer decodes a reply into the text outside calls and the calls. A reply whose calls cannot be read is a text.
	Answer(ids []int32) (text string, calls []FunctionCall)
	// Visible returns the length of the prefix of a reply's text that cannot belong to a call.
	Visible(text string) int
	// Insert returns a rendered prompt of this layout with the reward token in its place. A prompt that has one, or
	// that is of another layout, is unchanged.
	Insert(prompt, token string) string

	start(system *string, tools []rl.Tool, request, reward string) ([]int32, error)
	write(text string, calls []FunctionCall) ([]int32, error)
}

var _, _ Codec = (*Chat)(nil), (*Drill)(nil)

// Prompt returns the ids before the next reply. known returns the ids of an earlier reply, given all ids before it,
// or nil if they are unknown; then the layout writes the reply. A prompt of more than longest ids is cut after the
// message that exceeds them, so that a long conversation costs no more than one that fits.
func Prompt(c Codec, v Conversation, longest int, known func(before []int32, t Turn) []int32) ([]int32, error) {
	if len(v.Turns) == 0 || v.Turns[0].Role != rl.RoleUser {
		return nil, errors.New("the first message after a system message must be a user message")
	}
	if one, ok := c.(*Chat); ok {
		c = one.bounded(longest)
	}
	begin, err := c.start(v.System, v.Tools, v.Turns[0].Text, v.Token)
	if err != nil {
		return nil, err
	}
	ids := slices.Clone(begin)
	for i := 1; i < len(v.Turns) && len(ids) <= longest; i++ {
		var piece []int32
		switch t := v.Turns[i]; t.Role {
		case rl.RoleUser:
			piece, err = c.User(t.Text)
		case rl.RoleTool:
			results := []string{t.Text}
			for ; i+1 < len(v.Turns) && v.Turns[i+1].Role == rl.RoleTool; i++ {
				results = append(results, v.Turns[i+1].Text)
			}
			piece, err = c.Tool(results)
		default:
			ids = append(ids, c.Header(v.Token)...)
			if piece = known(ids, t); piece == nil {
				piece, err = c.write(t.Text, t.Calls)
			}
			piece = slices.Concat(piece, c.Between())
		}
		if err != nil {
			return nil, fmt.Errorf("message %d after the system message: %w", i+1, err)
		}
		ids = append(ids, piece...)
	}
	return append(ids, c.Header(v.Token)...), nil
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

// insert implements Codec.Insert for a layout with the given texts around a request and before a reply.
func insert(prompt, reward, position, user, userEnd, header string) string {
	name := rewardTokens[reward]
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

// start ignores system message and tools: the layout has neither.
func (d *Drill) start(_ *string, _ []rl.Tool, request, reward string) ([]int32, error) {
	return d.Begin("", nil, request, reward)
}

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

// Answer implements Codec.
func (d *Drill) Answer(ids []int32) (text string, calls []FunctionCall) {
	parsed := d.Parse(ids)
	text = parsed.Text
	for _, call := range parsed.Calls {
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

// Visible implements Codec. Only the last id shows whether a reply is a text or calls.
func (d *Drill) Visible(string) int { return 0 }

// Insert implements Codec.
func (d *Drill) Insert(prompt, reward string) string {
	return insert(prompt, reward, d.position, user, assistant, assistant)
}
