package rl

import (
	"context"
	"errors"
)

// Sampler continues token sequences in slots. A slot keeps its sequence and its key-value cache, so a request
// contains only new tokens. It is used by one goroutine at a time; Batcher shares it.
type Sampler interface {
	Slots() int  // number of sequences held at once
	MaxLen() int // longest sequence of a slot, in tokens
	// Next appends Feed to each request's slot and samples the following token. The sampled token is not part of
	// the sequence until the next request contains it. Requests name distinct slots; the result has their order.
	// An empty slot copies the longest prefix of Feed that another slot holds. After an error all slots are
	// unchanged; ErrNoRoom asks for fewer tokens in them.
	Next(ctx context.Context, requests []Request) ([]Draw, error)
	// Cut keeps the first n tokens of a slot.
	Cut(slot, n int)
	// Release empties all slots and frees memory that the next request can rebuild.
	Release() error
}

// ErrNoRoom is wrapped by the error of a Sampler whose slots hold too many tokens for a request.
var ErrNoRoom = errors.New("the slots have no room for the tokens")

// Request asks for the token after Feed.
type Request struct {
	Slot        int
	Feed        []int32 // at least one id
	Temperature float64 // 0 is greedy
	TopP        float64 // 0 or 1 keeps the whole vocabulary
	U           float64 // number in [0,1) that decides the draw (inverse CDF); see Stream
	Top         int     // number of most probable tokens to report
	Given       *int32  // the following token, if it is known: its logprob is computed and nothing is drawn
}

// Draw is a sampled token and its logprob under the sampling distribution, at the temperature; at temperature 0
// it is the logprob at temperature 1.
type Draw struct {
	Token int32
	Logp  float32
	Top   []Ranked // Request.Top most probable tokens, the first of equals first
}

// Ranked is a possible token and its logprob, at the temperature of the draw and before top-p.
type Ranked struct {
	Token int32
	Logp  float32
}
