package grpo

import (
	"fmt"
	"math/rand/v2"

	"rcgrpo/bfcl"
)

// course is the endless list of tasks that a training goes through. What stands at a place is a function of the seed and
// the settings alone, so the arms of one seed see the same tasks in the same order, and a resumed run finds its place.
//
// Each set of tasks is passed over again and again, every pass in an order of its own, or always as it stands (given).
// Of several sets with weights, each gets its share of every stretch of the list: at each place stands the next task of
// the set that is farthest behind its share.
type course struct {
	sets    [][]*bfcl.Task // none empty
	weights []float64      // of the sets, above 0; nil where there is one
	given   bool
	rand    func(stream string) *rand.Rand

	slots  []slot // the list as far as it is known
	taken  []int  // tasks of each set in slots
	orders map[string][]int
}

// slot is a place in the list: the n-th task taken of a set.
type slot struct{ set, n int }

// at is the task at place k, counted from 0.
func (c *course) at(k int) *bfcl.Task {
	if c.taken == nil {
		c.taken, c.orders = make([]int, len(c.sets)), map[string][]int{}
	}
	for len(c.slots) <= k {
		set := c.behind()
		c.slots = append(c.slots, slot{set, c.taken[set]})
		c.taken[set]++
	}
	s := c.slots[k]
	tasks := c.sets[s.set]
	place := s.n % len(tasks)
	if !c.given {
		place = c.order(s.set, s.n/len(tasks))[place]
	}
	return tasks[place]
}

// behind is the set whose number of tasks is farthest below its share of a list one longer than now; the first of equals.
func (c *course) behind() int {
	if len(c.sets) == 1 {
		return 0
	}
	total, best, most := 0.0, 0, 0.0
	for _, w := range c.weights {
		total += w
	}
	for i, w := range c.weights {
		if lack := w/total*float64(len(c.slots)+1) - float64(c.taken[i]); lack > most {
			best, most = i, lack
		}
	}
	return best
}

// order is the order of one pass over a set.
func (c *course) order(set, pass int) []int {
	stream := fmt.Sprintf("order of tasks, pass %d", pass)
	if set > 0 {
		stream = fmt.Sprintf("order of tasks of set %d, pass %d", set+1, pass)
	}
	if _, known := c.orders[stream]; !known {
		c.orders[stream] = c.rand(stream).Perm(len(c.sets[set]))
	}
	return c.orders[stream]
}
