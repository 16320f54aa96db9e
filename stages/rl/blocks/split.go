package blocks

import "github.com/hashicorp/hcl/v2"

// Split configures the passes of a batch through the model: micro-batches whose gradients add up, so memory
// limits the micro-batch and not the batch. Every split gives the same sum up to rounding, about 1e-6 relative.
type Split struct {
	// tokens of one forward and backward pass; a prefix that trajectories share counts once. The gradients of the
	// passes add up to that of the batch, equal to 1e-6 for every split. A longer trajectory has its own pass
	MicroBatch int `hcl:"micro_batch,optional" unit:"tokens"`
	// number of partial gradients of an update, each of whole groups or trajectories with about equal rows, summed in
	// order. Every number gives the same sum up to rounding
	GradientParts int `hcl:"gradient_parts,optional"`
	// a forward pass stores only each layer's input, and the backward pass recomputes the rest: about a third more
	// work for a fraction of the memory of activations, with identical results on the CPU
	Recompute bool `hcl:"recompute,optional" key:"-"`

	At map[string]hcl.Range `hcl:",ranges"`
}

// Arithmetic is the precision in which a stage computes with a policy.
type Arithmetic struct {
	// precision of matrix products and attention; with bf16 the trained weights, their gradients and moments, norms,
	// logprobs, entropies, divergences and the checkpoint stay in float32. Equal seeds give identical results in
	// float32 on the CPU; in bf16 and on GPUs they are equal up to rounding
	Precision string `hcl:"precision,optional" choices:"float32|bf16"`
}

// DefaultArithmetic returns float32.
func DefaultArithmetic() Arithmetic { return Arithmetic{Precision: "float32"} }

// DefaultSplit returns one partial gradient and a micro-batch of this number of tokens.
func DefaultSplit(tokens int) Split {
	return Split{MicroBatch: tokens, GradientParts: 1}
}

// Check reports values out of range. items is the number of groups or trajectories of an optimizer step.
func (s *Split) Check(items int) (diags hcl.Diagnostics) {
	bad := Mistakes(&diags)
	bad(s.MicroBatch < 1, "Micro-batch out of range", s.At["micro_batch"],
		"A pass has at least one token; got micro_batch = %d.", s.MicroBatch)
	bad(s.GradientParts < 1, "Too few parts", s.At["gradient_parts"],
		"A gradient has at least one part; got gradient_parts = %d.", s.GradientParts)
	bad(s.GradientParts > max(1, items), "Too many parts", s.At["gradient_parts"],
		"The parts of a gradient consist of whole groups or trajectories, and an optimizer step has %d of them; got "+
			"gradient_parts = %d.", items, s.GradientParts)
	return diags
}
