package chat

import (
	"embed"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"rcgrpo/stages/internal/jinja"
	"rcgrpo/stages/internal/token"
	"rcgrpo/stages/rl"
)

// Files of a model folder that contain the chat template.
const (
	TemplateFile = "chat_template.jinja"
	configFile   = "tokenizer_config.json"
)

// Signatures is the layout that writes tools as signatures and calls as Python text into any chat template.
const Signatures = "signatures"

// layout is an embedded chat template, and the decoder (lm.Config.Decoder) for which it can be used.
type layout struct{ name, decoder string }

// layouts are the names of the setting layout, without Signatures. Each is a file templates/NAME.jinja.
var layouts = []layout{{"qwen2.5", "qwen2"}, {"qwen3", "qwen3"}, {"smollm2", "llama"}}

//go:embed templates
var templates embed.FS

// LayoutTemplate returns the embedded template of a layout, "" for another name.
func LayoutTemplate(name string) string {
	text, err := templates.ReadFile("templates/" + name + ".jinja")
	if err != nil {
		return ""
	}
	return string(text)
}

// Settings choose the template of a model folder.
type Settings struct {
	Decoder   string            // model_type of config.json, or "" if it does not matter
	Layout    string            // an embedded template instead of the folder's, or Signatures
	Source    string            // text of a template instead of the folder's; "": none
	Variables map[string]string // further variables; a JSON boolean, number or null is one, else a string
}

// Template is a parsed chat template with its variables that has passed the probes: a conversation is the
// concatenation of pieces, each the difference of two renderings, so that a sampled reply is never rendered.
type Template struct {
	Source string

	parsed     *jinja.Template
	variables  map[string]any
	signatures bool    // the layout is Signatures: tools and calls are texts of messages
	steps      int     // of a rendering, at most
	bounds     *bounds // of the renderings of a prompt; nil for one that is not a client's
	eos        []int32 // further ids that end a reply, from the configuration of the model

	opened  jinja.Text // the base request and the header of a reply
	header  jinja.Text
	tail    string     // text after the content of a reply
	replied jinja.Text // the base request and a reply
	called  jinja.Text // the base request and a reply with a call
	format  *format
	single  bool // the template refuses several calls in one reply

	userOpen, userEnd string // text before and after a request
}

// ReadTemplate returns the template of a model folder. It has no error of [fs.ErrNotExist] if the settings name
// another template.
func ReadTemplate(dir string, s Settings) (*Template, error) {
	source := s.Source
	if s.Layout != "" && s.Layout != Signatures {
		at := slices.IndexFunc(layouts, func(l layout) bool { return l.name == s.Layout })
		if at < 0 {
			return nil, fmt.Errorf("layout %q is unknown; known are %s", s.Layout, strings.Join(LayoutNames(), ", "))
		}
		if d := layouts[at].decoder; s.Decoder != "" && d != s.Decoder {
			return nil, fmt.Errorf("layout %q belongs to another family than the decoder %q; it is for %q", s.Layout, s.Decoder,
				d)
		}
		source = LayoutTemplate(s.Layout)
	}
	var err error
	if source == "" {
		if source, err = readTemplate(dir); err != nil {
			return nil, err
		}
	}
	variables, err := readVariables(dir)
	if err != nil {
		return nil, err
	}
	for name, text := range s.Variables {
		if slices.Contains([]string{"messages", "tools", "documents", "add_generation_prompt"}, name) {
			return nil, fmt.Errorf("variables: %s is set by the conversation", name)
		}
		variables[name] = jinja.Own(text)
		v, err := jinja.ParseJSON([]byte(text), jinja.Own)
		if _, isText := v.(jinja.Text); err == nil && !isText {
			variables[name] = v
		}
	}
	t, err := NewTemplate(source, variables, s.Layout == Signatures)
	if err != nil {
		return nil, fmt.Errorf("%s: %w%s", dir, err, s.wayOut())
	}
	t.eos, err = readEnds(dir)
	return t, err
}

// LayoutNames returns the names of the layouts.
func LayoutNames() (names []string) {
	for _, l := range layouts {
		names = append(names, l.name)
	}
	return append(names, Signatures)
}

// wayOut ends the error of a refused template: it names the setting that chooses another one.
func (s Settings) wayOut() string {
	for _, l := range layouts {
		if l.decoder == s.Decoder && s.Layout != l.name {
			return fmt.Sprintf("; write layout = %q, which uses and exports a template for this family, or template = "+
				"file(\"...\")", l.name)
		}
	}
	return "; name another one with template = file(\"...\")"
}

