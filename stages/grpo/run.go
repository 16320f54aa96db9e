//go:build libtorch

package grpo

import (
	"context"
	"errors"
	"fmt"
	"math"
	"time"

	"rcgrpo/engine"
	"rcgrpo/stages/internal/checkpoint"
	"rcgrpo/stages/internal/lm"
	"rcgrpo/stages/internal/metrics"
	"rcgrpo/stages/internal/resume"
	"rcgrpo/stages/rl"
)

// Run trains under the condition of the checkpoint, or the one that tokens { high } asks for.
func (s *grpo) Run(ctx context.Context, job *engine.Job) error {
	return s.run(ctx, job, func(p *checkpoint.Policy) (allocate, error) {
		if high := s.Tokens.High; high != nil {
			p.Condition = rl.TokenNone
			if *high == 1 {
				if p.Position == "" {
					return nil, fmt.Errorf("tokens { high = 1 }: this policy has never used reward tokens; start from rctp-ft, or leave high out")
				}
				p.Condition = rl.TokenHigh
			}
		}
		return func(int, string) []string {
			tokens := make([]string, s.Group)
			for i := range tokens {
				tokens[i] = p.Condition
			}
			return tokens
		}, nil
	})
}

// Run trains with a reward token drawn per rollout; the checkpoint conditions on high at inference.
func (s *conditioned) Run(ctx context.Context, job *engine.Job) error {
	return s.run(ctx, job, func(p *checkpoint.Policy) (allocate, error) {
		position := s.Tokens.Position
		if position == "checkpoint" {
			if position = p.Position; position == "" {
				position = rl.FirstUser
			}
		}
		if err := p.UseTokens(position, s.Tokens.Init); err != nil {
			return nil, err
		}
		p.Trained, p.Condition = true, rl.TokenHigh
		return func(update int, key string) []string {
			return rl.AllocateTokens(s.Tokens.Allocation, s.Tokens.High, s.Group, uint64(job.Seed), update, key)
		}, nil
	})
}

// run trains the policy that prepare sets up.
func (s *settings) run(ctx context.Context, job *engine.Job, prepare func(*checkpoint.Policy) (allocate, error)) error {
	policy, err := checkpoint.Open(job, s.Policy)
	if err != nil {
		return err
	}
	defer policy.Close()
	tokens, err := prepare(policy)
	if err != nil {
		return err
	}
	t := &training{settings: s, job: job, policy: policy}
	defer t.close()
	if err := t.open(tokens); err != nil {
		return err
	}
	for u := t.made + 1; u <= s.Updates; u++ {
		if err := t.update(ctx, u); err != nil {
			if ctx.Err() != nil && errors.Is(err, ctx.Err()) { // told to stop: the weights are those after the last update
				err = errors.Join(err, t.save())
			}
			return fmt.Errorf("update %d: %w", u, err)
		}
		if t.scratch.Due() {
			if err := t.save(); err != nil {
				return err
			}
		}
	}
	return t.publish()
}

// training is the state of a run.
type training struct {
	*settings
	job       *engine.Job
	policy    *checkpoint.Policy
	reference *lm.Model // nil when the objective needs none
	trainer   *lm.Trainer
	episodes  *checkpoint.Sampler
	groups    *sampler
	made      int // updates

	scratch  *resume.Training
	recorded *recorder
	log      *metrics.Log
	kept     *resume.Rows // trajectories
}

// progress is what a state says beside the weights and moments.
type progress struct {
	Taken int `json:"taken"` // tasks
}

// open loads what training needs beside the policy. What it opened before an error, close frees.
func (t *training) open(tokens allocate) error {
	tasks, err := checkpoint.ReadTasks(t.job, t.Tasks)
	if err != nil {
		return err
	}
	if len(tasks) == 0 {
		return fmt.Errorf("the set of tasks is empty")
	}
	if t.NeedsReference() {
		if t.reference, err = t.policy.Model.Clone(); err != nil {
			return err
		}
	}
	if t.trainer, err = t.policy.Trainer(*t.Optimizer); err != nil {
		return err
	}
	if t.episodes, err = t.policy.Sampler(t.job, tasks, *t.Limits, t.Temperature); err != nil {
		return err
	}
	t.groups = &sampler{batch: t.Batch, group: t.Group, resample: t.ZeroVariance == "resample", tasks: tasks, tokens: tokens,
		rand: t.job.Rand, collect: t.collect}
	return t.resume()
}

// resume goes back to where an earlier attempt was when it last saved itself; what it sampled since is in the recorder.
func (t *training) resume() (err error) {
	if t.scratch, err = resume.Open(t.job.Dir, t.Checkpoints.Settings()); err != nil {
		return err
	}
	var p progress
	if t.made, err = t.scratch.Restore(&p, t.trainer.Restore); err != nil {
		return err
	}
	t.groups.skip(p.Taken)
	if t.recorded, err = readRecorder(t.scratch, t.made); err != nil {
		return err
	}
	if t.made > 0 || t.recorded.left() > 0 {
		t.job.Logf("resuming after update %d, with %d trajectories sampled since", t.made, t.recorded.left())
	}
	if t.log, err = metrics.Open(t.scratch); err != nil {
		return err
	}
	t.kept, err = t.scratch.Rows("trajectories.jsonl")
	return err
}

// save makes a state of the training as it is between two updates.
func (t *training) save() error {
	return t.scratch.Save(t.made, progress{Taken: t.groups.taken}, t.trainer.Save)
}

