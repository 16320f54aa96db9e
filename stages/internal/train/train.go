//go:build libtorch

package train

import (
	"context"
	"errors"
	"fmt"
	"strconv"

	"rcgrpo/engine"
	"rcgrpo/engine/lang"
	"rcgrpo/stages/internal/checkpoint"
	"rcgrpo/stages/internal/lm"
	"rcgrpo/stages/internal/ranks"
	"rcgrpo/stages/internal/resume"
	"rcgrpo/stages/internal/torch"
)

// Training is a training in progress. The kind fills the first group of fields; Open fills the rest.
type Training struct {
	*Settings
	Job    *engine.Job
	Policy *checkpoint.Policy
	// LengthSetting is the setting whose larger value resumes from a shorter run's result: "updates" or "epochs".
	LengthSetting  string
	UpdatesPerUnit int
	// Progress points to the kind's state beside weights and moments. Nil if there is none.
	Progress any

	Peers   lm.Peers
	Trainer *lm.Trainer
	Scratch *resume.Scratch
	Log     *Log
	Made    int  // updates so far
	Ahead   bool // the weights already contain a part of update Made + 1, so they must not be saved
}

// Open connects the ranks, makes the trainer and restores the last state that an earlier attempt saved. Call
// ResumeShorter next, and Close in any case.
func (t *Training) Open() (err error) {
	if t.Job.Ranks > max(1, t.GradientParts) {
		return fmt.Errorf("the stage has %d ranks, but its gradient has %d parts: set gradient_parts = %d, or a multiple",
			t.Job.Ranks, t.GradientParts, t.Job.Ranks)
	}
	t.Peers, err = checkpoint.Join(t.Job, ranks.Fact{Name: "gradient_parts", Value: strconv.Itoa(t.GradientParts)},
		ranks.Fact{Name: "shape", Value: fmt.Sprintf("%+v", t.Policy.Model.Config())})
	if err != nil {
		return err
	}
	if t.Trainer, err = t.Policy.Trainer(*t.Optimizer, t.MicroBatch, t.Peers); err != nil {
		return err
	}
	t.Trainer.SetRecompute(t.Recompute)
	const keep = 2 // a damaged state is replaced by the one before
	if t.Scratch, err = resume.Open(t.Job.Dir, t.Checkpoints.Minutes, keep, t.Job.Rank); err != nil {
		return err
	}
	if t.Job.Ranks > 1 {
		t.Scratch.Gather = t.gather
	}
	if err := t.restore(); err != nil {
		return err
	}
	for _, sentence := range t.Scratch.Passed {
		t.Job.Logf("%s", sentence)
	}
	t.Log, err = OpenLog(t.Scratch)
	return err
}

// restore restores the last state: first in rank 0, which removes states that cannot be used.
func (t *Training) restore() (err error) {
	ctx := context.Background()
	if t.Job.Rank == 0 {
		t.Made, err = t.Scratch.Restore(t.progress(), t.Trainer.Restore)
	}
	if err = t.Sync(ctx, "restore of rank 0", err); err == nil && t.Job.Rank > 0 {
		t.Made, err = t.Scratch.Restore(t.progress(), t.Trainer.Restore)
	}
	return t.Sync(ctx, fmt.Sprintf("restored update %d", t.Made), err)
}

// Sync is a sync point of the ranks of the training; see checkpoint.Sync.
func (t *Training) Sync(ctx context.Context, phase string, err error) error {
	return checkpoint.Sync(ctx, t.Peers.Rank, phase, err)
}

// gather returns the messages of all ranks after a sync point.
func (t *Training) gather(phase string, own []byte) ([][]byte, error) {
	if err := t.Sync(context.Background(), phase, nil); err != nil {
		return nil, err
	}
	return t.Peers.Rank.Share(own)
}

// progress returns the value that a state stores beside weights and moments.
func (t *Training) progress() any {
	if t.Progress == nil {
		return &struct{}{}
	}
	return t.Progress
}

// ResumeShorter starts from the result of a shorter run if no state was restored and the engine offers one. extra,
// which may be nil, reads what the kind published beside checkpoint and metrics.
func (t *Training) ResumeShorter(extra func(*engine.Shorter) error) (err error) {
	shorter := t.Job.Shorter()
	if t.Made > 0 || shorter == nil {
		return nil
	}
	defer func() {
		if err != nil {
			err = fmt.Errorf("resume from %s = %d: %w", t.LengthSetting, shorter.Length, err)
		}
	}()
	weights, err := shorter.Open("checkpoint")
	if err != nil {
		return err
	}
	curve, err := shorter.Open("metrics")
	if err != nil {
		return err
	}
	t.Made = shorter.Length * t.UpdatesPerUnit
	err = errors.Join(t.Policy.Model.Restore(weights.Dir), t.Trainer.LoadState(shorter.Dir), t.Log.CopyFrom(curve))
	if err == nil && t.Progress != nil {
		err = resume.ReadProgress(shorter.Dir, t.Progress)
	}
	if err == nil && extra != nil {
		err = extra(shorter)
	}
	return err
}

