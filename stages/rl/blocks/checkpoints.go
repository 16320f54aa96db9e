package blocks

import "github.com/hashicorp/hcl/v2"

// Checkpoints configures how often a training saves its state. It affects no result and no key.
type Checkpoints struct {
	// time between two checkpoints in the scratch folder, from which a killed stage resumes; at least 20 times what
	// the last one took. 0 saves one after every update
	Minutes float64 `hcl:"minutes,optional" unit:"minutes"`
	// number of checkpoints kept while the stage runs
	Keep int `hcl:"keep,optional"`

	At map[string]hcl.Range `hcl:",ranges"`
}

// DefaultCheckpoints saves every ten minutes and keeps two.
func DefaultCheckpoints() *Checkpoints { return &Checkpoints{Minutes: 10, Keep: 2} }

// Check reports values out of range.
func (c *Checkpoints) Check() (diags hcl.Diagnostics) {
	bad := Mistakes(&diags)
	bad(c.Minutes < 0, "Negative interval", c.At["minutes"],
		"minutes is the time between two checkpoints, or 0 for every update; got %v.", c.Minutes)
	bad(c.Keep < 1, "No checkpoint to keep", c.At["keep"],
		"At least one checkpoint is kept, or a killed stage would start again; got keep = %d.", c.Keep)
	return diags
}
