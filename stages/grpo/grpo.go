package grpo

import (
	"slices"

	"github.com/hashicorp/hcl/v2"

	"rcgrpo/engine/artifact"
	"rcgrpo/engine/lang"
	"rcgrpo/stages/internal/agent"
	"rcgrpo/stages/internal/lm"
	"rcgrpo/stages/internal/train"
	"rcgrpo/stages/rl"
	"rcgrpo/stages/rl/blocks"
	"rcgrpo/stages/rl/objective"
)

// Kinds returns grpo and rc-grpo. Defaults are the paper's where it gives them.
func Kinds() []*lang.Kind {
	outputs := func(s lang.Stage) map[string]string {
		ports := map[string]string{"checkpoint": "checkpoint", "metrics": "metrics", "trajectories": "trajectories"}
		if s.(evaluator).evaluates() {
			ports["best"] = "checkpoint"
		}
		return ports
	}
	draws := func(lang.Stage) bool { return true }
	length := train.Length("updates")
	return []*lang.Kind{
		{
			Name: "grpo", Version: 6, Outputs: outputs, Stochastic: draws, Length: length, Ranks: train.Ranks,
			Summary: "Group relative policy optimisation over multi-turn episodes, under the condition of its checkpoint.",
			New: func() lang.Stage {
				return &grpo{settings: defaults(64), Tokens: &fixed{}}
			},
		},
		{
			Name: "rc-grpo", Version: 6, Outputs: outputs, Stochastic: draws, Length: length, Ranks: train.Ranks,
			Summary: "Reward-conditioned GRPO: every rollout of a group draws its reward token.",
			New: func() lang.Stage {
				return &conditioned{settings: defaults(256), Tokens: &drawn{High: 0.5, Allocation: "iid",
					Position: "checkpoint", Init: "mean", Learn: "all", Baseline: objective.BaselineGroup}}
			},
		},
	}
}

func defaults(batch int) settings {
	return settings{
		Updates: 350, Group: 5, Batch: batch, LR: defaultLR, Temperature: 1, TopP: 1, Keep: 1,
		Objective: objective.PaperObjective(),
		Limits:    blocks.DefaultLimits(),
		Settings:  train.Defaults(blocks.Schedule{Shape: "constant"}, 0.01),
	}
}

// defaultLR is the paper's learning rate for training all weights.
const defaultLR = 1e-6

type settings struct {
	// checkpoint to start from; frozen, it is also the reference policy
	Policy artifact.Ref `hcl:"policy" port:"checkpoint"`
	// sets of training tasks, of which every pass takes all in a new order, which depends only on the seed and this
	// setting
	Tasks []artifact.Ref `hcl:"tasks" port:"tasks"`
	// number of updates; each samples a batch and learns from it (the paper logs 350)
	Updates int `hcl:"updates,optional" unit:"updates"`
	// episodes per task, G (paper, eq. 6: 5)
	Group int `hcl:"group,optional" unit:"episodes"`
	// tasks per update (paper: 64 for GRPO, 256 for RC-GRPO)
	Batch int `hcl:"batch,optional" unit:"tasks"`
	// learning rate (paper: 1e-6); an adapter (lora) needs a higher one, usually 1e-5 to 5e-5
	LR float64 `hcl:"lr,optional"`
	// sampling temperature of rollouts (verl, TRL, OpenRLHF: 1); also that of the logprobs in the objective
	Temperature float64 `hcl:"temperature,optional"`
	// sample from the fewest tokens whose probabilities reach this (nucleus); 1 is the whole vocabulary. The logprobs
	// in the objective cover the whole vocabulary (verl, TRL), so below 1 they differ from the sampler's, and
	// sampler_gap is not logged
	TopP float64 `hcl:"top_p,optional"`
	// interval of updates whose trajectories are stored in the port trajectories; 0 stores none
	Keep int `hcl:"keep,optional" unit:"updates"`

	objective.Objective

	// sampling run before the first update that forecasts its share of groups without variance (Proposition 1)
	Forecast *forecast `hcl:"forecast,block"`
	// evaluation during training; the port best holds the policy with the highest reward, the first of equals, beside
	// the last policy in checkpoint
	Evaluate *evaluate `hcl:"evaluate,block"`

	// the bounds of an episode; one that reaches a bound ends there with reward 0
	Limits *blocks.Limits `hcl:"limits,block"`

	// program that plays the episodes (docs/own_tasks.md)
	Agent *agent.Settings `hcl:"agent,block"`

	train.Settings

	At map[string]hcl.Range `hcl:",ranges"`
}

// forecast configures the sampling run of Proposition 1's forecast.
type forecast struct {
	// training tasks to sample, drawn by the seed
	Tasks int `hcl:"tasks" unit:"tasks"`
	// episodes per task and reward token; more than a group has members
	Samples int `hcl:"samples" unit:"episodes per task"`

	At map[string]hcl.Range `hcl:",ranges"`
}

