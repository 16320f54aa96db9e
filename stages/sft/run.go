//go:build libtorch

package sft

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"rcgrpo/engine"
	"rcgrpo/engine/artifact"
	"rcgrpo/stages/internal/chat"
	"rcgrpo/stages/internal/checkpoint"
	"rcgrpo/stages/internal/lm"
	"rcgrpo/stages/internal/metrics"
	"rcgrpo/stages/internal/resume"
	"rcgrpo/stages/rl"
)

// Run fine-tunes without reward token. The checkpoint keeps what its start knew about tokens, but conditions on none.
func (s *sft) Run(ctx context.Context, job *engine.Job) error {
	return s.run(ctx, job, func(p *checkpoint.Policy) error {
		p.Condition = rl.TokenNone
		return p.Adapt(s.LoRA, job)
	}, false)
}

// Run fine-tunes with each trajectory's reward token. The checkpoint conditions on high from here on.
func (s *rctp) Run(ctx context.Context, job *engine.Job) error {
	return s.run(ctx, job, func(p *checkpoint.Policy) error {
		if err := p.UseTokens(s.Tokens.Position, s.Tokens.Init); err != nil {
			return err
		}
		p.Trained, p.Condition = true, rl.TokenHigh
		return p.Adapt(s.LoRA, job, chat.RewardTokens...)
	}, true)
}

// run is the training of both kinds; prepare sets up the policy, conditioned says whether trajectories carry their token.
func (s *settings) run(ctx context.Context, job *engine.Job, prepare func(*checkpoint.Policy) error, conditioned bool) error {
	if err := checkpoint.PlanMemory(job, s); err != nil {
		return err
	}
	policy, err := checkpoint.Open(job, s.Policy, s.Arithmetic)
	if err != nil {
		return err
	}
	defer policy.Close()
	if err := prepare(policy); err != nil {
		return err
	}
	examples, err := s.examples(job, policy, conditioned)
	if err != nil {
		return err
	}
	_, use := s.MemoryUse()
	c, longest := policy.Model.Config(), 0
	for _, e := range examples {
		longest = max(longest, len(e.IDs))
	}
	if err := checkpoint.PlanPass(job, c, use(c), longest); err != nil {
		return err
	}
	if err := s.train(ctx, job, policy, examples); err != nil {
		return err
	}
	dir, err := job.Create("checkpoint")
	if err != nil {
		return err
	}
	return policy.Save(dir)
}

// examples encodes the data sets with the policy's own layout.
func (s *settings) examples(job *engine.Job, policy *checkpoint.Policy, conditioned bool) ([]lm.Sequence, error) {
	codec, err := policy.Codec(job.Site.BFCL)
	if err != nil {
		return nil, err
	}
	longest := policy.Model.Config().MaxPosition
	var examples []lm.Sequence
	missing, long := 0, 0
	for _, ref := range s.Data {
		data, err := job.Open(ref)
		if err != nil {
			return nil, err
		}
		for t, err := range artifact.Rows[rl.Trajectory](data, rl.DatasetFile) {
			if err != nil {
				return nil, err
			}
			if t.Reward.Missing() { // the environment failed: neither an expert nor a failure
				missing++
				continue
			}
			given := rl.TokenNone
			if conditioned {
				given = t.Token
			}
			ids, learn := chat.Encode(codec, &t, given)
			if s.Context > 0 && len(ids) > s.Context {
				long++
				continue
			}
			if len(ids) > longest {
				return nil, fmt.Errorf("task %s has %d tokens, the model takes %d; leave longer trajectories out (context = %d), or raise the context of the model's architecture",
					t.Task, len(ids), longest, longest)
			}
			examples = append(examples, lm.Sequence{IDs: ids, Learn: learn})
		}
	}
	if missing > 0 {
		job.Logf("%s left out: the environment failed, so they have no reward", engine.Plural(missing, "trajectory"))
	}
	if long > 0 {
		job.Logf("%s left out: more than %d tokens (context)", engine.Plural(long, "trajectory"), s.Context)
	}
	if len(examples) == 0 {
		return nil, fmt.Errorf("the data sets hold no trajectory to learn: %d have no reward and %d have more tokens than context", missing, long)
	}
	return examples, nil
}

// training is the state of a run.
type training struct {
	*settings
	job     *engine.Job
	policy  *checkpoint.Policy
	trainer *lm.Trainer
	scratch *resume.Training
	log     *metrics.Log
	made    int // updates
}

// progress is what a state says beside the weights and moments: nothing, for the order of the batches follows from the seed.
type progress struct{}

