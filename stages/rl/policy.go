package rl

import "context"

// Policy continues token sequences that it holds in slots: slot i keeps its sequence and what was computed for it (a
// key-value cache), so a turn feeds only what is new. The local model is one; tests script others.
type Policy interface {
	Slots() int  // number of sequences held at once
	MaxLen() int // longest sequence of a slot, in tokens
	// Next appends Feed to each request's slot and draws the token that follows it. The drawn token is not yet part
	// of the sequence: feed it in the next request. Requests name distinct slots; the result is in their order.
	Next(ctx context.Context, requests []Request) ([]Draw, error)
	// Reset empties a slot.
	Reset(slot int)
	// Release empties all slots, because nobody asks for a while, and gives up what the next request can make again.
	Release() error
}

// Request asks for the token after Feed.
type Request struct {
	Slot        int
	Feed        []int32 // at least one id
	Temperature float64 // 0 is greedy
	TopP        float64 // 0 or 1 keeps the whole vocabulary
	U           float64 // the uniform number in [0,1) that decides the draw (inverse CDF); see Uniform
}

// Draw is a sampled token and its log-probability under the distribution it was drawn from (at the temperature;
// at temperature 0 under temperature 1).
type Draw struct {
	Token int32
	Logp  float32
}

// Codec turns messages into ids and back for one family of models. Pieces are encoded one by one and concatenated, so
// what was sampled is never tokenised again. Implementations: stages/internal/chat.
type Codec interface {
	// Begin returns what stands before the first message, given the tools offered.
	Begin(tools []string) []int32
	// User encodes a user message. first is true for the episode's first one; token is the reward token of the
	// episode, which the position "first_user" writes here.
	User(text string, first bool, token string) []int32
	// Tool encodes the results of one step's calls.
	Tool(results []string) []int32
	// Header opens a reply of the policy; the position "before_each_action" writes the reward token here.
	Header(token string) []int32
	// Reply encodes an expert's step: the ids a policy would have sampled, the end-of-step id included. Without
	// calls it is the step that ends the turn.
	Reply(calls []string) []int32
	// Between is what the layout puts after a reply, before the next message (given, not sampled).
	Between() []int32
	// Stop says whether an id ends a reply.
	Stop(id int32) bool
	// Parse decodes a sampled reply: its text and its calls. No calls means that the policy yields the turn.
	Parse(ids []int32) (text string, calls []string)
	// Text decodes any ids for people, special tokens included.
	Text(ids []int32) string
}
