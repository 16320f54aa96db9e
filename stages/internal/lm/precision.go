package lm

import "fmt"

// Precision is the type of numbers in which a model's matrix products and attention are computed.
type Precision string

const (
	// Float32 computes everything in float32. It is what a model begins with.
	Float32 Precision = "float32"
	// BF16 multiplies in bfloat16. Weights that are trained, their gradients and moments, the
	// residual stream, norms, the statistics of the loss head and their gradients stay in float32,
	// and so do checkpoints.
	BF16 Precision = "bf16"
)

// Check refuses what is neither.
func (p Precision) Check() error {
	if p != Float32 && p != BF16 {
		return fmt.Errorf(`precision %q is not known; write "float32" or "bf16"`, string(p))
	}
	return nil
}
