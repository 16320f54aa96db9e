// Package grpo holds the stage kinds `grpo` and `rc-grpo`: group-relative policy optimisation, unconditioned (Shao et al.
// 2024) and with a reward token drawn per rollout (paper, section 3.2).
//
// An update takes `batch` tasks, samples a group of G episodes of each, and makes one optimizer step, or several with
// `minibatches` and `passes`. π_old is the training forward's log-probability before the first step, so the first ratio
// is exactly 1. The learning rate follows updates, not steps. The reference policy is the checkpoint given as `policy`,
// frozen, under the same reward token. What the objective computes stands in package rl.
package grpo

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/hashicorp/hcl/v2"

	"rcgrpo/engine"
	"rcgrpo/engine/artifact"
	"rcgrpo/stages/internal/checkpoint"
	"rcgrpo/stages/internal/lm"
	"rcgrpo/stages/internal/train"
	"rcgrpo/stages/rl"
	"rcgrpo/stages/rl/blocks"
	"rcgrpo/stages/rl/objective"
)

// Kinds returns grpo and rc-grpo. Defaults are the paper's where it gives them.
func Kinds() []*engine.Kind {
	outputs := func(s engine.Stage) map[string]string {
		ports := map[string]string{"checkpoint": "checkpoint", "metrics": "metrics", "trajectories": "trajectories"}
		if s.(interface{ evaluates() bool }).evaluates() {
			ports["best"] = "checkpoint"
		}
		return ports
	}
	draws := func(engine.Stage) bool { return true }
	extends := func(s engine.Stage) (setting, why string) {
		return s.(interface{ extends() (string, string) }).extends()
	}
	return []*engine.Kind{
		{
			Name: "grpo", Version: 4, Outputs: outputs, Draws: draws, Extends: extends,
			Summary: "Group relative policy optimisation over multi-turn episodes, under the condition of its checkpoint.",
			New: func() engine.Stage {
				return &grpo{settings: defaults(64), Tokens: &fixed{}}
			},
		},
		{
			Name: "rc-grpo", Version: 4, Outputs: outputs, Draws: draws, Extends: extends,
			Summary: "Reward-conditioned GRPO: every rollout of a group draws its reward token.",
			New: func() engine.Stage {
				return &conditioned{settings: defaults(256), Tokens: &drawn{High: 0.5, Allocation: "iid", Position: "checkpoint", Init: "mean"}}
			},
		},
	}
}

func defaults(batch int) settings {
	return settings{
		Order: "shuffled", Updates: 350, Group: 5, Batch: batch, LR: defaultLR, Temperature: 1, TopP: 1, Keep: 1,
		Objective: objective.PaperObjective(),
		Limits:    blocks.DefaultLimits(),
		Settings:  train.Defaults(blocks.Schedule{Shape: "constant"}, 0.01),
	}
}

// defaultLR is the paper's learning rate, which is for all weights.
const defaultLR = 1e-6

