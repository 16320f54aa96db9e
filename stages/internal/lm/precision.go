package lm

import "fmt"

// Precision is the number type of a model's matrix products and attention.
type Precision string

const (
	// Float32 computes everything in float32, the default.
	Float32 Precision = "float32"
	// BF16 multiplies in bfloat16. Trained weights, their gradients and moments, the residual stream, norms, the
	// statistics of the loss head and their gradients, and checkpoints stay in float32.
	BF16 Precision = "bf16"
)

// Check refuses other values.
func (p Precision) Check() error {
	if p != Float32 && p != BF16 {
		return fmt.Errorf(`unknown precision %q; write "float32" or "bf16"`, string(p))
	}
	return nil
}
