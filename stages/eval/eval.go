// Package eval contains the stage kind `eval`: a policy's episodes on held-out tasks, judged by the paper's
// reward and by the official checker, one rl.Score per episode.
package eval

import (
	"context"
	"fmt"
	"math"
	"slices"

	"github.com/hashicorp/hcl/v2"

	"rcgrpo/bfcl"
	"rcgrpo/engine"
	"rcgrpo/engine/artifact"
	"rcgrpo/engine/lang"
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
		Name:    "eval",
		Summary: "Episodes on held-out tasks: the paper's reward and the official verdict of each.",
		Version: 5,
		Ranks: func(s lang.Stage) int { // each samples a share of the episodes
			if s.(*settings).calls() {
				return 0
			}
			return math.MaxInt
		},
		New: func() lang.Stage {
			return &settings{Token: "checkpoint", Layout: "checkpoint", Samples: 1, TopP: 1, Limits: blocks.DefaultLimits(),
				Calls: provider.DefaultCalls(), Arithmetic: blocks.DefaultArithmetic()}
		},
		Outputs: func(s lang.Stage) map[string]string {
			ports := map[string]string{"scores": "scores", "trajectories": "trajectories"}
			if s.(*settings).calls() {
				ports["calls"] = "calls"
			}
			return ports
		},
		Stochastic: func(s lang.Stage) bool { return s.(*settings).Temperature > 0 || s.(*settings).calls() },
	}
}

// Labels returns the labels of the arm on pages.
func (s *settings) Labels() lang.Labels {
	return lang.Labels{Arm: s.ArmLabel, Model: s.Model, Init: s.Init, Method: s.Method}
}

type settings struct {
	// policy to evaluate
	Policy artifact.Ref `hcl:"policy" port:"checkpoint|endpoint"`
	// sets of tasks; a score names the port it came from
	Tasks []artifact.Ref `hcl:"tasks" port:"tasks"`
	// reward token to condition on: that of the checkpoint, or another to measure the conditioning
	Token string `hcl:"token,optional" choices:"checkpoint|none|high|low"`
	// prompts in the layout of the checkpoint, or those of the official handler of its family, with the official
	// decoder; then a cut reply does not end the episode
	Layout string `hcl:"layout,optional" choices:"checkpoint|bfcl"`
	// sampling temperature; 0 is greedy
	Temperature float64 `hcl:"temperature,optional"`
	// sample from the fewest tokens whose probabilities reach this (nucleus); 1 is the whole vocabulary
	TopP float64 `hcl:"top_p,optional"`
	// episodes per task; more than one needs a temperature above 0
	Samples int `hcl:"samples,optional" unit:"episodes per task"`
	// list of k, at most samples: pass@k by the unbiased estimator (Chen et al. 2021, eq. 1), in passes.jsonl beside
	// the scores
	K []int `hcl:"k,optional"`
	// the bounds of an episode; one that reaches a bound ends there and is scored
	Limits *blocks.Limits `hcl:"limits,block"`

	// the bounds of the calls, if the policy is an endpoint
	Calls *provider.Calls `hcl:"calls,block" key:"-"`
	// label of the arm on pages; the for_each key unless set
	ArmLabel string `hcl:"label,optional" key:"-"`
	// model of the arm on pages; unless set, the key of its module, or "API models"
	Model string `hcl:"model,optional" key:"-"`
	// initialisation of the arm on pages; unless set, the kind of the last fine-tuning of its policy: "RCTP-FT"
	Init string `hcl:"init,optional" key:"-"`
	// method of the arm on pages; unless set, the kind of the last training of its policy by RL: "RC-GRPO"
	Method string `hcl:"method,optional" key:"-"`

	blocks.Arithmetic

	At map[string]hcl.Range `hcl:",ranges"`
}

// Size implements lang.Sizer.
func (s *settings) Size(inputs map[string]lang.Size) (map[string]lang.Size, float64) {
	return nil, rl.SamplingPasses * inputs["tasks"].Times(float64(s.Samples)).Tokens
}

// Reach implements lang.Reacher. The address and the key of an endpoint are those of its stage.
func (s *settings) Reach() (r lang.Reach) {
	if s.calls() {
		r = lang.Reach{Paid: true, Budget: s.Calls.Budget, Parallel: s.Calls.Parallel}
	}
	return r
}

// scores returns the rows of the episodes with a reward, given the set of each.
func (s *settings) scores(trajectories []*rl.Trajectory, sets []string) []rl.Score {
	var scores []rl.Score
	for i, t := range trajectories {
		if !t.Reward.Missing() {
			scores = append(scores, t.Score(sets[i], s.greedy()))
		}
	}
	return scores
}

