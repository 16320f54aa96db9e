package resume

import (
	"fmt"
	"time"

	"github.com/hashicorp/hcl/v2"
)

// Checkpoints is the block of a training stage that says how often it saves itself. It changes no
// number and is in no key.
type Checkpoints struct {
	Minutes float64  `hcl:"minutes,optional" unit:"minutes" doc:"time between two checkpoints in the scratch folder,"`
	_       struct{} `doc:"from which a killed stage goes on; 0 makes one after every update"`
	Keep    int      `hcl:"keep,optional" doc:"how many of them are kept while the stage runs"`

	MinutesRange hcl.Range `hcl:"minutes,attr_range"`
	KeepRange    hcl.Range `hcl:"keep,attr_range"`
}

// DefaultCheckpoints are one in ten minutes and the last two.
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
			Detail: fmt.Sprintf("At least one checkpoint is kept, or a killed stage would begin anew; got keep = %d.",
				c.Keep), Subject: c.KeepRange.Ptr()})
	}
	return diags
}

// Settings are those of Open.
func (c *Checkpoints) Settings() Settings {
	return Settings{Every: time.Duration(c.Minutes * float64(time.Minute)), Keep: c.Keep}
}