// readTemplate returns chat_template.jinja or, without that file, the key chat_template of tokenizer_config.json.
func readTemplate(dir string) (string, error) {
	source, err := token.ReadSmall(filepath.Join(dir, TemplateFile))
	if err == nil || !errors.Is(err, os.ErrNotExist) {
		return string(source), err
	}
	path := filepath.Join(dir, configFile)
	raw, err := token.ReadSmall(path)
	if err != nil {
		return "", err
	}
	var config struct {
		Template json.RawMessage `json:"chat_template"`
	}
	if err := json.Unmarshal(raw, &config); err != nil {
		return "", fmt.Errorf("%s: %w", path, err)
	}
	var text string
	if err := json.Unmarshal(config.Template, &text); config.Template != nil && err != nil {
		return "", fmt.Errorf("%s: chat_template must be one template as a string; name one with template = file(\"...\")",
			path)
	}
	if text == "" {
		return "", fmt.Errorf("%s has no chat template: neither %s nor a key chat_template in %s; put the model's "+
			"published template there", dir, TemplateFile, configFile)
	}
	return text, nil
}

// readVariables returns the special tokens that transformers passes to a template.
func readVariables(dir string) (map[string]any, error) {
	variables := map[string]any{}
	for _, name := range []string{"special_tokens_map.json", configFile} {
		path := filepath.Join(dir, name)
		raw, err := token.ReadSmall(path)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, err
		}
		var keys map[string]json.RawMessage
		if err := json.Unmarshal(raw, &keys); err != nil {
			return nil, fmt.Errorf("%s: %w", path, err)
		}
		for _, key := range []string{"bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token",
			"mask_token"} {
			var text string
			var added struct{ Content string }
			switch {
			case json.Unmarshal(keys[key], &text) == nil && text != "":
				variables[key] = jinja.Own(text)
			case json.Unmarshal(keys[key], &added) == nil && added.Content != "":
				variables[key] = jinja.Own(added.Content)
			}
		}
	}
	return variables, nil
}

// readEnds returns eos_token_id of generation_config.json, else of config.json.
func readEnds(dir string) (ids []int32, err error) {
	for _, name := range []string{"generation_config.json", "config.json"} {
		raw, err := token.ReadSmall(filepath.Join(dir, name))
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, err
		}
		var config struct {
			End json.RawMessage `json:"eos_token_id"`
		}
		if err := json.Unmarshal(raw, &config); err != nil {
			return nil, fmt.Errorf("%s: %w", filepath.Join(dir, name), err)
		}
		var one int32
		switch {
		case config.End == nil || string(config.End) == "null":
		case json.Unmarshal(config.End, &one) == nil:
			return []int32{one}, nil
		case json.Unmarshal(config.End, &ids) == nil:
			return ids, nil
		}
	}
	return nil, nil
}

// Texts of the base conversation.
const (
	baseRequest = "Hello"
	baseReply   = "Good"
)

// NewTemplate parses a template and probes it with texts. variables are those beside the conversation's.
func NewTemplate(source string, variables map[string]any, signatures bool) (*Template, error) {
	parsed, err := jinja.Parse(source)
	if err != nil {
		return nil, fmt.Errorf("chat template, %w", err)
	}
	t := &Template{Source: source, parsed: parsed, variables: variables, signatures: signatures, steps: probeSteps}
	if err := t.base(); err != nil {
		return nil, fmt.Errorf("chat template, %w", err)
	}
	if err := t.prove(nil); err != nil {
		return nil, err
	}
	t.steps = jinja.MaxSteps
	return t, nil
}

// base renders the base conversation and cuts the constant pieces from it.
func (t *Template) base() error {
	asked := message(rl.RoleUser, jinja.Foreign(baseRequest))
	base, err := t.render(nil, false, asked)
	if err != nil {
		return err
	}
	if t.opened, err = t.render(nil, true, asked); err != nil {
		return err
	}
	if t.header, err = minus(t.opened, base); err != nil {
		return fmt.Errorf("line 1: the header of a reply: %w", err)
	}
	reply := message(rl.RoleAssistant, jinja.Foreign(baseReply))
	if t.replied, err = t.render(nil, false, asked, reply); err != nil {
		return err
	}
	text, err := minus(t.replied, t.opened)
	if err != nil {
		return fmt.Errorf("line 1: a reply: %w", err)
	}
	before, tail, ok := strings.Cut(text.String(), baseReply)
	if !ok || strings.Contains(before, baseRequest) || tail == "" {
		return fmt.Errorf("line 1: the rendering of the reply %q is %.80q, without its text or its end", baseReply,
			text.String())
	}
	t.tail = tail
	request, err := t.user(jinja.Foreign(baseRequest))
	if err != nil {
		return err
	}
	t.userOpen, t.userEnd, _ = strings.Cut(request.String(), baseRequest)
	return t.findFormat()
}

