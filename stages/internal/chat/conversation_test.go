package chat

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"golang.org/x/text/unicode/norm"

	"rcgrpo/bfcl"
	"rcgrpo/internal/must"
	"rcgrpo/stages/rl"
)

// apiConversation returns the messages of a vector as a conversation. It returns false for those that the server
// refuses or writes otherwise: late system messages, parts that are not texts, template variables.
func (v vector) apiConversation(t *testing.T) (c Conversation, ok bool) {
	t.Helper()
	var messages []vectorMessage
	if v.Rendered == nil || len(v.Kwargs) > 0 || !v.Generate || json.Unmarshal(v.Messages, &messages) != nil {
		return c, false
	}
	var tools []json.RawMessage
	if string(v.Tools) == "[]" || v.Tools != nil && json.Unmarshal(v.Tools, &tools) != nil {
		return c, false
	}
	for _, tool := range tools {
		c.Tools = append(c.Tools, rl.Tool{JSON: tool})
	}
	for i, m := range messages {
		turn := Turn{Role: m.Role}
		if m.Content != nil {
			turn.Text = *m.Content
		}
		for _, call := range m.Calls {
			turn.Calls = append(turn.Calls, FunctionCall{call.Function.Name, call.Function.Arguments})
		}
		switch {
		case m.Role == "system" && i == 0:
			c.System = &turn.Text
		case !slices.Contains([]string{rl.RoleUser, rl.RoleTool, rl.RoleAssistant}, m.Role):
			return c, false
		default:
			c.Turns = append(c.Turns, turn)
		}
	}
	return c, len(c.Turns) > 0 && c.Turns[0].Role == rl.RoleUser
}

// TestPromptsRenderAsTheReference compares prompts, with system messages and text beside calls, with renderings of
// the published templates by transformers.
func TestPromptsRenderAsTheReference(t *testing.T) {
	for f := range present(t) {
		codec := must.Get(fixtureTemplate(t, f).New(fixtureTokenizer(t, f), nil, ""))(t)
		compared, systems := 0, 0
		for _, v := range vectors(t, families[f]) {
			c, ok := v.apiConversation(t)
			if !ok {
				continue
			}
			ids, err := Prompt(codec, c, 1<<20, func([]int32, Turn) []int32 { return nil })
			if err != nil { // arguments that are no object
				t.Logf("%s: %v", v.Note, err)
				continue
			}
			compared++
			if c.System != nil {
				systems++
			}
			if got := codec.Text(ids); norm.NFC.String(got) != norm.NFC.String(*v.Rendered) { // ids are of the text in NFC
				t.Errorf("%s: %s", v.Note, firstDifference(got, *v.Rendered))
			}
		}
		if compared < 20 || systems < 5 {
			t.Errorf("%s: %d conversations compared, %d with a system message", families[f], compared, systems)
		}
	}
}

func TestAnswersOfAFamilyHaveTextAndCalls(t *testing.T) {
	for f := range present(t) {
		c := fixtureChat(t, f, "")
		calls := []FunctionCall{{"mv", json.RawMessage(`{"a-b": "x; y", "n": 1.0, "l": [true, null]}`)},
			{"pwd", json.RawMessage(`{}`)}}
		for n := range 3 {
			ids := must.Get(c.write("", calls[:n]))(t)
			text, got := c.Answer(ids)
			if n == 2 && f == 1 {
				calls[0].Arguments = json.RawMessage(`{"n": 1.0}`) // semicolons separate the calls of this family
				text, got = c.Answer(must.Get(c.write("", calls))(t))
			}
			if text != "" || len(got) != n || n > 0 && string(got[0].Arguments) != string(calls[0].Arguments) {
				t.Errorf("%s, %d calls: got %q and %s", families[f], n, text, got)
			}
			if visible := c.Visible(c.Text(ids[:len(ids)-1])); visible != 0 {
				t.Errorf("%s, %d calls: %d bytes are visible before the end", families[f], n, visible)
			}
		}
		if text, got := c.Answer(must.Get(c.write("just text", nil))(t)); text != "just text" || got != nil {
			t.Errorf("%s: a text became %q with %v", families[f], text, got)
		}
	}
}

func TestCallsOfADrillGoToJSONAndBack(t *testing.T) {
	d := codec(t, "")
	text, calls := d.Answer(d.Reply([]string{"mv(source='it\\'s', n=[1, 2.0, True, None])"}))
	if text != "" || len(calls) != 1 || calls[0].Name != "mv" ||
		string(calls[0].Arguments) != `{"source": "it's", "n": [1, 2.0, true, null]}` {
		t.Fatalf("got %q and %s", text, calls)
	}
	again := d.Parse(must.Get(d.write("", calls))(t)).Calls
	if want := `mv(source="it's",n=[1, 2.0, True, None])`; len(again) != 1 || again[0].Text != want {
		t.Errorf("got %q, want %q", again, want)
	}
	if _, err := bfcl.CallText("f", json.RawMessage(`[1]`)); err == nil {
		t.Error("a list was accepted as arguments")
	}
	if text, calls := d.Answer(d.Reply([]string{"mv(a)+1"})); calls != nil || !strings.Contains(text, "mv(a)+1") {
		t.Errorf("a line that is no call gave %q, %v", text, calls)
	}
}
