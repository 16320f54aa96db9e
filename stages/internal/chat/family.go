package chat

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"rcgrpo/bfcl"
	"rcgrpo/stages/internal/token"
	"rcgrpo/stages/rl"
)

// family is what a family of models has of its own beside its template: how results and calls are written, and what
// ends a reply. All other text is taken from the template, and all of this is checked against it when a Chat is made.
type family struct {
	name  string
	stops []string // tokens that end a reply; the first is the one the layout itself writes
	// first is the part of the text before the first request that belongs to the request: from its last special token
	// on, where the request may begin with a space or newline; "" where the template trims it.
	first    string
	trims    bool // messages lose the spaces around them
	function func(v any) (string, error)
	call     func(name string, arguments any) ([]token.Part, error)
	between  string // calls of one reply
	results  func(results []string) []token.Part
	decode   func(text string) ([]string, error)
}

// Layout is how the instruct models of a decoder family lay out a conversation.
type Layout struct {
	Name    string // in checkpoints: "qwen2.5"
	Decoder string // model_type of config.json: "qwen2"
	// New makes the codec of a model folder. position is where reward tokens stand, or "" for a policy without them. A
	// template that lays out conversations otherwise is refused.
	New func(tokens *token.Tokenizer, template *Template, functions Functions, position string) (*Chat, error)
}

// layouts is the table of families, one line each.
var layouts = []Layout{
	{"qwen2.5", "qwen2", NewQwen},
	{"llama3.1", "llama", NewLlama},
}

// LayoutNamed finds a layout by its name in checkpoints.
func LayoutNamed(name string) (Layout, error) {
	return layoutWhere(name, func(l Layout) string { return l.Name }, "the chat layout")
}

// LayoutOf finds the layout of a decoder family by its model_type.
func LayoutOf(decoder string) (Layout, error) {
	return layoutWhere(decoder, func(l Layout) string { return l.Decoder }, "a chat layout for decoders of the family")
}

func layoutWhere(want string, name func(Layout) string, what string) (Layout, error) {
	var known []string
	for _, l := range layouts {
		if name(l) == want {
			return l, nil
		}
		known = append(known, strconv.Quote(name(l)))
	}
	return Layout{}, fmt.Errorf("%s %q is not known; known are %s", what, want, strings.Join(known, ", "))
}

// Chat is the codec of a family of instruct models, for one model folder: its tokenizer, its template, and the tools
// that may be offered. Where it differs from a rendering of the whole conversation by the template, that is on purpose:
//
//   - what was sampled stands as it was sampled (another spelling of the same text, other spaces, text beside calls),
//     while a template trims, drops or writes it anew;
//   - text from users and tools never becomes an added token;
//   - nothing stands behind the end of the last reply.
type Chat struct {
	family
	tokens   *token.Tokenizer
	position string

	bare       string            // text before the first request's own, without tools
	head, tail string            // the same around the tools
	functions  map[string]string // what stands for a tool between head and tail
	user       string            // text before a later request
	userEnd    string
	header     string
	after      string // behind the end of a reply
	reward     map[string]string
	stop       []int32
}

func all(text string) token.Part     { return token.Part{Text: text, See: token.Everything} }
func plainly(text string) token.Part { return token.Part{Text: text, See: token.Nothing} }

func newChat(f family, tokens *token.Tokenizer, template *Template, functions Functions, where string) (*Chat, error) {
	if err := position(where); err != nil {
		return nil, err
	}
	c := &Chat{family: f, tokens: tokens, position: where, reward: map[string]string{}, functions: map[string]string{}}
	for i, name := range f.stops {
		if id, ok := tokens.ID(name); ok {
			c.stop = append(c.stop, id)
		} else if i == 0 {
			return nil, fmt.Errorf("%s layout: the vocabulary has no token %s; the tokenizer is of another family", f.name, name)
		}
	}
	if where != "" {
		for name, content := range map[string]string{rl.TokenHigh: HighReward, rl.TokenLow: LowReward} {
			if _, ok := tokens.ID(content); !ok {
				return nil, fmt.Errorf("%s layout: token position %q needs %s in the vocabulary; add the reward tokens first", f.name, where, content)
			}
			c.reward[name] = content
		}
	}
	if err := c.learn(template); err != nil {
		return nil, fmt.Errorf("%s layout: %w", f.name, err)
	}
	if err := c.learnTools(template, functions); err != nil {
		return nil, fmt.Errorf("%s layout: %w", f.name, err)
	}
	return c, nil
}