// findFormat finds the one format in which the template writes calls.
func (t *Template) findFormat() error {
	asked := message(rl.RoleUser, jinja.Foreign(baseRequest))
	call := FunctionCall{"probe_files", json.RawMessage(`{"a": true, "text": "x y", "n": 1.5}`)}
	if t.signatures {
		t.format = &python
	} else {
		m, err := replyMessage("", []FunctionCall{call})
		if err != nil {
			return err
		}
		whole, err := t.render(nil, false, asked, m)
		if err != nil {
			return err
		}
		if !strings.Contains(whole.String(), call.Name) {
			return fmt.Errorf("line 1: the template drops calls: %q of %s is not in its rendering", call.Name, call.Python())
		}
		text, err := t.inside(m)
		if err != nil {
			return err
		}
		for i := range formats {
			if _, calls, _ := formats[i].read(text.String()); sameCalls(calls, []FunctionCall{call}) {
				if t.format != nil {
					return fmt.Errorf("line 1: the calls %.100q are of two formats, %s and %s", text.String(), t.format.name,
						formats[i].name)
				}
				t.format = &formats[i]
			}
		}
		if t.format == nil {
			return fmt.Errorf("line 1: the template writes calls as %.100q, which is no known format", text.String())
		}
		several, err := replyMessage("", []FunctionCall{call, call})
		if err != nil {
			return err
		}
		if _, err = t.inside(several); err != nil {
			if t.format.list || t.format.join == "" {
				return err
			}
			t.single = true
		}
	}
	if _, calls, _ := t.format.read(baseReply); calls != nil {
		return fmt.Errorf("line 1: a reply without calls is read as calls")
	}
	m, err := t.reply("", []FunctionCall{call})
	if err != nil {
		return err
	}
	t.called = jinja.Join(t.opened, m, jinja.Own(t.tail))
	if t.signatures {
		return nil
	}
	message, err := replyMessage("", []FunctionCall{call})
	if err != nil {
		return err
	}
	t.called, err = t.render(nil, false, asked, message)
	return err
}

// sameCalls reports whether two lists of calls are equal.
func sameCalls(a, b []FunctionCall) bool {
	return slices.EqualFunc(a, b, func(x, y FunctionCall) bool {
		return x.Name == y.Name && string(x.Arguments) == string(y.Arguments)
	})
}

// own returns a member whose key is the template's own text.
func own(key string, v any) jinja.Member { return jinja.Member{Key: jinja.Own(key), Value: v} }

// message returns a message in the form that templates read.
func message(role string, content jinja.Text) jinja.Dict {
	return jinja.Dict{own("role", jinja.Own(role)), own("content", content)}
}

// replyMessage returns a reply with calls, or an error if the arguments are no JSON objects.
func replyMessage(text string, calls []FunctionCall) (jinja.Dict, error) {
	m := message(rl.RoleAssistant, jinja.Foreign(text))
	var list jinja.List
	for _, call := range calls {
		arguments, err := jinja.ParseJSON(call.Arguments, jinja.Foreign)
		if err != nil {
			return nil, fmt.Errorf("the arguments of %s must be a JSON object: %w", call.Name, err)
		}
		if _, ok := arguments.(jinja.Dict); !ok {
			return nil, fmt.Errorf("the arguments of %s must be a JSON object; got %.80q", call.Name, call.Arguments)
		}
		list = append(list, jinja.Dict{own("type", jinja.Own("function")), own("function", jinja.Dict{
			own("name", jinja.Foreign(call.Name)), own("arguments", arguments)})})
	}
	if list != nil {
		m = append(m, own("tool_calls", list))
	}
	return m, nil
}

// render renders a conversation, with the header of the next reply if generate is true.
func (t *Template) render(tools jinja.List, generate bool, messages ...jinja.Dict) (jinja.Text, error) {
	variables := maps.Clone(t.variables)
	if variables == nil {
		variables = map[string]any{}
	}
	list := make(jinja.List, len(messages))
	for i, m := range messages {
		list[i] = m
	}
	variables["messages"], variables["add_generation_prompt"], variables["documents"] = list, generate, nil
	if variables["tools"] = nil; len(tools) > 0 {
		variables["tools"] = tools
	}
	renderings <- struct{}{}
	defer func() { <-renderings }()
	work := jinja.NewWork(t.steps)
	if t.bounds != nil {
		work = t.bounds.work
	}
	return t.parsed.Render(variables, work)
}

// renderings limits those at once, because the values of one can take a quarter of a gigabyte, and garbage as much.
var renderings = make(chan struct{}, 2)

// bounds limit the work for a prompt, which a server does for others too: that of all its renderings, and the bytes of
// its pieces, because a tokenizer of a stranger takes microseconds for each.
type bounds struct {
	work *jinja.Work
	text int
}

// BytesPerToken bounds the text of a prompt by the context. Only blanks have as many.
const BytesPerToken = 64

