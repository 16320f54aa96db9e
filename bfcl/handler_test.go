package bfcl_test

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"slices"
	"testing"

	"rcgrpo/bench/fixtures"
	"rcgrpo/bfcl"
	"rcgrpo/internal/must"
)

// handlerRecord is a conversation of an official handler (bench/bfcl_prompts.py).
type handlerRecord struct {
	Model   string
	Tools   []json.RawMessage
	Users   []string
	Replies []string
	Calls   [][]string
	Prompts []string
	Failed  string // exception of the handler
	Task    string
	SHA256  string // of the prompt before the last reply, given "Done." in every turn
}

// play returns the prompts of a conversation and the error of the last one.
func (r *handlerRecord) play(t *testing.T) (prompts []string, err error) {
	c := must.Get(bfcl.NewHandlerChat(r.Model, r.Tools))(t)
	users := r.Users
	var calls []string
	for i, reply := range r.Replies {
		if len(calls) == 0 {
			c.User(users[0])
			users = users[1:]
		} else {
			var results []string
			for _, call := range calls {
				results = append(results, "result of "+call+" ✓")
			}
			c.Results(results)
		}
		prompt, err := c.Prompt()
		if err != nil {
			return prompts, err
		}
		prompts = append(prompts, prompt)
		if calls = c.Reply(reply); !slices.Equal(calls, r.Calls[i]) {
			t.Errorf("%s: calls of %q: got %q, want %q", r.Model, reply, calls, r.Calls[i])
		}
	}
	return prompts, nil
}

func TestPromptsEqualThoseOfTheOfficialHandlers(t *testing.T) {
	data := must.Get(bfcl.LoadData(fixtures.Benchmark(t)))(t)
	tasks, failed := 0, 0
	fixtures.Records(t, "bfcl/handler_prompts.jsonl", func(r handlerRecord) {
		if r.Task == "" {
			prompts, err := r.play(t)
			if !slices.Equal(prompts, r.Prompts) || (err != nil) != (r.Failed != "") {
				t.Errorf("%s, %q:\ngot  %q, error %v\nwant %q, exception %q", r.Model, r.Users, prompts, err, r.Prompts, r.Failed)
			}
			if r.Failed != "" {
				failed++
			}
			return
		}
		tasks++
		e := must.Get(data.Task(r.Task).Start(bfcl.Settings{Data: data}))(t)
		c := must.Get(bfcl.NewHandlerChat(r.Model, must.Get(data.Documents(e.Tools()))(t)))(t)
		for {
			c.User(e.User())
			prompt := must.Get(c.Prompt())(t)
			must.Get(e.StepOutcomes(c.Reply("Done.")))(t)
			if !e.Done() {
				continue
			}
			if got := sha256.Sum256([]byte(prompt)); hex.EncodeToString(got[:]) != r.SHA256 {
				t.Errorf("%s of %s: another prompt: %.1500s", r.Task, r.Model, prompt)
			}
			return
		}
	})
	if tasks != 1600 || failed < 4 {
		t.Errorf("got %d prompts of tasks and %d exceptions", tasks, failed)
	}
	if _, err := bfcl.NewHandlerChat("gpt", nil); err == nil {
		t.Error("an unknown handler was accepted")
	}
	if _, err := data.Documents([]string{"fly"}); err == nil {
		t.Error("an unknown tool was accepted")
	}
}
