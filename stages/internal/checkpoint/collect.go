//go:build libtorch

package checkpoint

import (
	"cmp"
	"context"
	"fmt"

	"rcgrpo/bfcl"
	"rcgrpo/engine"
	"rcgrpo/engine/artifact"
	"rcgrpo/engine/lang"
	"rcgrpo/engine/runs"
	"rcgrpo/stages/internal/lm"
	"rcgrpo/stages/internal/ranks"
	"rcgrpo/stages/rl"
	"rcgrpo/stages/rl/blocks"
)

// Collector samples episodes with an open policy and the seed of the job.
type Collector struct {
	*rl.Collector
	Local   *rl.Local // its policy
	decoder *lm.Decoder
}

// Collector returns a collector of the policy: temperature 0 is greedy, topP 1 the whole vocabulary. tasks lists
// the tasks to sample; those of the benchmark need its data.
func (p *Policy) Collector(
	job *engine.Job, tasks []*bfcl.Task, limits blocks.Limits, temperature, topP float64,
) (*Collector, error) {
	codec, err := p.Codec(job.Site.BFCL)
	if err != nil {
		return nil, err
	}
	settings, err := bfcl.SettingsFor(tasks, job.Site.BFCL)
	if err != nil {
		return nil, err
	}
	longest := min(limits.Context, p.Model.Config().MaxPosition)
	decoder, err := lm.NewDecoder(p.Model, cmp.Or(p.slots, ConcurrentEpisodes), longest)
	if err != nil {
		return nil, err
	}
	local := &rl.Local{Batcher: rl.NewBatcher(decoder), Codec: codec, Limits: limits, Seed: uint64(job.Seed),
		Temperature: temperature, TopP: topP}
	return &Collector{&rl.Collector{Policy: local, Start: rl.EpisodeStart(settings, limits)}, local, decoder}, nil
}

// Sample samples the rollouts, reports progress, and returns the trajectories in order, including those without a
// reward. Too many failures of the environment are an error; fewer are logged.
func (s *Collector) Sample(ctx context.Context, job *engine.Job, rollouts []rl.Rollout) ([]*rl.Trajectory, error) {
	done, rewarded, earned := 0, 0, 0.0
	trajectories, stats, err := s.Collect(ctx, rollouts, func(_ int, t *rl.Trajectory) error {
		done++
		if !t.Reward.Missing() {
			rewarded++
			earned += float64(t.Reward)
		}
		job.Progress(done, len(rollouts), "episodes", runs.Value{Name: "reward",
			Value: earned / float64(max(1, rewarded))})
		return nil
	})
	if err != nil {
		return nil, err
	}
	job.Logf("%d episodes in %.1f s: %d tokens sampled, %d given, %d through the model; %.1f s in the model, %.1f s "+
		"waiting for environments", len(rollouts), stats.Wall.Seconds(), stats.Sampled, stats.Given,
		s.decoder.Computed(), stats.InPolicy.Seconds(), stats.InWaiting.Seconds())
	if _, err := rl.Rewarded(trajectories); err != nil {
		return nil, err
	}
	if n := len(rollouts) - rewarded; n > 0 {
		job.Logf("the environment failed in %s, which get no reward, score or data", lang.Plural(n, "episode"))
	}
	return trajectories, nil
}

// Sampling configures the episodes of a stage that only samples.
type Sampling struct {
	Token             string // setting token
	Samples           int    // per task
	Temperature, TopP float64
	Limits            *blocks.Limits
	Arithmetic        blocks.Arithmetic
}

// Run samples the tasks with the policy of stage. It writes the port trajectories and returns them in the order of the
// tasks.
func (s Sampling) Run(ctx context.Context, job *engine.Job, stage MemoryUser, tasks []*bfcl.Task) (
	[]*rl.Trajectory, error) {
	use, err := PlanMemory(job, stage)
	if err != nil {
		return nil, err
	}
	ref, _ := stage.MemoryUse()
	policy, err := Open(job, ref, use)
	if err != nil {
		return nil, err
	}
	defer policy.Close()
	token, err := policy.Resolve(s.Token)
	if err != nil {
		return nil, err
	}
	collector, err := policy.Collector(job, tasks, *s.Limits, s.Temperature, s.TopP)
	if err != nil {
		return nil, err
	}
	var rollouts []rl.Rollout
	for _, task := range tasks {
		for i := range s.Samples {
			rollouts = append(rollouts, rl.Rollout{Task: task, Member: i, Token: token})
		}
	}
	peers, err := Join(job, fmt.Sprintf("%d episodes", len(rollouts)))
	if err != nil {
		return nil, err
	}
	defer peers.Group.Close()
	own, err := collector.Sample(ctx, job, ranks.Dealt(peers.Rank, rollouts))
	if err = Sync(ctx, peers.Rank, "rollout", err); err != nil {
		return nil, err
	}
	trajectories, err := ranks.Merge(peers.Rank, own, len(rollouts))
	if err != nil || job.Rank > 0 {
		return trajectories, err
	}
	dir, err := job.Create("trajectories")
	if err != nil {
		return nil, err
	}
	return trajectories, artifact.WriteRows(dir, rl.TrajectoriesFile, trajectories)
}
