//go:build libtorch

package grpo

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"os"
	"slices"
	"strings"
	"time"

	"rcgrpo/bfcl"
	"rcgrpo/engine"
	"rcgrpo/stages/internal/chat"
	"rcgrpo/stages/internal/checkpoint"
	"rcgrpo/stages/internal/lm"
	"rcgrpo/stages/internal/metrics"
	"rcgrpo/stages/internal/resume"
	"rcgrpo/stages/rl"
	"rcgrpo/stages/rl/blocks"
	"rcgrpo/stages/rl/objective"
)

// Run trains under the condition of the checkpoint, or the one that tokens { high } asks for.
func (s *grpo) Run(ctx context.Context, job *engine.Job) error {
	return s.run(ctx, job, func(p *checkpoint.Policy) (*allocation, error) {
		if high := s.Tokens.High; high != nil {
			p.Condition = rl.TokenNone
			if *high == 1 {
				if p.Position == "" {
					return nil, fmt.Errorf("tokens { high = 1 }: this policy has never used reward tokens; start from rctp-ft, or leave high out")
				}
				p.Condition = rl.TokenHigh
			}
		}
		if err := p.Adapt(s.LoRA, job); err != nil {
			return nil, err
		}
		tokens := slices.Repeat([]string{p.Condition}, s.Group)
		return &allocation{conditioning: conditioning{p: 1, high: p.Condition}, name: rl.AllocationIID,
			tokens: func(int, string) []string { return tokens }}, nil
	})
}

// Run trains with a reward token drawn per rollout; the checkpoint conditions on high at inference.
func (s *conditioned) Run(ctx context.Context, job *engine.Job) error {
	return s.run(ctx, job, func(p *checkpoint.Policy) (*allocation, error) {
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
		if err := p.Adapt(s.LoRA, job, chat.RewardTokens...); err != nil {
			return nil, err
		}
		return &allocation{conditioning: conditioning{s.Tokens.High, rl.TokenHigh, rl.TokenLow}, name: s.Tokens.Allocation,
			tokens: func(update int, key string) []string {
				return rl.DrawTokens(s.Tokens.Allocation, s.Tokens.High, s.Group, uint64(job.Seed), update, key)
			}}, nil
	})
}

// allocation is a conditioning with the way in which each group draws from it.
type allocation struct {
	conditioning
	name   string
	tokens allocate
}

