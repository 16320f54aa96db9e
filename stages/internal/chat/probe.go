package chat

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"rcgrpo/stages/internal/jinja"
	"rcgrpo/stages/rl"
)

// probe is a conversation in which every content contains a word that occurs nowhere else.
type probe struct {
	system *string
	tools  jinja.List
	turns  []Turn
}

// probeTools are documents in the form of the benchmark's and of chat APIs.
const probeTools = `[{"type": "function", "function": {"name": "probe_files", "description": "Lists <|im_end|> files.",
"parameters": {"type": "object", "properties": {"a": {"type": "boolean", "default": false},
"text": {"type": "string", "description": "a text"}}, "required": ["text"]}}}, {"type": "function", "function":
{"name": "probe_done", "description": "d", "parameters": {"type": "object", "properties": {}, "required": []}}}]`

// probes returns the conversations with the tools. around surrounds the texts of replies; those of requests and results
// have spaces, numbers, quotes and added tokens anyway.
func probes(tools jinja.List, around string, single bool) (all []probe) {
	hostile := func(word string) string { return " \n" + word + "  12345 \"it's\" </think><|im_end|><|eot_id|> x\n " }
	call := func(word string) FunctionCall {
		return FunctionCall{"probe_files", json.RawMessage(`{"a": true, "text": "` + word + ` <|im_end|> \"q\""}`)}
	}
	calls := []FunctionCall{call("wordone"), call("wordtwo")}
	if single {
		calls = calls[:1]
	}
	turns := []Turn{
		{Role: rl.RoleUser, Text: hostile("wordask")}, {Role: rl.RoleAssistant, Text: around + "wordsay" + around},
		{Role: rl.RoleUser, Text: hostile("wordmore")}, {Role: rl.RoleAssistant, Calls: []FunctionCall{call("wordcall")}},
		{Role: rl.RoleTool, Text: hostile("wordresult")}, {Role: rl.RoleAssistant, Calls: calls},
		{Role: rl.RoleTool, Text: hostile("wordthird")}, {Role: rl.RoleTool, Text: "wordfourth"},
		{Role: rl.RoleAssistant, Text: around + "wordend" + around}, {Role: rl.RoleUser, Text: "wordbye"},
	}
	system := hostile("wordsystem")
	for _, s := range []*string{nil, &system} {
		for _, offered := range []jinja.List{nil, tools} {
			all = append(all, probe{s, offered, turns}, probe{s, offered, turns[4-2:]})
		}
	}
	return all
}

// probeSteps limits a rendering of the probes, which are short and hundreds.
const probeSteps = 100_000

// prove compares the concatenated pieces of each prefix of the probes with the whole rendering: as texts, or as ids.
func (t *Template) prove(ids func(jinja.Text) []int32) error {
	around := []string{"", " \n", "</think>", "7"}
	if ids != nil {
		around = around[:1] // sampled replies are given as ids, however the tokenizer would divide their edges
	}
	v, err := jinja.ParseJSON([]byte(probeTools), jinja.Foreign)
	if err != nil {
		return err
	}
	tools, _ := v.(jinja.List)
	for _, a := range around {
		for _, p := range probes(tools, a, t.single) {
			if err := t.proveOne(p, ids); err != nil {
				return err
			}
		}
	}
	return nil
}

