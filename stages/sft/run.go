//go:build libtorch

package sft

import (
	"cmp"
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"time"

	"github.com/dustin/go-humanize/english"

	"rcgrpo/engine"
	"rcgrpo/engine/artifact"
	"rcgrpo/engine/runs"
	"rcgrpo/stages/internal/chat"
	"rcgrpo/stages/internal/checkpoint"
	"rcgrpo/stages/internal/lm"
	"rcgrpo/stages/internal/train"
	"rcgrpo/stages/rl"
)

// Run fine-tunes without reward tokens. The checkpoint conditions on none.
func (s *sft) Run(ctx context.Context, job *engine.Job) error {
	return s.run(ctx, job, func(p *checkpoint.Policy) error {
		p.Condition = rl.TokenNone
		return p.EnableLoRA(s.LoRA, job)
	}, false)
}

// Run fine-tunes with each trajectory's reward token. The checkpoint conditions on high from here on.
func (s *rctp) Run(ctx context.Context, job *engine.Job) error {
	return s.run(ctx, job, func(p *checkpoint.Policy) error {
		if err := p.UseTokens(s.Tokens.Position, s.Tokens.Init); err != nil {
			return err
		}
		p.Trained, p.Condition = true, rl.TokenHigh
		return p.EnableLoRA(s.LoRA, job, chat.RewardTokens...)
	}, true)
}

// run trains both kinds. prepare sets up the policy; conditioned reports whether trajectories carry their token.
func (s *settings) run(ctx context.Context, job *engine.Job, prepare func(*checkpoint.Policy) error,
	conditioned bool) error {
	policy, use, err := checkpoint.Open(job, s)
	if err != nil {
		return err
	}
	defer policy.Close()
	if err := prepare(policy); err != nil {
		return err
	}
	examples, err := s.examples(ctx, job, policy, conditioned)
	if err != nil {
		return err
	}
	longest := 0
	for _, e := range examples {
		longest = max(longest, len(e.IDs))
	}
	if err := checkpoint.PlanPass(job, policy.Model.Config(), use, longest); err != nil {
		return err
	}
	return s.train(ctx, job, policy, examples)
}

// A data set may have fewTokens, which tests lower, and if its file is large, mostTokens for each byte: 3 MB of gzip
// took 3 GB.
var fewTokens = 256 << 20

const mostTokens = 8

// examples encodes the trajectories of the data sets with the policy's codec, and drops those without a reward and
// those above the setting context.
func (s *settings) examples(ctx context.Context, job *engine.Job, policy *checkpoint.Policy, conditioned bool,
) ([]lm.Sequence, error) {
	codecs := map[bool]rl.Codec{} // by whether all tools of a trajectory have documents
	longest := policy.Model.Config().MaxPosition
	var examples []lm.Sequence
	missing, long := 0, 0
	for _, ref := range s.Data {
		data, err := job.Open(ref)
		if err != nil {
			return nil, err
		}
		info, err := os.Stat(data.Path(rl.DatasetFile))
		if err != nil {
			return nil, err
		}
		room := max(fewTokens, mostTokens*int(info.Size()))
		for t, err := range artifact.Rows[rl.Trajectory](data, rl.DatasetFile) {
			if err := cmp.Or(err, ctx.Err()); err != nil { // a template of a stranger may take a second for each row
				return nil, err
			}
			if t.Reward.Missing() { // neither an expert nor a failure
				missing++
				continue
			}
			given := rl.TokenNone
			if conditioned {
				given = t.Token
			}
			documented := len(t.Documents) == len(t.Tools)
			if codecs[documented] == nil {
				if codecs[documented], err = policy.CodecFor(documented, job.Site.BFCL); err != nil {
					return nil, err
				}
			}
			ids, mask, err := chat.Encode(codecs[documented], &t, given)
			if err != nil {
				return nil, fmt.Errorf("task %s: %w", t.Task, err)
			}
			if s.Context > 0 && len(ids) > s.Context {
				long++
				continue
			}
			if len(ids) > longest {
				return nil, fmt.Errorf("task %s has %d tokens, the model takes %d; drop longer trajectories (context = %d), "+
					"or raise the context of the model's architecture", t.Task, len(ids), longest, longest)
			}
			if room -= len(ids); room < 0 {
				return nil, fmt.Errorf("the data set of stage.%s.%s has more tokens than a file of %d bytes may have; "+
					"divide it into several data sets", ref.Kind, ref.Name, info.Size())
			}
			examples = append(examples, lm.Sequence{IDs: ids, Mask: mask})
		}
	}
	if missing > 0 {
		job.Logf("%s dropped: the environment failed, so they have no reward", english.Plural(missing, "trajectory", ""))
	}
	if long > 0 {
		job.Logf("%s dropped: more than %d tokens (context)", english.Plural(long, "trajectory", ""), s.Context)
	}
	if len(examples) == 0 {
		return nil, fmt.Errorf("the data sets contain no trajectory to learn: %d have no reward and %d have more tokens "+
			"than context", missing, long)
	}
	return examples, nil
}

