//go:build libtorch

package lm

import (
	"context"
	"fmt"

	"rcgrpo/stages/internal/torch"
)

// Restore replaces the weights by those that Save wrote into dir for a model of this shape. Trainers of the model
// remain valid.
func (m *Model) Restore(dir string) error {
	saved, err := CheckFolder(dir)
	if err != nil {
		return err
	}
	if got, want := saved.Parameters(), m.cfg.Parameters(); got != want {
		return fmt.Errorf("restore a model from %s: it has %d weights, want %d", dir, got, want)
	}
	return torch.Do(context.Background(), m.device, func(s *torch.Scope) error {
		s.Fill(m.flat, func(flat []float32) error { return readWeights(dir, saved, flat) })
		m.renew(s)
		return s.Err()
	})
}

// Save writes everything that Restore needs into dir: the model's weights, unless an adapter is trained, and the
// trainer's state. It contains no gradient: save after Update.
func (t *Trainer) Save(dir string) error {
	if t.adapter == nil {
		if err := t.m.Save(dir); err != nil {
			return err
		}
	}
	return t.SaveState(dir)
}

// Restore restores the state that Save wrote.
func (t *Trainer) Restore(dir string) error {
	if t.adapter == nil {
		if err := t.m.Restore(dir); err != nil {
			return err
		}
	}
	return t.LoadState(dir)
}
