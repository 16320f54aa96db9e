//go:build libtorch

package lm

import (
	"math/rand/v2"
	"reflect"
	"slices"
	"testing"

	"rcgrpo/internal/must"
	"rcgrpo/stages/rl"
)

// family returns a sequence of n tokens for each number in alike, the length of its common prefix with one trunk.
func family(r *rand.Rand, vocab, n int, alike ...int) [][]int32 {
	trunk := randomIDs(r, n, vocab)
	var out [][]int32
	for _, same := range alike {
		ids := slices.Clone(trunk)
		for t := same; t < n; t++ {
			ids[t] = (trunk[t] + 1 + int32(r.IntN(vocab-1))) % int32(vocab)
		}
		out = append(out, ids)
	}
	return out
}

// TestSharedPrefixesSampleIdentically feeds decoders of sequences together, and one after another beside
// slots that hold a beginning, and compares with each fed alone.
func TestSharedPrefixesSampleIdentically(t *testing.T) {
	m := shake(t, newModel(t, drillSize(), 1), 2, 0.02)
	r := rand.New(rand.NewPCG(3, 4))
	first := family(r, m.cfg.Vocab, 50, 50, 50, 49, 30, 12, 3, 0)
	second := family(r, m.cfg.Vocab, 40, 40, 25, 40)
	shorter := slices.Clone(first[0][:20]) // a prefix of another sequence
	all := slices.Concat(first, second, [][]int32{shorter})

	ask := func(slot int, ids []int32) rl.Request {
		return rl.Request{Slot: slot, Feed: ids, Temperature: 1, U: 0.61}
	}
	next := func(d *Decoder, requests ...rl.Request) []rl.Draw {
		t.Helper()
		return must.Get(d.Next(t.Context(), requests))(t)
	}
	var want, after []rl.Draw // after: one token further, which reads the whole cache
	for _, ids := range all {
		d := newDecoder(t, m, 1, 64)
		want = append(want, next(d, ask(0, ids))...)
		after = append(after, next(d, ask(0, []int32{5}))...)
	}
	compare := func(name string, d *Decoder, draws []rl.Draw) {
		t.Helper()
		if !reflect.DeepEqual(draws, want) {
			t.Errorf("%s: got %v, want %v", name, draws, want)
		}
		var further []rl.Request
		for i := range all {
			further = append(further, ask(i, []int32{5}))
		}
		if got := next(d, further...); !reflect.DeepEqual(got, after) {
			t.Errorf("%s, one token further: got %v, want %v", name, got, after)
		}
	}
	for name, order := range map[string][]int{"together": {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10},
		"backwards": {10, 9, 8, 7, 6, 5, 4, 3, 2, 1, 0}} {
		d := newDecoder(t, m, len(all), 64)
		var requests []rl.Request
		for _, i := range order {
			requests = append(requests, ask(i, all[i]))
		}
		draws := make([]rl.Draw, len(all))
		for at, draw := range next(d, requests...) {
			draws[order[at]] = draw
		}
		compare(name, d, draws)
	}
	d := newDecoder(t, m, len(all), 64)
	for i := range all { // the earlier tokens of the slots are no prefix of any sequence
		next(d, ask(i, []int32{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12}))
		d.Cut(i, 0)
	}
	var draws []rl.Draw
	for i, ids := range all {
		draws = append(draws, next(d, ask(i, ids))...)
	}
	compare("one after another", d, draws)
}

// A call with more tokens than a pass holds gives every slot the same bits as a call for this slot alone.
func TestLongPromptsAreSplitIntoPasses(t *testing.T) {
	m := newModel(t, drillSize(), 1)
	const slots, length = 14, 350 // 4,900 tokens
	d := newDecoder(t, m, slots, length)
	r := rand.New(rand.NewPCG(5, 4))
	var requests []rl.Request
	for i := range slots {
		ids := randomIDs(r, length, m.cfg.Vocab)
		requests = append(requests, rl.Request{Slot: i, Feed: ids, Temperature: 1, U: 0.3})
	}
	early, last := passes(d.plan(requests).rest)
	if rows := len(d.rows(last, true).ids); len(early) != 1 || rows > passRows/4 {
		t.Errorf("got %d passes before one of %d rows", len(early), rows)
	}
	together := must.Get(d.Next(t.Context(), requests))(t)
	for i := range slots {
		d.Cut(i, 0)
	}
	for i, ask := range requests {
		alone, err := d.Next(t.Context(), []rl.Request{ask})
		if err != nil || !reflect.DeepEqual(alone[0], together[i]) {
			t.Errorf("slot %d: got %v alone and %v with the others (%v)", i, alone[0], together[i], err)
		}
		d.Cut(i, 0)
	}
}

func TestPassesTakeEveryTokenOnceInOrder(t *testing.T) {
	for _, sizes := range [][]int{{1}, {passRows}, {passRows + 1}, {passRows + 2}, {1, 3 * passRows, 1, 7},
		{passRows, passRows, 2}} {
		var parts []part
		for slot, n := range sizes {
			ids := make([]int32, n)
			for i := range ids {
				ids[i] = int32(i)
			}
			parts = append(parts, part{slot, 100, ids})
		}
		early, last := passes(parts)
		read := map[int]int{}
		for i, pass := range append(early, last) {
			rows := 0
			for _, p := range pass {
				rows += len(p.ids)
				if p.at != 100+read[p.slot] || int(p.ids[0]) != read[p.slot] {
					t.Errorf("%v, pass %d: slot %d goes on at %d with token %d, want %d", sizes, i, p.slot, p.at, p.ids[0],
						read[p.slot])
				}
				read[p.slot] += len(p.ids)
			}
			if rows > passRows+len(parts) {
				t.Errorf("%v, pass %d: %d rows", sizes, i, rows)
			}
		}
		for slot, n := range sizes {
			if read[slot] != n || len(last) != len(sizes) {
				t.Errorf("%v: %d tokens of slot %d and %d ends", sizes, read[slot], slot, len(last))
			}
		}
	}
}

// TestPromptOfAGroupIsComputedOnce counts the rows that go through the model.
func TestPromptOfAGroupIsComputedOnce(t *testing.T) {
	m := newModel(t, tiny(true), 1)
	d := newDecoder(t, m, 6, 32)
	r := rand.New(rand.NewPCG(3, 4))
	rows := func(requests []rl.Request) (n int) {
		p := d.plan(requests)
		for _, q := range slices.Concat(p.shared, p.rest) {
			n += len(q.ids)
		}
		return n
	}
	var requests []rl.Request
	for i, ids := range family(r, m.cfg.Vocab, 20, 20, 20, 20, 20, 18) {
		requests = append(requests, rl.Request{Slot: i, Feed: ids, Temperature: 1})
	}
	if got, want := rows(requests), 19+4*1+2; got != want { // 19 shared, the last token of four, two of the fifth
		t.Errorf("a group of five with a prompt of 20: %d rows, want %d", got, want)
	}
	must.Get(d.Next(t.Context(), requests))(t)
	late := []rl.Request{{Slot: 5, Feed: requests[0].Feed, Temperature: 1}}
	if got := rows(late); got != 1 {
		t.Errorf("a member that comes later: %d rows, want 1", got)
	}
	for i := range 5 {
		d.Cut(i, 0)
	}
	if got := rows(late); got != 20 {
		t.Errorf("after the slots were emptied: %d rows, want 20", got)
	}
}
