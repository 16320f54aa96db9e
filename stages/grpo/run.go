//go:build libtorch

package grpo

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"math"
	"os"
	"slices"
	"time"

	"rcgrpo/bfcl"
	"rcgrpo/engine"
	"rcgrpo/engine/runs"
	"rcgrpo/stages/internal/chat"
	"rcgrpo/stages/internal/checkpoint"
	"rcgrpo/stages/internal/lm"
	"rcgrpo/stages/internal/ranks"
	"rcgrpo/stages/internal/resume"
	"rcgrpo/stages/internal/sampling"
	"rcgrpo/stages/internal/train"
	"rcgrpo/stages/rl"
	"rcgrpo/stages/rl/objective"
)

// Run trains under the condition of the checkpoint or of tokens { high }.
func (s *grpo) Run(ctx context.Context, job *engine.Job) error {
	return s.run(ctx, job, func(p *checkpoint.Policy) (*conditioning, error) {
		if high := s.Tokens.High; high != nil {
			p.Condition = rl.TokenNone
			if *high == 1 {
				if p.Position == "" {
					return nil, fmt.Errorf("tokens { high = 1 }: this policy has never used reward tokens; start from " +
						"rctp-ft, or omit high")
				}
				p.Condition = rl.TokenHigh
			}
		}
		if err := p.EnableLoRA(s.LoRA, job); err != nil {
			return nil, err
		}
		tokens := slices.Repeat([]string{p.Condition}, s.Group)
		return &conditioning{p: 1, high: p.Condition, allocation: rl.AllocationIID,
			draw: func(int, string) []string { return tokens }}, nil
	})
}

// Run trains with a reward token drawn per rollout. The checkpoint conditions on high at inference.
func (s *conditioned) Run(ctx context.Context, job *engine.Job) error {
	s.Advantage.Baseline = s.Tokens.Baseline
	return s.run(ctx, job, func(p *checkpoint.Policy) (*conditioning, error) {
		position := s.Tokens.Position
		if position == "checkpoint" {
			position = cmp.Or(p.Position, rl.FirstUser)
		}
		if err := p.UseTokens(position, s.Tokens.Init); err != nil {
			return nil, err
		}
		p.Trained, p.Condition = true, rl.TokenHigh
		if err := p.EnableLoRA(s.LoRA, job, chat.RewardTokens...); err != nil {
			return nil, err
		}
		return &conditioning{
			p: s.Tokens.High, high: rl.TokenHigh, low: rl.TokenLow,
			allocation: s.Tokens.Allocation, onlyHigh: s.Tokens.Learn == "high",
			draw: func(update int, key string) []string {
				return rl.DrawTokens(s.Tokens.Allocation, s.Tokens.High, s.Group, uint64(job.Seed), update, key)
			},
		}, nil
	})
}

// run trains the policy under the reward tokens that condition prepares it for.
func (s *settings) run(ctx context.Context, job *engine.Job,
	condition func(*checkpoint.Policy) (*conditioning, error)) error {
	policy, _, err := checkpoint.Open(job, s)
	if err != nil {
		return err
	}
	defer policy.Close()
	tokens, err := condition(policy)
	if err != nil {
		return err
	}
	t := &training{settings: s, tokens: tokens}
	t.run = &train.Training{Settings: &s.Settings, Job: job, Policy: policy, LengthSetting: "updates", UpdatesPerUnit: 1,
		Progress: &t.state}
	defer t.close()
	if err := t.open(ctx); err != nil {
		return err
	}
	if err := t.run.Loop(ctx, s.Updates, t.update); err != nil {
		return err
	}
	return t.publish()
}

// training is the state of one stage. The functions of an update are its methods; package train owns what is common
// to all trainings: the policy's optimizer, the log, saved states and the ranks.
type training struct {
	settings  *settings
	tokens    *conditioning
	run       *train.Training
	reference *lm.Model // nil if the objective needs none
	episodes  *sampling.Collector
	collected rl.CollectStats // times of the rollouts of the current update
	groups    *groupSource
	heldOut   []*bfcl.Task // tasks of the evaluation during training
	state     progress     // state after the last complete update
	recorded  *recorder
	stored    *resume.Rows // rows of the port trajectories
}

