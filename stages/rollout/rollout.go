// Package rollout contains the stage kind `rollout`: episodes sampled from a policy on tasks, stored as
// trajectories. Curation takes its failures from them.
package rollout

import (
	"context"
	"math"
	"slices"

	"github.com/hashicorp/hcl/v2"

	"rcgrpo/engine"
	"rcgrpo/engine/artifact"
	"rcgrpo/engine/lang"
	"rcgrpo/stages/internal/agent"
	"rcgrpo/stages/internal/checkpoint"
	"rcgrpo/stages/internal/lm"
	"rcgrpo/stages/internal/provider"
	"rcgrpo/stages/internal/sampling"
	"rcgrpo/stages/rl"
	"rcgrpo/stages/rl/blocks"
)

// Kind returns the stage kind.
func Kind() *lang.Kind {
	return &lang.Kind{
		Name:    "rollout",
		Summary: "Episodes sampled from a policy, kept as trajectories.",
		Version: 5,
		Ranks: func(s lang.Stage) int { // each samples a share of the episodes
			if s.(*settings).calls() {
				return 0
			}
			return math.MaxInt
		},
		New: func() lang.Stage {
			return &settings{Samples: 1, Temperature: 1, TopP: 1, Token: "checkpoint", Limits: blocks.DefaultLimits(),
				Calls: provider.DefaultCalls(), Arithmetic: blocks.DefaultArithmetic()}
		},
		Outputs: func(s lang.Stage) map[string]string {
			ports := map[string]string{"trajectories": "trajectories"}
			if s.(*settings).calls() {
				ports["calls"] = "calls"
			}
			return ports
		},
		Stochastic: func(lang.Stage) bool { return true },
	}
}

type settings struct {
	// policy to sample from
	Policy artifact.Ref `hcl:"policy" port:"checkpoint|endpoint"`
	// the tasks of which episodes are sampled
	Tasks artifact.Ref `hcl:"tasks" port:"tasks"`
	// episodes per task
	Samples int `hcl:"samples,optional" unit:"episodes per task"`
	// the sampling temperature; 1 samples from the policy as it is
	Temperature float64 `hcl:"temperature,optional"`
	// sample from the fewest tokens whose probabilities reach this (nucleus); 1 is the whole vocabulary
	TopP float64 `hcl:"top_p,optional"`
	// the reward token under which the policy samples: that of the checkpoint, or another
	Token string `hcl:"token,optional" choices:"checkpoint|none|high|low"`
	// the bounds of an episode; one that reaches a bound ends there and is scored
	Limits *blocks.Limits `hcl:"limits,block"`

	// program that plays the episodes (docs/own_tasks.md)
	Agent *agent.Settings `hcl:"agent,block"`

	// the bounds of the calls, if the policy is an endpoint
	Calls *provider.Calls `hcl:"calls,block" key:"-"`

	blocks.Arithmetic

	At map[string]hcl.Range `hcl:",ranges"`
}

// EpisodesPerTask implements lang.EpisodeSampler.
func (s *settings) EpisodesPerTask() int { return s.Samples }

// Size implements lang.Sizer.
func (s *settings) Size(inputs map[string]lang.Size) (map[string]lang.Size, float64) {
	episodes := inputs["tasks"].Times(float64(s.Samples))
	if s.calls() { // another machine computes
		return map[string]lang.Size{"trajectories": episodes}, 0
	}
	return map[string]lang.Size{"trajectories": episodes}, rl.SamplingPasses * episodes.Tokens
}

// Reach implements lang.Reacher. The address and the key of an endpoint are those of its stage.
func (s *settings) Reach() lang.Reach {
	if s.calls() {
		return lang.Reach{Paid: true, Budget: s.Calls.Budget, Parallel: s.Calls.Parallel}
	}
	return s.Agent.Reach()
}

// MemoryUse returns the memory use of a sampler.
func (s *settings) MemoryUse() (artifact.Ref, func(lm.Config) lm.Use) {
	return checkpoint.SamplerUse(s.Policy, s.Limits, s.Arithmetic)
}

func (s *settings) Check() (diags hcl.Diagnostics) {
	bad := blocks.Mistakes(&diags)
	bad(s.Samples < 1, "Number of samples out of range", s.At["samples"],
		"A task is tried at least once; got %d.", s.Samples)
	diags = append(diags, blocks.CheckTemperature(s.Temperature, false, s.At["temperature"])...)
	bad(s.calls() && s.Agent != nil, "An agent needs a checkpoint", s.At["agent"],
		"An agent calls the policy through this program, which serves checkpoints only; here the policy is an endpoint.")
	return slices.Concat(diags, blocks.CheckCounts(s.At, map[string]int{"samples": s.Samples}),
		blocks.CheckTopP(s.TopP, s.At["top_p"]), s.Limits.Check(), s.Calls.Check(),
		s.Agent.Check())
}

// calls reports whether the policy is an endpoint.
func (s *settings) calls() bool { return s.Policy.Type == provider.ArtifactType }

// WithoutEffect returns the settings that only the other sort of policy reads.
func (s *settings) WithoutEffect() map[string]string {
	return provider.Unread(s.calls())
}

// Runner returns the stage with an endpoint, which needs no tensors, or the one with a checkpoint, if this binary has
// tensors.
func (s *settings) Runner() engine.Runner {
	if s.calls() {
		return calling{s}
	}
	r, _ := any(s).(engine.Runner)
	return r
}

// calling is a stage whose policy is an endpoint.
type calling struct{ *settings }

// Run plays the episodes.
func (s calling) Run(ctx context.Context, job *engine.Job) error {
	tasks, err := sampling.ReadTasks(job, s.Tasks)
	if err != nil {
		return err
	}
	_, err = provider.Sampling{Policy: s.Policy, Samples: s.Samples, Limits: s.Limits, Calls: s.Calls}.Run(ctx, job, tasks)
	return err
}