// Begin implements rl.Codec. A tool whose document was not given is not shown.
func (c *Chat) Begin(tools []string) []int32 {
	text := c.bare
	if len(tools) > 0 {
		var b strings.Builder
		b.WriteString(c.head)
		for _, name := range tools {
			b.WriteString(c.functions[name])
		}
		b.WriteString(c.tail)
		text = b.String()
	}
	return c.tokens.EncodeParts(all(strings.TrimSuffix(text, c.first)))
}

// User implements rl.Codec.
func (c *Chat) User(text string, first bool, reward string) []int32 {
	before := c.user
	if first {
		before = c.first
	}
	content, ok := c.reward[reward]
	if !ok || !first || c.position != rl.FirstUser {
		return c.tokens.EncodeParts(all(before), plainly(c.trim(text)), all(c.userEnd))
	}
	if c.trims {
		text = strings.TrimLeftFunc(text, pySpace)
	}
	return c.tokens.EncodeParts(all(before), plainly(text+goalBefore), all(content), plainly(goalAfter), all(c.userEnd))
}

func (c *Chat) trim(text string) string {
	if c.trims {
		return strings.TrimFunc(text, pySpace)
	}
	return text
}

// Tool implements rl.Codec.
func (c *Chat) Tool(results []string) []int32 { return c.tokens.EncodeParts(c.results(results)...) }

// Header implements rl.Codec.
func (c *Chat) Header(reward string) []int32 {
	if content, ok := c.reward[reward]; ok && c.position == rl.BeforeEachAction {
		return c.tokens.EncodeParts(all(c.header + content))
	}
	return c.tokens.EncodeParts(all(c.header))
}

// Reply implements rl.Codec. A call that has no JSON form (see bfcl.CallJSON) stands as the text it is, which calls
// nothing.
func (c *Chat) Reply(calls []string) []int32 {
	return c.tokens.EncodeParts(append(c.replyParts(calls), all(c.stops[0]))...)
}

func (c *Chat) replyParts(calls []string) []token.Part {
	var parts []token.Part
	for i, text := range calls {
		if i > 0 {
			parts = append(parts, plainly(c.between))
		}
		written := []token.Part{plainly(text)}
		if name, raw, err := bfcl.CallJSON(text); err == nil {
			if arguments, err := parseJSON(raw); err == nil {
				if call, err := c.call(name, arguments); err == nil {
					written = call
				}
			}
		}
		parts = append(parts, written...)
	}
	return parts
}

// Between implements rl.Codec.
func (c *Chat) Between() []int32 { return c.tokens.EncodeParts(all(c.after)) }

// Stop implements rl.Codec.
func (c *Chat) Stop(id int32) bool { return slices.Contains(c.stop, id) }

// Parse implements rl.Codec, by the benchmark's own decoder of the family. A reply that it cannot decode calls nothing.
func (c *Chat) Parse(ids []int32) (text string, calls []string) {
	if n := len(ids); n > 0 && c.Stop(ids[n-1]) {
		ids = ids[:n-1]
	}
	text = c.tokens.Decode(ids, false)
	calls, err := c.decode(text)
	if err != nil || len(calls) == 0 {
		return text, nil
	}
	return text, calls
}

// Text implements rl.Codec.
func (c *Chat) Text(ids []int32) string { return c.tokens.Decode(ids, false) }

// The conversation that a template is asked about. Its texts show whether they are written as they are.
const (
	probeUser   = `first "request", 'quoted'` + "\nin {{ two }} lines"
	probeNext   = "next request"
	probeResult = `{"a": "result\n"}` + "\n"
	probeCall   = `tool(text='it\'s "so"', number=1.5, flag=True, none=None, items=[1, {'k': 'ü'}])`
)

func message(role, content string) object { return newObject("role", role, "content", content) }

