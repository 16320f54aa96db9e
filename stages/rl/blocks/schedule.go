package blocks

import (
	"fmt"
	"math"

	"github.com/hashicorp/hcl/v2"
)

// Schedule is the course of the learning rate over the updates of a stage.
type Schedule struct {
	// rate after the warm-up: constant, or a linear or half-cosine decay to its final share (as in transformers; not
	// given in the paper)
	Shape string `hcl:"shape,optional" choices:"constant|linear|cosine"`
	// linear warm-up from 0: a number of updates, or below 1 a share of all updates; then the first update has rate
	// 0, as in transformers
	Warmup float64 `hcl:"warmup,optional"`
	// share of the rate at the last update (linear, cosine; cosine_with_min_lr of transformers)
	Final float64 `hcl:"final,optional"`

	At map[string]hcl.Range `hcl:",ranges"`
}

// Check reports values out of range.
func (s *Schedule) Check() (diags hcl.Diagnostics) {
	bad := Mistakes(&diags)
	bad(s.Warmup < 0 || s.Warmup > 1 && s.Warmup != math.Trunc(s.Warmup), "Warm-up out of range", s.At["warmup"],
		"Warm-up is a whole number of updates, or a share of them below 1; got %v.", s.Warmup)
	bad(s.Final < 0 || s.Final > 1, "Final rate out of range", s.At["final"],
		"Final is the share of the learning rate at the last update, between 0 and 1; got %v.", s.Final)
	return diags
}

// Rate returns the learning rate of update i, counted from 0, of total updates with peak rate lr.
// It equals the schedules of transformers (constant_with_warmup, linear, cosine,
// cosine_with_min_lr), also past the end.
func (s *Schedule) Rate(i, total int, lr float64) float64 {
	warmup := int(s.Warmup)
	if s.Warmup < 1 {
		warmup = int(math.Ceil(s.Warmup * float64(total)))
	}
	if i < warmup {
		return lr * float64(i) / float64(max(1, warmup))
	}
	span := float64(max(1, total-warmup))
	switch s.Shape {
	case "linear":
		return lr * (s.Final + (1-s.Final)*max(0, float64(total-i)/span))
	case "cosine":
		progress := float64(i-warmup) / span
		return lr * (s.Final + (1-s.Final)*max(0, 0.5*(1+math.Cos(math.Pi*progress))))
	}
	return lr
}

// WhyNotResumed returns the reason why a longer run cannot resume from a shorter one, or "" if it can.
func (s *Schedule) WhyNotResumed() string {
	switch {
	case s.Shape != "constant":
		return fmt.Sprintf("the learning rate (schedule.shape = %q) depends on the number of updates", s.Shape)
	case s.Warmup > 0 && s.Warmup < 1:
		return fmt.Sprintf("the warm-up (schedule.warmup = %v) is a share of all updates", s.Warmup)
	}
	return ""
}

// Optimizer configures AdamW (Loshchilov and Hutter 2019) and gradient clipping.
type Optimizer struct {
	// decay of the second moment (AdamW; OpenRLHF: 0.95); that of the first is 0.9
	Beta2 float64 `hcl:"beta2,optional"`
	// added to the root of the second moment (AdamW)
	Eps float64 `hcl:"eps,optional"`
	// decoupled decay: each update first multiplies weights by 1 - lr * weight_decay (AdamW; verl: 0.01)
	WeightDecay float64 `hcl:"weight_decay,optional"`
	// limit of the global gradient norm (verl, TRL, OpenRLHF: 1); 0 switches clipping off
	ClipNorm float64 `hcl:"clip_norm,optional"`
	// what a GPU's optimizer stores in the host's memory: nothing, the two moments, or also the float32 weights
	// beside bf16. A step copies it to the device piece by piece; results are identical
	Host string `hcl:"host,optional" key:"-" choices:"none|moments|all"`

	At map[string]hcl.Range `hcl:",ranges"`
}

// Check reports values out of range.
func (o *Optimizer) Check() (diags hcl.Diagnostics) {
	bad := Mistakes(&diags)
	bad(o.Beta2 < 0 || o.Beta2 >= 1, "Moment decay out of range", o.At["beta2"],
		"beta2 must be at least 0 and below 1; got %v.", o.Beta2)
	const summary, least = "Optimizer setting out of range", "%s must be at least 0; got %v."
	bad(o.Eps < 0, summary, o.At["eps"], least, "eps", o.Eps)
	bad(o.WeightDecay < 0, summary, o.At["weight_decay"], least, "weight_decay", o.WeightDecay)
	bad(o.ClipNorm < 0, summary, o.At["clip_norm"], least, "clip_norm", o.ClipNorm)
	return diags
}
