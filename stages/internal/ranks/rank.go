package ranks

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
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
}

// New returns the rank with an index below count.
func New(index, count int, wire Wire) *Rank { return &Rank{index, count, wire} }

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

// direct is the longest message of Share that takes one Gather.
const direct = 248

// Share returns the messages of all ranks, of any length, in their order.
func (r *Rank) Share(own []byte) ([][]byte, error) {
	if r.Count() == 1 {
		return [][]byte{own}, nil
	}
	head := make([]byte, 8+direct)
	binary.LittleEndian.PutUint64(head, uint64(len(own)))
	copy(head[8:], own)
	heads, err := r.wire.Gather(head)
	if err != nil {
		return nil, err
	}
	sizes, longest := make([]int, len(heads)), 0
	for i, h := range heads {
		sizes[i] = int(binary.LittleEndian.Uint64(h))
		longest = max(longest, sizes[i])
		heads[i] = h[8:]
	}
	if longest > direct {
		whole := make([]byte, longest)
		copy(whole, own)
		if heads, err = r.wire.Gather(whole); err != nil {
			return nil, err
		}
	}
	for i := range heads {
		heads[i] = heads[i][:sizes[i]]
	}
	return heads, nil
}

// ShareValues returns the values of all ranks, passed as JSON.
func ShareValues[T any](r *Rank, own T) ([]T, error) {
	if r.Count() == 1 {
		return []T{own}, nil
	}
	text, err := json.Marshal(own)
	if err != nil {
		return nil, err
	}
	texts, err := r.Share(text)
	if err != nil {
		return nil, err
	}
	all := make([]T, len(texts))
	for i, text := range texts {
		if err := json.Unmarshal(text, &all[i]); err != nil {
			return nil, fmt.Errorf("message of rank %d: %w", i, err)
		}
	}
	return all, nil
}

// Merge returns a list of n items, of which each rank made those that Has deals to it, in their order.
func Merge[T any](r *Rank, own []T, n int) ([]T, error) {
	lists, err := ShareValues(r, own)
	if err != nil {
		return nil, err
	}
	all := make([]T, n)
	next := make([]int, len(lists))
	for i := range all {
		from := i % len(lists)
		if next[from] == len(lists[from]) {
			return nil, fmt.Errorf("rank %d has %d items of %d, too few", from, len(lists[from]), n)
		}
		all[i] = lists[from][next[from]]
		next[from]++
	}
	return all, nil
}
