package grpo

import (
	"fmt"
	"math/rand/v2"

	"rcgrpo/bfcl"
)

// course is the endless list of training tasks: passes over all tasks, each in its own order. The task at an index is
// a function of the seed and the tasks, so the arms of one seed see the same tasks in the same order, and a resumed
// run continues at its index.
type course struct {
	tasks []*bfcl.Task // not empty
	rand  func(stream string) *rand.Rand

	orders [][]int // order of the tasks in each pass so far
}

func (c *course) at(k int) *bfcl.Task {
	pass, i := k/len(c.tasks), k%len(c.tasks)
	for p := len(c.orders); p <= pass; p++ {
		c.orders = append(c.orders, c.rand(fmt.Sprintf("order of tasks, pass %d", p)).Perm(len(c.tasks)))
	}
	return c.tasks[c.orders[pass][i]]
}
