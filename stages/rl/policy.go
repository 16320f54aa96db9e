package rl

import (
	"context"
	"slices"

	"rcgrpo/stages/rl/blocks"
)

// Policy replies in conversations: Local samples from a model in this process; tests script others.
type Policy interface {
	Width() int // conversations at once
	Open(ctx context.Context, ask Rollout) (Dialogue, error)
	// Release frees what the policy keeps between conversations. None may be open. The weights of a model may
	// change only after it.
	Release() error
}

// Dialogue is one conversation.
type Dialogue interface {
	// Reply reads the messages since the last reply, then answers. The first may be a system message, of which Given
	// has no list. tools are those offered now.
	Reply(ctx context.Context, news []Message, tools []Tool) (Reply, error)
	Close()
}

// Reply is an answer of a policy. If the news cannot be read, it is empty except for Stop and Refusal.
type Reply struct {
	Text  string
	Calls []Call // none: the policy yields the turn
	// Malformed reports a reply without calls that contains the beginning of one; always false from an API.
	Malformed bool
	Stop      string // "" if the policy ended its reply itself, else StopStep, StopLength or StopHandler
	Refusal   string // the reason of StopHandler

	// Given lists the ids read before it: those after the last reply, those of each message, the header. It is nil
	// from an API, and if the prompt does not continue the last reply.
	Given [][]int32
	IDs   []int32   // sampled, including the id that ends the reply; nil from an API
	Logp  []float32 // log probability of each of IDs
}

// Tool is a function on offer.
type Tool struct {
	Name string
	JSON []byte // its document in OpenAI's form; nil for a tool of the benchmark, which the policy knows by name
}

// Call is a call of a tool.
type Call struct {
	Text string // as Python text: name(k=v, ...)
}

// Local is the policy of a model in this process.
type Local struct {
	Batcher     *Batcher
	Codec       Codec
	Limits      blocks.Limits // Reply and Context
	Seed        uint64
	Temperature float64 // 0 is greedy
	TopP        float64 // 0 or 1 keeps the whole vocabulary
}

// Width returns the number of slots, because a conversation keeps its slot between its replies.
func (l *Local) Width() int { return l.Batcher.Slots() }

// Longest returns the number of tokens that a conversation may have.
func (l *Local) Longest() int { return min(l.Limits.Context, l.Batcher.MaxLen()) }

// Release implements Policy.
func (l *Local) Release() error { return l.Batcher.Release() }

// Open implements Policy. Equal rollouts draw equal random numbers.
func (l *Local) Open(_ context.Context, ask Rollout) (Dialogue, error) {
	return &dialogue{Local: l, token: ask.Token, left: ReplyBytesOf(l.Longest()),
		stream: Sampling(l.Seed, ask.Update, ask.Task.ID, ask.Member)}, nil
}

type dialogue struct {
	*Local
	token  string
	stream Stream
	seat   Seat
	ids    []int32
	left   ReplyBytes
}

// Close implements Dialogue.
func (d *dialogue) Close() { d.seat.Close() }

// Reply implements Dialogue.
func (d *dialogue) Reply(ctx context.Context, news []Message, tools []Tool) (Reply, error) {
	given, err := d.encode(news, tools)
	if err != nil { // the chat template refuses the news
		return Reply{Stop: StopHandler, Refusal: err.Error()}, nil
	}
	ids := slices.Concat(append([][]int32{d.ids}, given...)...)
	longest := d.Longest()
	if len(ids) >= longest || d.left < 0 {
		return Reply{Stop: StopLength}, nil
	}
	s, err := d.Batcher.Sample(ctx, Query{IDs: ids, Temperature: d.Temperature, TopP: d.TopP, Stream: d.stream,
		Max: min(d.Limits.Reply, longest-len(ids)), Last: d.left.EndOf(d.Codec),
		Seat: &d.seat})
	if err != nil {
		return Reply{}, err
	}
	r := Reply{Given: given}
	for _, x := range s.Draws {
		r.IDs, r.Logp = append(r.IDs, x.Token), append(r.Logp, x.Logp)
	}
	switch n := len(r.IDs); {
	case d.Codec.Stop(r.IDs[n-1]):
	case n >= d.Limits.Reply || len(ids)+n < longest: // in the latter case by its bytes
		r.Stop = StopStep
	default:
		r.Stop = StopLength
	}
	p := d.Codec.Parse(r.IDs)
	r.Text, r.Calls, r.Malformed = p.Text, p.Calls, p.Malformed
	d.ids = append(ids, r.IDs...)
	return r, nil
}

// encode returns the ids between the last reply and the news, those of each message, and the header of a reply.
func (d *dialogue) encode(news []Message, tools []Tool) ([][]int32, error) {
	given := make([][]int32, 1, len(news)+2)
	first := len(d.ids) == 0
	if !first {
		given[0] = d.Codec.Between()
	}
	system := ""
	if news[0].Role == RoleSystem {
		system, news = news[0].Text, news[1:]
	}
	for _, m := range news {
		var ids []int32
		var err error
		switch {
		case first:
			ids, err = d.Codec.Begin(system, tools, m.Text, d.token)
		case m.Role == RoleTool:
			ids, err = d.Codec.Tool(m.Results())
		default:
			ids, err = d.Codec.User(m.Text)
		}
		if err != nil {
			return nil, err
		}
		given, first = append(given, ids), false
	}
	return append(given, d.Codec.Header(d.token)), nil
}
