package blocks

import (
	"fmt"
	"math"

	"github.com/hashicorp/hcl/v2"
)

// Schedule is how the learning rate changes over the updates of a stage.
type Schedule struct {
	Shape  string  `hcl:"shape,optional" choices:"constant|linear|cosine" doc:"course of the rate after the warm-up: constant, linear towards its final share, or half a cosine towards it (as in transformers; the paper gives none)"`
	Warmup float64 `hcl:"warmup,optional" doc:"linear warm-up from 0: a number of updates, or below 1 a share of all updates; the first update has rate 0 then, as in transformers"`
	Final  float64 `hcl:"final,optional" doc:"share of the rate that is left at the last update (linear, cosine; cosine_with_min_lr of transformers)"`

	WarmupRange hcl.Range `hcl:"warmup,attr_range"`
	FinalRange  hcl.Range `hcl:"final,attr_range"`
}

// Check reports values out of range.
func (s *Schedule) Check() hcl.Diagnostics {
	var diags hcl.Diagnostics
	if s.Warmup < 0 || s.Warmup > 1 && s.Warmup != math.Trunc(s.Warmup) {
		diags = append(diags, &hcl.Diagnostic{Severity: hcl.DiagError, Summary: "Warm-up out of range",
			Detail:  fmt.Sprintf("Warm-up is a whole number of updates, or a share of them below 1; got %v.", s.Warmup),
			Subject: s.WarmupRange.Ptr()})
	}
	if s.Final < 0 || s.Final > 1 {
		diags = append(diags, &hcl.Diagnostic{Severity: hcl.DiagError, Summary: "Final rate out of range",
			Detail:  fmt.Sprintf("Final is the share of the learning rate that is left at the end, between 0 and 1; got %v.", s.Final),
			Subject: s.FinalRange.Ptr()})
	}
	return diags
}

// Rate is the learning rate of update i, counted from 0, of total updates with peak rate lr. It equals the schedules of
// transformers (constant_with_warmup, linear, cosine, cosine_with_min_lr), past the end too.
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

// DependsOnTotal says whether a longer run would have had other rates from the beginning.
func (s *Schedule) DependsOnTotal() bool {
	return s.Shape != "constant" || s.Warmup > 0 && s.Warmup < 1
}

// Extends says why a run with more updates does not begin with what a shorter one did, "" where it does.
func (s *Schedule) Extends() string {
	if !s.DependsOnTotal() {
		return ""
	}
	if s.Shape != "constant" {
		return fmt.Sprintf("the learning rate (schedule.shape = %q) depends on the number of updates", s.Shape)
	}
	return fmt.Sprintf("the warm-up (schedule.warmup = %v) is a share of all updates", s.Warmup)
}

// Optimizer holds the settings of AdamW (Loshchilov and Hutter 2019) and of the clipping before it.
type Optimizer struct {
	Beta1       float64 `hcl:"beta1,optional" doc:"decay of the first moment (AdamW, Loshchilov and Hutter 2019)"`
	Beta2       float64 `hcl:"beta2,optional" doc:"decay of the second moment (AdamW; OpenRLHF: 0.95)"`
	Eps         float64 `hcl:"eps,optional" doc:"added to the root of the second moment (AdamW)"`
	WeightDecay float64 `hcl:"weight_decay,optional" doc:"decoupled decay: weights are multiplied by 1 - lr * weight_decay before each update (AdamW; verl: 0.01)"`
	ClipNorm    float64 `hcl:"clip_norm,optional" doc:"limit of the global gradient norm (verl, TRL, OpenRLHF: 1); 0 switches clipping off"`

	Beta1Range       hcl.Range `hcl:"beta1,attr_range"`
	Beta2Range       hcl.Range `hcl:"beta2,attr_range"`
	EpsRange         hcl.Range `hcl:"eps,attr_range"`
	WeightDecayRange hcl.Range `hcl:"weight_decay,attr_range"`
	ClipNormRange    hcl.Range `hcl:"clip_norm,attr_range"`
}

// Check reports values out of range.
func (o *Optimizer) Check() hcl.Diagnostics {
	var diags hcl.Diagnostics
	for _, b := range []struct {
		name  string
		value float64
		at    hcl.Range
	}{{"beta1", o.Beta1, o.Beta1Range}, {"beta2", o.Beta2, o.Beta2Range}} {
		if b.value < 0 || b.value >= 1 {
			diags = append(diags, &hcl.Diagnostic{Severity: hcl.DiagError, Summary: "Moment decay out of range",
				Detail: fmt.Sprintf("%s must be at least 0 and below 1; got %v.", b.name, b.value), Subject: b.at.Ptr()})
		}
	}
	for _, v := range []struct {
		name  string
		value float64
		at    hcl.Range
	}{{"eps", o.Eps, o.EpsRange}, {"weight_decay", o.WeightDecay, o.WeightDecayRange}, {"clip_norm", o.ClipNorm, o.ClipNormRange}} {
		if v.value < 0 {
			diags = append(diags, &hcl.Diagnostic{Severity: hcl.DiagError, Summary: "Optimizer setting out of range",
				Detail: fmt.Sprintf("%s must be at least 0; got %v.", v.name, v.value), Subject: v.at.Ptr()})
		}
	}
	return diags
}
