package chat

import (
	"context"
	"fmt"

	"rcgrpo/bfcl"
	"rcgrpo/stages/internal/token"
	"rcgrpo/stages/rl"
)

// Official is the policy of an instruct model in this process with the prompts of the benchmark's official handler of
// its family. Its requests are those of the official runner to a server of the model: greedy episodes of 20 steps, with
// replies of 4,096 tokens, have the runner's verdicts. A reply that was cut is decoded as it is.
type Official struct {
	*rl.Local
	chat *Chat
	data *bfcl.Data
}

// NewOfficial returns the policy for a local one. data contains the documents of the tools.
func NewOfficial(local *rl.Local, data *bfcl.Data) (*Official, error) {
	c, ok := local.Codec.(*Chat)
	if !ok || data == nil || c.handler() == "" {
		return nil, fmt.Errorf("layout = \"bfcl\" needs tasks of the benchmark and an instruct model of a family with an " +
			"official handler: qwen2 or llama")
	}
	return &Official{local, c, data}, nil
}

// Open implements rl.Policy.
func (o *Official) Open(_ context.Context, ask rl.Rollout) (rl.Dialogue, error) {
	if ask.Task.Prompt == bfcl.PromptMerged {
		return nil, fmt.Errorf("task %s: layout = \"bfcl\" needs tasks in turns, because the official runner has no others; "+
			"leave out prompt = %q of the tasks stage", ask.Task.ID, bfcl.PromptMerged)
	}
	return &official{Official: o, token: ask.Token, left: rl.ReplyBytesOf(o.Longest()),
		stream: rl.Sampling(o.Seed, ask.Update, ask.Task.ID, ask.Member)}, nil
}

// official is a conversation. The handler may rewrite earlier replies, so each prompt is a new sequence.
type official struct {
	*Official
	token  string
	stream rl.Stream
	seat   rl.Seat
	left   rl.ReplyBytes
	talk   *bfcl.HandlerChat
	memory Memory // a prompt that continues a reply contains its sampled ids, as in a server
	number uint64 // number of the next reply less one; part of the name of its random numbers
}

// Close implements rl.Dialogue.
func (d *official) Close() { d.seat.Close() }

// Reply implements rl.Dialogue. The reply has no Given, because the ids before it need not continue earlier ones.
func (d *official) Reply(ctx context.Context, news []rl.Message, tools []rl.Tool) (rl.Reply, error) {
	if d.talk == nil {
		if err := d.begin(tools); err != nil {
			return rl.Reply{}, err
		}
	}
	for _, m := range news {
		if m.Role == rl.RoleTool {
			d.talk.Results(m.Results())
		} else {
			d.talk.User(m.Text)
		}
	}
	written, err := d.talk.Prompt()
	if err != nil {
		return rl.Reply{Stop: rl.StopHandler, Refusal: err.Error()}, nil
	}
	prompt := d.chat.Insert(written, d.token)
	ids := d.memory.Encode(d.chat.tokens, prompt)
	room := d.room(len(d.chat.tokens.EncodeAs(written, token.Everything)), len(ids))
	if room < 1 || d.left < 0 {
		return rl.Reply{Stop: rl.StopLength}, nil
	}
	d.number++
	s, err := d.Batcher.Sample(ctx, rl.Query{IDs: ids, Temperature: d.Temperature, TopP: d.TopP,
		Stream: d.stream.With(d.number), Max: room, Seat: &d.seat,
		Last: d.left.EndOf(d.chat)})
	if err != nil {
		return rl.Reply{}, err
	}
	var r rl.Reply
	var text []byte
	var inside []int32 // without the end of the reply
	for _, x := range s.Draws {
		r.IDs, r.Logp = append(r.IDs, x.Token), append(r.Logp, x.Logp)
		if !d.chat.Stop(x.Token) {
			inside = append(inside, x.Token)
		}
		if !d.chat.Stop(x.Token) && !d.chat.tokens.Special(x.Token) {
			text = append(text, d.chat.tokens.Bytes(x.Token)...)
		}
	}
	r.Text = token.Text(text)
	d.memory.KeepText(d.chat.tokens, prompt, r.Text, ids, inside)
	for _, call := range d.talk.Reply(r.Text) {
		r.Calls = append(r.Calls, rl.Call{Text: call})
	}
	_, malformed := d.chat.format.calls(r.Text)
	r.Malformed = malformed && r.Calls == nil
	return r, nil
}

func (d *official) begin(tools []rl.Tool) error {
	names := make([]string, len(tools))
	for i, tool := range tools {
		names[i] = tool.Name
	}
	documents, err := d.data.Documents(names)
	if err != nil {
		return fmt.Errorf("layout = \"bfcl\": %w", err)
	}
	d.talk, err = bfcl.NewHandlerChat(d.chat.handler(), documents)
	return err
}

// room returns the number of tokens that the reply to a prompt may have: those that the official handler asks for, by
// its own count of the prompt's tokens, and that the server grants. Below 1 the request is refused.
func (d *official) room(counted, ids int) int {
	longest := d.Longest()
	asked := 1000 // the handler lets the server refuse the request
	if longest >= counted+2 {
		asked = min(d.Limits.Reply, longest-counted-2)
	}
	return min(asked, longest-ids)
}
