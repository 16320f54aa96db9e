//go:build libtorch

package lm

import (
	"slices"

	"rcgrpo/stages/internal/torch"
	"rcgrpo/stages/rl"
)

// leastShared is the minimal length of a prefix that is copied.
const leastShared = 8

// part is a piece of a sequence: tokens of a slot from a position on.
type part struct {
	slot, at int
	ids      []int32
}

// loan is a copy of the caches of the first n tokens, which are equal in two slots.
type loan struct{ from, to, n int }

// prefill computes shared prefixes, such as the prompt of a group, once: copies from slots that hold a prefix,
// prefixes that new sequences share, their copies, and the rest.
type prefill struct {
	held   []loan
	shared []part
	lent   []loan
	rest   []part // one per request
}

// plan finds the prefixes of new sequences that are held or shared. A shared prefix belongs to the first sequence
// with it. The last token of a request always belongs to the rest, which is sampled from.
func (d *Decoder) plan(requests []rl.Request) *prefill {
	p := &prefill{}
	var leaders []int // indices in p.rest of new sequences that copy from no other new one
	upto := map[int]int{}
	for i, r := range requests {
		q := part{r.Slot, len(d.held[r.Slot]), r.Feed}
		p.rest = append(p.rest, q)
		if q.at > 0 || len(r.Feed) <= leastShared {
			continue
		}
		most := r.Feed[:len(r.Feed)-1]
		held := loan{to: r.Slot}
		for slot, ids := range d.held {
			if n := rl.CommonPrefix(ids, most); n > held.n {
				held.from, held.n = slot, n
			}
		}
		lent, leader := loan{to: r.Slot}, 0
		for _, j := range leaders {
			if n := rl.CommonPrefix(requests[j].Feed[:len(requests[j].Feed)-1], most); n > lent.n {
				lent.from, lent.n, leader = requests[j].Slot, n, j
			}
		}
		if lent.n >= leastShared && lent.n > held.n {
			p.lent = append(p.lent, lent)
			upto[leader] = max(upto[leader], lent.n)
			p.rest[i].at = lent.n
			continue
		}
		leaders = append(leaders, i)
		if held.n >= leastShared {
			p.held = append(p.held, held)
			p.rest[i].at = held.n
		}
	}
	for _, j := range leaders {
		q := &p.rest[j]
		if n := min(upto[j], len(q.ids)-1); n > q.at {
			p.shared = append(p.shared, part{q.slot, q.at, q.ids[q.at:n]})
			q.at = n
		}
	}
	for i, r := range requests {
		q := &p.rest[i]
		q.ids = q.ids[q.at-len(d.held[r.Slot]):]
	}
	return p
}

// passes splits parts with too many tokens for one pass: early are passes that only fill caches, last contains
// the rest of every part, at least its last token.
func passes(parts []part) (early [][]part, last []part) {
	total := 0
	for _, p := range parts {
		total += len(p.ids)
	}
	last = slices.Clone(parts)
	for total > passRows+len(parts) {
		var pass []part
		room := passRows
		for i := range last {
			q := &last[i]
			n := min(room, len(q.ids)-1)
			if n < 1 {
				continue
			}
			pass = append(pass, part{q.slot, q.at, q.ids[:n]})
			q.at, q.ids = q.at+n, q.ids[n:]
			room -= n
			total -= n
		}
		early = append(early, pass)
	}
	return early, last
}

func (d *Decoder) lend(s *torch.Scope, loans []loan) {
	for _, loan := range loans {
		for l := range d.m.cfg.Layers {
			s.Nest(func(s *torch.Scope) {
				keys, values := d.cache.prefix(s, l, loan.from, loan.n)
				toKeys, toValues := d.cache.prefix(s, l, loan.to, loan.n)
				s.Copy_(toKeys, keys)
				s.Copy_(toValues, values)
			})
		}
	}
}
