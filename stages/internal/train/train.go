//go:build libtorch

package train

import (
	"context"
	"errors"
	"fmt"

	"rcgrpo/engine"
	"rcgrpo/stages/internal/checkpoint"
	"rcgrpo/stages/internal/lm"
	"rcgrpo/stages/internal/resume"
)

// Training is a training in progress. The kind fills the first group of fields; Open fills the rest.
type Training struct {
	*Settings
	Job    *engine.Job
	Policy *checkpoint.Policy
	// Extended is the setting whose raised value continues a shorter run: "updates" or "epochs". PerUnit is the
	// number of updates in one unit of it.
	Extended string
	PerUnit  int
	// Progress points to the kind's state beside weights and moments. Nil if there is none.
	Progress any

	Trainer *lm.Trainer
	Scratch *resume.Training
	Log     *Log
	Made    int  // updates
	Ahead   bool // the weights already contain a part of update Made + 1, so they must not be saved
	Stopped bool // no further update is made
}

// Open makes the trainer and restores the last state that an earlier attempt saved. Call Continue next, and Close
// in any case.
func (t *Training) Open() (err error) {
	if t.Trainer, err = t.Policy.Trainer(*t.Optimizer); err != nil {
		return err
	}
	t.Trainer.SetMicroTokens(t.MicroBatch)
	t.Trainer.SetRecompute(t.Recompute)
	if t.Scratch, err = resume.Open(t.Job.Dir, t.Checkpoints.Settings()); err != nil {
		return err
	}
	if t.Made, err = t.Scratch.Restore(t.progress(), t.Trainer.Restore); err != nil {
		return err
	}
	for _, sentence := range t.Scratch.Passed {
		t.Job.Logf("%s", sentence)
	}
	t.Log, err = OpenLog(t.Scratch)
	return err
}

// progress is what is encoded into a state and decoded from it.
func (t *Training) progress() any {
	if t.Progress == nil {
		return &struct{}{}
	}
	return t.Progress
}

// Continue starts from the result of a shorter run if no state was restored and the engine offers one. extra,
// which may be nil, reads what the kind published beside checkpoint and metrics.
func (t *Training) Continue(extra func(*engine.Shorter) error) error {
	shorter := t.Job.Shorter()
	if t.Made > 0 || shorter == nil {
		return nil
	}
	if err := t.extend(shorter, extra); err != nil {
		return fmt.Errorf("continue from %s = %d: %w", t.Extended, shorter.Length, err)
	}
	return nil
}

func (t *Training) extend(shorter *engine.Shorter, extra func(*engine.Shorter) error) error {
	weights, err := shorter.Open("checkpoint")
	if err != nil {
		return err
	}
	curve, err := shorter.Open("metrics")
	if err != nil {
		return err
	}
	t.Made = shorter.Length * t.PerUnit
	if err := errors.Join(t.Policy.Model.Restore(weights.Dir), t.Trainer.LoadState(shorter.Dir),
		t.Log.CopyFrom(curve)); err != nil {
		return err
	}
	if t.Progress != nil {
		if err := resume.ReadProgress(shorter.Dir, t.Progress); err != nil {
			return err
		}
	}
	if extra == nil {
		return nil
	}
	return extra(shorter)
}

// Loop makes updates Made + 1 to total, and saves a state whenever one is due and before it returns because of
// ctx.
func (t *Training) Loop(ctx context.Context, total int, update func(ctx context.Context, u int) error) error {
	for u := t.Made + 1; u <= total && !t.Stopped; u++ {
		if err := update(ctx, u); err != nil {
			if !t.Ahead && ctx.Err() != nil && errors.Is(err, ctx.Err()) {
				err = errors.Join(err, t.save())
			}
			return fmt.Errorf("update %d: %w", u, err)
		}
		t.Made, t.Ahead = u, false
		if t.Scratch.Due() {
			if err := t.save(); err != nil {
				return err
			}
		}
	}
	return nil
}

func (t *Training) save() error { return t.Scratch.Save(t.Made, t.progress(), t.Trainer.Save) }

// Publish writes the ports checkpoint and metrics, and the state from which a longer run can continue.
func (t *Training) Publish() error {
	if t.Schedule.Extends() == "" {
		state, err := t.Job.State()
		if err != nil {
			return err
		}
		if err := t.Trainer.SaveState(state); err != nil {
			return err
		}
		if t.Progress != nil {
			if err := resume.WriteProgress(state, t.Progress); err != nil {
				return err
			}
		}
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

// WithinMemory calls work, which adds the gradient of a batch, again with smaller passes when memory runs out and
// the settings allow it.
func (t *Training) WithinMemory(batch []lm.Sequence, work func() error) error {
	return checkpoint.WithinMemory(t.Job, &t.Split, t.Trainer, batch, work)
}

// Close frees the trainer and closes the files. The policy stays open.
func (t *Training) Close() {
	if t.Scratch != nil {
		t.Scratch.Close()
	}
	if t.Trainer != nil {
		t.Trainer.Close()
	}
}