// settings are the settings that both kinds have.
type settings struct {
	Policy      artifact.Ref   `hcl:"policy" port:"checkpoint" doc:"checkpoint to start from; frozen, it is the reference policy too"`
	Tasks       []artifact.Ref `hcl:"tasks" port:"tasks" doc:"training tasks, of one set or several; which of them an update takes is a function of the seed and these settings alone"`
	Order       string         `hcl:"order,optional" choices:"shuffled|given" doc:"shuffled passes over the tasks in a new order each time; given takes them as they stand, set after set: a curriculum made by whoever made the sets"`
	Weights     []float64      `hcl:"weights,optional" doc:"curriculum by shares: of every stretch of the training each set gets its part, in the order of tasks; without it several sets are one"`
	Updates     int            `hcl:"updates,optional" unit:"updates" doc:"updates: each samples a batch and learns from it (the paper logs 350)"`
	Group       int            `hcl:"group,optional" unit:"episodes" doc:"episodes per task, G (paper, eq. 6: 5)"`
	Batch       int            `hcl:"batch,optional" unit:"tasks" doc:"tasks per update (paper: 64 for GRPO, 256 for RC-GRPO)"`
	LR          float64        `hcl:"lr,optional" doc:"learning rate (paper: 1e-6); an adapter (lora) needs a higher one, usually 1e-5 to 5e-5"`
	Temperature float64        `hcl:"temperature,optional" doc:"sampling temperature of rollouts (verl, TRL, OpenRLHF: 1); the objective's log-probabilities use it too"`
	TopP        float64        `hcl:"top_p,optional" doc:"rollouts are sampled from the fewest most probable tokens whose probabilities reach this (nucleus, Holtzman et al. 2020); 1 is the whole vocabulary. The objective's log-probabilities are those of the whole vocabulary either way (verl, TRL), so below 1 the first ratio is not that of sampler and policy, and sampler_gap is not logged"`
	Keep        int            `hcl:"keep,optional" unit:"updates" doc:"trajectories of every n-th update are kept in the port trajectories; 0 keeps none"`

	objective.Objective

	Alarms   []blocks.Alarm `hcl:"alarm,block" doc:"what happens when learning goes wrong; none unless set, but an update whose gradient is no finite number is always left out, its batch is kept in skipped.jsonl of the port metrics, and the third in a row is an error where no alarm nan says otherwise"`
	Forecast *forecast      `hcl:"forecast,block" doc:"a small sampling run before the first update, which forecasts its share of groups without variance (Proposition 1)"`
	Evaluate *evaluate      `hcl:"evaluate,block" doc:"evaluation while the policy trains; the policy with the highest reward in it, the first of equals, is the port best, beside the last one, checkpoint"`

	Limits *blocks.Limits `hcl:"limits,block" doc:"bounds of an episode"`

	train.Settings

	UpdatesRange     hcl.Range `hcl:"updates,attr_range"`
	GroupRange       hcl.Range `hcl:"group,attr_range"`
	BatchRange       hcl.Range `hcl:"batch,attr_range"`
	LRRange          hcl.Range `hcl:"lr,attr_range"`
	WeightsRange     hcl.Range `hcl:"weights,attr_range"`
	TemperatureRange hcl.Range `hcl:"temperature,attr_range"`
	TopPRange        hcl.Range `hcl:"top_p,attr_range"`
	KeepRange        hcl.Range `hcl:"keep,attr_range"`
}

// forecast is the sampling run of Proposition 1's forecast.
type forecast struct {
	Tasks   int `hcl:"tasks" unit:"tasks" doc:"training tasks that are sampled, drawn by the seed"`
	Samples int `hcl:"samples" unit:"episodes per task" doc:"episodes per task and reward token; at least as many as a group has members"`

	TasksRange   hcl.Range `hcl:"tasks,attr_range"`
	SamplesRange hcl.Range `hcl:"samples,attr_range"`
}

// evaluate is the evaluation during training. The one at the end is a stage of its own, of kind eval.
type evaluate struct {
	Tasks       []artifact.Ref `hcl:"tasks" port:"tasks" doc:"held-out tasks"`
	Every       int            `hcl:"every" unit:"updates" doc:"the policy is evaluated after every n-th update"`
	Subset      int            `hcl:"subset,optional" unit:"tasks" doc:"how many of them, drawn once by the seed; 0 takes all"`
	Temperature float64        `hcl:"temperature,optional" doc:"sampling temperature; 0 is greedy"`
	TopP        float64        `hcl:"top_p,optional" doc:"sampled from the fewest most probable tokens whose probabilities reach this (nucleus, Holtzman et al. 2020); 1 is the whole vocabulary, as does leaving it out"`

	EveryRange       hcl.Range `hcl:"every,attr_range"`
	SubsetRange      hcl.Range `hcl:"subset,attr_range"`
	TemperatureRange hcl.Range `hcl:"temperature,attr_range"`
	TopPRange        hcl.Range `hcl:"top_p,attr_range"`
}

type grpo struct {
	settings
	Tokens *fixed `hcl:"tokens,block" doc:"reward token of the rollouts"`
}

// fixed is the condition of plain GRPO.
type fixed struct {
	High *float64 `hcl:"high,optional" doc:"1 conditions every rollout on high, 0 on none; left out, the checkpoint's condition holds (none after sft, high after rctp-ft)"`

	HighRange hcl.Range `hcl:"high,attr_range"`
}

