package chat

import (
	"fmt"
	"slices"
	"strings"

	"rcgrpo/bfcl"
	"rcgrpo/stages/internal/jinja"
	"rcgrpo/stages/internal/token"
	"rcgrpo/stages/rl"
)

// Chat is the codec of an instruct model: its chat template, tokenizer and tools. It differs from a rendering of the
// whole conversation by the template in three ways:
//
//   - Sampled text is unchanged (other spellings, spaces, text beside calls), while a template
//     trims, drops or rewrites it.
//   - Text of users and tools never becomes an added token.
//   - Nothing follows the end of the last reply.
type Chat struct {
	*Template
	tokens    *token.Tokenizer
	position  string
	functions map[string]any // documents of the benchmark's tools
	reward    map[string]int32
	stop      []int32    // ids that end a reply, first the template's
	end       jinja.Text // the part of the tail that belongs to a reply
	head      []int32    // ids of the header
	between   []int32    // ids of the rest of the tail
}

// New returns the codec of a template. where is the position of reward tokens, or "" for a policy without them. It
// probes the template with the ids of the tokenizer.
func (t *Template) New(tokens *token.Tokenizer, functions Functions, where string) (*Chat, error) {
	reward, err := rewardIDs(tokens, where)
	if err != nil {
		return nil, fmt.Errorf("chat template: %w", err)
	}
	c := &Chat{Template: t, tokens: tokens, position: where, reward: reward, functions: map[string]any{}}
	c.head = c.ids(t.header)
	tail := c.ids(jinja.Own(t.tail))
	at := slices.IndexFunc(tail, tokens.IsAdded)
	if at < 0 {
		return nil, fmt.Errorf("chat template: a reply ends with %q, which has no added token of this tokenizer; the "+
			"tokenizer belongs to another family", t.tail)
	}
	c.stop, c.between = tail[at:at+1:at+1], tail[at+1:]
	before, _, _ := strings.Cut(t.tail, string(tokens.Bytes(c.stop[0])))
	c.end = jinja.Own(before + string(tokens.Bytes(c.stop[0])))
	for _, id := range t.eos {
		if !c.Stop(id) {
			c.stop = append(c.stop, id)
		}
	}
	probed := *t
	probed.steps = probeSteps
	if err := probed.prove(c.ids); err != nil {
		return nil, err
	}
	for name, raw := range functions {
		v, err := jinja.ParseJSON(raw, jinja.Foreign)
		if err != nil {
			return nil, fmt.Errorf("tool %s: %w", name, err)
		}
		c.functions[name] = v
	}
	return c, nil
}

// ids returns the ids of a rendering, in which only the template's own text becomes added tokens.
func (c *Chat) ids(t jinja.Text) []int32 {
	var parts []token.Part
	for _, r := range t.Runs() {
		p := token.Part{Text: r.Text, See: token.Everything}
		if r.Foreign {
			p.See = token.Nothing
		}
		parts = append(parts, p)
	}
	return c.tokens.EncodeParts(parts...)
}

// Begin implements rl.Codec. Tools without a document are omitted.
func (c *Chat) Begin(system string, tools []rl.Tool, request, reward string) ([]int32, error) {
	if system == "" {
		return c.start(nil, tools, request, reward)
	}
	return c.start(&system, tools, request, reward)
}

func (c *Chat) start(system *string, tools []rl.Tool, request, reward string) ([]int32, error) {
	var documents jinja.List
	for _, tool := range tools {
		if tool.JSON == nil {
			if v, ok := c.functions[tool.Name]; ok {
				documents = append(documents, v)
			}
			continue
		}
		v, err := jinja.ParseJSON(tool.JSON, jinja.Foreign)
		if err != nil {
			return nil, fmt.Errorf("tool %s: %w", tool.Name, err)
		}
		documents = append(documents, v)
	}
	text := jinja.Foreign(request)
	if _, ok := c.reward[reward]; ok && c.position == rl.FirstUser {
		text = jinja.Join(jinja.Foreign(request+rl.GoalBefore), jinja.Own(rewardTokens[reward]), jinja.Foreign(rl.GoalAfter))
	}
	return c.encode(c.begin(system, documents, text))
}

