package chat

import (
	"fmt"
	"strings"

	"rcgrpo/stages/internal/token"
	"rcgrpo/stages/rl"
)

// Special tokens of the drills' layout, which has no system message and no tool documentation.
const (
	user      = "<|user|>"
	assistant = "<|assistant|>"
	call      = "<|call|>" // ends a reply with calls
	end       = "<|end|>"  // ends a reply that yields the turn
	padding   = "<|pad|>"
)

// DrillTokens are the special tokens of the layout. The reward tokens are added separately.
var DrillTokens = []string{padding, user, assistant, call, end}

// AssistantToken opens a reply. New reward tokens start as copies of its row.
const AssistantToken = assistant

// Drill is the codec of the generated tasks:
//
//	<|user|>TEXT<|assistant|>CALL<|call|>RESULT<|assistant|><|end|><|user|>...
//
// A reply is one call as Python text, or nothing; results stand right behind the call. Several calls in one
// reply, or several results, stand on lines of their own. With a position, the reward token stands after every
// <|assistant|>, or in the first user message as "\n[Reward Goal: TOKEN]".
type Drill struct {
	tokens   *token.Tokenizer
	position string

	user, assistant, call, end int32
	reward                     map[string]int32
}

// NewDrill returns the codec of a vocabulary. where is the position of reward tokens, or "" for a policy without
// them; a position requires reward tokens in the vocabulary. An episode under rl.TokenNone has no reward token.
func NewDrill(tokens *token.Tokenizer, where string) (*Drill, error) {
	reward, err := rewardIDs(tokens, where)
	if err != nil {
		return nil, fmt.Errorf("drill layout: %w", err)
	}
	d := &Drill{tokens: tokens, position: where, reward: reward}
	for name, id := range map[string]*int32{user: &d.user, assistant: &d.assistant, call: &d.call, end: &d.end} {
		var ok bool
		if *id, ok = tokens.ID(name); !ok {
			return nil, fmt.Errorf("drill layout: the vocabulary has no token %s; train it with the special tokens %v",
				name, DrillTokens)
		}
	}
	return d, nil
}

// Begin implements rl.Codec: the layout has no text before the first request.
func (d *Drill) Begin(_ string, _ []rl.Tool, request, reward string) ([]int32, error) {
	id, ok := d.reward[reward]
	if !ok || d.position != rl.FirstUser {
		return d.User(request)
	}
	ids := append([]int32{d.user}, d.tokens.Encode(request+rl.GoalBefore)...)
	return append(append(ids, id), d.tokens.Encode(rl.GoalAfter)...), nil
}

// User implements rl.Codec.
func (d *Drill) User(text string) ([]int32, error) {
	return append([]int32{d.user}, d.tokens.Encode(text)...), nil
}

// Tool implements rl.Codec.
func (d *Drill) Tool(results []string) ([]int32, error) {
	return d.tokens.Encode(strings.Join(results, "\n")), nil
}

// Header implements rl.Codec.
func (d *Drill) Header(token string) []int32 {
	if id, ok := d.reward[token]; ok && d.position == rl.BeforeEachAction {
		return []int32{d.assistant, id}
	}
	return []int32{d.assistant}
}

// Reply implements rl.Codec.
func (d *Drill) Reply(calls []string) []int32 {
	if len(calls) == 0 {
		return []int32{d.end}
	}
	return append(d.tokens.Encode(strings.Join(calls, "\n")), d.call)
}

// Between returns nothing: results and requests follow a reply directly.
func (d *Drill) Between() []int32 { return nil }

// Stop implements rl.Codec.
func (d *Drill) Stop(id int32) bool { return id == d.call || id == d.end }

// Parse implements rl.Codec. A reply without a final <|call|> has no calls, and one with nothing before it is
// malformed.
func (d *Drill) Parse(ids []int32) (p rl.Parsed) {
	n := len(ids)
	if n > 0 && d.Stop(ids[n-1]) {
		n--
	}
	p.Text = d.tokens.Decode(ids[:n], false)
	if n == len(ids) || ids[n] != d.call {
		return p
	}
	for line := range strings.SplitSeq(p.Text, "\n") {
		if strings.TrimSpace(line) != "" {
			p.Calls = append(p.Calls, rl.Call{Text: line})
		}
	}
	p.Malformed = p.Calls == nil
	return p
}

// Text implements rl.Codec.
func (d *Drill) Text(ids []int32) string { return d.tokens.Decode(ids, false) }

// DrillText returns a trajectory in the drills' layout as text without reward tokens, to train their tokenizer.
func DrillText(t *rl.Trajectory) string {
	var b strings.Builder
	for _, m := range t.Messages {
		switch m.Role {
		case rl.RoleUser:
			b.WriteString(user + m.Text)
		case rl.RoleTool:
			b.WriteString(strings.Join(m.Results(), "\n"))
		case rl.RoleAssistant:
			b.WriteString(assistant + strings.Join(m.Calls, "\n"))
			if len(m.Calls) > 0 {
				b.WriteString(call)
			} else {
				b.WriteString(end)
			}
		}
	}
	return b.String()
}