type conditioned struct {
	settings
	Tokens *drawn `hcl:"tokens,block" doc:"how rollouts draw their reward token"`
}

// drawn is how RC-GRPO conditions.
type drawn struct {
	High       float64 `hcl:"high,optional" doc:"p, the probability of the high token (paper, eq. 3: 0.5)"`
	Allocation string  `hcl:"allocation,optional" choices:"iid|stratified" doc:"iid draws each rollout's token by itself (paper, eq. 3); stratified gives every group round(pG) high ones, so no group has a single token"`
	Position   string  `hcl:"position,optional" choices:"checkpoint|first_user|before_each_action" doc:"where the token stands: at the end of the first user message (paper, appendix) or right after the header of every reply (paper, section 3.1); checkpoint takes what the policy was trained with"`
	Init       string  `hcl:"init,optional" doc:"rows of tokens that were never trained: mean of all rows (Hewitt 2021), or copy:TOKEN, that token's row (drills)"`

	HighRange hcl.Range `hcl:"high,attr_range"`
	InitRange hcl.Range `hcl:"init,attr_range"`
}

// MemoryUse returns the memory use of passes over an update's groups, with a sampler beside them.
func (s *settings) MemoryUse() (artifact.Ref, func(lm.Config) lm.Use) {
	return s.Policy, func(c lm.Config) lm.Use {
		context := min(s.Limits.Context, c.MaxPosition)
		u := s.Use(c, s.Batch*s.Group*context)
		u.Reference, u.Context = s.NeedsReference(), context
		u.Slots = min(checkpoint.ConcurrentEpisodes, s.episodes())
		return u
	}
}

// episodes is how many are sampled in one call at most, as far as the settings tell.
func (s *settings) episodes() int {
	n := s.Batch * s.Group
	if f := s.Forecast; f != nil {
		n = max(n, 2*f.Tasks*f.Samples) // under each token
	}
	if e := s.Evaluate; e != nil {
		n = max(n, cmp.Or(e.Subset, checkpoint.ConcurrentEpisodes))
	}
	return n
}

// evaluates says that the policy with the best evaluation while training is a port too.
func (s *settings) evaluates() bool { return s.Evaluate != nil }

// ChoosesOn returns the tasks whose rewards choose the port best.
func (s *settings) ChoosesOn() []artifact.Ref {
	if s.Evaluate == nil {
		return nil
	}
	return s.Evaluate.Tasks
}

// extends says that more updates go on from fewer where the learning rate allows it.
func (s *settings) extends() (setting, why string) { return "updates", s.Schedule.Extends() }