// learn takes the texts of the layout from the template, and checks against it what the family says of itself.
func (c *Chat) learn(t *Template) error {
	render := func(generate bool, messages ...any) (string, error) {
		return t.execute(map[string]any{"messages": list(messages), "add_generation_prompt": generate}, time.Time{})
	}
	name, raw, err := bfcl.CallJSON(probeCall)
	if err != nil {
		return err
	}
	arguments, err := parseJSON(raw)
	if err != nil {
		return err
	}
	user, reply := message("user", probeUser), message("assistant", "")
	calling := newObject("role", "assistant", "content", "", "tool_calls",
		list{newObject("type", "function", "function", newObject("name", name, "arguments", arguments))})

	asked, err := render(false, user)
	if err != nil {
		return err
	}
	var ok bool
	if c.bare, c.userEnd, ok = strings.Cut(asked, probeUser); !ok {
		return fmt.Errorf("the template does not write a request as it is")
	}
	opened, err := render(true, user)
	if err != nil {
		return err
	}
	if c.header, ok = strings.CutPrefix(opened, asked); !ok || c.header == "" {
		return fmt.Errorf("the template does not open a reply behind the request")
	}
	ended, err := render(false, user, reply)
	if err != nil {
		return err
	}
	if c.after, ok = strings.CutPrefix(ended, opened+c.stops[0]); !ok {
		return fmt.Errorf("an empty reply is not ended by %s", c.stops[0])
	}
	next, err := render(false, user, reply, message("user", probeNext))
	if err != nil {
		return err
	}
	rest, follows := strings.CutPrefix(next, ended)
	if c.user, ok = strings.CutSuffix(rest, probeNext+c.userEnd); !ok || !follows {
		return fmt.Errorf("a later request is laid out otherwise than the first")
	}
	called, err := render(false, user, calling)
	if err != nil {
		return err
	}
	if want := opened + textOf(c.replyParts([]string{probeCall})) + c.stops[0] + c.after; called != want {
		return fmt.Errorf("a call is written otherwise than in this family: %s", firstDifference(called, want))
	}
	for _, results := range [][]string{{probeResult}, {probeResult, "another"}} {
		messages := []any{user, calling}
		for _, r := range results {
			messages = append(messages, message("tool", r))
		}
		answered, err := render(false, messages...)
		if err != nil {
			return err
		}
		if want := called + textOf(c.results(results)); answered != want {
			return fmt.Errorf("a result is written otherwise than in this family: %s", firstDifference(answered, want))
		}
	}
	if !strings.HasSuffix(c.bare, c.first) {
		return fmt.Errorf("%q does not stand before the first request", c.first)
	}
	return nil
}

// learnTools finds where the template writes the tools, and checks how it writes each.
func (c *Chat) learnTools(t *Template, functions Functions) error {
	names := make([]string, 0, len(functions))
	for name := range functions {
		names = append(names, name)
	}
	slices.Sort(names)
	var tools list
	var written strings.Builder
	for _, name := range names {
		v, err := parseJSON(functions[name])
		if err != nil {
			return fmt.Errorf("tool %s: %w", name, err)
		}
		if c.functions[name], err = c.function(v); err != nil {
			return fmt.Errorf("tool %s: %w", name, err)
		}
		tools = append(tools, v)
		written.WriteString(c.functions[name])
	}
	if len(tools) == 0 {
		return nil
	}
	text, err := t.execute(map[string]any{"messages": list{message("user", probeUser)}, "tools": tools}, time.Time{})
	if err != nil {
		return err
	}
	var ok bool
	if c.head, text, ok = strings.Cut(text, written.String()); ok {
		c.tail, ok = strings.CutSuffix(text, probeUser+c.userEnd)
	}
	if !ok || !strings.HasSuffix(c.tail, c.first) {
		return fmt.Errorf("the template lays out tools otherwise than in this family")
	}
	text, err = t.execute(map[string]any{"messages": list{message("user", probeUser)}, "tools": tools[:1]}, time.Time{})
	if want := c.head + c.functions[names[0]] + c.tail + probeUser + c.userEnd; err == nil && text != want {
		err = fmt.Errorf("a single tool is laid out otherwise than many: %s", firstDifference(text, want))
	}
	return err
}

func textOf(parts []token.Part) string {
	var b strings.Builder
	for _, p := range parts {
		b.WriteString(p.Text)
	}
	return b.String()
}

// firstDifference shows two texts from shortly before they part.
func firstDifference(got, want string) string {
	i := 0
	for i < min(len(got), len(want)) && got[i] == want[i] {
		i++
	}
	from := max(0, i-20)
	return fmt.Sprintf("%.60q, not %.60q", got[from:], want[from:])
}
