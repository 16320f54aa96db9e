package lm

import (
	"cmp"
	"slices"
)

// ranges places the tokens of slots in a buffer. Each slot has one range, which can grow up to the start of the next.
type ranges struct {
	size  int   // tokens of the buffer
	start []int // by slot; of those with tokens
}

// reservedShare is the part of the buffer that stays free for the growth of several slots, or they would move at every
// step.
const reservedShare = 16

// room returns the number of tokens that slots can still take, without the reserved ones.
func (r *ranges) room(live []int) int {
	free := r.size - r.size/reservedShare
	for _, n := range live {
		free -= n
	}
	return free
}

// place makes room for want[slot] tokens in each slot, of which it holds live[slot], and returns the new starts: those
// of before, as far as they can stay. A slot without room moves into the middle of the largest gap. If no gap suffices,
// all slots are placed anew with equal gaps. ok is false if the buffer has too few tokens; a single slot may fill it.
func (r *ranges) place(live, want []int) (start []int, ok bool) {
	start = slices.Clone(r.start)
	var order, homeless []int // slots by start
	for slot, n := range want {
		switch {
		case n == 0:
		case live[slot] == 0:
			homeless = append(homeless, slot)
		default:
			order = append(order, slot)
		}
	}
	slices.SortFunc(order, func(a, b int) int { return cmp.Compare(start[a], start[b]) })
	free := r.size
	for _, n := range want {
		free -= n
	}
	if free < 0 || len(order)+len(homeless) > 1 && free < r.size/reservedShare {
		return nil, false
	}
	end := func(i int) int { // up to which the range of order[i] can grow
		if i+1 < len(order) {
			return start[order[i+1]]
		}
		return r.size
	}
	for i := 0; i < len(order); { // a slot whose growth meets the next one moves
		if start[order[i]]+want[order[i]] > end(i) {
			homeless, order = append(homeless, order[i]), slices.Delete(order, i, i+1)
			continue
		}
		i++
	}
	for _, slot := range homeless {
		at, from, gap := 0, 0, r.size // the largest gap is before order[at]
		if len(order) > 0 {
			gap = start[order[0]]
		}
		for i, before := range order {
			if used := start[before] + want[before]; end(i)-used > gap {
				at, from, gap = i+1, used, end(i)-used
			}
		}
		if gap < want[slot] {
			return r.spread(order, want, free), true
		}
		if start[slot] = from; at > 0 { // the slot before keeps half of the room
			start[slot] += (gap - want[slot]) / 2
		}
		order = slices.Insert(order, at, slot)
	}
	return start, true
}

// spread places all slots with tokens, first those of order, and divides the free tokens among them.
func (r *ranges) spread(order []int, want []int, free int) (start []int) {
	start = slices.Clone(r.start)
	for slot, n := range want {
		if n > 0 && !slices.Contains(order, slot) {
			order = append(order, slot)
		}
	}
	at := 0
	for _, slot := range order {
		start[slot] = at
		at += want[slot] + free/len(order)
	}
	return start
}
