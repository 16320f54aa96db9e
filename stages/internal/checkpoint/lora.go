package checkpoint

import (
	"fmt"
	"slices"
	"strings"

	"github.com/hashicorp/hcl/v2"

	"rcgrpo/stages/internal/lm"
	"rcgrpo/stages/rl/blocks"
)

// AdapterFolder is the folder of a checkpoint with the trained adapter, in the format of peft.
const AdapterFolder = "adapter"

// LoRA configures the training of a low-rank adapter (Hu et al. 2021) with frozen base weights. Every pass reads
// weights with the adapter merged into them.
type LoRA struct {
	// rank r of the adapter's matrices (Hu et al. 2021, eq. 3)
	Rank int `hcl:"rank"`
	// the adapter's product is multiplied by alpha / rank (Hu et al. 2021, section 4.1)
	Alpha float64 `hcl:"alpha"`
	// projections of every layer with an adapter, among q_proj, k_proj, v_proj, o_proj, gate_proj, up_proj and
	// down_proj; default: all
	Targets []string `hcl:"targets,optional"`

	At map[string]hcl.Range `hcl:",ranges"`
}

// Check reports values out of range. l may be nil.
func (l *LoRA) Check() (diags hcl.Diagnostics) {
	if l == nil {
		return nil
	}
	bad := blocks.Mistakes(&diags)
	bad(l.Rank < 1, "Rank out of range", l.At["rank"], "An adapter has a rank of at least 1; got %d.", l.Rank)
	bad(l.Alpha <= 0, "Scale out of range", l.At["alpha"],
		"alpha must be above 0, or the adapter changes nothing; got %v.", l.Alpha)
	bad(l.Targets != nil && len(l.Targets) == 0, "No target", l.At["targets"],
		"An adapter changes at least one projection; omit targets for all of them.")
	for i, name := range l.Targets {
		known := slices.Contains(lm.Projections, name)
		bad(!known, "Unknown projection", l.At["targets"], "The projections of a layer are %s; got %q.",
			strings.Join(lm.Projections, ", "), name)
		bad(known && slices.Contains(l.Targets[:i], name), "Duplicate projection", l.At["targets"],
			"A projection has one adapter; targets contains %q twice.", name)
	}
	return diags
}

// leastRate is the usual minimal ratio of an adapter's learning rate to that of all weights.
const leastRate = 5

// CheckRate warns of a learning rate that is too low for an adapter. whole is the kind's default, which is meant
// for all weights. l may be nil.
func (l *LoRA) CheckRate(lr, whole float64, at hcl.Range) hcl.Diagnostics {
	if l == nil || lr >= leastRate*whole {
		return nil
	}
	return hcl.Diagnostics{{Severity: hcl.DiagWarning, Summary: "Learning rate low for an adapter",
		Detail: fmt.Sprintf("lr = %g is a rate for all weights. A low-rank adapter usually learns at %.2g to %.2g, 10 "+
			"to 50 times that for all weights (Hu et al. 2021, appendix D: mostly 1e-4 to 5e-4 for fine-tuning): set lr.",
			lr, 10*whole, 50*whole), Subject: at.Ptr()}}
}

// Shape returns the adapter of the block, without rows of reward tokens.
func (l *LoRA) Shape() lm.LoRA {
	c := lm.LoRA{Rank: l.Rank, Alpha: l.Alpha, Targets: l.Targets}
	if c.Targets == nil {
		c.Targets = lm.Projections
	}
	return c
}
