package lm

import (
	"math/rand/v2"
	"slices"
	"testing"
)

// pooled is a buffer whose tokens are numbers, so that each move is checked.
type pooled struct {
	ranges
	buffer []int
	live   []int
	moved  int // tokens
}

// grow appends n tokens to each slot and reports whether there is room.
func (p *pooled) grow(n []int) bool {
	want := make([]int, len(p.live))
	for slot := range want {
		want[slot] = p.live[slot] + n[slot]
	}
	start, ok := p.place(p.live, want)
	if !ok {
		return false
	}
	var before []int
	for slot, live := range p.live {
		if start[slot] == p.start[slot] || live == 0 {
			continue
		}
		if before == nil {
			before = slices.Clone(p.buffer)
		}
		copy(p.buffer[start[slot]:], before[p.start[slot]:][:live])
		p.moved += live
	}
	p.start = start
	for slot := range want {
		for at := p.live[slot]; at < want[slot]; at++ {
			p.buffer[start[slot]+at] = slot<<20 | at
		}
		p.live[slot] = want[slot]
	}
	return true
}

// Random episodes: prompts of different lengths, replies token by token, results of tools, ends. The buffer is full
// only when at most a tenth of it is unused.
func TestRangesHoldTheTokensOfTheirSlots(t *testing.T) {
	const slots, size, steps, startRoom = 24, 60_000, 100_000, 1024
	r := rand.New(rand.NewPCG(3, 9))
	p := &pooled{ranges: ranges{size, make([]int, slots)}, buffer: make([]int, size), live: make([]int, slots)}
	appended, full, worst := 0, 0, 0.0
	for step := range steps {
		n, total := make([]int, slots), 0
		for slot := range n {
			prompt := 400 + r.IntN(800)
			switch {
			case p.live[slot] > 0 && r.IntN(50) == 0:
				n[slot] = r.IntN(300) // the result of a tool
			case p.live[slot] > 0:
				n[slot] = 1
			case p.room(p.live)-total >= prompt+startRoom:
				n[slot] = prompt
			}
			total += n[slot]
		}
		if p.grow(n) {
			appended += total
		} else {
			full++
			youngest := -1
			for slot, live := range p.live {
				if live > 0 && (youngest < 0 || live < p.live[youngest]) {
					youngest = slot
				}
			}
			worst = max(worst, float64(p.room(p.live)+size/reservedShare-total)/size)
			p.live[youngest] = 0 // parked
		}
		if slot := r.IntN(1500); slot < slots {
			p.live[slot] = 0 // its episode has ended
		}
		for slot, live := range p.live {
			for at := step % 311; at < live; at += 311 {
				if p.buffer[p.start[slot]+at] != slot<<20|at {
					t.Fatalf("step %d: token %d of slot %d is lost", step, at, slot)
				}
			}
		}
	}
	moves := float64(p.moved) / float64(appended)
	t.Logf("%d tokens, full %d times with at most %.1f %% unused, each token moved %.2f times", appended, full, 100*worst,
		moves)
	if full == 0 || worst > 0.1 {
		t.Errorf("the buffer was full %d times with %.1f %% unused, want at least once and at most 10 %%", full, 100*worst)
	}
}

func TestRangesRefuseMoreTokensThanTheyHave(t *testing.T) {
	for name, tc := range map[string]struct {
		want []int
		ok   bool
	}{
		"one slot takes all":            {[]int{100}, true},
		"one slot and one token more":   {[]int{101}, false},
		"two slots and room to grow":    {[]int{47, 47}, true},
		"two slots without room":        {[]int{48, 47}, false},
		"an empty slot takes no tokens": {[]int{100, 0}, true},
	} {
		r := ranges{100, make([]int, len(tc.want))}
		if start, ok := r.place(make([]int, len(tc.want)), tc.want); ok != tc.ok {
			t.Errorf("%s: got %v at %v, want %v", name, ok, start, tc.ok)
		}
	}
}
