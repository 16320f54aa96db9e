//go:build libtorch

package checkpoint

import (
	"errors"
	"fmt"

	"rcgrpo/engine"
	"rcgrpo/stages/internal/lm"
	"rcgrpo/stages/internal/torch"
	"rcgrpo/stages/rl/blocks"
)

// WithinMemory calls accumulate, which adds a batch's gradient to the trainer's, anew each time. When memory runs out in it
// and s says so, it halves the trainer's micro-batch, for the rest of the training, and calls it again; otherwise its
// error, whose cause is engine.CauseOOM, names the setting that would fit.
func WithinMemory(job *engine.Job, s *blocks.Split, t *lm.Trainer, batch []lm.Sequence, accumulate func() error) error {
	for {
		err := accumulate()
		if !errors.Is(err, torch.ErrOutOfMemory) {
			return err
		}
		tokens := 0
		for _, q := range batch {
			tokens += len(q.IDs)
		}
		had := t.MicroTokens()
		half := max(1, min(had, tokens)/2)
		switch {
		case lm.MicroBatches(batch, had) == len(batch):
			return engine.WithCause(engine.CauseOOM, fmt.Errorf("%w; every trajectory has gone alone already, so no smaller micro_batch helps: give the stage more memory, or train shorter trajectories or fewer weights", err))
		case s.OnOOM != blocks.HalveMicroBatch:
			return engine.WithCause(engine.CauseOOM, fmt.Errorf("%w; set micro_batch = %d, or on_oom = %q with mode = %q", err, half, blocks.HalveMicroBatch, blocks.ModeFast))
		}
		job.Logf("memory ran out with micro_batch = %d: the update is repeated with %d, and training goes on with that (%v)", had, half, err)
		t.SetMicroTokens(half)
		if err := t.Drop(); err != nil {
			return err
		}
	}
}
