package chat

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"rcgrpo/bfcl"
	"rcgrpo/stages/internal/token"
	"rcgrpo/stages/rl"
)

// Layout is the chat layout of a family of instruct models: the text around messages, tools, calls and results,
// as rendered by the published template of the family. TestLayoutsRenderAsTheReference compares the constants
// with renderings of the published templates.
type Layout struct {
	Name    string   // in checkpoints and settings: "qwen2.5"
	Decoder string   // model_type of config.json: "qwen2"
	handler string   // official handler of the family; see bfcl.NewHandlerChat
	stops   []string // tokens that end a reply; the layout writes the first
	trims   bool     // strip spaces around messages

	bare       string // text before the first request, without tools
	head, tail string // the same around the tools
	// systemAfter is the text in bare and head that a system message follows. It replaces systemDefault there.
	systemAfter, systemDefault string
	// first is the end of bare and of tail that is encoded together with the first request, because the request
	// may start with a space or newline; "" if requests are trimmed.
	first   string
	user    string // text before a later request
	userEnd string
	header  string // text before a reply
	after   string // text after the end of a reply
	between string // text between two calls of one reply

	function func(v any) string // a tool between head and tail
	call     func(name string, arguments any) []token.Part
	results  func(results []string) []token.Part
	decode   func(text string) ([]string, error)
	written  written

	templates []string // SHA-256 of the published templates without final line ends
	Template  string   // a published template that may be distributed; "" without one
}

var layouts = []*Layout{&qwen, &llama}

// LayoutNamed returns a layout by its name in checkpoints.
func LayoutNamed(name string) (*Layout, error) {
	return layoutWhere(name, func(l *Layout) string { return l.Name }, "the chat layout")
}

// LayoutOf returns the layout of a decoder family by its model_type.
func LayoutOf(decoder string) (*Layout, error) {
	return layoutWhere(decoder, func(l *Layout) string { return l.Decoder }, "a chat layout for decoders of the family")
}

func layoutWhere(want string, name func(*Layout) string, what string) (*Layout, error) {
	var known []string
	for _, l := range layouts {
		if name(l) == want {
			return l, nil
		}
		known = append(known, strconv.Quote(name(l)))
	}
	return nil, fmt.Errorf("%s %q is unknown; known are %s", what, want, strings.Join(known, ", "))
}

// Chat is the codec of an instruct model: its layout, tokenizer and tools. It differs from a rendering of the
// whole conversation by the template in three ways:
//
//   - Sampled text is unchanged (other spellings, spaces, text beside calls), while a template
//     trims, drops or rewrites it.
//   - Text of users and tools never becomes an added token.
//   - Nothing follows the end of the last reply.
type Chat struct {
	*Layout
	tokens    *token.Tokenizer
	position  string
	functions map[string]string // text of a tool between head and tail
	reward    map[string]int32
	stop      []int32
}

func all(text string) token.Part     { return token.Part{Text: text, See: token.Everything} }
func plainly(text string) token.Part { return token.Part{Text: text, See: token.Nothing} }

// New returns the codec of a layout. where is the position of reward tokens, or "" for a policy without them.
func (l *Layout) New(tokens *token.Tokenizer, functions Functions, where string) (*Chat, error) {
	reward, err := rewardIDs(tokens, where)
	if err != nil {
		return nil, fmt.Errorf("layout %s: %w", l.Name, err)
	}
	c := &Chat{Layout: l, tokens: tokens, position: where, reward: reward, functions: map[string]string{}}
	for i, name := range l.stops {
		if id, ok := tokens.ID(name); ok {
			c.stop = append(c.stop, id)
		} else if i == 0 {
			return nil, fmt.Errorf("layout %s: the vocabulary has no token %s; the tokenizer belongs to another family",
				l.Name, name)
		}
	}
	for name, raw := range functions {
		v, err := parseJSON(raw)
		if err != nil {
			return nil, fmt.Errorf("layout %s: tool %s: %w", l.Name, name, err)
		}
		c.functions[name] = l.function(v)
	}
	return c, nil
}

// Begin implements rl.Codec. Tools without a document are omitted.
func (c *Chat) Begin(system string, tools []rl.Tool) []int32 {
	if system == "" {
		return c.begin(nil, tools)
	}
	return c.begin(&system, tools)
}

func (c *Chat) begin(system *string, tools []rl.Tool) []int32 {
	head, rest := c.bare, ""
	if len(tools) > 0 {
		var b strings.Builder
		for _, tool := range tools {
			b.WriteString(c.document(tool))
		}
		b.WriteString(c.tail)
		head, rest = c.head, b.String()
	}
	var parts []token.Part
	if system != nil {
		at := strings.Index(head, c.systemAfter) + len(c.systemAfter)
		parts = append(parts, all(head[:at]), plainly(c.trim(*system)))
		head = strings.TrimPrefix(head[at:], c.systemDefault)
	}
	return c.tokens.EncodeParts(append(parts, all(strings.TrimSuffix(head+rest, c.first)))...)
}

// document returns the text of a tool, "" for a tool of the benchmark without a document.
func (c *Chat) document(tool rl.Tool) string {
	if tool.JSON == nil {
		return c.functions[tool.Name]
	}
	v, err := parseJSON(tool.JSON)
	if err != nil {
		return ""
	}
	return c.function(v)
}

// User implements rl.Codec.
func (c *Chat) User(text string, first bool, reward string) []int32 {
	before := c.user
	if first {
		before = c.first
	}
	id, ok := c.reward[reward]
	if !ok || !first || c.position != rl.FirstUser {
		return c.tokens.EncodeParts(all(before), plainly(c.trim(text)), all(c.userEnd))
	}
	if c.trims {
		text = strings.TrimLeftFunc(text, pySpace)
	}
	ids := append(c.tokens.EncodeParts(all(before), plainly(text+rl.GoalBefore)), id)
	return append(ids, c.tokens.EncodeParts(plainly(rl.GoalAfter), all(c.userEnd))...)
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
	ids := c.tokens.EncodeParts(all(c.header))
	if id, ok := c.reward[reward]; ok && c.position == rl.BeforeEachAction {
		ids = append(ids, id)
	}
	return ids
}

// Reply implements rl.Codec. A call without a JSON form (see bfcl.CallJSON) is written as text, which calls
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
				written = c.call(name, arguments)
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

// Parse implements rl.Codec with the benchmark's decoder of the family. A reply that it cannot decode has no
// calls.
func (c *Chat) Parse(ids []int32) (text string, calls []rl.Call) {
	if n := len(ids); n > 0 && c.Stop(ids[n-1]) {
		ids = ids[:n-1]
	}
	text = c.tokens.Decode(ids, false)
	decoded, err := c.decode(text)
	if err != nil {
		return text, nil
	}
	for _, call := range decoded {
		calls = append(calls, rl.Call{Text: call})
	}
	return text, calls
}

// Text implements rl.Codec.
func (c *Chat) Text(ids []int32) string { return c.tokens.Decode(ids, false) }
