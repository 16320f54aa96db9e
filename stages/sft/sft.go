// Package sft contains the stage kinds `sft` and `rctp-ft`: fine-tuning on trajectories, of which the policy learns
// the tokens of the mask.
//
// sft learns trajectories without reward tokens. rctp-ft (paper, section 3.1) marks every trajectory with the
// reward token of its quality, so that one policy learns good and bad behavior on demand.
//
// The loss of an update is the mean negative logprob over the tokens of the mask of its batch. Every epoch shuffles
// the data; within windows of eight batches, sequences of similar length are batched together.
//
// Start with settings.run (run.go). Neighbours: internal/chat (Encode makes ids and mask of a trajectory), internal/lm
// (model and optimizer), internal/train (what all trainings share).
package sft

import (
	"github.com/hashicorp/hcl/v2"

	"rcgrpo/engine/artifact"
	"rcgrpo/engine/lang"
	"rcgrpo/stages/internal/lm"
	"rcgrpo/stages/internal/train"
	"rcgrpo/stages/rl"
	"rcgrpo/stages/rl/blocks"
)

// Kinds returns sft and rctp-ft. Defaults are the paper's if it gives them.
func Kinds() []*lang.Kind {
	defaults := func(epochs int) settings {
		return settings{Epochs: epochs, Batch: 16, LR: defaultLR,
			Settings: train.Defaults(blocks.Schedule{Shape: "cosine", Warmup: 0.03}, 0)}
	}
	outputs := func(lang.Stage) map[string]string {
		return map[string]string{"checkpoint": "checkpoint", "metrics": "metrics"}
	}
	draws := func(lang.Stage) bool { return true }
	length := train.Length("epochs")
	return []*lang.Kind{
		{
			Name: "sft", Version: 6, Outputs: outputs, Stochastic: draws, Length: length, Ranks: train.Ranks,
			Summary: "Supervised fine-tuning on the replies of expert trajectories, without reward token.",
			New:     func() lang.Stage { return &sft{settings: defaults(2)} },
		},
		{
			Name: "rctp-ft", Version: 6, Outputs: outputs, Stochastic: draws, Length: length, Ranks: train.Ranks,
			Summary: "Reward-conditioned trajectory fine-tuning: expert and failed trajectories, each marked with its " +
				"reward token.",
			New: func() lang.Stage {
				return &rctp{settings: defaults(5), Tokens: &tokens{Position: "first_user", Init: "mean"}}
			},
		},
	}
}

// defaultLR is the paper's learning rate for training all weights.
const defaultLR = 1e-5

type settings struct {
	// checkpoint to start from
	Policy artifact.Ref `hcl:"policy" port:"checkpoint"`
	// the data sets to learn from; their trajectories are shuffled together in every epoch
	Data []artifact.Ref `hcl:"data" port:"dataset"`
	// passes over the data (paper: 2 for SFT, 5 for RCTP-FT)
	Epochs int `hcl:"epochs,optional" unit:"epochs"`
	// trajectories per update (paper: 16)
	Batch int `hcl:"batch,optional" unit:"trajectories"`
	// maximal length; longer trajectories are dropped and logged. With 0, one beyond the model's context is an error
	Context int `hcl:"context,optional" unit:"tokens"`
	// peak learning rate (paper: 1e-5); an adapter (lora) needs a higher one, usually 1e-4 to 5e-4
	LR float64 `hcl:"lr,optional"`

	train.Settings

	At map[string]hcl.Range `hcl:",ranges"`
}

type sft struct {
	settings
}

type rctp struct {
	settings
	// the reward token of each trajectory; its position and rows are stored in the checkpoint
	Tokens *tokens `hcl:"tokens,block"`
}

type tokens struct {
	// position of the token: end of the first user message (paper, appendix), or after the header of every reply
	// (paper, section 3.1)
	Position string `hcl:"position,optional" choices:"first_user|before_each_action"`
	// rows of untrained reward tokens: mean of all rows, or copy:TOKEN, the row of that token
	Init string `hcl:"init,optional"`

	At map[string]hcl.Range `hcl:",ranges"`
}

// MemoryUse returns the memory use of passes over a batch, or of the longest trajectory, which has its own pass.
func (s *settings) MemoryUse() (artifact.Ref, func(lm.Config) lm.Use) {
	return s.Policy, func(c lm.Config) lm.Use {
		u := s.Use(c, s.Batch*c.MaxPosition)
		if longest := min(s.Context, c.MaxPosition); longest > u.Pass {
			u.Pass, u.Alone = longest, true
		}
		return u
	}
}

// WithoutEffect returns the settings that have no effect in combination with the others.
func (s *settings) WithoutEffect() map[string]string {
	e := blocks.Effects{}
	s.Settings.WithoutEffect(e)
	return e
}

// Size implements lang.Sizer.
func (s *settings) Size(inputs map[string]lang.Size) (map[string]lang.Size, float64) {
	return nil, rl.TrainingPasses * float64(s.Epochs) * inputs["data"].Tokens
}

func (s *settings) Check() (diags hcl.Diagnostics) {
	bad := blocks.Mistakes(&diags)
	bad(s.Epochs < 1, "Too few epochs", s.At["epochs"],
		"Fine-tuning passes over its data at least once; got %d.", s.Epochs)
	bad(s.Batch < 1, "Batch too small", s.At["batch"], "A batch contains at least one trajectory; got %d.", s.Batch)
	bad(s.Context < 0, "Negative length", s.At["context"],
		"context is the maximal length in tokens, or 0 for all; got %d.", s.Context)
	diags = append(diags, blocks.CheckCounts(s.At, map[string]int{"epochs": s.Epochs, "batch": s.Batch})...)
	return append(diags, s.Settings.Check(s.Batch, s.LR, defaultLR, s.At["lr"])...)
}

func (s *rctp) Check() hcl.Diagnostics {
	return append(s.settings.Check(), rl.CheckInit(s.Tokens.Init, s.Tokens.At["init"])...)
}
