package provider

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"

	"rcgrpo/bfcl"
	"rcgrpo/stages/rl"
)

// Documents provides the documents of tools. *bfcl.Data does.
type Documents interface {
	Function(name, api string, late bool) (json.RawMessage, error)
	SystemPrompt(names []string) (string, error)
}

// Model is an API model as rl.Policy. A conversation whose call gets no reply ends with rl.StopError, and Failed
// returns its error: then the episodes of the stage are no result.
type Model struct {
	client    *Client
	documents Documents

	mu     sync.Mutex
	failed []error
}

// Width returns the number of conversations at once.
func (m *Model) Width() int { return m.client.limits.Parallel }

// Release implements rl.Policy.
func (m *Model) Release() error { return nil }

// Failed returns the errors of the conversations without a reply, in the order in which they ended.
func (m *Model) Failed() []error {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Clone(m.failed)
}

// Rows returns the record in the order of calls and attempts.
func (m *Model) Rows() []Row { return m.client.calls.all() }

// Close closes the file of the record.
func (m *Model) Close() error { return m.client.calls.close() }

// Open implements rl.Policy.
func (m *Model) Open(_ context.Context, ask rl.Rollout) (rl.Dialogue, error) {
	return &dialogue{Model: m, task: ask.Task,
		at: Call{Task: ask.Task.ID, Prompt: ask.Task.Prompt, Member: ask.Member, Turn: -1}}, nil
}

// dialogue is one conversation.
type dialogue struct {
	*Model
	task *bfcl.Task
	at   Call // name of the next call
	conversation
	started bool
	offered []string // names of the tools of the last request
	calls   []call   // calls of the last reply, which have no results yet
	texts   []string // the same calls as Python text; nil if they cannot be decoded
	held    int      // bytes of the last request
}

// Close implements rl.Dialogue.
func (d *dialogue) Close() { _ = d.client.calls.check(0, -2*d.held) }

// Reply implements rl.Dialogue.
func (d *dialogue) Reply(ctx context.Context, news []rl.Message, tools []rl.Tool) (rl.Reply, error) {
	s := d.client.settings
	form := apis[s.API]
	if err := d.setTools(tools); err != nil {
		return rl.Reply{}, err
	}
	for _, m := range news {
		d.addMessage(form, m)
		if m.Turn != d.at.Turn {
			d.at.Turn, d.at.Step = m.Turn, -1
		}
	}
	d.at.Step++
	request := form.body(s, &d.conversation)
	if err := merge(request, s.Extra); err != nil {
		return rl.Reply{}, err
	}
	body, err := encode(request)
	if err != nil {
		return rl.Reply{}, err
	}
	more := len(body) - d.held
	d.held += more
	if err := d.client.calls.check(0, 2*more); err != nil || len(body) > maxRequest { // twice, as it is in messages too
		return rl.Reply{Stop: rl.StopLength}, err
	}
	row, err := d.client.send(ctx, d.at, body)
	switch {
	case errors.Is(err, errExhausted):
		d.mu.Lock()
		defer d.mu.Unlock()
		d.failed = append(d.failed, err)
		return rl.Reply{Stop: rl.StopError}, nil
	case err != nil:
		return rl.Reply{}, err
	case row.Outcome == OutcomeTooLong:
		return rl.Reply{Stop: rl.StopLength}, nil
	case row.Outcome == OutcomeRefused:
		return rl.Reply{}, nil
	}
	a, err := readReply(form, []byte(row.Response))
	if err != nil {
		return rl.Reply{}, fmt.Errorf("%s: a recorded reply: %w", d.at.Task, err)
	}
	return d.addReply(form, a), nil
}

// setTools sets the tools, or the system prompt with the documents of the first ones.
func (d *dialogue) setTools(tools []rl.Tool) (err error) {
	names := make([]string, len(tools))
	for i, tool := range tools {
		names[i] = tool.Name
	}
	s := d.client.settings
	if d.started && slices.Equal(names, d.offered) {
		return nil
	}
	first := !d.started
	d.started, d.offered = true, names
	if s.Mode == ModePrompt {
		if first {
			d.system, err = d.documents.SystemPrompt(names)
		}
		return err
	}
	late := map[string]bool{}
	for _, turn := range d.task.Turns {
		for _, name := range turn.Revealed {
			late[name] = true
		}
	}
	d.tools = make([]json.RawMessage, len(names))
	for i, name := range names {
		if d.tools[i], err = d.documents.Function(name, apis[s.API].documents, late[name]); err != nil {
			return err
		}
	}
	return nil
}

// undecodable is the result of calls that cannot be decoded. The official handlers send no result, and the APIs then
// reject the conversation.
const undecodable = "Error: the arguments are not a JSON object."

// addMessage adds a message to the conversation.
func (d *dialogue) addMessage(form form, m rl.Message) {
	fc := d.client.settings.Mode == ModeFC
	switch {
	case m.Role == rl.RoleTool && fc:
		d.messages = append(d.messages, form.results(d.calls, m.Results())...)
	case m.Role == rl.RoleTool:
		d.messages = append(d.messages, form.user(bfcl.PromptResults(d.texts, m.Results())))
	default:
		if len(d.calls) > 0 {
			d.messages = append(d.messages, form.results(d.calls, slices.Repeat([]string{undecodable}, len(d.calls)))...)
		}
		text := m.Text
		if turn := d.task.Turns[m.Turn]; fc && turn.User == "" && len(turn.Revealed) > 0 {
			text = bfcl.RevealRequest // the tools come with the request
		}
		d.messages = append(d.messages, form.user(text))
	}
	d.calls, d.texts = nil, nil
}

// longestCalls limits the bytes of the calls of a reply. Each value among them takes 70 bytes or more while a call is
// read, and each call a kilobyte while it is executed, in each of the conversations at once.
const longestCalls = 128 << 10

// addReply adds a reply to the conversation and decodes its calls as the official code does: a reply with a call that
// it cannot decode yields the turn. So does one with more or longer calls than any model writes.
func (d *dialogue) addReply(form form, a answer) rl.Reply {
	reply := rl.Reply{Text: a.text}
	texts := []string{a.text}
	if d.client.settings.Mode == ModePrompt {
		d.messages = append(d.messages, form.written(a)...)
	} else {
		d.messages = append(d.messages, a.history...)
		d.calls, texts = a.calls, nil
		for _, c := range a.calls {
			texts = append(texts, c.name, string(c.arguments))
		}
	}
	if text := strings.Join(texts, ""); len(text) > longestCalls || strings.Count(text, ",") > mostCommas {
		return reply
	}
	if d.client.settings.Mode == ModePrompt {
		text := a.text
		if d.client.settings.API == "google" {
			text = strings.NewReplacer("```tool_code\n", "", "\n```", "").Replace(text) // as the official handler does
		}
		d.texts, _ = bfcl.DecodePrompt(text)
	} else {
		for _, c := range a.calls {
			text, err := bfcl.CallText(c.name, c.arguments)
			if err != nil {
				d.texts = nil
				break
			}
			d.texts = append(d.texts, text)
		}
	}
	for _, text := range d.texts {
		reply.Calls = append(reply.Calls, rl.Call{Text: text})
	}
	return reply
}