// run trains the policy that prepare sets up.
func (s *settings) run(ctx context.Context, job *engine.Job, prepare func(*checkpoint.Policy) (*allocation, error)) error {
	if err := checkpoint.PlanMemory(job, s); err != nil {
		return err
	}
	policy, err := checkpoint.Open(job, s.Policy, s.Arithmetic)
	if err != nil {
		return err
	}
	defer policy.Close()
	tokens, err := prepare(policy)
	if err != nil {
		return err
	}
	t := &training{settings: s, job: job, policy: policy, allocation: tokens, watch: blocks.NewWatch(s.Alarms)}
	defer t.close()
	if err := t.open(); err != nil {
		return err
	}
	for u := t.made + 1; u <= s.Updates && !t.watch.Stopped; u++ {
		if err := t.update(ctx, u); err != nil {
			if !t.ahead && ctx.Err() != nil && errors.Is(err, ctx.Err()) { // told to stop: the weights are those after the last update
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
	*allocation
	job       *engine.Job
	policy    *checkpoint.Policy
	reference *lm.Model // nil when the objective needs none
	trainer   *lm.Trainer
	episodes  *checkpoint.Sampler
	sampling  rl.CollectStats // of the update so far
	groups    *sampler
	heldOut   []*bfcl.Task // for the evaluation while training
	watch     *blocks.Watch
	best      best
	made      int  // updates
	ahead     bool // the weights are those of an update, or of some of its steps, that is not logged yet

	scratch  *resume.Training
	recorded *recorder
	log      *metrics.Log
	kept     *resume.Rows // trajectories
}

// progress is what a state says beside the weights and moments.
type progress struct {
	Taken int               `json:"taken"` // tasks
	Watch blocks.WatchState `json:"watch"`
	Best  best              `json:"best"`
}

// best is the evaluation with the highest reward so far, the first of equals; Update is 0 before the first.
type best struct {
	Update int     `json:"update"`
	Reward float64 `json:"reward"`
}

// bestFolder is the folder of the scratch that holds the best policy as a checkpoint.
const bestFolder = "best"

// open loads what training needs beside the policy. What it opened before an error, close frees.
func (t *training) open() error {
	course, tasks, err := t.course()
	if err != nil {
		return err
	}
	if t.heldOut, err = t.readHeldOut(); err != nil {
		return err
	}
	if t.NeedsReference() {
		if t.reference, err = t.policy.Reference(); err != nil {
			return err
		}
	}
	if t.trainer, err = t.policy.Trainer(*t.Optimizer); err != nil {
		return err
	}
	t.trainer.SetMicroTokens(t.MicroBatch)
	t.trainer.SetRecompute(t.Recompute)
	if t.episodes, err = t.policy.Sampler(t.job, append(tasks, t.heldOut...), *t.Limits, t.Temperature, t.TopP); err != nil {
		return err
	}
	t.episodes.Free = t.Mode == blocks.ModeFast
	t.groups = &sampler{batch: t.Batch, group: t.Group, resample: t.ZeroVariance == "resample", course: course, tokens: t.tokens, collect: t.collect}
	return t.resume()
}

// resume goes back to where an earlier attempt was when it last saved itself; what it sampled since is in the recorder.
func (t *training) resume() (err error) {
	if t.scratch, err = resume.Open(t.job.Dir, t.Checkpoints.Settings()); err != nil {
		return err
	}
	p := progress{Watch: t.watch.WatchState}
	if t.made, err = t.scratch.Restore(&p, t.trainer.Restore); err != nil {
		return err
	}
	for _, sentence := range t.scratch.Passed {
		t.job.Logf("%s", sentence)
	}
	if t.log, err = metrics.Open(t.scratch); err != nil {
		return err
	}
	if t.kept, err = t.scratch.Rows("trajectories.jsonl"); err != nil {
		return err
	}
	if shorter := t.job.Shorter(); t.made == 0 && shorter != nil {
		if err := t.extend(shorter, &p); err != nil {
			return fmt.Errorf("continue from updates = %d: %w", shorter.Length, err)
		}
	}
	t.groups.taken, t.watch.WatchState, t.best = p.Taken, p.Watch, p.Best
	if t.recorded, err = readRecorder(t.scratch, t.made); err != nil {
		return err
	}
	if t.made > 0 || t.recorded.left() > 0 {
		t.job.Logf("going on after update %d, with %d trajectories sampled since", t.made, t.recorded.left())
	}
	return nil
}

// extend begins with what a run with fewer updates has made.
func (t *training) extend(shorter *engine.Shorter, p *progress) error {
	weights, err := shorter.Open("checkpoint")
	if err != nil {
		return err
	}
	curve, err := shorter.Open("metrics")
	if err != nil {
		return err
	}
	rollouts, err := shorter.Open("trajectories")
	if err != nil {
		return err
	}
	t.made = shorter.Length
	err = errors.Join(t.policy.Model.Restore(weights.Dir), t.trainer.LoadState(shorter.State), resume.ReadProgress(shorter.State, p),
		t.log.Begin(curve), t.kept.CopyFrom(rollouts.Path(rl.TrajectoriesFile)))
	if err != nil || p.Best.Update == 0 {
		return err
	}
	winner, err := shorter.Open("best")
	if err != nil {
		return err
	}
	return t.scratch.Replace(bestFolder, func(dir string) error { return os.CopyFS(dir, os.DirFS(winner.Dir)) })
}

// save makes a state of the training as it is between two updates.
func (t *training) save() error {
	return t.scratch.Save(t.made, t.progress(), t.trainer.Save)
}

func (t *training) progress() progress {
	return progress{Taken: t.groups.taken, Watch: t.watch.WatchState, Best: t.best}
}

// collect samples the rollouts that no earlier attempt has finished.
func (t *training) collect(ctx context.Context, list []rl.Rollout) ([]*rl.Trajectory, error) {
	return t.recorded.collect(list, func(rest []rl.Rollout, finished func(int, *rl.Trajectory) error) error {
		_, took, err := t.episodes.Collect(ctx, rest, finished)
		t.sampling.Add(took)
		return err
	})
}

// publish makes the ports, and the state from which a run with more updates can go on.
func (t *training) publish() error {
	if t.Schedule.Extends() == "" {
		state, err := t.job.State()
		if err != nil {
			return err
		}
		if err := errors.Join(t.trainer.SaveState(state), resume.WriteProgress(state, t.progress())); err != nil {
			return err
		}
	}
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
	if err := t.policy.Save(dir); err != nil || t.Evaluate == nil {
		return err
	}
	if dir, err = t.job.Create("best"); err != nil {
		return err
	}
	if t.best.Update == 0 { // the training was shorter than its first evaluation
		return t.policy.Save(dir)
	}
	return os.CopyFS(dir, os.DirFS(t.scratch.Folder(bestFolder)))
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

// update samples groups, learns from them, and logs.
func (t *training) update(ctx context.Context, u int) error {
	values, times := map[string]float64{}, map[string]float64{}
	took := func(name string, work func() error) error {
		start := time.Now()
		err := work()
		times[name] = time.Since(start).Seconds()
		return err
	}
	if t.Forecast != nil && u == 1 {
		if err := took("forecast_s", func() error { return t.forecast(ctx, values) }); err != nil {
			return fmt.Errorf("forecast: %w", err)
		}
	}
	var trajectories []*rl.Trajectory
	before := t.groups.taken
	t.sampling = rl.CollectStats{}
	err := took("rollout_s", func() (err error) {
		var sampled int
		trajectories, sampled, err = t.groups.update(ctx, u)
		values["groups_sampled"] = float64(sampled)
		return cmp.Or(err, ctx.Err())
	})
	if err == nil {
		describeSampling(t.sampling, times)
		err = took("update_s", func() error { return t.learn(ctx, u, newBatch(trajectories, t.Group), values) })
	}
	if err != nil {
		t.groups.taken = before // as if it had not begun
		return err
	}
	times["tokens_per_s"] = values["tokens"] / (times["rollout_s"] + times["update_s"])
	if e := t.Evaluate; e != nil && u%e.Every == 0 {
		if err := took("eval_s", func() error { return t.evaluate(ctx, u, values) }); err != nil {
			return fmt.Errorf("evaluation: %w", err)
		}
		if reward := values["eval_reward"]; t.best.Update == 0 || reward > t.best.Reward {
			if err := t.scratch.Replace(bestFolder, t.policy.Save); err != nil {
				return err
			}
			t.best = best{u, reward}
		}
	}
	times["peak_memory"] = metrics.PeakMemory()
	if err := t.log.Write(rl.Metric{Update: u, Values: values}, times); err != nil {
		return err
	}
	if t.Keep > 0 && u%t.Keep == 0 {
		for _, tr := range trajectories {
			if err := t.kept.Append(tr); err != nil {
				return err
			}
		}
	}
	t.made, t.ahead = u, false
	t.job.Progress(u, t.Updates, "updates", engine.Value{Name: "reward", Value: values["reward"]},
		engine.Value{Name: "zero-variance", Value: values["zero_variance"]})
	return nil
}

// learn makes the optimizer steps of update u, and adds its metrics to v. A step that an alarm leaves out ends the update.
func (t *training) learn(ctx context.Context, u int, b *batch, v map[string]float64) error {
	if err := t.withinMemory(b, func() error { return t.prepare(ctx, t.trainer, t.reference, b) }); err != nil {
		return err
	}
	parts := b.minibatches(&t.Objective)
	steps, taken, norms := t.Passes*len(parts), 0, 0.0
	var all objective.Outcome // sums over steps
	for step := range steps {
		part := parts[step%len(parts)]
		var outcome *objective.Outcome
		var stats lm.TokenStats
		err := t.withinMemory(part, func() (err error) {
			outcome, stats, err = t.accumulate(ctx, t.trainer, t.reference, part)
			return err
		})
		if err != nil {
			return err
		}
		norm, err := t.trainer.Norm()
		if err != nil {
			return err
		}
		all.Add(outcome)
		norms += norm
		observed := map[string]float64{"loss": outcome.Loss, "grad_norm": norm} // what alarms learn of a later step
		if step == 0 {
			before := stats
			if steps > 1 {
				before = b.before
			}
			b.describe(&t.Objective, before, v)
			t.describeSampler(u, b, before, v)
			maps.Copy(v, observed)
			observed = v
		}
		t.ahead = true
		apply := t.heed(u, step, observed, v)
		rate := t.Schedule.Rate(u-1, t.Updates, t.LR) * t.watch.Rate
		skipped := !apply
		if apply {
			_, skipped, err = t.trainer.Update(rate)
		} else {
			err = t.trainer.Drop()
		}
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
		if !apply {
			steps = step + 1 // the rest is left out
			break
		}
	}
	v["micro_batch"] = float64(t.trainer.MicroTokens())
	v["loss"], v["grad_norm"] = all.Loss/float64(steps), norms/float64(steps)
	b.describeOutcome(&t.Objective, &all, steps, v)
	v["skipped"] = 1 - float64(taken)/float64(t.Passes*len(parts))
	if taken == 0 {
		v["lr"] = 0
	}
	return nil
}

func (t *training) withinMemory(b *batch, work func() error) error {
	return checkpoint.WithinMemory(t.job, &t.Split, t.trainer, b.sequences, work)
}

// dump keeps the batch of an update whose gradient is no finite number, says where, and returns the error that ends the
// training, if it does.
func (t *training) dump(u int, b *batch, stats lm.TokenStats, end error) error {
	var rows []metrics.Skipped
	for i, tr := range b.trajectories {
		reward, advantage := metrics.Number(float64(tr.Reward)), metrics.Number(b.advantages[i])
		rows = append(rows, metrics.Skipped{Update: u, Task: tr.Task, Token: tr.Token, Reward: &reward, Advantage: &advantage,
			Logp: metrics.Numbers(stats.Logp[b.first[i] : b.first[i]+b.length[i]]), Text: t.policy.Tokenizer.Decode(tr.IDs, false), IDs: tr.IDs, Mask: tr.Mask})
	}
	return t.log.Dump(t.job, u, rows, end)
}

// heed evaluates the alarms on the values of an optimizer step, logs them in v, and says whether its gradient is applied.
func (t *training) heed(u, step int, observed, v map[string]float64) (apply bool) {
	at := fmt.Sprintf("update %d", u)
	if step > 0 {
		at += fmt.Sprintf(", optimizer step %d", step+1)
	}
	raised := t.watch.Observe(observed)
	apply = true
	for _, a := range t.Alarms {
		if step == 0 {
			v["alarm_"+a.Name] = 0
		}
		action, ok := raised[a.Name]
		if !ok {
			continue
		}
		v["alarm_"+a.Name] = 1
		switch action {
		case blocks.ActionStop:
			apply = false
			t.job.Logf("%s: alarm %s stops the training; the policy before it is its result", at, a.Name)
		case blocks.ActionSkip:
			apply = false
			t.job.Logf("%s: alarm %s leaves it out", at, a.Name)
		case blocks.ActionLowerRate:
			t.job.Logf("%s: alarm %s lowers the learning rate to %g of its course", at, a.Name, t.watch.Rate)
		}
	}
	return apply
}

// prepare completes a batch before the first optimizer step of its update. Where the update makes several steps, the old
// policy's log-probabilities are those of this training forward, taken in the minibatches of the steps, so that the first
// ratio is exactly 1. With the KL term in the reward the advantages need both models; they are read by the same code, so
// while they are equal the penalty is 0.
func (s *settings) prepare(ctx context.Context, trainer *lm.Trainer, reference *lm.Model, b *batch) error {
	several := s.Steps(len(b.trajectories)/b.size) > 1
	penalised := s.KL.Place == "reward" && s.KL.Beta != 0
	var penalty []float64
	if several || penalised {
		b.before = lm.TokenStats{}
		perStep := len(b.sequences)
		if s.Minibatches > 0 {
			perStep = min(perStep, s.Minibatches*b.size)
		}
		for sequences := range slices.Chunk(b.sequences, perStep) {
			stats, err := trainer.Stats(ctx, sequences, reference, s.Temperature)
			if err != nil {
				return fmt.Errorf("log-probabilities before the update: %w", err)
			}
			b.before.Append(stats)
		}
	}
	if several {
		b.logpOld = b.before.Logp
	}
	if penalised {
		penalty = s.Penalty(b.length, b.before.Logp, b.before.LogpRef)
	}
	b.advantage(&s.Objective, penalty)
	return nil
}

// accumulate adds the gradient of the objective over a batch that is complete to the trainer's, and returns the
// objective's outcome and what the model says of each action token.
func (s *settings) accumulate(ctx context.Context, trainer *lm.Trainer, reference *lm.Model, b *batch) (*objective.Outcome, lm.TokenStats, error) {
	outcome := &objective.Outcome{}
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

// describe adds what is known of an update before its first step to v, under the names of objective.Metrics. stats are the old
// policy's.
func (b *batch) describe(o *objective.Objective, stats lm.TokenStats, v map[string]float64) {
	maps.Copy(v, objective.GroupsOf(b.trajectories, b.size).Diagnose())
	objective.DescribeEpisodes(b.trajectories, v)
	if stats.LogpRef != nil {
		objective.DescribeKL(stats.Logp, stats.LogpRef, stats.KL, v)
	}
	v["mean_abs_advantage"], v["effective_sample_size"] = objective.AdvantageSizes(b.advantages)
	objective.DescribeSampler(stats.Logp, b.logpSampled, v)
	v["entropy"] = 0
	for _, h := range stats.Entropy {
		v["entropy"] += h / float64(len(stats.Entropy))
	}
	if o.KL.Beta != 0 && o.KL.Place == "loss" {
		v["kl_weight"] = o.KLWeight(&objective.Batch{Length: b.length, Skip: b.skip, Turn: b.turn}, b.totals)
	}
}

// describeOutcome adds what the optimizer steps of an update came to, given the sum of their outcomes.
func (b *batch) describeOutcome(o *objective.Objective, sum *objective.Outcome, steps int, v map[string]float64) {
	v["kl"] = sum.KL / float64(steps)
	for _, p := range b.penalty {
		v["kl"] += p / o.KL.Beta / float64(len(b.penalty))
	}
	if o.RatiosVary(len(b.trajectories) / b.size) {
		v["clip_fraction"] = sum.ClipFraction()
		objective.DescribeRatios(sum.LogRatio, v)
	}
}

// describeSampler logs how sampled and recomputed log-probabilities differ, and leaves the figures out where the sampler's
// distribution is another.
func (t *training) describeSampler(u int, b *batch, stats lm.TokenStats, v map[string]float64) {
	if t.TopP < 1 {
		maps.DeleteFunc(v, func(name string, _ float64) bool { return strings.HasPrefix(name, "sampler_gap") })
	} else if u == 1 || u == t.Updates {
		t.job.Logf("update %d: log-probabilities as sampled and as recomputed differ by %.2g at the median, %.2g and %.2g at 95 and 99 %%, %.2g at most, over %d tokens",
			u, v["sampler_gap_p50"], v["sampler_gap_p95"], v["sampler_gap_p99"], v["sampler_gap"], len(stats.Logp))
	}
}