// CheckInputs warns if the policy was selected during training by the tasks of this evaluation.
func (s *settings) CheckInputs(n *lang.Node) hcl.Diagnostics {
	ref := s.Policy
	for at := n; ; {
		in, ok := at.Input(ref)
		if !ok {
			return nil
		}
		selector, chooses := in.From.Stage.(lang.Selector)
		if chooses && in.Ref.Port == "best" {
			for _, task := range selector.SelectsOn() {
				chosen, ok := in.From.Input(task)
				if ok && slices.ContainsFunc(s.Tasks, func(own artifact.Ref) bool {
					in, ok := n.Input(own)
					return ok && in.From == chosen.From && in.Ref.Port == chosen.Ref.Port
				}) {
					return hcl.Diagnostics{{Severity: hcl.DiagWarning, Summary: "Evaluated on the tasks that chose the policy",
						Detail: fmt.Sprintf("The port best of stage.%s.%s holds the policy with the highest reward on "+
							"stage.%s.%s.%s (evaluate { tasks }), so its success on these tasks is too high by the luck of that "+
							"choice. Evaluate it on other tasks, choose on other tasks, or take the port checkpoint.",
							in.From.Kind.Name, in.From.Name, task.Kind, task.Name, task.Port), Subject: s.At["tasks"].Ptr()}}
				}
			}
		}
		from, ok := in.From.Stage.(checkpoint.MemoryUser)
		if !ok {
			return nil
		}
		at = in.From
		ref, _ = from.MemoryUse()
	}
}

// MemoryUse returns the memory use of a sampler.
func (s *settings) MemoryUse() (artifact.Ref, func(lm.Config) lm.Use) {
	return checkpoint.SamplerUse(s.Policy, s.Limits, s.Arithmetic)
}

// WithoutEffect returns the settings that have no effect in combination with the others.
func (s *settings) WithoutEffect() map[string]string {
	e := provider.Unread(s.calls())
	e.Add(s.Temperature == 0, "greedy decoding takes the most probable token", "top_p")
	return e
}

func (s *settings) Check() (diags hcl.Diagnostics) {
	bad := blocks.Mistakes(&diags)
	diags = append(diags, blocks.CheckTemperature(s.Temperature, true, s.At["temperature"])...)
	bad(s.Samples < 1 || s.Samples > 1 && s.Temperature == 0 && !s.calls(), "Number of samples out of range",
		s.At["samples"],
		"A task is tried at least once, and greedy decoding gives the same episode every time: %d samples at temperature "+
			"%v make no sense. Set temperature = 1 for several samples.", s.Samples, s.Temperature)
	for _, k := range s.K {
		bad(k < 1 || k > s.Samples, "k out of range", s.At["k"], "pass@k is estimated from %d episodes of a task, so each k "+
			"lies between 1 and that; got %d. Raise samples.", s.Samples, k)
	}
	return slices.Concat(diags, blocks.CheckCounts(s.At, map[string]int{"samples": s.Samples}),
		blocks.CheckTopP(s.TopP, s.At["top_p"]), s.Limits.Check(), s.Calls.Check())
}

// calls reports whether the policy is an endpoint.
func (s *settings) calls() bool { return s.Policy.Type == provider.ArtifactType }

// EpisodesPerTask implements lang.EpisodeSampler.
func (s *settings) EpisodesPerTask() int { return s.Samples }

// greedy reports whether pages compare the scores with those of greedy decoding. An API model is evaluated so with one
// episode per task, at the temperature of its endpoint.
func (s *settings) greedy() bool {
	if s.calls() {
		return s.Samples == 1
	}
	return s.Temperature == 0
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

// Run plays every task and writes scores, trajectories and calls.
func (s calling) Run(ctx context.Context, job *engine.Job) error {
	return s.evaluate(job, func(tasks []*bfcl.Task) ([]*rl.Trajectory, error) {
		return provider.Sampling{Policy: s.Policy, Samples: s.Samples, Limits: s.Limits, Calls: s.Calls}.Run(ctx, job, tasks)
	})
}

// evaluate samples all tasks and writes the port scores in rank 0, which has all episodes.
func (s *settings) evaluate(job *engine.Job, sample func([]*bfcl.Task) ([]*rl.Trajectory, error)) error {
	var tasks []*bfcl.Task
	var sets []string // of each episode
	for _, ref := range s.Tasks {
		set, err := sampling.ReadTasks(job, ref)
		if err != nil {
			return err
		}
		tasks = append(tasks, set...)
		for _, task := range set {
			sets = append(sets, slices.Repeat([]string{setName(ref.Port, task)}, s.Samples)...)
		}
	}
	trajectories, err := sample(tasks)
	if err != nil || job.Rank > 0 {
		return err
	}
	scores := s.scores(trajectories, sets)
	dir, err := job.Create("scores")
	if err != nil {
		return err
	}
	if len(s.K) > 0 {
		if err := artifact.WriteRows(dir, rl.PassesFile, rl.Passes(scores, s.K)); err != nil {
			return err
		}
	}
	return artifact.WriteRows(dir, rl.ScoresFile, scores)
}

// setName distinguishes the prompt modes of a set, so that one evaluation may contain both.
func setName(port string, task *bfcl.Task) string {
	if task.Prompt == bfcl.PromptMerged {
		return port + " " + bfcl.PromptMerged
	}
	return port
}