// Loop makes updates Made + 1 to total, and saves a state whenever one is due and before it returns because of
// ctx.
func (t *Training) Loop(ctx context.Context, total int, update func(ctx context.Context, u int) error) error {
	for u := t.Made + 1; u <= total; u++ {
		err := t.Sync(ctx, fmt.Sprintf("update %d", u), ctx.Err())
		if err == nil {
			err = update(ctx, u)
		}
		if err != nil {
			if !t.Ahead && t.interrupted(ctx, err) {
				err = errors.Join(err, t.save())
			}
			return fmt.Errorf("update %d: %w", u, err)
		}
		t.Made, t.Ahead = u, false
		due, err := t.due()
		if err == nil && due {
			err = t.save()
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// interrupted reports whether err is the end of the context, with several ranks that of any rank.
func (t *Training) interrupted(ctx context.Context, err error) bool {
	if t.Peers.Rank.Count() > 1 {
		return errors.Is(err, context.Canceled)
	}
	return ctx.Err() != nil && errors.Is(err, ctx.Err())
}

// due reports whether a state is due; rank 0 decides.
func (t *Training) due() (bool, error) {
	all, err := ranks.ShareValues(t.Peers.Rank, t.Scratch.Due())
	return err == nil && all[0], err
}

func (t *Training) save() error { return t.Scratch.Save(t.Made, t.progress(), t.Trainer.Save) }

// Publish writes the ports checkpoint and metrics, and the state from which a longer run can resume. All ranks call it,
// and those above 0 write their parts of the weights only.
func (t *Training) Publish() error {
	if t.Schedule.WhyNotResumed() == "" {
		state, err := "", error(nil)
		if t.Job.Rank == 0 {
			state, err = t.Job.State()
		}
		if err != nil {
			return err
		}
		if err := t.Trainer.SaveState(state); err != nil {
			return err
		}
		if t.Progress != nil && t.Job.Rank == 0 {
			if err := resume.WriteProgress(state, t.Progress); err != nil {
				return err
			}
		}
	}
	if t.Job.Rank > 0 {
		return t.Policy.Save("")
	}
	if err := t.Log.Publish(t.Job); err != nil {
		return err
	}
	dir, err := t.Job.Create("checkpoint")
	if err != nil {
		return err
	}
	return t.Policy.Save(dir)
}

// AdviseMemory completes the error of a pass over a batch that ran out of memory: it names a micro_batch that should
// fit, and its cause is lang.CauseOOM. Other errors, and nil, stay as they are.
func (s *Settings) AdviseMemory(batch []lm.Sequence, err error) error {
	if !errors.Is(err, torch.ErrOutOfMemory) {
		return err
	}
	if lm.MicroBatches(batch, s.MicroBatch) == len(batch) {
		return engine.WithCause(lang.CauseOOM,
			fmt.Errorf("%w; every trajectory already had its own pass, so a smaller micro_batch does not help: give the "+
				"stage more memory, or train shorter trajectories or fewer weights", err))
	}
	half := max(1, min(s.MicroBatch, lm.PackedRows(batch))/2)
	return engine.WithCause(lang.CauseOOM, fmt.Errorf("%w; set micro_batch = %d", err, half))
}

// Skip stores the sequences of an update whose gradient is not finite, with the logprobs of their tokens of the mask.
// describe, which may be nil, completes each row. The result is that of Log.Dump.
func (t *Training) Skip(u int, batch []lm.Sequence, logp []float64, describe func(i int, row *Skipped),
	end error) error {
	rows := make([]Skipped, len(batch))
	for i, q := range batch {
		n := q.MaskTokens()
		rows[i] = Skipped{Update: u, Logp: Numbers(logp[:n]), Text: t.Policy.Tokenizer.Decode(q.IDs, false), IDs: q.IDs,
			Mask: q.Mask}
		logp = logp[n:]
		if describe != nil {
			describe(i, &rows[i])
		}
	}
	return t.Log.Dump(t.Job, u, rows, end)
}

// Close frees the trainer and closes the files. The policy stays open.
func (t *Training) Close() {
	if t.Scratch != nil {
		t.Scratch.Close()
	}
	if t.Trainer != nil {
		t.Trainer.Close()
	}
	t.Peers.Group.Close()
}
