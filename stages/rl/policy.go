package rl

import "context"

// Policy continues token sequences in slots. A slot keeps its sequence and its key-value cache, so a request
// contains only new tokens.
type Policy interface {
	Slots() int  // number of sequences held at once
	MaxLen() int // longest sequence of a slot, in tokens
	// Next appends Feed to each request's slot and samples the following token. The sampled token is not part of
	// the sequence until the next request contains it. Requests name distinct slots; the result has their order.
	Next(ctx context.Context, requests []Request) ([]Draw, error)
	// Reset empties a slot.
	Reset(slot int)
	// Release empties all slots and frees memory that the next request can rebuild.
	Release() error
}

// Request asks for the token after Feed.
type Request struct {
	Slot        int
	Feed        []int32 // at least one id
	Temperature float64 // 0 is greedy
	TopP        float64 // 0 or 1 keeps the whole vocabulary
	U           float64 // number in [0,1) that decides the draw (inverse CDF); see Stream
}

// Draw is a sampled token and its logprob under the sampling distribution, at the temperature; at temperature 0
// it is the logprob at temperature 1.
type Draw struct {
	Token int32
	Logp  float32
}

// Codec converts messages to ids and back for one model family. Pieces are encoded separately and concatenated,
// so sampled text is never tokenized again. Implementations: stages/internal/chat.
type Codec interface {
	// Begin returns the ids before the first message, given the offered tools.
	Begin(tools []string) []int32
	// User encodes a user message. first is true for the first one of the episode, into which the position
	// "first_user" writes the reward token.
	User(text string, first bool, token string) []int32
	// Tool encodes the results of one step's calls.
	Tool(results []string) []int32
	// Header opens a reply of the policy, where the position "before_each_action" writes the reward token.
	Header(token string) []int32
	// Reply encodes a step of an expert: the ids that a policy would have sampled, including the end-of-step id.
	// Without calls it is the step that ends the turn.
	Reply(calls []string) []int32
	// Between returns the ids between a reply and the next message. They are given, not sampled.
	Between() []int32
	// Stop reports whether an id ends a reply.
	Stop(id int32) bool
	// Parse decodes a sampled reply into its text and calls. A reply without calls yields the turn.
	Parse(ids []int32) (text string, calls []string)
	// Text decodes any ids for people, special tokens included.
	Text(ids []int32) string
}
