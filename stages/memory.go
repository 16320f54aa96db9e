package stages

import (
	"rcgrpo/engine/lang"
	"rcgrpo/stages/internal/checkpoint"
	"rcgrpo/stages/internal/lm"
	"rcgrpo/stages/model"
)

// MemoryPlan is the memory that a stage needs on each of its devices.
type MemoryPlan struct {
	Bytes, Host int64
	Text        string // total and parts
	GPUs        int    // 0 on the CPU
	Ranks       int    // processes that share the stage, each with a device
	Unfit       error  // if it does not fit: the reason and the settings that would
}

// Memory plans the memory of a node from the shape of the model at the start of its policies. device and host are the
// bytes that it may use, 0 if unknown. It starts nothing and reads no weights. ok is false for a stage without a model
// or with an unknown shape.
func Memory(n *lang.Node, device, host int64) (plan MemoryPlan, ok bool) {
	user, ok := n.Stage.(checkpoint.MemoryUser)
	if !ok {
		return plan, false
	}
	c, ok := shapeOf(n)
	if !ok {
		return plan, false
	}
	_, use := user.MemoryUse()
	have, gpus := checkpoint.Memory{Device: device, Host: host}, n.Resources.GPUs
	ranks := max(gpus, n.Resources.Processes, 1)
	u := have.Place(c, use(c), gpus > 0, ranks, max(1, n.Resources.CPUs/ranks))
	parts := c.Memory(u)
	return MemoryPlan{lm.TotalMemory(parts), lm.HostMemory(parts) * int64(ranks), lm.MemoryText(parts), gpus, ranks,
		checkpoint.RefuseMemory(c, u, have)}, true
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
