//go:build libtorch

package checkpoint

import (
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"path/filepath"

	"rcgrpo/engine"
	"rcgrpo/engine/artifact"
	"rcgrpo/stages/internal/chat"
	"rcgrpo/stages/internal/lm"
	"rcgrpo/stages/internal/token"
	"rcgrpo/stages/internal/torch"
	"rcgrpo/stages/rl"
)

// Policy is a checkpoint opened: model, tokenizer and their use. Close frees the model.
type Policy struct {
	Meta
	Model     *lm.Model
	Tokenizer *token.Tokenizer
	kept      map[string][]byte // Kept, by name
	dir       string            // that it was opened from
}

// Open opens the checkpoint that ref names, on the job's device.
func Open(job *engine.Job, ref artifact.Ref) (*Policy, error) {
	a, err := job.Open(ref)
	if err != nil {
		return nil, err
	}
	return load(a.Dir, job)
}

func load(dir string, job *engine.Job) (*Policy, error) {
	meta, err := ReadMeta(dir)
	if err != nil {
		return nil, err
	}
	tokenizer, err := token.Load(filepath.Join(dir, TokenizerFile))
	if err != nil {
		return nil, err
	}
	device, err := torch.ParseDevice(job.Device)
	if err != nil {
		return nil, err
	}
	model, err := lm.Load(dir, device)
	if err != nil {
		return nil, err
	}
	p := &Policy{Meta: meta, Model: model, Tokenizer: tokenizer, kept: map[string][]byte{}, dir: dir}
	for _, name := range Kept {
		text, err := os.ReadFile(filepath.Join(dir, name))
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, errors.Join(err, p.Close())
		}
		p.kept[name] = text
	}
	return p, nil
}

// Close frees the model.
func (p *Policy) Close() error { return p.Model.Close() }

// Codec is the policy's chat layout with the reward token at its position; see OpenCodec.
func (p *Policy) Codec(benchmark string) (rl.Codec, error) {
	return codecOf(p.Meta, p.Tokenizer, p.dir, benchmark)
}

// Trainer makes an optimizer for the policy's weights.
func (p *Policy) Trainer(o rl.Optimizer) (*lm.Trainer, error) {
	c := lm.OptimizerConfig{Beta1: o.Beta1, Beta2: o.Beta2, Eps: o.Eps, Decay: o.WeightDecay, Clip: o.ClipNorm}
	// A zero means a default to lm; here it means what it says.
	for _, v := range []*float64{&c.Beta1, &c.Beta2, &c.Eps} {
		if *v == 0 {
			*v = math.SmallestNonzeroFloat64
		}
	}
	if c.Clip == 0 {
		c.Clip = -1 // never
	}
	return lm.NewTrainer(p.Model, c)
}

// Save writes the checkpoint into dir. Equal weights give equal bytes.
func (p *Policy) Save(dir string) error {
	if err := p.Model.Save(dir); err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(dir, TokenizerFile), p.Tokenizer.JSON(), 0o600); err != nil {
		return err
	}
	for name, text := range p.kept {
		if err := os.WriteFile(filepath.Join(dir, name), text, 0o600); err != nil {
			return err
		}
	}
	return p.Meta.Write(dir)
}

// UseTokens prepares the policy for reward tokens at a position. A vocabulary without them gets them. Where their rows
// were never trained nor made before, they are made now as init says ("mean" of the rows of all other tokens,
// "copy:TOKEN"). A policy that was trained with another position is refused.
func (p *Policy) UseTokens(position, init string) error {
	if p.Trained && p.Position != position {
		return fmt.Errorf("the policy's reward tokens were trained at %s; they cannot be used at %s", p.Position, position)
	}
	p.Position = position
	if p.Trained || p.Rows != "" {
		return nil
	}
	before := p.Tokenizer.Size()
	rows, err := p.Tokenizer.Add(chat.RewardTokens...)
	if err != nil {
		return err
	}
	if missing := p.Tokenizer.Size() - p.Model.Config().Vocab; missing > 0 { // a matrix may have rows to spare
		if err := p.Model.AddRows(missing, 0); err != nil {
			return err
		}
	}
	p.Rows = init
	if name, ok := rl.InitCopy(init); ok {
		from, known := p.Tokenizer.ID(name)
		if !known {
			return fmt.Errorf("init = %q: the tokenizer has no token %q", init, name)
		}
		return p.Model.CopyRow(from, rows...)
	}
	return p.Model.MeanRow(before, rows...)
}
