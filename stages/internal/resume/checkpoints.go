package resume

import (
	"fmt"

	"github.com/hashicorp/hcl/v2"
)

// Checkpoints configures how often a training saves its state. It affects no result and no key.
type Checkpoints struct {
	Minutes float64  `hcl:"minutes,optional" unit:"minutes" doc:"time between two checkpoints in the scratch folder,"`
	_       struct{} `doc:"from which a killed stage resumes; 0 saves one after every update"`
	Keep    int      `hcl:"keep,optional" doc:"number of checkpoints kept while the stage runs"`

	MinutesRange hcl.Range `hcl:"minutes,attr_range"`
	KeepRange    hcl.Range `hcl:"keep,attr_range"`
}

// DefaultCheckpoints saves every ten minutes and keeps two.
func DefaultCheckpoints() *Checkpoints { return &Checkpoints{Minutes: 10, Keep: 2} }

// Check reports values out of range.
func (c *Checkpoints) Check() hcl.Diagnostics {
	var diags hcl.Diagnostics
	if c.Minutes < 0 {
		diags = append(diags, &hcl.Diagnostic{Severity: hcl.DiagError, Summary: "Negative interval",
			Detail: fmt.Sprintf("minutes is the time between two checkpoints, or 0 for every update; got %v.",
				c.Minutes), Subject: c.MinutesRange.Ptr()})
	}
	if c.Keep < 1 {
		diags = append(diags, &hcl.Diagnostic{Severity: hcl.DiagError, Summary: "No checkpoint to keep",
			Detail: fmt.Sprintf("At least one checkpoint is kept, or a killed stage would start again; got keep = %d.",
				c.Keep), Subject: c.KeepRange.Ptr()})
	}
	return diags
}