// progress is the part of a saved state beside weights and moments.
type progress struct {
	Taken int  `json:"taken"` // tasks
	Best  best `json:"best"`
}

// best is the evaluation with the highest reward so far, the first of equals. Update is 0 before the first.
type best struct {
	Update int     `json:"update"`
	Reward float64 `json:"reward"`
}

// bestFolder is the folder of the scratch that holds the best policy as a checkpoint.
const bestFolder = "best"

// open loads tasks and models, and resumes from the last saved state. Trajectories sampled since then come from
// the recorder. close frees what was opened before an error.
func (t *training) open(ctx context.Context) error {
	tasks, err := t.readSets(t.settings.Tasks)
	if err != nil {
		return err
	}
	if t.settings.Evaluate != nil {
		if t.heldOut, err = t.readSets(t.settings.Evaluate.Tasks); err != nil {
			return err
		}
	}
	if t.settings.NeedsReference() {
		if t.reference, err = t.run.Policy.Reference(); err != nil {
			return err
		}
	}
	if err := t.run.Open(); err != nil {
		return err
	}
	played := slices.Concat(tasks, t.heldOut)
	t.episodes, err = sampling.Open(ctx, t.run.Job, t.run.Policy, played, *t.settings.Limits, t.settings.Temperature,
		t.settings.TopP)
	if err != nil {
		return err
	}
	if err := t.episodes.UseAgent(t.settings.Agent, t.run.Policy, t.run.Job, played); err != nil {
		return err
	}
	if t.stored, err = t.run.Scratch.Rows("trajectories.jsonl"); err != nil {
		return err
	}
	if err := t.run.ResumeShorter(t.extend); err != nil {
		return err
	}
	t.groups = &groupSource{
		batch: t.settings.Batch, group: t.settings.Group, resample: t.settings.ZeroVariance == "resample",
		course: &course{tasks: tasks, rand: t.run.Job.Rand}, taken: t.state.Taken,
		tokens: t.tokens.draw, collect: t.collect,
	}
	if t.recorded, err = readRecorder(t.run.Scratch, t.run.Made); err != nil {
		return err
	}
	if t.run.Made > 0 || t.recorded.left() > 0 {
		t.run.Job.Logf("resuming after update %d, with %d trajectories sampled since", t.run.Made, t.recorded.left())
	}
	return nil
}

// extend copies the trajectories and the best policy of a run with fewer updates.
func (t *training) extend(shorter *engine.Shorter) error {
	rollouts, err := shorter.Open("trajectories")
	if err != nil {
		return err
	}
	err = t.stored.CopyFrom(rollouts.Path(rl.TrajectoriesFile))
	if err != nil || t.state.Best.Update == 0 {
		return err
	}
	winner, err := shorter.Open("best")
	if err != nil {
		return err
	}
	return t.run.Scratch.Replace(bestFolder, func(dir string) error {
		if t.run.Job.Rank > 0 {
			return nil
		}
		return os.CopyFS(dir, os.DirFS(winner.Dir))
	})
}

// collect samples the rollouts of groups that no earlier attempt finished.
func (t *training) collect(ctx context.Context, list []rl.Rollout) ([]*rl.Trajectory, error) {
	return t.spread(ctx, list, t.settings.Group, func(list []rl.Rollout) ([]*rl.Trajectory, error) {
		return t.recorded.collect(list, func(rest []rl.Rollout, finished func(int, *rl.Trajectory) error) error {
			_, took, err := t.episodes.Collect(ctx, rest, finished)
			t.collected.Add(took)
			return err
		})
	})
}