// ErrLong is the error of a text that is not encoded, because it cannot fit.
var ErrLong = errors.New("a text exceeds the context")

// bounded returns the codec of one prompt of at most longest ids.
func (c *Chat) bounded(longest int) *Chat {
	t, own := *c.Template, *c
	t.bounds = &bounds{work: jinja.NewWork(jinja.MaxSteps), text: BytesPerToken * (longest + 1)}
	own.Template = &t
	return &own
}

// minus returns the rest of a rendering behind a prefix. Another beginning is an error.
func minus(whole, prefix jinja.Text) (jinja.Text, error) {
	a, b := whole.String(), prefix.String()
	if !strings.HasPrefix(a, b) {
		at := common(a, b)
		return jinja.Text{}, fmt.Errorf("the template rewrites earlier messages: %.40q becomes %.40q", b[at:], a[at:])
	}
	return whole.Cut(len(b), len(a)), nil
}

// common returns the length of the common prefix.
func common(a, b string) (n int) {
	for n < min(len(a), len(b)) && a[n] == b[n] {
		n++
	}
	return n
}

// begin returns the piece up to the end of the first request. system is nil without a system message.
func (t *Template) begin(system *string, tools jinja.List, request jinja.Text) (jinja.Text, error) {
	var messages []jinja.Dict
	text := jinja.Text{}
	if system != nil {
		text = jinja.Foreign(*system)
	}
	if t.signatures && len(tools) > 0 {
		if system != nil {
			text = jinja.Join(text, jinja.Own("\n\n"))
		}
		text, tools = jinja.Join(text, signaturesOf(tools)), nil
		system = new(string)
	}
	if system != nil {
		messages = append(messages, message(rl.RoleSystem, text))
	}
	return t.render(tools, false, append(messages, message(rl.RoleUser, request))...)
}

// user returns the piece of a later request.
func (t *Template) user(request jinja.Text) (jinja.Text, error) {
	whole, err := t.render(nil, false, message(rl.RoleUser, jinja.Foreign(baseRequest)),
		message(rl.RoleAssistant, jinja.Foreign(baseReply)), message(rl.RoleUser, request))
	if err != nil {
		return whole, err
	}
	return minus(whole, t.replied)
}

// tool returns the piece with the results of one reply's calls.
func (t *Template) tool(results []string) (jinja.Text, error) {
	call := FunctionCall{"probe_files", json.RawMessage(`{"a": true, "text": "x y", "n": 1.5}`)}
	m, err := replyMessage("", []FunctionCall{call})
	if t.signatures {
		m, err = replyMessage(call.Python(), nil)
	}
	if err != nil {
		return jinja.Text{}, err
	}
	messages := []jinja.Dict{message(rl.RoleUser, jinja.Foreign(baseRequest)), m}
	for _, r := range results {
		messages = append(messages, message(rl.RoleTool, jinja.Foreign(r)))
	}
	whole, err := t.render(nil, false, messages...)
	if err != nil {
		return whole, err
	}
	return minus(whole, t.called)
}

// reply returns the piece of a reply between the header and the tail.
func (t *Template) reply(text string, calls []FunctionCall) (jinja.Text, error) {
	if t.signatures && len(calls) > 0 {
		var lines []string
		if text != "" {
			lines = append(lines, text)
		}
		for _, call := range calls {
			lines = append(lines, call.Python())
		}
		text, calls = strings.Join(lines, "\n"), nil
	}
	if !t.single || len(calls) < 2 {
		m, err := replyMessage(text, calls)
		if err != nil {
			return jinja.Text{}, err
		}
		return t.inside(m)
	}
	var pieces []jinja.Text
	for i := range calls {
		piece, err := t.reply("", calls[i:i+1])
		if err != nil {
			return piece, err
		}
		if i > 0 {
			pieces = append(pieces, jinja.Own(t.format.join))
		}
		pieces = append(pieces, piece)
	}
	return jinja.Join(pieces...), nil
}

// inside renders a reply and returns it without header and tail.
func (t *Template) inside(reply jinja.Dict) (jinja.Text, error) {
	whole, err := t.render(nil, false, message(rl.RoleUser, jinja.Foreign(baseRequest)), reply)
	if err != nil {
		return whole, err
	}
	text, err := minus(whole, t.opened)
	if err != nil {
		return text, err
	}
	n := len(text.String()) - len(t.tail)
	if n < 0 || text.String()[n:] != t.tail {
		return text, fmt.Errorf("line 1: a reply ends with %q, another one with %.80q", t.tail,
			text.String()[max(0, n):])
	}
	return text.Cut(0, n), nil
}

// Format names the form of calls.
func (t *Template) Format() string { return t.format.name }

// Dated reports whether the template writes today's date, which is always the same here.
func (t *Template) Dated() bool { return t.parsed.Dated() }
