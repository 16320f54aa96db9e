package blocks

import "github.com/hashicorp/hcl/v2"

// Limits bound an episode. An episode that reaches a limit ends as data: the trajectory keeps everything so far,
// and Stop names the limit.
type Limits struct {
	Steps   int      `hcl:"steps,optional" unit:"steps per turn" doc:"maximal replies with calls in one turn (the"`
	_       struct{} `doc:"benchmark: 20); a merged task, which is one turn, may have twice as many"`
	Reply   int      `hcl:"reply,optional" unit:"tokens" doc:"maximal length of a reply (not given in the paper)"`
	Context int      `hcl:"context,optional" unit:"tokens" doc:"maximal length of an episode (not given in the"`
	_       struct{} `doc:"paper)"`

	StepsRange   hcl.Range `hcl:"steps,attr_range"`
	ReplyRange   hcl.Range `hcl:"reply,attr_range"`
	ContextRange hcl.Range `hcl:"context,attr_range"`
}

// CheckTopP reports a top_p out of range.
func CheckTopP(topP float64, at hcl.Range) hcl.Diagnostics {
	if topP > 0 && topP <= 1 {
		return nil
	}
	return hcl.Diagnostics{Mistake("Nucleus out of range", at,
		"top_p is the probability mass of the tokens to sample from, above 0 and at most 1; got %v.", topP)}
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
			diags = append(diags, Mistake("Limit out of range", v.at, "An episode needs %s of at least 1; got %d.", v.name,
				v.value))
		}
	}
	return diags
}
