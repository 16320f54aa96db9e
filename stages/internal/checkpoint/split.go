//go:build libtorch

package checkpoint

import (
	"errors"
	"fmt"

	"rcgrpo/engine"
	"rcgrpo/engine/lang"
	"rcgrpo/stages/internal/lm"
	"rcgrpo/stages/internal/torch"
	"rcgrpo/stages/rl/blocks"
)

// WithinMemory calls accumulate, which adds the gradient of a batch to that of the trainer. If a pass runs out of
// memory and s allows it, it halves the trainer's micro-batch for the rest of the training and repeats the call.
// Otherwise the error, whose cause is lang.CauseOOM, names a micro_batch that should fit.
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
			return engine.WithCause(lang.CauseOOM,
				fmt.Errorf("%w; every trajectory already had its own pass, so a smaller "+
					"micro_batch does not help: give the stage more memory, or train shorter trajectories or fewer weights", err))
		case s.OnOOM != blocks.HalveMicroBatch:
			return engine.WithCause(lang.CauseOOM, fmt.Errorf("%w; set micro_batch = %d, or on_oom = %q with mode = %q",
				err, half, blocks.HalveMicroBatch, blocks.ModeFast))
		}
		job.Logf("memory ran out with micro_batch = %d: the update and all later ones use %d (%v)", had, half, err)
		t.SetMicroTokens(half)
		if err := t.Drop(); err != nil {
			return err
		}
	}
}
