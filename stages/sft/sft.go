// Package sft holds the stage kinds `sft` and `rctp-ft`: fine-tuning on the tokens that the policy itself is to produce.
//
// sft learns trajectories as they are, without reward token. rctp-ft (paper, section 3.1) learns the same way, but every
// trajectory carries the token of its quality, so that one policy learns good and bad behaviour, each on demand.
//
// The loss of an update is the mean negative log-probability over the learned tokens of its batch. Data sets are shuffled
// anew in every epoch; within windows of eight batches sequences of similar length come together.
package sft

import (
	"fmt"

	"github.com/hashicorp/hcl/v2"

	"rcgrpo/engine"
	"rcgrpo/engine/artifact"
	"rcgrpo/stages/internal/lm"
	"rcgrpo/stages/internal/train"
	"rcgrpo/stages/rl"
	"rcgrpo/stages/rl/blocks"
)

// Kinds returns sft and rctp-ft. Defaults are the paper's (tables of settings) where it gives them.
func Kinds() []*engine.Kind {
	defaults := func(epochs int) settings {
		return settings{Epochs: epochs, Batch: 16, LR: defaultLR,
			Settings: train.Defaults(blocks.Schedule{Shape: "cosine", Warmup: 0.03}, 0)}
	}
	outputs := func(engine.Stage) map[string]string {
		return map[string]string{"checkpoint": "checkpoint", "metrics": "metrics"}
	}
	draws := func(engine.Stage) bool { return true }
	extends := func(s engine.Stage) (setting, why string) {
		return s.(interface{ extends() (string, string) }).extends()
	}
	return []*engine.Kind{
		{
			Name: "sft", Version: 3, Outputs: outputs, Draws: draws, Extends: extends,
			Summary: "Supervised fine-tuning on the policy's own tokens of expert trajectories, without reward token.",
			New:     func() engine.Stage { return &sft{settings: defaults(2)} },
		},
		{
			Name: "rctp-ft", Version: 3, Outputs: outputs, Draws: draws, Extends: extends,
			Summary: "Reward-conditioned trajectory fine-tuning: expert and failed trajectories, each marked with its reward token.",
			New: func() engine.Stage {
				return &rctp{settings: defaults(5), Tokens: &tokens{Position: "first_user", Init: "mean"}}
			},
		},
	}
}

// defaultLR is the paper's learning rate, which is for all weights.
const defaultLR = 1e-5

// settings are the settings that both kinds have.
type settings struct {
	Policy  artifact.Ref   `hcl:"policy" port:"checkpoint" doc:"checkpoint to start from"`
	Data    []artifact.Ref `hcl:"data" port:"dataset" doc:"data sets, shuffled together"`
	Epochs  int            `hcl:"epochs,optional" unit:"epochs" doc:"passes over the data (paper: 2 for SFT, 5 for RCTP-FT)"`
	Batch   int            `hcl:"batch,optional" unit:"trajectories" doc:"trajectories per update (paper: 16)"`
	Context int            `hcl:"context,optional" unit:"tokens" doc:"longer trajectories are left out, and the log counts them; 0 takes all, and one that the model cannot take is an error"`
	LR      float64        `hcl:"lr,optional" doc:"peak learning rate (paper: 1e-5); an adapter (lora) needs a higher one, usually 1e-4 to 5e-4"`

	train.Settings

	EpochsRange hcl.Range `hcl:"epochs,attr_range"`
	BatchRange  hcl.Range `hcl:"batch,attr_range"`
	LRRange     hcl.Range `hcl:"lr,attr_range"`

	ContextRange hcl.Range `hcl:"context,attr_range"`
}

type sft struct {
	settings
}

type rctp struct {
	settings
	Tokens *tokens `hcl:"tokens,block" doc:"reward tokens; kept with the checkpoint"`
}

type tokens struct {
	Position string `hcl:"position,optional" choices:"first_user|before_each_action" doc:"where the token stands: at the end of the first user message (paper, appendix), or right after the header of every reply (paper, section 3.1)"`
	Init     string `hcl:"init,optional" doc:"rows of tokens that were never trained: mean (of all rows), or copy:TOKEN (that token's row)"`

	InitRange hcl.Range `hcl:"init,attr_range"`
}

// MemoryUse is a training with passes of micro_batch tokens, as many as a batch may have, or of the longest trajectory
// that context allows, which goes through the model alone.
func (s *settings) MemoryUse() (artifact.Ref, func(lm.Config) lm.Use) {
	return s.Policy, func(c lm.Config) lm.Use {
		u := s.Use(c, s.Batch*c.MaxPosition)
		if longest := min(s.Context, c.MaxPosition); longest > u.Pass {
			u.Pass, u.Alone = longest, true
		}
		return u
	}
}

// extends says that more epochs go on from fewer where the learning rate allows it.
func (s *settings) extends() (setting, why string) { return "epochs", s.Schedule.Extends() }

// WithoutEffect names the settings that change nothing while the others are as they are.
func (s *settings) WithoutEffect() map[string]string {
	e := blocks.Effects{}
	s.Settings.WithoutEffect(e)
	return e
}

func (s *settings) Check() hcl.Diagnostics {
	var diags hcl.Diagnostics
	if s.Epochs < 1 {
		diags = append(diags, &hcl.Diagnostic{Severity: hcl.DiagError, Summary: "Too few epochs",
			Detail: fmt.Sprintf("Fine-tuning passes over its data at least once; got %d.", s.Epochs), Subject: s.EpochsRange.Ptr()})
	}
	if s.Batch < 1 {
		diags = append(diags, &hcl.Diagnostic{Severity: hcl.DiagError, Summary: "Batch too small",
			Detail: fmt.Sprintf("A batch holds at least one trajectory; got %d.", s.Batch), Subject: s.BatchRange.Ptr()})
	}
	if s.Context < 0 {
		diags = append(diags, &hcl.Diagnostic{Severity: hcl.DiagError, Summary: "Negative length",
			Detail: fmt.Sprintf("context is the longest trajectory in tokens, or 0 for all; got %d.", s.Context), Subject: s.ContextRange.Ptr()})
	}
	return append(diags, s.Settings.Check(s.LR, defaultLR, s.LRRange)...)
}

func (s *rctp) Check() hcl.Diagnostics {
	return append(s.settings.Check(), rl.CheckInit(s.Tokens.Init, s.Tokens.InitRange)...)
}
