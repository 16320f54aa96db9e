package grpo

import (
	"fmt"
	"math/rand/v2"

	"rcgrpo/bfcl"
)

// course is the endless list of training tasks. The task at an index is a function of the seed and the settings,
// so the arms of one seed see the same tasks in the same order, and a resumed run continues at its index.
//
// Each set of tasks is passed over again and again, every pass in its own order, or always in the given order.
// With weights, each set gets its share of every part of the list: each index takes the next task of the set that
// is farthest behind its share.
type course struct {
	sets    [][]*bfcl.Task // none empty
	weights []float64      // of the sets, above 0; nil where there is one
	given   bool
	rand    func(stream string) *rand.Rand

	list  []*bfcl.Task // so far
	taken []int        // tasks of each set in list
	order [][]int      // of the tasks of each set in its current pass
}

func (c *course) at(k int) *bfcl.Task {
	if c.taken == nil {
		c.taken, c.order = make([]int, len(c.sets)), make([][]int, len(c.sets))
	}
	for len(c.list) <= k {
		c.list = append(c.list, c.take(c.behind()))
	}
	return c.list[k]
}

// take returns the next task of a set.
func (c *course) take(set int) *bfcl.Task {
	tasks := c.sets[set]
	pass, i := c.taken[set]/len(tasks), c.taken[set]%len(tasks)
	c.taken[set]++
	if c.given {
		return tasks[i]
	}
	if i == 0 {
		stream := fmt.Sprintf("order of tasks, pass %d", pass)
		if set > 0 {
			stream = fmt.Sprintf("order of tasks of set %d, pass %d", set+1, pass)
		}
		c.order[set] = c.rand(stream).Perm(len(tasks))
	}
	return tasks[c.order[set][i]]
}

// behind returns the set whose number of tasks is farthest below its share of a list that is one longer; the
// first of equals.
func (c *course) behind() int {
	if len(c.sets) == 1 {
		return 0
	}
	total, best, most := 0.0, 0, 0.0
	for _, w := range c.weights {
		total += w
	}
	for i, w := range c.weights {
		if lack := w/total*float64(len(c.list)+1) - float64(c.taken[i]); lack > most {
			best, most = i, lack
		}
	}
	return best
}
