package blocks

import (
	"fmt"

	"github.com/hashicorp/hcl/v2"
)

// Limits bound an episode. Running into one ends the episode as data: the trajectory keeps what happened so far and
// says in Stop which limit it was.
type Limits struct {
	Steps   int `hcl:"steps,optional" unit:"steps per turn" doc:"replies with calls in one turn before the episode is abandoned (the benchmark allows 20); a merged task, which is one turn, may have twice as many"`
	Reply   int `hcl:"reply,optional" unit:"tokens" doc:"longest reply (the paper gives none)"`
	Context int `hcl:"context,optional" unit:"tokens" doc:"longest episode (the paper gives none)"`

	StepsRange   hcl.Range `hcl:"steps,attr_range"`
	ReplyRange   hcl.Range `hcl:"reply,attr_range"`
	ContextRange hcl.Range `hcl:"context,attr_range"`
}

// CheckTopP reports a share of probability that no nucleus can have.
func CheckTopP(topP float64, at hcl.Range) hcl.Diagnostics {
	if topP > 0 && topP <= 1 {
		return nil
	}
	return hcl.Diagnostics{{Severity: hcl.DiagError, Summary: "Nucleus out of range",
		Detail: fmt.Sprintf("top_p is the share of probability that tokens are drawn from, above 0 and at most 1; got %v.", topP), Subject: at.Ptr()}}
}

// DefaultLimits returns the benchmark's steps per turn and the lengths of docs/training.md 3.
func DefaultLimits() *Limits { return &Limits{Steps: 20, Reply: 1024, Context: 16384} }

// Check reports limits below 1.
func (l *Limits) Check() hcl.Diagnostics {
	var diags hcl.Diagnostics
	for _, v := range []struct {
		name  string
		value int
		at    hcl.Range
	}{{"steps", l.Steps, l.StepsRange}, {"reply", l.Reply, l.ReplyRange}, {"context", l.Context, l.ContextRange}} {
		if v.value < 1 {
			diags = append(diags, &hcl.Diagnostic{Severity: hcl.DiagError, Summary: "Limit out of range",
				Detail: fmt.Sprintf("An episode needs %s of at least 1; got %d.", v.name, v.value), Subject: v.at.Ptr()})
		}
	}
	return diags
}
