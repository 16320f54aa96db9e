package train

import (
	"slices"

	"github.com/hashicorp/hcl/v2"

	"rcgrpo/engine/lang"
	"rcgrpo/stages/internal/checkpoint"
	"rcgrpo/stages/internal/lm"
	"rcgrpo/stages/rl/blocks"
)

// Settings are the settings of every stage that trains. A kind embeds them.
type Settings struct {
	// learning rate over the updates
	Schedule *blocks.Schedule `hcl:"schedule,block"`
	// AdamW and gradient clipping
	Optimizer *blocks.Optimizer `hcl:"optimizer,block"`

	blocks.Split
	blocks.Arithmetic

	// trains a low-rank adapter in place of all weights (Hu et al. 2021)
	LoRA *checkpoint.LoRA `hcl:"lora,block"`
	// how often the stage saves its state
	Checkpoints *blocks.Checkpoints `hcl:"checkpoints,block" key:"-"`
}

// Defaults returns the settings of both frameworks that the paper names, with a schedule and a weight decay.
func Defaults(schedule blocks.Schedule, decay float64) Settings {
	return Settings{
		Schedule: &schedule,
		Optimizer: &blocks.Optimizer{Beta2: 0.999, Eps: 1e-8, WeightDecay: decay, ClipNorm: 1,
			Host: string(lm.HostNone)},
		Split:       blocks.DefaultSplit(lm.DefaultMicroTokens),
		Arithmetic:  blocks.DefaultArithmetic(),
		Checkpoints: blocks.DefaultCheckpoints(),
	}
}

// Check reports values out of range. items is the number of groups or trajectories of an optimizer step, lr the
// stage's learning rate, and whole the default of its kind, which is meant for training all weights.
func (s *Settings) Check(items int, lr, whole float64, at hcl.Range) (diags hcl.Diagnostics) {
	bad := blocks.Mistakes(&diags)
	bad(lr <= 0, "Learning rate out of range", at, "The learning rate must be above 0; got %v.", lr)
	bad(s.Optimizer.Host == string(lm.HostAll) && (s.Precision != string(lm.BF16) || s.LoRA != nil),
		"Passes read these weights", s.Optimizer.At["host"], "host = \"all\" moves the float32 weights beside bf16 to the "+
			"host. In float32 and with lora there are none: write host = \"moments\".")
	return slices.Concat(diags, s.Split.Check(items), s.LoRA.Check(), s.LoRA.CheckRate(lr, whole, at), s.Schedule.Check(),
		s.Optimizer.Check(), s.Checkpoints.Check())
}

// WithoutEffect adds the settings that have no effect in combination with the others.
func (s *Settings) WithoutEffect(e blocks.Effects) {
	s.Schedule.WithoutEffect(e)
}

// trained is a stage with Settings.
type trained interface{ training() *Settings }

func (s *Settings) training() *Settings { return s }

// Ranks is lang.Kind.Ranks: a rank has at least one partial gradient of an update.
func Ranks(s lang.Stage) int { return s.(trained).training().GradientParts }

// Length returns lang.Kind.Length of trainings that resume from one with a smaller value of the named setting.
func Length(setting string) func(lang.Stage) (name, why string) {
	return func(s lang.Stage) (name, why string) { return setting, s.(trained).training().Schedule.WhyNotResumed() }
}

// Use returns the memory use of passes of up to pass rows on a model of shape c.
func (s *Settings) Use(c lm.Config, pass int) lm.Use {
	u := lm.Use{Train: true, Precision: lm.Precision(s.Precision), Recompute: s.Recompute, Pass: min(s.MicroBatch, pass),
		MicroBatch: s.MicroBatch, Parts: s.GradientParts, Host: lm.Host(s.Optimizer.Host)}
	if s.LoRA != nil {
		u.Adapter = s.LoRA.Shape().Parameters(c)
	}
	return u
}
