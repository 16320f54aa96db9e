package ranks

import (
	"bytes"
	"encoding/binary"
	"encoding/gob"
	"encoding/json"
	"fmt"
	"sync/atomic"
)

// Wire connects the ranks of a stage. All ranks make the same calls in the same order.
type Wire interface {
	// Gather returns the messages of all ranks in their order. All messages have the same length.
	Gather(own []byte) ([][]byte, error)
}

// Rank is one of Count ranks. A nil *Rank is rank 0 of 1.
type Rank struct {
	index, count int
	wire         Wire
	phase        atomic.Pointer[string] // of the last sync point
}

// New returns the rank with an index below count.
func New(index, count int, wire Wire) *Rank { return &Rank{index: index, count: count, wire: wire} }

// Phase returns the phase of the last sync point that the rank has reached; "" before the first. It is safe for
// concurrent use.
func (r *Rank) Phase() string {
	if p := r.phase.Load(); p != nil {
		return *p
	}
	return ""
}

// Index returns the number of the rank, from 0.
func (r *Rank) Index() int {
	if r == nil {
		return 0
	}
	return r.index
}

// Count returns the number of ranks.
func (r *Rank) Count() int {
	if r == nil {
		return 1
	}
	return r.count
}

// Has reports whether item i of a list is dealt to this rank.
func (r *Rank) Has(i int) bool { return i%r.Count() == r.Index() }

// Part returns this rank's part in a round, one of n; ok is false if the round has no part for it. Round k consists
// of the parts k·Count to k·Count + Count - 1, so their sum in rank order and round order is the sum in part order.
func (r *Rank) Part(round, n int) (part int, ok bool) {
	part = round*r.Count() + r.Index()
	return part, part < n
}

// Rounds returns the number of rounds of n parts.
func (r *Rank) Rounds(n int) int { return (n + r.Count() - 1) / r.Count() }

// Share returns the messages of all ranks, of any length, in their order.
func (r *Rank) Share(own []byte) ([][]byte, error) {
	if r.Count() == 1 {
		return [][]byte{own}, nil
	}
	lengths, err := r.wire.Gather(binary.LittleEndian.AppendUint64(nil, uint64(len(own))))
	if err != nil {
		return nil, err
	}
	longest := uint64(0)
	for _, n := range lengths {
		longest = max(longest, binary.LittleEndian.Uint64(n))
	}
	padded := make([]byte, longest)
	copy(padded, own)
	messages, err := r.wire.Gather(padded)
	if err != nil {
		return nil, err
	}
	for i, n := range lengths {
		messages[i] = messages[i][:binary.LittleEndian.Uint64(n)]
	}
	return messages, nil
}

// ShareValues returns the values of all ranks, passed by encoding/gob, which keeps NaN and infinities.
func ShareValues[T any](r *Rank, own T) ([]T, error) {
	if r.Count() == 1 {
		return []T{own}, nil
	}
	var message bytes.Buffer
	if err := gob.NewEncoder(&message).Encode(&own); err != nil {
		return nil, err
	}
	messages, err := r.Share(message.Bytes())
	if err != nil {
		return nil, err
	}
	all := make([]T, len(messages))
	for i, m := range messages {
		if err := gob.NewDecoder(bytes.NewReader(m)).Decode(&all[i]); err != nil {
			return nil, fmt.Errorf("message of rank %d: %w", i, err)
		}
	}
	return all, nil
}

// Dealt returns the items of a list that are dealt to this rank, by Has.
func Dealt[T any](r *Rank, all []T) (own []T) {
	for i, item := range all {
		if r.Has(i) {
			own = append(own, item)
		}
	}
	return own
}

// Merge returns a list of n items, of which each rank passes those that Has deals to it, in their order. The items
// travel as JSON, the form in which a resumed stage reads them.
func Merge[T any](r *Rank, own []T, n int) ([]T, error) {
	if r.Count() == 1 {
		return own, nil
	}
	text, err := json.Marshal(own)
	if err != nil {
		return nil, err
	}
	texts, err := r.Share(text)
	if err != nil {
		return nil, err
	}
	all := make([]T, n)
	for rank, text := range texts {
		var list []T
		if err := json.Unmarshal(text, &list); err != nil {
			return nil, fmt.Errorf("items of rank %d: %w", rank, err)
		}
		if want := (n - rank + len(texts) - 1) / len(texts); len(list) != want {
			return nil, fmt.Errorf("rank %d has %d items of %d, want %d", rank, len(list), n, want)
		}
		for k, item := range list {
			all[rank+k*len(texts)] = item
		}
	}
	return all, nil
}