// encode returns the ids of a piece, unless making it failed or the pieces of a prompt have too many bytes.
func (c *Chat) encode(piece jinja.Text, err error) ([]int32, error) {
	if err != nil {
		return nil, fmt.Errorf("chat template, %w", err)
	}
	if b := c.bounds; b != nil {
		if b.text -= len(piece.String()); b.text < 0 {
			return nil, fmt.Errorf("%w: more than %d bytes for each token", ErrLong, BytesPerToken)
		}
	}
	return c.ids(piece), nil
}

// User implements rl.Codec.
func (c *Chat) User(text string) ([]int32, error) {
	return c.encode(c.user(jinja.Foreign(text)))
}

// Tool implements rl.Codec.
func (c *Chat) Tool(results []string) ([]int32, error) {
	return c.encode(c.tool(results))
}

// Header implements rl.Codec.
func (c *Chat) Header(reward string) []int32 {
	if id, ok := c.reward[reward]; ok && c.position == rl.BeforeEachAction {
		return append(slices.Clone(c.head), id)
	}
	return c.head
}

// Reply implements rl.Codec. A call without a JSON form (see bfcl.CallJSON) makes the reply a text, which calls
// nothing.
func (c *Chat) Reply(calls []string) []int32 {
	var read []FunctionCall
	for _, text := range calls {
		name, arguments, err := bfcl.CallJSON(text)
		if err != nil {
			break
		}
		read = append(read, FunctionCall{name, arguments})
	}
	if len(read) == len(calls) {
		if ids, err := c.write("", read); err == nil {
			return ids
		}
	}
	return c.ids(jinja.Join(jinja.Foreign(strings.Join(calls, "\n")), c.end))
}

func (c *Chat) write(text string, calls []FunctionCall) ([]int32, error) {
	piece, err := c.reply(text, calls)
	if err != nil {
		return nil, err
	}
	return c.encode(jinja.Join(piece, c.end), nil)
}

// Between implements rl.Codec.
func (c *Chat) Between() []int32 { return c.between }

// Stop implements rl.Codec.
func (c *Chat) Stop(id int32) bool { return slices.Contains(c.stop, id) }

// Parse implements rl.Codec with the benchmark's decoder of the format. A reply that it cannot decode has no calls.
func (c *Chat) Parse(ids []int32) rl.Parsed {
	p := rl.Parsed{Text: c.text(ids)}
	calls, malformed := c.format.calls(p.Text)
	p.Malformed = malformed
	for _, call := range calls {
		p.Calls = append(p.Calls, rl.Call{Text: call})
	}
	return p
}

// text returns the text of a reply without its end.
func (c *Chat) text(ids []int32) string {
	if n := len(ids); n > 0 && c.Stop(ids[n-1]) {
		ids = ids[:n-1]
	}
	return c.tokens.Decode(ids, false)
}

// Text implements rl.Codec.
func (c *Chat) Text(ids []int32) string { return c.tokens.Decode(ids, false) }

// Answer implements Codec.
func (c *Chat) Answer(ids []int32) (text string, calls []FunctionCall) {
	text, calls, _ = c.format.read(c.text(ids))
	return text, calls
}

// Visible implements Codec.
func (c *Chat) Visible(text string) int { return c.format.visible(text) }

// Insert implements Codec.
func (c *Chat) Insert(prompt, reward string) string {
	return insert(prompt, reward, c.position, c.userOpen, c.userEnd, c.header.String())
}

// handler returns the benchmark's official handler whose prompts are of this template, "" without one.
func (c *Chat) handler() string {
	switch {
	case c.format.name == "hermes" && strings.HasPrefix(c.header.String(), "<|im_start|>assistant\n"):
		return bfcl.QwenHandler
	case c.format.name == "json" && strings.HasPrefix(c.header.String(), "<|start_header_id|>assistant<|end_header_id|>"):
		return bfcl.LlamaHandler
	}
	return ""
}