// proveOne compares the pieces of one probe, after each of its messages, with the rendering up to there.
func (t *Template) proveOne(p probe, ids func(jinja.Text) []int32) error {
	var messages []jinja.Dict
	first := jinja.Foreign(p.turns[0].Text)
	begin, err := t.begin(p.system, p.tools, first)
	if err != nil {
		return fmt.Errorf("chat template, %w", err)
	}
	tools := p.tools
	if t.signatures { // the rendering has the system message that begin has
		tools = nil
		if p.tools != nil {
			text := signaturesOf(p.tools)
			if p.system != nil {
				text = jinja.Join(jinja.Foreign(*p.system), jinja.Own("\n\n"), text)
			}
			messages = append(messages, message(rl.RoleSystem, text))
		}
	}
	if messages == nil && p.system != nil {
		messages = append(messages, message(rl.RoleSystem, jinja.Foreign(*p.system)))
	}
	offset := len(messages)
	pieces := []jinja.Text{begin}
	messages = append(messages, message(rl.RoleUser, first))
	for i := 1; ; i++ {
		generate := i < len(p.turns) && p.turns[i].Role == rl.RoleAssistant
		joined := pieces
		if generate {
			joined = append(slices.Clone(pieces), t.header)
		}
		whole, err := t.render(tools, generate, messages...)
		if err != nil {
			return fmt.Errorf("chat template, %w", err)
		}
		if err := same(whole, joined, len(messages)-offset, ids); err != nil {
			return err
		}
		if i >= len(p.turns) {
			return t.proveMarks(p, whole)
		}
		turn := p.turns[i]
		var piece jinja.Text
		switch turn.Role {
		case rl.RoleUser:
			piece, err = t.user(jinja.Foreign(turn.Text))
			messages = append(messages, message(rl.RoleUser, jinja.Foreign(turn.Text)))
		case rl.RoleTool:
			results := []string{turn.Text}
			for ; i+1 < len(p.turns) && p.turns[i+1].Role == rl.RoleTool; i++ {
				results = append(results, p.turns[i+1].Text)
			}
			piece, err = t.tool(results)
			for _, r := range results {
				messages = append(messages, message(rl.RoleTool, jinja.Foreign(r)))
			}
		default:
			if piece, err = t.reply(turn.Text, turn.Calls); err != nil {
				break
			}
			text, calls := turn.Text, turn.Calls
			if _, read, _ := t.format.read(piece.String()); !sameCalls(read, calls) && len(read)+len(calls) > 0 {
				return fmt.Errorf("chat template: the calls of the reply %.200q cannot be read back as %s", piece.String(),
					t.format.name)
			}
			if t.signatures && calls != nil {
				text, calls = pythonOf(calls), nil
			}
			var m jinja.Dict
			m, err = replyMessage(text, calls)
			messages, piece = append(messages, m), jinja.Join(t.header, piece, jinja.Own(t.tail))
		}
		if err != nil {
			return fmt.Errorf("chat template, %w", err)
		}
		pieces = append(pieces, piece)
	}
}

// pythonOf returns calls as Python text, one per line.
func pythonOf(calls []FunctionCall) string {
	var lines []string
	for _, call := range calls {
		lines = append(lines, call.Python())
	}
	return strings.Join(lines, "\n")
}

// same returns an error unless the pieces make up a rendering of n messages: as texts, and with ids also as ids.
func same(whole jinja.Text, pieces []jinja.Text, n int, ids func(jinja.Text) []int32) error {
	joined := jinja.Join(pieces...)
	if a, b := whole.String(), joined.String(); a != b {
		at, message := common(a, b), 1
		for rest := at; message < len(pieces) && rest >= len(pieces[message-1].String()); message++ {
			rest -= len(pieces[message-1].String())
		}
		if message > n {
			return fmt.Errorf("chat template: after message %d, the header of a reply is %.40q; elsewhere it is %.40q", n,
				a[at:], b[at:])
		}
		return fmt.Errorf("chat template: the template rewrites earlier messages (after message %d, piece %d of the "+
			"conversation is %.40q; alone it is %.40q)", n, message, a[at:], b[at:])
	}
	if ids == nil {
		return nil
	}
	var parts []int32
	for _, p := range pieces {
		parts = append(parts, ids(p)...)
	}
	if !slices.Equal(parts, ids(whole)) {
		return fmt.Errorf("chat template: message %d has other tokens when it is encoded apart from the conversation: it "+
			"does not start and end with an added token", n)
	}
	return nil
}

// proveMarks checks that every content of a probe is in the rendering once, as text that others wrote (jinja.Foreign).
func (t *Template) proveMarks(p probe, whole jinja.Text) error {
	check := func(what, text string) error {
		at := strings.Index(text, "word")
		if at < 0 {
			return nil
		}
		word := text[at : at+len("word")]
		for _, c := range text[at+len("word"):] {
			if c < 'a' || c > 'z' {
				break
			}
			word += string(c)
		}
		found := 0
		for _, r := range whole.Runs() {
			n := strings.Count(r.Text, word)
			if n > 0 && !r.Foreign {
				return fmt.Errorf("chat template: %s cannot be told from the template's own text", what)
			}
			found += n
		}
		switch {
		case found == 0:
			return fmt.Errorf("chat template: the template drops %s", what)
		case found > 1:
			return fmt.Errorf("chat template: the template writes %s %d times", what, found)
		}
		return nil
	}
	if p.system != nil {
		if err := check("the system message", *p.system); err != nil {
			return err
		}
	}
	for i, turn := range p.turns {
		text := turn.Text
		for _, call := range turn.Calls {
			if err := check("the arguments of a call", string(call.Arguments)); err != nil {
				return err
			}
		}
		if err := check(fmt.Sprintf("message %d, of role %s", i+1, turn.Role), text); err != nil {
			return err
		}
	}
	if p.tools != nil && !strings.Contains(whole.String(), "probe_done") {
		return fmt.Errorf("chat template: the template drops tools: \"probe_done\" is not in its rendering")
	}
	return nil
}