// spread deals the rollouts of a list to the ranks, some adjacent ones to each in turn, and returns the trajectories
// of all ranks in the order of the list.
func (t *training) spread(ctx context.Context, list []rl.Rollout, adjacent int,
	sample func([]rl.Rollout) ([]*rl.Trajectory, error)) ([]*rl.Trajectory, error) {
	r, groups := t.run.Peers.Rank, slices.Collect(slices.Chunk(list, adjacent))
	dealt, err := sample(slices.Concat(ranks.Dealt(r, groups)...))
	if err := checkpoint.Sync(ctx, r, "rollout", err); err != nil {
		return nil, err
	}
	all, err := ranks.Merge(r, slices.Collect(slices.Chunk(dealt, adjacent)), len(groups))
	return slices.Concat(all...), err
}

func (t *training) publish() error {
	if err := t.run.Publish(); err != nil {
		return err
	}
	if t.run.Job.Rank > 0 {
		if t.settings.Evaluate != nil && t.state.Best.Update == 0 {
			return t.run.Policy.Save("") // all ranks save together, into the folder that rank 0 creates below
		}
		return nil
	}
	dir, err := t.run.Job.Create("trajectories")
	if err != nil {
		return err
	}
	if err := t.stored.CopyTo(dir, rl.TrajectoriesFile); err != nil || t.settings.Evaluate == nil {
		return err
	}
	if dir, err = t.run.Job.Create("best"); err != nil {
		return err
	}
	if t.state.Best.Update == 0 { // the training was shorter than its first evaluation
		return t.run.Policy.Save(dir)
	}
	return os.CopyFS(dir, os.DirFS(t.run.Scratch.Folder(bestFolder)))
}

func (t *training) close() {
	t.run.Close()
	if t.reference != nil {
		t.reference.Close()
	}
	if t.episodes != nil {
		t.episodes.Close(t.run.Job)
	}
}

func (t *training) update(ctx context.Context, u int) error {
	values, times := map[string]float64{}, map[string]float64{}
	took := func(name string, work func() error) error {
		start := time.Now()
		err := work()
		times[name] = time.Since(start).Seconds()
		return err
	}
	if t.settings.Forecast != nil && u == 1 {
		if err := took("forecast_s", func() error { return t.forecast(ctx, values) }); err != nil {
			return fmt.Errorf("forecast: %w", err)
		}
	}
	var trajectories []*rl.Trajectory
	before := t.groups.taken
	t.collected = rl.CollectStats{}
	err := took("rollout_s", func() (err error) {
		var sampled int
		trajectories, sampled, err = t.groups.rollout(ctx, u)
		values["groups_sampled"] = float64(sampled)
		return t.run.Sync(ctx, "gradient", cmp.Or(err, ctx.Err()))
	})
	if err == nil {
		describeSampling(t.collected, times)
		err = took("update_s", func() error { return t.learn(ctx, u, newBatch(trajectories, t.settings.Group), values) })
	}
	if err != nil {
		t.groups.taken = before // a repeated update takes the same tasks
		return err
	}
	times["tokens_per_s"] = values["tokens"] / (times["rollout_s"] + times["update_s"])
	if e := t.settings.Evaluate; e != nil && u%e.Every == 0 {
		var reward float64
		err := took("eval_s", func() (err error) { reward, err = t.evaluate(ctx, u, values); return err })
		if err != nil {
			return fmt.Errorf("evaluation: %w", err)
		}
		if t.state.Best.Update == 0 || reward > t.state.Best.Reward {
			if err := t.run.Scratch.Replace(bestFolder, t.run.Policy.Save); err != nil {
				return err
			}
			t.state.Best = best{u, reward}
		}
	}
	times["peak_memory"] = train.PeakMemory()
	if err := t.run.Log.Write(rl.Metric{Update: u, Values: values}, times); err != nil {
		return err
	}
	if t.settings.Keep > 0 && u%t.settings.Keep == 0 {
		for _, tr := range trajectories {
			if err := t.stored.Append(tr); err != nil {
				return err
			}
		}
	}
	t.state.Taken = t.groups.taken
	t.run.Job.Progress(u, t.settings.Updates, "updates", runs.Value{Name: "reward", Value: values["reward"]},
		runs.Value{Name: "without variance", Value: values["zero_variance"]})
	return nil
}

