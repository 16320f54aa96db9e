package grpo

import (
	"fmt"
	"math/rand/v2"

	"rcgrpo/bfcl"
)

// course is the endless list of training tasks: passes over all tasks, each in its own order. The task at an index is
// a function of the seed and the tasks, so the arms of one seed see the same tasks in the same order, and a resumed
// run continues at its index, which others may have written: any is valid.
type course struct {
	tasks []*bfcl.Task // not empty
	rand  func(stream string) *rand.Rand

	pass  uint
	order []int // of the tasks in this pass; nil before the first
}

func (c *course) at(k int) *bfcl.Task {
	pass, i := uint(k)/uint(len(c.tasks)), uint(k)%uint(len(c.tasks))
	if c.order == nil || pass != c.pass {
		c.pass, c.order = pass, c.rand(fmt.Sprintf("order of tasks, pass %d", pass)).Perm(len(c.tasks))
	}
	return c.tasks[c.order[i]]
}
