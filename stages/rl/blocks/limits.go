package blocks

import (
	"fmt"
	"maps"
	"math"
	"slices"

	"github.com/hashicorp/hcl/v2"
)

// Limits bound an episode. An episode that reaches a limit ends as data: the trajectory keeps everything so far,
// and Stop names the limit.
type Limits struct {
	// maximal replies with calls in one turn (the benchmark: 20); a merged task, which is one turn, may have twice as
	// many
	Steps int `hcl:"steps,optional" unit:"steps per turn"`
	// maximal length of a reply (not given in the paper)
	Reply int `hcl:"reply,optional" unit:"tokens"`
	// maximal length of an episode (not given in the paper)
	Context int `hcl:"context,optional" unit:"tokens"`

	At map[string]hcl.Range `hcl:",ranges"`
}

// CheckTopP reports a top_p out of range.
func CheckTopP(topP float64, at hcl.Range) (diags hcl.Diagnostics) {
	Mistakes(&diags)(topP <= 0 || topP > 1, "Nucleus out of range", at,
		"top_p is the probability mass of the tokens to sample from, above 0 and at most 1; got %v.", topP)
	return diags
}

// MinTemperature is the lowest sampling temperature. Below it, the quotients of logits and temperature lose the
// differences between tokens, or overflow.
const MinTemperature = 1e-3

// CheckTemperature reports a temperature below MinTemperature, except 0 where greedy decoding is allowed.
func CheckTemperature(t float64, greedy bool, at hcl.Range) (diags hcl.Diagnostics) {
	allowed := fmt.Sprintf("Rollouts are sampled, so the temperature is at least %v", MinTemperature)
	if greedy {
		allowed = fmt.Sprintf("The temperature is 0 for greedy decoding, or at least %v", MinTemperature)
	}
	Mistakes(&diags)(!(t >= MinTemperature && !math.IsInf(t, 0)) && !(greedy && t == 0), "Temperature out of range", at,
		"%s; got %v.", allowed, t)
	return diags
}

// DefaultLimits returns the benchmark's steps per turn and the lengths of docs/training.md 3.
func DefaultLimits() *Limits { return &Limits{Steps: 20, Reply: 1024, Context: 16384} }

// MostCount limits a number of tasks, samples, groups, updates or episodes, and of the episodes of a step: far above
// what a machine holds, and their products with lengths fit into an int.
const MostCount = 10_000_000

// CheckCounts reports numbers above MostCount by the names of their settings.
func CheckCounts(at map[string]hcl.Range, counts map[string]int) (diags hcl.Diagnostics) {
	bad := Mistakes(&diags)
	for _, name := range slices.Sorted(maps.Keys(counts)) {
		n := counts[name]
		bad(n > MostCount, "Number too large", at[name], "%s is at most %d; got %d.", name, MostCount, n)
	}
	return diags
}

// Check reports limits below 1 or above MostCount.
func (l *Limits) Check() (diags hcl.Diagnostics) {
	bad := Mistakes(&diags)
	const text = "An episode needs %s of at least 1; got %d."
	bad(l.Steps < 1, "Limit out of range", l.At["steps"], text, "steps", l.Steps)
	bad(l.Reply < 1, "Limit out of range", l.At["reply"], text, "reply", l.Reply)
	bad(l.Context < 1, "Limit out of range", l.At["context"], text, "context", l.Context)
	return append(diags, CheckCounts(l.At, map[string]int{"steps": l.Steps, "reply": l.Reply, "context": l.Context})...)
}