// learn makes the optimizer steps of update u and adds its metrics to v. A step without a finite gradient
// is skipped.
func (t *training) learn(ctx context.Context, u int, b *updateBatch, v map[string]float64) error {
	if err := t.settings.completeBatch(ctx, t.run.Trainer, t.reference, b); err != nil {
		return t.settings.AdviseMemory(b.sequences, err)
	}
	t.tokens.restrict(b)
	v["lr"] = 0
	parts := b.minibatches(&t.settings.Objective)
	steps, taken, norms := t.settings.Passes*len(parts), 0, 0.0
	var all objective.Outcome // sums over steps
	for step := range steps {
		part := parts[step%len(parts)]
		outcome, stats, norm, err := t.gradient(ctx, part)
		if err != nil {
			return err
		}
		all.Add(outcome)
		norms += norm
		if step == 0 {
			before := stats
			if steps > 1 {
				before = b.before
			}
			b.describe(&t.settings.Objective, before, v)
			t.describeSampler(u, b, before, v)
		}
		t.run.Ahead = true // from here on the weights change
		rate := t.settings.Schedule.Rate(u-1, t.settings.Updates, t.settings.LR)
		_, skipped, err := t.run.Trainer.Update(rate)
		if math.IsNaN(norm) || math.IsInf(norm, 0) {
			err = t.dump(u, part, stats, err)
		}
		if err != nil {
			return err
		}
		if !skipped {
			taken++
			v["lr"] = rate
		}
	}
	v["loss"], v["grad_norm"] = all.Loss/float64(steps), norms/float64(steps)
	b.describeOutcome(&t.settings.Objective, &all, steps, v)
	v["skipped"] = 1 - float64(taken)/float64(steps)
	return nil
}

// gradient accumulates the gradient of an optimizer step and returns its norm.
func (t *training) gradient(
	ctx context.Context, b *updateBatch,
) (outcome *objective.Outcome, stats lm.TokenStats, norm float64, err error) {
	outcome, stats, err = t.settings.accumulate(ctx, t.run.Trainer, t.reference, b)
	if err != nil {
		return nil, stats, 0, t.settings.AdviseMemory(b.sequences, err)
	}
	norm, err = t.run.Trainer.Norm()
	return outcome, stats, norm, err
}

// dump stores the batch of an update without a finite gradient. It returns the error that ends the training, or
// nil.
func (t *training) dump(u int, b *updateBatch, stats lm.TokenStats, end error) error {
	return t.run.Skip(u, b.sequences, stats.Logp, func(i int, row *train.Skipped) {
		of := b.trajectories[b.owner[i]]
		reward, advantage := train.Number(float64(of.Reward)), train.Number(b.Advantage[i])
		row.Task, row.Token, row.Reward, row.Advantage = of.Task, of.Token, &reward, &advantage
	}, end)
}

// completeBatch gives a batch its advantages, and the logprobs of the old policy if a step needs them. If the update
// makes several steps, the old policy's logprobs are those of this training forward, computed in the
// minibatches of the steps, so the first ratio is exactly 1. With the KL term in the reward, the advantages need both
// models; the same code evaluates both, so equal models give penalty 0.
func (s *settings) completeBatch(ctx context.Context, trainer *lm.Trainer, reference *lm.Model,
	b *updateBatch) error {
	several := s.Steps(len(b.trajectories)/b.size) > 1
	if several || s.KL.Place == "reward" && s.KL.Beta != 0 {
		b.before = lm.TokenStats{}
		for _, step := range b.minibatches(&s.Objective) {
			parts := step.parts(s.GradientParts)
			stats, err := train.Each(ctx, parts, trainer, false, func(groups []int) (lm.TokenStats, error) {
				return trainer.Stats(ctx, step.partOf(groups).sequences, reference, s.Temperature)
			})
			if err != nil {
				return fmt.Errorf("logprobs before the update: %w", err)
			}
			b.before.Append(parts.Stats(stats))
		}
	}
	if several {
		b.LogpOld = b.before.Logp
	}
	b.advantage(&s.Objective, s.KLPenalty(b.Length, b.before.Logp, b.before.LogpRef))
	return nil
}