// collect samples the rollouts that no earlier attempt has finished.
func (t *training) collect(ctx context.Context, list []rl.Rollout) ([]*rl.Trajectory, error) {
	return t.recorded.collect(list, func(rest []rl.Rollout, finished func(int, *rl.Trajectory) error) error {
		_, _, err := t.episodes.Collect(ctx, rest, finished)
		return err
	})
}

// publish makes the ports.
func (t *training) publish() error {
	if err := t.log.Publish(t.job); err != nil {
		return err
	}
	dir, err := t.job.Create("trajectories")
	if err != nil {
		return err
	}
	if err := t.kept.CopyTo(dir, rl.TrajectoriesFile); err != nil {
		return err
	}
	if dir, err = t.job.Create("checkpoint"); err != nil {
		return err
	}
	return t.policy.Save(dir)
}

// close frees everything.
func (t *training) close() {
	if t.scratch != nil {
		t.scratch.Close()
	}
	if t.episodes != nil {
		t.episodes.Close()
	}
	if t.trainer != nil {
		t.trainer.Close()
	}
	if t.reference != nil {
		t.reference.Close()
	}
}

// update samples groups, learns from them once, and logs.
func (t *training) update(ctx context.Context, u int) error {
	start, taken := time.Now(), t.groups.taken
	trajectories, sampled, err := t.groups.update(ctx, u)
	if err == nil {
		err = ctx.Err()
	}
	if err != nil {
		t.groups.skip(taken) // as if it had not begun
		return err
	}
	rollout := time.Since(start)
	start = time.Now()
	b := newBatch(trajectories, t.Group)
	rate := t.Schedule.Rate(u-1, t.Updates, t.LR)
	values, err := t.learn(ctx, u, b, rate)
	if err != nil {
		t.groups.skip(taken)
		return err
	}
	t.made = u
	learned := time.Since(start)
	values["groups_sampled"] = float64(sampled)
	if err := t.log.Write(rl.Metric{Update: u, Values: values}, map[string]float64{"rollout_s": rollout.Seconds(), "update_s": learned.Seconds(),
		"tokens_per_s": values["tokens"] / (rollout + learned).Seconds()}); err != nil {
		return err
	}
	if t.Keep > 0 && u%t.Keep == 0 {
		for _, tr := range trajectories {
			if err := t.kept.Append(tr); err != nil {
				return err
			}
		}
	}
	t.job.Progress(u, t.Updates, "updates", engine.Value{Name: "reward", Value: values["reward"]},
		engine.Value{Name: "zero-variance", Value: values["zero_variance"]})
	return nil
}

// learn makes the optimizer step of update u at a learning rate and returns its metrics.
func (t *training) learn(ctx context.Context, u int, b *batch, rate float64) (map[string]float64, error) {
	outcome, stats, err := t.accumulate(ctx, t.policy.Model, t.trainer, t.reference, b)
	if err != nil {
		return nil, err
	}
	norm, skipped, err := t.trainer.Update(rate)
	if err != nil {
		return nil, err
	}
	if skipped {
		t.job.Logf("update %d was skipped: its gradient is no finite number", u)
	}
	v := b.describe(outcome, stats)
	v["grad_norm"], v["lr"] = norm, rate
	return v, nil
}

// accumulate adds the gradient of the objective over a batch to the trainer's, and returns the objective's outcome and
// what the model says of each action token. With the KL term in the reward, a pass of both models comes before, because
// advantages need it; policy and reference are then read by the same code, so while they are equal the penalty is 0.
func (s *settings) accumulate(ctx context.Context, policy *lm.Model, trainer *lm.Trainer, reference *lm.Model, b *batch) (*rl.Outcome, lm.TokenStats, error) {
	var penalty []float64
	if s.KL.Place == "reward" && s.KL.Beta != 0 {
		before, err := policy.Stats(ctx, b.sequences, reference, s.Temperature)
		if err != nil {
			return nil, before, fmt.Errorf("divergence for the reward: %w", err)
		}
		penalty = s.Penalty(b.length, before.Logp, before.LogpRef)
	}
	b.advantage(&s.Objective, penalty)
	outcome := &rl.Outcome{}
	stats, err := trainer.Accumulate(ctx, b.sequences, reference, s.Temperature, func(first, n int, stats lm.TokenStats) (lm.Weights, error) {
		part, err := b.evaluate(&s.Objective, first, n, stats)
		if err != nil {
			return lm.Weights{}, err
		}
		outcome.Add(part)
		return lm.Weights{Logp: part.DLogp, KL: part.DKL, Entropy: part.DEntropy}, nil
	})
	return outcome, stats, err
}

// describe is the metrics row of an update, under the names of rl.Metrics.
func (b *batch) describe(o *rl.Outcome, stats lm.TokenStats) map[string]float64 {
	v := rl.GroupsOf(b.trajectories, b.size).Diagnose()
	rl.DescribeEpisodes(b.trajectories, v)
	rl.DescribeRatios(o.LogRatio, v)
	if stats.LogpRef != nil {
		rl.DescribeKL(stats.Logp, stats.LogpRef, stats.KL, v)
	}
	v["mean_abs_advantage"], v["effective_sample_size"] = rl.AdvantageSizes(b.advantages)
	v["loss"], v["kl"], v["clip_fraction"] = o.Loss, o.KL, o.ClipFraction()
	v["entropy"], v["sampler_gap"] = 0, 0
	for i, logp := range stats.Logp {
		v["entropy"] += stats.Entropy[i] / float64(len(stats.Logp))
		v["sampler_gap"] = max(v["sampler_gap"], math.Abs(logp-b.logpSampled[i]))
	}
	return v
}