// train makes all updates and the ports. It continues after the last saved state, or after a result with fewer epochs.
func (s *settings) train(ctx context.Context, job *engine.Job, policy *checkpoint.Policy,
	examples []lm.Sequence) error {
	order, plan := job.Rand("order of examples"), [][]lm.Sequence(nil)
	for range s.Epochs {
		plan = append(plan, batches(order, examples, s.Batch)...)
	}
	t := &train.Training{Settings: &s.Settings, Job: job, Policy: policy, LengthSetting: "epochs",
		UpdatesPerUnit: len(plan) / s.Epochs}
	defer t.Close()
	if err := t.Open(); err != nil {
		return err
	}
	if err := t.ResumeShorter(nil); err != nil {
		return err
	}
	if t.Made > 0 {
		job.Logf("resuming after update %d", t.Made)
	}
	err := t.Loop(ctx, len(plan), func(ctx context.Context, u int) error {
		return s.step(ctx, t, u, len(plan), plan[u-1])
	})
	if err != nil {
		return err
	}
	return t.Publish()
}

// step makes update u and logs its values. A batch without a finite gradient is stored and skipped.
func (s *settings) step(ctx context.Context, t *train.Training, u, total int, batch []lm.Sequence) error {
	start := time.Now()
	row, stats, err := s.update(ctx, t, batch, s.Schedule.Rate(u-1, total, s.LR))
	if row.Values["skipped"] == 1 {
		err = t.Skip(u, batch, stats.Logp, nil, err)
	}
	if err != nil {
		return err
	}
	seconds := time.Since(start).Seconds()
	row.Update = u
	if err := t.Log.Write(row, map[string]float64{"update_s": seconds,
		"tokens_per_s": row.Values["tokens"] / seconds}); err != nil {
		return err
	}
	t.Job.Progress(u, total, "updates", runs.Value{Name: "loss", Value: row.Values["loss"]})
	return nil
}

// update makes one optimizer step on the mean negative logprob of the tokens of the batch's mask, and returns the
// logged values and the statistics of each token. The value skipped is 1 if the gradient was not finite and
// changed nothing, with an error if that has happened too often.
func (s *settings) update(ctx context.Context, t *train.Training, batch []lm.Sequence, rate float64) (rl.Metric,
	lm.TokenStats, error) {
	var inMask, tokens int
	var items [][]lm.Sequence
	for _, e := range batch {
		items = append(items, []lm.Sequence{e})
		tokens += len(e.IDs)
		inMask += e.MaskTokens()
	}
	if inMask == 0 {
		return rl.Metric{}, lm.TokenStats{}, fmt.Errorf("the batch's mask has no token")
	}
	weight := -1 / float64(inMask)
	parts := train.NewParts(items, s.GradientParts)
	results, err := train.Each(ctx, parts, t.Trainer, true, func(part []int) (lm.TokenStats, error) {
		var sequences []lm.Sequence
		for _, i := range part {
			sequences = append(sequences, batch[i])
		}
		return t.Trainer.Accumulate(ctx, sequences, nil, 1, func(_, _ int, s lm.TokenStats) (lm.Weights, error) {
			return lm.Weights{Logp: slices.Repeat([]float64{weight}, len(s.Logp))}, nil
		})
	})
	if err != nil {
		return rl.Metric{}, lm.TokenStats{}, s.AdviseMemory(batch, err)
	}
	stats := parts.Stats(results)
	norm, skipped, err := t.Trainer.Update(rate)
	values := map[string]float64{"lr": rate, "grad_norm": norm, "tokens": float64(tokens),
		"mask_tokens": float64(inMask), "skipped": 0}
	if skipped {
		values["skipped"] = 1
	}
	var loss, entropy float64
	for i, logp := range stats.Logp {
		loss += weight * logp
		entropy -= weight * stats.Entropy[i]
	}
	values["loss"], values["entropy"] = loss, entropy
	return rl.Metric{Values: values}, stats, err
}

// window is the number of batches within which examples are sorted by length.
const window = 8

// batches shuffles the examples and divides them into batches of size n; the last may be smaller. Within windows
// of eight batches, examples are sorted by length, so that a batch and its micro-batches have sequences of similar
// length; then the batches are shuffled.
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
