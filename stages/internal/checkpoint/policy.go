//go:build libtorch

package checkpoint

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"rcgrpo/engine"
	"rcgrpo/engine/runs"
	"rcgrpo/stages/internal/chat"
	"rcgrpo/stages/internal/lm"
	"rcgrpo/stages/internal/token"
	"rcgrpo/stages/internal/torch"
	"rcgrpo/stages/rl"
	"rcgrpo/stages/rl/blocks"
)

// Policy is an open checkpoint: the weights of a policy with the tokenizer and the layout in which it reads. In
// episodes, an rl.Local replies with them as rl.Policy. Close frees the model.
type Policy struct {
	Meta
	Model     *lm.Model // trained, sampled from and saved
	Tokenizer *token.Tokenizer
	kept      map[string][]byte // contents of the files named in Kept
	dir       string            // folder that the policy was opened from
	digest    string            // digest of that folder
	slots     int               // episodes sampled at once
	tokens    int               // most tokens of these episodes together; see lm.Decoder.LimitTokens

	adapter *lm.Adapter // nil without one; with it Model is base with the adapter merged
	base    *lm.Model
}

// Open opens the policy of a stage on the job's device, with the buffers that the returned use needs. It logs the use
// before it reads weights, and fails if the device has less memory.
func Open(job *engine.Job, stage MemoryUser) (*Policy, lm.Use, error) {
	ref, use := stage.MemoryUse()
	a, err := job.Open(ref)
	if err != nil {
		return nil, lm.Use{}, err
	}
	u, err := planMemory(job, a.Dir, use)
	if err != nil {
		return nil, u, err
	}
	job.ReportRank(func() runs.RankState { return runs.RankState{Steps: stepsSoFar()} })
	p, err := OpenFolder(a.Dir, job.Device, u)
	if err != nil {
		return nil, u, err
	}
	p.digest = a.Digest
	return p, u, nil
}

// OpenFolder opens the checkpoint or Hugging Face folder in dir on a device ("cpu" or "cuda")
// with the buffers that u needs. The CPU computes with u.Threads, if not 0.
func OpenFolder(dir, deviceName string, u lm.Use) (*Policy, error) {
	meta, tokenizer, err := readPolicy(dir)
	if err != nil {
		return nil, err
	}
	device, err := torch.ParseDevice(deviceName)
	if err != nil {
		return nil, err
	}
	if u.Threads > 0 {
		if _, err := torch.SetThreads(u.Threads); err != nil {
			return nil, err
		}
	}
	model, err := lm.Load(dir, device, u.Buffers())
	if err != nil {
		return nil, err
	}
	p := &Policy{Meta: meta, Model: model, Tokenizer: tokenizer, kept: map[string][]byte{}, dir: dir, slots: u.Slots,
		tokens: u.Tokens}
	for _, name := range Kept {
		text, err := token.ReadSmall(filepath.Join(dir, name))
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
func (p *Policy) Close() error {
	if p.adapter == nil {
		return p.Model.Close()
	}
	return errors.Join(p.adapter.Close(), p.base.Close())
}

// EnableLoRA makes later trainings train a low-rank adapter and the rows of the named tokens instead of all
// weights. A nil l has no effect. Trainers made before must not be used any more.
func (p *Policy) EnableLoRA(l *LoRA, job *engine.Job, tokens ...string) error {
	if l == nil {
		return nil
	}
	c := l.Shape()
	for _, name := range tokens {
		id, known := p.Tokenizer.ID(name)
		if !known {
			return fmt.Errorf("lora: the tokenizer has no token %q", name)
		}
		c.Rows = append(c.Rows, id)
	}
	adapter, err := lm.NewAdapter(p.Model, c, job.Rand("adapter"))
	if err != nil {
		return err
	}
	p.adapter, p.base, p.Model = adapter, p.Model, adapter.Model()
	return nil
}

// Reference returns the current policy, frozen: the base of an untrained adapter, otherwise a copy. The caller
// closes it.
func (p *Policy) Reference() (*lm.Model, error) {
	if p.adapter != nil {
		return p.base, nil
	}
	return p.Model.Clone()
}

// CodecFor returns the policy's codec. With documented, all tools have documents of their own; otherwise the documents
// of the benchmark's tools are read from the folder benchmark.
func (p *Policy) CodecFor(documented bool, benchmark string) (rl.Codec, error) {
	if documented {
		return p.Codec()
	}
	return codecOf(p.Meta, p.Tokenizer, p.dir, benchmark)
}

// Codec returns the policy's codec for conversations in the form of chat APIs, whose tools have documents of their own.
func (p *Policy) Codec() (chat.Codec, error) { return chatCodec(p.Meta, p.Tokenizer, p.dir, nil) }

// Decoder returns a sampler for episodes of at most context tokens, as many at once as the memory of Open has room for.
func (p *Policy) Decoder(context int) (*lm.Decoder, error) {
	d, err := lm.NewDecoder(p.Model, cmp.Or(p.slots, ConcurrentEpisodes), min(context, p.Model.Config().MaxPosition))
	if err != nil {
		return nil, err
	}
	d.LimitTokens(p.tokens)
	return d, nil
}

// Trainer returns an optimizer for the policy's weights or its adapter, one of several ranks with peers.
func (p *Policy) Trainer(o blocks.Optimizer, microTokens int, peers lm.Peers) (*lm.Trainer, error) {
	c := lm.OptimizerConfig{Beta1: 0.9, Beta2: o.Beta2, Eps: o.Eps, Decay: o.WeightDecay, Clip: o.ClipNorm,
		Host: lm.Host(o.Host), MicroTokens: microTokens}
	if p.adapter != nil {
		return p.adapter.Trainer(c, peers)
	}
	return lm.NewTrainer(p.Model, c, peers)
}

// Save writes the checkpoint into dir, with a trained adapter in AdapterFolder. Equal weights give identical files. A
// rank above 0 passes dir "" and writes its part of the weights into the file of rank 0.
func (p *Policy) Save(dir string) error {
	if dir == "" {
		return p.Model.Save("")
	}
	if p.adapter != nil {
		if err := p.adapter.Save(filepath.Join(dir, AdapterFolder), p.digest); err != nil {
			return err
		}
	}
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

// UseTokens prepares the policy for reward tokens at a position. It adds them to the vocabulary if they are
// missing, and initializes rows that were neither trained nor initialized: init is "mean" (of the rows of all
// other tokens) or "copy:TOKEN". It fails for a policy that was trained with another position.
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
		if err := p.Model.AddRows(missing); err != nil {
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