// train makes all updates and the port metrics. It begins where an earlier attempt last saved itself.
func (s *settings) train(ctx context.Context, job *engine.Job, policy *checkpoint.Policy, examples []lm.Sequence) (err error) {
	t := &training{settings: s, job: job, policy: policy}
	if t.trainer, err = policy.Trainer(*s.Optimizer); err != nil {
		return err
	}
	defer t.trainer.Close()
	t.trainer.SetMicroTokens(s.MicroBatch)
	t.trainer.SetRecompute(s.Recompute)
	if t.scratch, err = resume.Open(job.Dir, s.Checkpoints.Settings()); err != nil {
		return err
	}
	defer t.scratch.Close()
	if t.made, err = t.scratch.Restore(&progress{}, t.trainer.Restore); err != nil {
		return err
	}
	for _, sentence := range t.scratch.Passed {
		job.Logf("%s", sentence)
	}
	if t.log, err = metrics.Open(t.scratch); err != nil {
		return err
	}
	order := job.Rand("order of examples")
	perEpoch := (len(examples) + s.Batch - 1) / s.Batch
	if shorter := job.Shorter(); t.made == 0 && shorter != nil {
		if err := t.extend(policy.Model, shorter, perEpoch); err != nil {
			return fmt.Errorf("continue from epochs = %d: %w", shorter.Length, err)
		}
	}
	if t.made > 0 {
		job.Logf("going on after update %d", t.made)
	}
	for epoch := range s.Epochs {
		for i, batch := range batches(order, examples, s.Batch) {
			u := epoch*perEpoch + i + 1
			if u <= t.made {
				continue
			}
			if err := t.step(ctx, u, perEpoch*s.Epochs, batch); err != nil {
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
	}
	return t.publish()
}

// extend begins with what a run with fewer epochs has made.
func (t *training) extend(model *lm.Model, shorter *engine.Shorter, perEpoch int) error {
	weights, err := shorter.Open("checkpoint")
	if err != nil {
		return err
	}
	curve, err := shorter.Open("metrics")
	if err != nil {
		return err
	}
	t.made = shorter.Length * perEpoch
	return errors.Join(model.Restore(weights.Dir), t.trainer.LoadState(shorter.State), t.log.Begin(curve))
}

// publish makes the port metrics, and the state from which a run with more epochs can go on.
func (t *training) publish() error {
	if t.Schedule.Extends() == "" {
		state, err := t.job.State()
		if err != nil {
			return err
		}
		if err := t.trainer.SaveState(state); err != nil {
			return err
		}
	}
	return t.log.Publish(t.job)
}

// save makes a state of the training as it is between two updates.
func (t *training) save() error { return t.scratch.Save(t.made, progress{}, t.trainer.Save) }

// step makes update u of total and logs it.
func (t *training) step(ctx context.Context, u, total int, batch []lm.Sequence) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	start := time.Now()
	row, stats, skipped, err := t.update(ctx, t.job, t.trainer, batch, t.Schedule.Rate(u-1, total, t.LR))
	if skipped {
		err = t.dump(u, batch, stats, err)
	}
	if err != nil {
		return err
	}
	t.made = u
	row.Values["skipped"] = 0
	if skipped {
		row.Values["skipped"] = 1
	}
	seconds := time.Since(start).Seconds()
	row.Update = u
	if err := t.log.Write(row, map[string]float64{"update_s": seconds, "tokens_per_s": row.Values["tokens"] / seconds}); err != nil {
		return err
	}
	t.job.Progress(u, total, "updates", engine.Value{Name: "loss", Value: row.Values["loss"]})
	return nil
}

// dump keeps the batch of an update that was skipped, says where, and returns the error that ends the training, if it does.
func (t *training) dump(u int, batch []lm.Sequence, stats lm.TokenStats, end error) error {
	var rows []metrics.Skipped
	logp := stats.Logp
	for _, e := range batch {
		own := 0
		for _, l := range e.Learn {
			if l {
				own++
			}
		}
		rows = append(rows, metrics.Skipped{Update: u, Logp: metrics.Numbers(logp[:own]), Text: t.policy.Tokenizer.Decode(e.IDs, false), IDs: e.IDs, Mask: e.Learn})
		logp = logp[own:]
	}
	return t.log.Dump(t.job, u, rows, end)
}

// update makes one optimizer step on the mean negative log-probability of the batch's learned tokens, and returns what the
// model says of each; skipped says that the gradient was no finite number and changed nothing, with an error when that has
// happened too often.
func (s *settings) update(ctx context.Context, job *engine.Job, trainer *lm.Trainer, batch []lm.Sequence, rate float64) (row rl.Metric, stats lm.TokenStats, skipped bool, err error) {
	var learned, tokens int
	for _, e := range batch {
		tokens += len(e.IDs)
		for _, l := range e.Learn {
			if l {
				learned++
			}
		}
	}
	if learned == 0 {
		return row, stats, false, fmt.Errorf("no token of the batch is to be learned")
	}
	weight := -1 / float64(learned)
	err = checkpoint.WithinMemory(job, &s.Split, trainer, batch, func() (err error) {
		stats, err = trainer.Accumulate(ctx, batch, nil, 1, func(_, _ int, s lm.TokenStats) (lm.Weights, error) {
			return lm.Weights{Logp: slices.Repeat([]float64{weight}, len(s.Logp))}, nil
		})
		return err
	})
	if err != nil {
		return row, stats, false, err
	}
	norm, skipped, err := trainer.Update(rate)
	if err != nil {
		return row, stats, skipped, err
	}
	var loss, entropy float64
	for i, logp := range stats.Logp {
		loss += weight * logp
		entropy -= weight * stats.Entropy[i]
	}
	return rl.Metric{Values: map[string]float64{"loss": loss, "entropy": entropy, "lr": rate, "grad_norm": norm,
		"tokens": float64(tokens), "learned_tokens": float64(learned), "micro_batch": float64(trainer.MicroTokens())}}, stats, skipped, nil
}

// window is the number of batches within which examples are sorted by length.
const window = 8

// batches shuffles the examples and divides them into batches of size n (the last may be smaller). Within windows of
// eight batches similar lengths come together, which spares attention its padding; the batches are shuffled again.
func batches(rng *rand.Rand, examples []lm.Sequence, n int) [][]lm.Sequence {
	shuffled := slices.Clone(examples)
	rng.Shuffle(len(shuffled), func(i, j int) { shuffled[i], shuffled[j] = shuffled[j], shuffled[i] })
	var out [][]lm.Sequence
	for w := range slices.Chunk(shuffled, n*window) {
		slices.SortStableFunc(w, func(a, b lm.Sequence) int { return len(a.IDs) - len(b.IDs) })
		for b := range slices.Chunk(w, n) {
			out = append(out, b)
		}
	}
	rng.Shuffle(len(out), func(i, j int) { out[i], out[j] = out[j], out[i] })
	return out
}
