package blocks

import "github.com/hashicorp/hcl/v2"

// Checkpoints configures how often a training saves its state. It affects no result and no key.
type Checkpoints struct {
	// time between two checkpoints in the scratch folder, from which a killed stage resumes; at least 20 times what
	// the last one took. 0 saves one after every update
	Minutes float64 `hcl:"minutes,optional" unit:"minutes"`

	At map[string]hcl.Range `hcl:",ranges"`
}

// DefaultCheckpoints saves every ten minutes.
func DefaultCheckpoints() *Checkpoints { return &Checkpoints{Minutes: 10} }

// Check reports values out of range.
func (c *Checkpoints) Check() (diags hcl.Diagnostics) {
	bad := Mistakes(&diags)
	bad(c.Minutes < 0, "Negative interval", c.At["minutes"],
		"minutes is the time between two checkpoints, or 0 for every update; got %v.", c.Minutes)
	return diags
}
