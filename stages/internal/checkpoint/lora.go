package checkpoint

import (
	"fmt"
	"slices"
	"strings"

	"github.com/hashicorp/hcl/v2"

	"rcgrpo/stages/internal/lm"
)

// AdapterFolder is the folder of a checkpoint that holds the adapter which its training made, in the form that peft loads.
const AdapterFolder = "adapter"

// LoRA is the block of a training stage that has it train a low-rank adapter (Hu et al. 2021) and leave the weights as they
// are. Every pass reads weights into which the adapter is merged, but a training pass with dropout, which reads base and
// adapter side by side.
type LoRA struct {
	Rank    int      `hcl:"rank" doc:"rank r of the adapter's matrices (Hu et al. 2021, eq. 3)"`
	Alpha   float64  `hcl:"alpha" doc:"the adapter's product is multiplied by alpha / rank (Hu et al. 2021, section 4.1)"`
	Targets []string `hcl:"targets,optional" doc:"projections of every layer that get one, of q_proj, k_proj, v_proj, o_proj, gate_proj, up_proj and down_proj; all unless set"`

	Dropout float64 `hcl:"dropout,optional" doc:"probability that an input of the adapter's product is left out of a training pass, and the rest made larger by 1 / (1 - dropout) (lora_dropout of peft; the paper gives none); seed, update and the tokens up to it say which, so members of a group have it in common over their prompt. Sampling, evaluation and the reference leave nothing out"`

	RankRange    hcl.Range `hcl:"rank,attr_range"`
	AlphaRange   hcl.Range `hcl:"alpha,attr_range"`
	TargetsRange hcl.Range `hcl:"targets,attr_range"`
	DropoutRange hcl.Range `hcl:"dropout,attr_range"`
}

// Check reports values out of range. Without a block there is nothing to report.
func (l *LoRA) Check() hcl.Diagnostics {
	var diags hcl.Diagnostics
	if l == nil {
		return nil
	}
	bad := func(summary, detail string, at hcl.Range) {
		diags = append(diags, &hcl.Diagnostic{Severity: hcl.DiagError, Summary: summary, Detail: detail, Subject: at.Ptr()})
	}
	if l.Rank < 1 {
		bad("Rank out of range", fmt.Sprintf("An adapter has a rank of at least 1; got %d.", l.Rank), l.RankRange)
	}
	if l.Alpha <= 0 {
		bad("Scale out of range", fmt.Sprintf("alpha must be above 0, or the adapter changes nothing; got %v.", l.Alpha), l.AlphaRange)
	}
	if !(l.Dropout >= 0 && l.Dropout < 1) {
		bad("Dropout out of range", fmt.Sprintf("dropout is the share of inputs that a training pass leaves out of the adapter, from 0 to below 1; got %v.", l.Dropout), l.DropoutRange)
	}
	if l.Targets != nil && len(l.Targets) == 0 {
		bad("No target", "An adapter changes at least one projection; leave targets out for all of them.", l.TargetsRange)
	}
	for i, name := range l.Targets {
		switch {
		case !slices.Contains(lm.Projections, name):
			bad("Unknown projection", fmt.Sprintf("The projections of a layer are %s; got %q.", strings.Join(lm.Projections, ", "), name), l.TargetsRange)
		case slices.Contains(l.Targets[:i], name):
			bad("Projection given twice", fmt.Sprintf("A projection has one adapter; %q stands in targets twice.", name), l.TargetsRange)
		}
	}
	return diags
}

// leastRate is how many times the rate for all weights the learning rate of an adapter is at least, as a rule.
const leastRate = 5

// CheckRate warns of a learning rate that is usual for all weights and too low for an adapter. whole is the kind's default,
// which is meant for all weights. Without a block there is nothing to report.
func (l *LoRA) CheckRate(lr, whole float64, at hcl.Range) hcl.Diagnostics {
	if l == nil || lr >= leastRate*whole {
		return nil
	}
	return hcl.Diagnostics{{Severity: hcl.DiagWarning, Summary: "Learning rate low for an adapter",
		Detail: fmt.Sprintf("lr = %g is a rate for all weights. A low-rank adapter usually learns at %.2g to %.2g, 10 to 50 times that for all weights (Hu et al. 2021, appendix D: mostly 1e-4 to 5e-4 for fine-tuning): set lr.",
			lr, 10*whole, 50*whole), Subject: at.Ptr()}}
}

// Shape is the adapter that the block asks for, without rows of reward tokens.
func (l *LoRA) Shape() lm.LoRA {
	c := lm.LoRA{Rank: l.Rank, Alpha: l.Alpha, Targets: l.Targets, Dropout: l.Dropout}
	if c.Targets == nil {
		c.Targets = lm.Projections
	}
	return c
}
