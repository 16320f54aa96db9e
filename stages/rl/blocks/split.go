package blocks

import (
	"fmt"

	"github.com/hashicorp/hcl/v2"
)

// Modes of a training.
const (
	ModeDeterministic = "deterministic"
	ModeFast          = "fast"
)

// HalveMicroBatch is the on_oom that goes on with half of the micro-batch.
const HalveMicroBatch = "halve_micro_batch"

// Split is how a batch goes through the model: in micro-batches whose gradients add up, so that memory bounds the
// micro-batch and not the batch. The sum is the same for every split but for rounding, about 1e-6 of it.
type Split struct {
	Mode       string `hcl:"mode,optional" choices:"deterministic|fast" doc:"deterministic: equal seeds give equal bytes on the CPU; fast: equal results up to rounding and the order in which slow environments answer. GPUs promise no more than fast does"`
	MicroBatch int    `hcl:"micro_batch,optional" unit:"tokens" doc:"tokens of one forward and backward pass; the gradients of a batch's passes add up to that of the whole batch, equal to 1e-6 for every split. A longer trajectory goes alone"`
	OnOOM      string `hcl:"on_oom,optional" choices:"stop|halve_micro_batch" doc:"when memory runs out in a pass: stop, with an error that names the micro_batch to set, or repeat the update with half the micro_batch, again and again until it fits; the batch stays the same, and metrics record the micro_batch of every update. Only mode = \"fast\" halves, because another split rounds otherwise"`
	Recompute  bool   `hcl:"recompute,optional" key:"-" doc:"a forward pass keeps each layer's input only, and the backward pass computes the rest again: about a third more work, for a fraction of the memory of activations; no bit of the result changes on the CPU"`

	MicroBatchRange hcl.Range `hcl:"micro_batch,attr_range"`
}

// Arithmetic is in what numbers a stage computes with a policy.
type Arithmetic struct {
	Precision string `hcl:"precision,optional" choices:"float32|bf16" doc:"what matrix products and attention are computed in; with bf16 the weights that are trained, their gradients and moments, norms, log-probabilities, entropies and divergences stay in float32, and so does the checkpoint"`
}

// DefaultArithmetic is float32.
func DefaultArithmetic() Arithmetic { return Arithmetic{Precision: "float32"} }

// DefaultSplit takes tokens per pass.
func DefaultSplit(tokens int) Split {
	return Split{Mode: ModeDeterministic, MicroBatch: tokens, OnOOM: "stop"}
}

// Check reports a micro-batch that holds nothing.
func (s *Split) Check() hcl.Diagnostics {
	if s.MicroBatch >= 1 {
		return nil
	}
	return hcl.Diagnostics{{Severity: hcl.DiagError, Summary: "Micro-batch out of range",
		Detail: fmt.Sprintf("A pass takes at least one token; got micro_batch = %d.", s.MicroBatch), Subject: s.MicroBatchRange.Ptr()}}
}