// check looks at what both kinds share; tokens says whether rollouts draw one.
func (s *settings) check(tokens bool) hcl.Diagnostics {
	var diags hcl.Diagnostics
	bad := func(summary, detail string, at hcl.Range) {
		diags = append(diags, &hcl.Diagnostic{Severity: hcl.DiagError, Summary: summary, Detail: detail, Subject: at.Ptr()})
	}
	if s.Updates < 1 {
		bad("Too few updates", fmt.Sprintf("Training makes at least one update; got %d.", s.Updates), s.UpdatesRange)
	}
	if s.Group < 1 || s.Group == 1 && s.Advantage.Lone == "formula" {
		bad("Group too small", fmt.Sprintf("An advantage compares the trajectories of one group, so group must be at least 2; got %d. A group of 1 needs advantage { lone = \"reward\" } or \"zero\".", s.Group), s.GroupRange)
	}
	if s.Group == 1 && s.ZeroVariance != "keep" {
		bad("No group has variance", fmt.Sprintf("A group of one is equal in itself, so zero_variance = %q would leave out every group; set zero_variance = \"keep\".", s.ZeroVariance), s.GroupRange)
	}
	if s.Batch < 1 {
		bad("Batch too small", fmt.Sprintf("An update takes at least one task; got %d.", s.Batch), s.BatchRange)
	}
	if s.Temperature <= 0 {
		bad("Temperature out of range", fmt.Sprintf("Rollouts are sampled, so the temperature must be above 0; got %v.", s.Temperature), s.TemperatureRange)
	}
	if s.Keep < 0 {
		bad("Negative interval", fmt.Sprintf("keep is a number of updates, or 0; got %d.", s.Keep), s.KeepRange)
	}
	if s.Weights != nil && (len(s.Weights) != len(s.Tasks) || slices.Min(append([]float64{1}, s.Weights...)) <= 0) {
		bad("Weights out of range", fmt.Sprintf("Each set of tasks has one weight, above 0; got %v for %d sets.", s.Weights, len(s.Tasks)), s.WeightsRange)
	}
	if f := s.Forecast; f != nil {
		if f.Tasks < 2 {
			bad("Too few tasks", fmt.Sprintf("The band of a forecast needs at least 2 tasks; got %d.", f.Tasks), f.TasksRange)
		}
		if f.Samples < s.Group {
			bad("Too few samples", fmt.Sprintf("A group of %d may have one reward token throughout, so the forecast needs at least as many samples of each; got %d.", s.Group, f.Samples), f.SamplesRange)
		}
	}
	if e := s.Evaluate; e != nil {
		if e.Every < 1 {
			bad("Interval out of range", fmt.Sprintf("every is a number of updates, at least 1; got %d.", e.Every), e.EveryRange)
		}
		if e.Subset < 0 {
			bad("Negative number of tasks", fmt.Sprintf("subset is a number of tasks, or 0 for all; got %d.", e.Subset), e.SubsetRange)
		}
		if e.TopP != 0 {
			diags = append(diags, blocks.CheckTopP(e.TopP, e.TopPRange)...)
		}
		if e.Temperature < 0 {
			bad("Negative temperature", fmt.Sprintf("The temperature is 0 for greedy decoding, or above it; got %v.", e.Temperature), e.TemperatureRange)
		}
	}
	diags = append(diags, blocks.CheckTopP(s.TopP, s.TopPRange)...)
	diags = append(diags, blocks.CheckAlarms(s.Alarms, tokens)...)
	diags = append(diags, s.Objective.Check()...)
	diags = append(diags, s.Settings.Check(s.LR, defaultLR, s.LRRange)...)
	return append(diags, s.Limits.Check()...)
}

// WithoutEffect names the settings that change nothing while the others are as they are.
func (s *settings) WithoutEffect() map[string]string {
	e := blocks.Effects{}
	s.Objective.WithoutEffect(e, s.Batch, s.Group)
	s.Settings.WithoutEffect(e)
	e.Add(len(s.Tasks) == 1, "one set of tasks is the whole training", "weights")
	e.Add(s.Evaluate != nil && s.Evaluate.Temperature == 0, "greedy decoding takes the most probable token", "evaluate.top_p")
	return e
}

// WithoutEffect is that of both kinds, and the allocation of tokens that are all the same.
func (s *conditioned) WithoutEffect() map[string]string {
	e := blocks.Effects(s.settings.WithoutEffect())
	e.Add(s.Tokens.High == 0 || s.Tokens.High == 1, "all rollouts get the same token", "tokens.allocation")
	return e
}

func (s *grpo) Check() hcl.Diagnostics {
	diags := s.settings.check(false)
	if h := s.Tokens.High; h != nil && *h != 0 && *h != 1 {
		diags = append(diags, &hcl.Diagnostic{Severity: hcl.DiagError, Summary: "Plain GRPO draws no token",
			Detail:  fmt.Sprintf("In grpo every rollout has the same condition: high = 1 (always high) or high = 0 (none); got %v. Use rc-grpo to draw tokens.", *h),
			Subject: s.Tokens.HighRange.Ptr()})
	}
	return diags
}

func (s *conditioned) Check() hcl.Diagnostics {
	diags := s.settings.check(s.Tokens.High > 0 && s.Tokens.High < 1)
	if h := s.Tokens.High; h < 0 || h > 1 {
		diags = append(diags, &hcl.Diagnostic{Severity: hcl.DiagError, Summary: "Probability out of range",
			Detail:  fmt.Sprintf("high is the probability of the high token, between 0 and 1; got %v.", h),
			Subject: s.Tokens.HighRange.Ptr()})
	}
	return append(diags, rl.CheckInit(s.Tokens.Init, s.Tokens.InitRange)...)
}