type evaluate struct {
	// held-out tasks
	Tasks []artifact.Ref `hcl:"tasks" port:"tasks"`
	// after how many updates the policy is evaluated each time
	Every int `hcl:"every" unit:"updates"`
	// sampling temperature; 0 is greedy
	Temperature float64 `hcl:"temperature,optional"`

	At map[string]hcl.Range `hcl:",ranges"`
}

type grpo struct {
	settings
	// reward token of the rollouts
	Tokens *fixed `hcl:"tokens,block"`
}

// fixed is the condition of plain GRPO.
type fixed struct {
	// 1 conditions every rollout on high, 0 on no token; default: the condition of the checkpoint (none after sft,
	// high after rctp-ft)
	High *float64 `hcl:"high,optional"`

	At map[string]hcl.Range `hcl:",ranges"`
}

type conditioned struct {
	settings
	// draw of the reward tokens
	Tokens *drawn `hcl:"tokens,block"`
}

type drawn struct {
	// p, the probability of the high token (paper, eq. 3: 0.5)
	High float64 `hcl:"high,optional"`
	// iid draws each rollout's token independently (paper, eq. 3); stratified gives every group round(pG) high tokens
	Allocation string `hcl:"allocation,optional" choices:"iid|stratified"`
	// position of the token: end of the first user message (paper, appendix), after the header of every reply (paper,
	// section 3.1), or that of the checkpoint
	Position string `hcl:"position,optional" choices:"checkpoint|first_user|before_each_action"`
	// rows of untrained reward tokens: mean of all rows (Hewitt 2021), or copy:TOKEN, the row of that token (drills)
	Init string `hcl:"init,optional"`
	// rollouts with a policy gradient: all (paper, eq. 8), or only those under high; with high, rollouts under low
	// still count in the mean and deviation of their group and in the KL term (when.hcl)
	Learn string `hcl:"learn,optional" choices:"all|high"`
	// what an advantage subtracts from the reward: the mean of the group (paper, eq. 6), or of its rollouts with the
	// same token, divided by the deviation from these means (docs/training.md 6)
	Baseline string `hcl:"baseline,optional" choices:"group|token"`

	At map[string]hcl.Range `hcl:",ranges"`
}

// Reach implements lang.Reacher.
func (s *settings) Reach() lang.Reach { return s.Agent.Reach() }

// MemoryUse returns the memory use of passes over an update's groups, with a sampler beside them.
func (s *settings) MemoryUse() (artifact.Ref, func(lm.Config) lm.Use) {
	return s.Policy, func(c lm.Config) lm.Use {
		context := min(s.Limits.Context, c.MaxPosition)
		u := s.Use(c, s.Batch*s.Group*context)
		u.Reference, u.Context = s.NeedsReference(), context
		u.Slots = min(lm.MaxSlots, s.episodes())
		return u
	}
}

// Size implements lang.Sizer: each token is sampled, read by the reference policy, and learned in every pass.
func (s *settings) Size(inputs map[string]lang.Size) (map[string]lang.Size, float64) {
	episodes := float64(s.Updates * s.Batch * s.Group)
	work := rl.SamplingPasses + rl.TrainingPasses*float64(s.Passes)
	if s.NeedsReference() {
		work++
	}
	return nil, work * episodes * inputs["tasks"].PerRow()
}

// EpisodeTokens returns an upper bound of the tokens of all episodes that the updates sample and learn from.
func (s *settings) EpisodeTokens() float64 {
	return float64(s.Updates) * float64(s.Batch) * float64(s.Group) * float64(s.Limits.Context)
}

// episodes returns an upper bound of the episodes sampled in one call, as far as the settings determine it.
func (s *settings) episodes() int {
	n := s.Batch * s.Group
	if f := s.Forecast; f != nil {
		n = max(n, 2*f.Tasks*f.Samples) // under each token
	}
	if s.Evaluate != nil {
		n = max(n, lm.MaxSlots)
	}
	return n
}

// evaluator is a stage of both kinds.
type evaluator interface{ evaluates() bool }

// evaluates reports whether the training evaluates, and so has the port best.
func (s *settings) evaluates() bool { return s.Evaluate != nil }

// SelectsOn implements lang.Selector: the tasks whose rewards select the port best.
func (s *settings) SelectsOn() []artifact.Ref {
	if s.Evaluate == nil {
		return nil
	}
	return s.Evaluate.Tasks
}