// accumulate adds the gradient of the objective over a complete batch to the trainer's, part by part. It returns
// the outcome and the statistics of each token of the mask.
func (s *settings) accumulate(ctx context.Context, trainer *lm.Trainer, reference *lm.Model,
	b *updateBatch) (*objective.Outcome, lm.TokenStats, error) {
	type result struct {
		Outcome objective.Outcome
		Stats   lm.TokenStats
	}
	parts := b.parts(s.GradientParts)
	results, err := train.Each(ctx, parts, trainer, true, func(groups []int) (r result, err error) {
		part := b.partOf(groups)
		r.Stats, err = trainer.Accumulate(ctx, part.sequences, reference, s.Temperature,
			func(first, n int, stats lm.TokenStats) (lm.Weights, error) {
				o, err := part.evaluate(&s.Objective, first, n, stats)
				if err != nil {
					return lm.Weights{}, err
				}
				r.Outcome.Add(o)
				return lm.Weights{Logp: o.DLogp, KL: o.DKL, Entropy: o.DEntropy}, nil
			})
		return r, err
	})
	if err != nil {
		return nil, lm.TokenStats{}, err
	}
	total, stats := &objective.Outcome{}, []lm.TokenStats(nil)
	for i := range results {
		total.Add(&results[i].Outcome)
		stats = append(stats, results[i].Stats)
	}
	return total, parts.Stats(stats), nil
}

// parts divides the groups of a batch into partial gradients.
func (b *updateBatch) parts(n int) *train.Parts {
	groups := make([][]lm.Sequence, b.groups())
	for i, owner := range b.owner {
		groups[owner/b.size] = append(groups[owner/b.size], b.sequences[i])
	}
	return train.NewParts(groups, n)
}

// describe adds the values of an update before its first step to v. stats are those of the old policy.
func (b *updateBatch) describe(o *objective.Objective, stats lm.TokenStats, v map[string]float64) {
	maps.Copy(v, objective.GroupsOf(b.trajectories, b.size).Diagnose())
	objective.DescribeEpisodes(b.trajectories, v)
	o.DescribeTerms(b.trajectories, v)
	if stats.LogpRef != nil {
		objective.DescribeKL(stats.Logp, stats.LogpRef, stats.KL, v)
	}
	v["mean_abs_advantage"], v["effective_sample_size"] = objective.AdvantageSizes(b.Advantage)
	o.Correction.Describe(b.Length, stats.Logp, b.LogpSampled, v)
	v["entropy"] = 0
	for _, h := range stats.Entropy {
		v["entropy"] += h / float64(len(stats.Entropy))
	}
	if o.KL.Beta != 0 && o.KL.Place == "loss" {
		v["kl_weight"] = o.KLWeight(&b.Batch, b.totals)
	}
}

// describeOutcome adds the values of an update's optimizer steps, given the sum of their outcomes.
func (b *updateBatch) describeOutcome(o *objective.Objective, sum *objective.Outcome, steps int, v map[string]float64) {
	v["kl"] = sum.KL / float64(steps)
	for _, p := range b.klPenalty {
		v["kl"] += p / o.KL.Beta / float64(len(b.klPenalty))
	}
	if o.RatiosVary(len(b.trajectories) / b.size) {
		v["clip_fraction"] = sum.ClipFraction()
		objective.DescribeRatios(sum.LogRatio, v)
	}
}

// describeSampler adds the differences between sampled and recomputed logprobs, unless top_p changes the sampler's
// distribution. The log of the stage has those of the first and the last update.
func (t *training) describeSampler(u int, b *updateBatch, stats lm.TokenStats, v map[string]float64) {
	if t.settings.TopP < 1 {
		return
	}
	objective.DescribeSampler(stats.Logp, b.LogpSampled, v)
	if u == 1 || u == t.settings.Updates {
		t.run.Job.Logf("update %d: sampled and recomputed logprobs differ by %.2g at the median, %.2g and %.2g at 95 "+
			"and 99 %%, %.2g at most, over %d tokens", u, v["sampler_gap_p50"], v["sampler_gap_p95"],
			v["sampler_gap_p99"], v["sampler_gap"], len(stats.Logp))
	}
}
