//go:build libtorch

package sft

import (
	"context"
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
	"rcgrpo/stages/rl"
)

// Run fine-tunes without reward token. The checkpoint keeps what its start knew about tokens, but conditions on none.
func (s *sft) Run(ctx context.Context, job *engine.Job) error {
	return s.run(ctx, job, func(p *checkpoint.Policy) error {
		p.Condition = rl.TokenNone
		return nil
	}, false)
}

// Run fine-tunes with each trajectory's reward token. The checkpoint conditions on high from here on.
func (s *rctp) Run(ctx context.Context, job *engine.Job) error {
	return s.run(ctx, job, func(p *checkpoint.Policy) error {
		if err := p.UseTokens(s.Tokens.Position, s.Tokens.Init); err != nil {
			return err
		}
		p.Trained, p.Condition = true, rl.TokenHigh
		return nil
	}, true)
}

// run is the training of both kinds; prepare sets up the policy, conditioned says whether trajectories carry their token.
func (s *settings) run(ctx context.Context, job *engine.Job, prepare func(*checkpoint.Policy) error, conditioned bool) error {
	policy, err := checkpoint.Open(job, s.Policy)
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
	codec, err := policy.Codec()
	if err != nil {
		return nil, err
	}
	longest := policy.Model.Config().MaxPosition
	var examples []lm.Sequence
	for _, ref := range s.Data {
		data, err := job.Open(ref)
		if err != nil {
			return nil, err
		}
		for t, err := range artifact.Rows[rl.Trajectory](data, rl.DatasetFile) {
			if err != nil {
				return nil, err
			}
			given := rl.TokenNone
			if conditioned {
				given = t.Token
			}
			ids, learn := chat.Encode(codec, &t, given)
			if len(ids) > longest {
				return nil, fmt.Errorf("task %s has %d tokens, the model takes %d; raise the context of its architecture or leave the task out", t.Task, len(ids), longest)
			}
			examples = append(examples, lm.Sequence{IDs: ids, Learn: learn})
		}
	}
	if len(examples) == 0 {
		return nil, fmt.Errorf("the data sets hold no trajectory")
	}
	return examples, nil
}

// train makes all updates and writes the port metrics.
func (s *settings) train(ctx context.Context, job *engine.Job, policy *checkpoint.Policy, examples []lm.Sequence) error {
	trainer, err := policy.Trainer(*s.Optimizer)
	if err != nil {
		return err
	}
	defer trainer.Close()
	log, err := metrics.Create(job)
	if err != nil {
		return err
	}
	defer log.Close()

	order := job.Rand("order of examples")
	perEpoch := (len(examples) + s.Batch - 1) / s.Batch
	total, update := perEpoch*s.Epochs, 0
	for range s.Epochs {
		for _, batch := range batches(order, examples, s.Batch) {
			if err := ctx.Err(); err != nil {
				return err
			}
			start := time.Now()
			row, skipped, err := s.update(ctx, trainer, batch, s.Schedule.Rate(update, total, s.LR))
			if err != nil {
				return fmt.Errorf("update %d: %w", update+1, err)
			}
			update++
			if skipped {
				job.Logf("update %d was skipped: its gradient is no finite number", update)
			}
			seconds := time.Since(start).Seconds()
			row.Update = update
			if err := log.Write(row, map[string]float64{"update_s": seconds, "tokens_per_s": row.Values["tokens"] / seconds}); err != nil {
				return err
			}
			job.Progress(update, total, "updates", engine.Value{Name: "loss", Value: row.Values["loss"]})
		}
	}
	return log.Close()
}

// update makes one optimizer step on the mean negative log-probability of the batch's learned tokens; skipped says that
// the gradient was no finite number and changed nothing.
func (s *settings) update(ctx context.Context, trainer *lm.Trainer, batch []lm.Sequence, rate float64) (row rl.Metric, skipped bool, err error) {
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
		return row, false, fmt.Errorf("no token of the batch is to be learned")
	}
	weight := -1 / float64(learned)
	stats, err := trainer.Accumulate(ctx, batch, nil, 1, func(_, _ int, s lm.TokenStats) (lm.Weights, error) {
		return lm.Weights{Logp: slices.Repeat([]float64{weight}, len(s.Logp))}, nil
	})
	if err != nil {
		return row, false, err
	}
	norm, skipped, err := trainer.Update(rate)
	if err != nil {
		return row, false, err
	}
	var loss, entropy float64
	for i, logp := range stats.Logp {
		loss += weight * logp
		entropy -= weight * stats.Entropy[i]
	}
	return rl.Metric{Values: map[string]float64{"loss": loss, "entropy": entropy, "lr": rate, "grad_norm": norm,
		"tokens": float64(tokens), "learned_tokens": float64(learned)}}, skipped, nil
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
