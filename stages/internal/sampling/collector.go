//go:build libtorch

package sampling

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"

	"github.com/dustin/go-humanize/english"

	"rcgrpo/bfcl"
	"rcgrpo/engine"
	"rcgrpo/stages/internal/agent"
	"rcgrpo/stages/internal/chat"
	"rcgrpo/stages/internal/checkpoint"
	"rcgrpo/stages/internal/environment"
	"rcgrpo/stages/internal/lm"
	"rcgrpo/stages/internal/ranks"
	"rcgrpo/stages/rl"
	"rcgrpo/stages/rl/blocks"
)

// Collector samples episodes with an open policy and the seed of the job. Start with Open.
type Collector struct {
	*rl.Collector
	Local   *rl.Local      // its policy
	Gateway *agent.Gateway // nil without an agent
	decoder *lm.Decoder
}

// Close ends the programs of the episodes.
func (s *Collector) Close(job *engine.Job) error {
	if s.Gateway == nil {
		return s.Environment.Close()
	}
	if n := s.Gateway.Changed(); n > 0 {
		job.Logf("%s of the agent asked for another temperature or top_p than the stage's, which were used",
			english.Plural(int(n), "request", ""))
	}
	return errors.Join(s.Gateway.Close(), s.Environment.Close())
}

// UseAgent has a program play the episodes. Without settings it has no effect.
func (s *Collector) UseAgent(settings *agent.Settings, p *checkpoint.Policy, job *engine.Job,
	tasks []*bfcl.Task) error {
	if settings == nil {
		return nil
	}
	for _, t := range tasks {
		if len(t.Turns) > 1 {
			return fmt.Errorf("task %s has several requests, and an agent plays tasks with one: set prompt = \"merged\" in "+
				"the stage tasks", t.ID)
		}
	}
	codec, err := p.Codec()
	if err != nil {
		return err
	}
	var data *bfcl.Data
	if job.Site.BFCL != "" && slices.ContainsFunc(tasks, func(t *bfcl.Task) bool { return t.Spec == nil }) {
		if data, err = bfcl.LoadData(job.Site.BFCL); err != nil {
			return err
		}
	}
	s.Gateway, err = agent.Open(settings, agent.Options{Policy: s.Local, Codec: codec, Tokenizer: p.Tokenizer,
		Position: p.Position, Data: data, Place: environment.Options{Scratch: job.Dir, Rank: job.Rank, Name: "agents",
			Log: job.Logf}})
	if err != nil {
		return err
	}
	s.Agent = s.Gateway
	return nil
}

// Open returns a collector of the policy: temperature 0 is greedy, topP 1 the whole vocabulary. tasks lists the tasks
// to sample; those of the benchmark need its data, and those of a program start it. The caller closes the collector.
func Open(ctx context.Context, job *engine.Job, p *checkpoint.Policy, tasks []*bfcl.Task, limits blocks.Limits,
	temperature, topP float64) (*Collector, error) {
	documented := !slices.ContainsFunc(tasks, func(t *bfcl.Task) bool { return t.Spec == nil })
	codec, err := p.CodecFor(documented, job.Site.BFCL)
	if err != nil {
		return nil, err
	}
	decoder, err := p.Decoder(limits.Context)
	if err != nil {
		return nil, err
	}
	local := &rl.Local{Batcher: rl.NewBatcher(decoder), Codec: codec, Limits: limits, Seed: uint64(job.Seed),
		Temperature: temperature, TopP: topP}
	environment, err := environment.Open(ctx, environment.Options{Tasks: tasks, Benchmark: job.Site.BFCL,
		Steps: limits.Steps, Scratch: job.Dir, Rank: job.Rank, Log: job.Logf})
	if err != nil {
		return nil, errors.Join(err, decoder.Release())
	}
	collector := &rl.Collector{Policy: local, Environment: environment, Seed: uint64(job.Seed)}
	return &Collector{Collector: collector, Local: local, decoder: decoder}, nil
}

// Sample samples the rollouts, reports progress, and returns the trajectories in order, including those without a
// reward. Too many failures of the environment are an error; fewer are logged.
func (s *Collector) Sample(ctx context.Context, job *engine.Job, rollouts []rl.Rollout) ([]*rl.Trajectory, error) {
	progress := Progress(job, len(rollouts))
	trajectories, stats, err := s.Collect(ctx, rollouts, func(_ int, t *rl.Trajectory) error {
		progress(t)
		return nil
	})
	if err != nil {
		return nil, err
	}
	job.Logf("%d episodes in %.1f s: %d tokens sampled, %d given, %d through the model; %.1f s in the model, %.1f s "+
		"waiting for environments", len(rollouts), stats.Wall.Seconds(), stats.Sampled, stats.Given,
		s.decoder.Computed(), stats.InPolicy.Seconds(), stats.InWaiting.Seconds())
	rewarded, err := rl.Rewarded(trajectories)
	if err != nil {
		return nil, err
	}
	if n := len(rollouts) - len(rewarded); n > 0 {
		job.Logf("the environment failed in %s, which get no reward, score or data", english.Plural(n, "episode", ""))
	}
	return trajectories, nil
}

// Episodes configures the episodes of a stage that only samples.
type Episodes struct {
	Token             string // setting token
	Official          bool   // prompts of the official handlers; see chat.Official
	Samples           int    // per task
	Temperature, TopP float64
	Limits            *blocks.Limits
	Arithmetic        blocks.Arithmetic
	Agent             *agent.Settings // plays the episodes; nil: none
}

// Run samples the tasks with the policy of stage. It writes the port trajectories and returns them in the order of the
// tasks.
func (e Episodes) Run(ctx context.Context, job *engine.Job, stage checkpoint.MemoryUser, tasks []*bfcl.Task) (
	[]*rl.Trajectory, error) {
	policy, _, err := checkpoint.Open(job, stage)
	if err != nil {
		return nil, err
	}
	defer policy.Close()
	token, err := policy.Resolve(e.Token)
	if err != nil {
		return nil, err
	}
	collector, err := Open(ctx, job, policy, tasks, *e.Limits, e.Temperature, e.TopP)
	if err != nil {
		return nil, err
	}
	defer collector.Close(job)
	if err := collector.UseAgent(e.Agent, policy, job, tasks); err != nil {
		return nil, err
	}
	if e.Official {
		settings, err := bfcl.SettingsFor(tasks, job.Site.BFCL)
		if err != nil {
			return nil, err
		}
		if collector.Policy, err = chat.NewOfficial(collector.Local, settings.Data); err != nil {
			return nil, err
		}
	}
	rollouts, err := rl.Rollouts(tasks, e.Samples, token)
	if err != nil {
		return nil, err
	}
	peers, err := checkpoint.Join(job, ranks.Fact{Name: "episodes", Value: strconv.Itoa(len(rollouts))},
		ranks.Fact{Name: "shape", Value: fmt.Sprintf("%+v", policy.Model.Config())})
	if err != nil {
		return nil, err
	}
	defer peers.Group.Close()
	dealt, err := collector.Sample(ctx, job, ranks.Dealt(peers.Rank, rollouts))
	if err = checkpoint.Sync(ctx, peers.Rank, "rollout", err); err != nil {
		return nil, err
	}
	trajectories, err := ranks.Merge(peers.Rank, dealt, len(rollouts))
	if err != nil || job.Rank > 0 {
		return trajectories, err
	}
	return trajectories, WriteTrajectories(job, trajectories)
}
