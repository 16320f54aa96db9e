package stages

import (
	"rcgrpo/engine/lang"
	"rcgrpo/stages/internal/checkpoint"
	"rcgrpo/stages/internal/lm"
	"rcgrpo/stages/model"
)

// MemoryPlan is the memory that a stage needs on its device.
type MemoryPlan struct {
	Bytes int64
	Text  string // total and parts
	Unfit error  // if it does not fit: the reason and the settings that would
}

// Memory plans the memory of a node that may use so many bytes, from the shape of the model at the start of its
// policies. It starts nothing and reads no weights. ok is false for a stage without a model or with an unknown
// shape.
func Memory(n *lang.Node, have int64) (plan MemoryPlan, ok bool) {
	user, ok := n.Stage.(checkpoint.MemoryUser)
	if !ok {
		return plan, false
	}
	c, ok := shapeOf(n)
	if !ok {
		return plan, false
	}
	_, use := user.MemoryUse()
	u := use(c)
	u.GPU, u.Threads = n.Resources.GPUs > 0, n.Resources.CPUs
	parts := c.Memory(u)
	return MemoryPlan{lm.TotalMemory(parts), lm.MemoryText(parts), checkpoint.RefuseMemory(c, u, have)}, true
}

// shapeOf follows policies to the model that they started from.
func shapeOf(n *lang.Node) (lm.Config, bool) {
	user, ok := n.Stage.(checkpoint.MemoryUser)
	if !ok {
		return model.Shape(n.Stage)
	}
	ref, _ := user.MemoryUse()
	in, ok := n.Input(ref)
	if !ok {
		return lm.Config{}, false
	}
	return shapeOf(in.From)
}