// check checks the settings of both kinds. tokens reports whether rollouts draw a token.
func (s *settings) check(tokens bool) hcl.Diagnostics {
	var diags hcl.Diagnostics
	bad := blocks.Mistakes(&diags)
	bad(s.Updates < 1, "Too few updates", s.At["updates"], "Training makes at least one update; got %d.", s.Updates)
	bad(s.Group < 1 || s.Group == 1 && s.Advantage.Lone == "formula", "Group too small", s.At["group"],
		"An advantage compares the trajectories of one group, so group must be at least 2; got %d. "+
			"A group of 1 needs advantage { lone = \"reward\" } or \"zero\".", s.Group)
	bad(s.Group == 1 && s.ZeroVariance != "keep", "No group has variance", s.At["group"],
		"A group of one has no variance, so zero_variance = %q would exclude every group; "+
			"set zero_variance = \"keep\".", s.ZeroVariance)
	bad(s.Batch < 1, "Batch too small", s.At["batch"], "An update takes at least one task; got %d.", s.Batch)
	diags = append(diags, blocks.CheckTemperature(s.Temperature, false, s.At["temperature"])...)
	bad(s.TopP < 1 && !s.Correction.Off(), "Correction needs all tokens", s.Correction.At["mode"],
		"sampler_correction compares the sampler's logprobs with those of the training forward. With top_p = %v the "+
			"sampler's cover only part of the vocabulary; set top_p = 1 or mode = \"off\".", s.TopP)
	bad(s.Keep < 0, "Negative interval", s.At["keep"], "keep is a number of updates, or 0; got %d.", s.Keep)
	counts := blocks.CheckCounts(s.At, map[string]int{"updates": s.Updates, "group": s.Group, "batch": s.Batch})
	diags = append(diags, counts...)
	bad(counts == nil && s.Batch*s.Group > blocks.MostCount, "Batch too large", s.At["batch"],
		"An update has at most %d episodes; got %d tasks with %d each.", blocks.MostCount, s.Batch, s.Group)
	if f := s.Forecast; f != nil {
		diags = append(diags, blocks.CheckCounts(f.At, map[string]int{"tasks": f.Tasks, "samples": f.Samples})...)
		bad(f.Tasks < 2, "Too few tasks", f.At["tasks"],
			"The band of a forecast needs at least 2 tasks; got %d.", f.Tasks)
		bad(f.Samples <= s.Group, "Too few samples", f.At["samples"],
			"All members of a group of %d may have the same reward token, so the forecast needs more samples of each token; "+
				"got %d.", s.Group, f.Samples)
	}
	if e := s.Evaluate; e != nil {
		bad(e.Every < 1, "Interval out of range", e.At["every"],
			"every is a number of updates, at least 1; got %d.", e.Every)
		diags = append(diags, blocks.CheckTemperature(e.Temperature, true, e.At["temperature"])...)
	}
	groups := s.Batch // groups of an optimizer step
	if s.Minibatches > 0 {
		groups = min(groups, s.Minibatches)
	}
	return slices.Concat(diags, blocks.CheckTopP(s.TopP, s.At["top_p"]), s.Objective.Check(),
		s.Settings.Check(groups, s.LR, defaultLR, s.At["lr"]), s.Limits.Check(), s.Agent.Check())
}

// Advice implements lang.Advised. In bfloat16 on a GPU the sampler's attention and
// products round otherwise than those of the training forward.
func (s *settings) Advice(gpus int) string {
	if gpus == 0 || s.Precision != string(lm.BF16) || !s.Correction.Off() || s.TopP < 1 {
		return ""
	}
	return `sampler_correction { mode = "token" } is advised in bf16 on GPUs: sampler and training forward round ` +
		"differently there (metric sampler_gap)"
}

// WithoutEffect returns the settings that have no effect in combination with the others.
func (s *settings) WithoutEffect() map[string]string {
	e := blocks.Effects{}
	s.Objective.WithoutEffect(e, s.Batch, s.Group)
	s.Settings.WithoutEffect(e)
	return e
}

// WithoutEffect adds the settings of rc-grpo.
func (s *conditioned) WithoutEffect() map[string]string {
	e := blocks.Effects(s.settings.WithoutEffect())
	e.Add(s.Tokens.High == 0 || s.Tokens.High == 1, "all rollouts get the same token", "tokens.allocation",
		"tokens.baseline")
	return e
}

func (s *grpo) Check() hcl.Diagnostics {
	diags := s.settings.check(false)
	if h := s.Tokens.High; h != nil {
		blocks.Mistakes(&diags)(*h != 0 && *h != 1, "Plain GRPO draws no token", s.Tokens.At["high"],
			"In grpo every rollout has the same condition: high = 1 (always high) or high = 0 (none); got %v. Use "+
				"rc-grpo to draw tokens.", *h)
	}
	return diags
}

func (s *conditioned) Check() hcl.Diagnostics {
	h := s.Tokens.High
	diags := s.settings.check(h > 0 && h < 1)
	blocks.Mistakes(&diags)(h < 0 || h > 1, "Probability out of range", s.Tokens.At["high"],
		"high is the probability of the high token, between 0 and 1; got %v.", h)
	return append(diags, rl.CheckInit(s.Tokens.Init, s.Tokens.At["init"])...)
}
