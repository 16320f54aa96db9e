//go:build libtorch

package model

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"slices"

	"rcgrpo/engine"
	"rcgrpo/engine/artifact"
	"rcgrpo/stages/internal/chat"
	"rcgrpo/stages/internal/checkpoint"
	"rcgrpo/stages/internal/lm"
	"rcgrpo/stages/internal/token"
	"rcgrpo/stages/rl"
)

// Run copies the folder, or trains the tokenizer and draws the weights.
func (s *settings) Run(ctx context.Context, job *engine.Job) error {
	if s.Path != nil {
		return s.copyFolder(ctx, job)
	}
	texts, err := s.texts(job)
	if err != nil {
		return err
	}
	job.Progress(0, 2, "steps")
	tokenizer, err := token.Train(texts, s.Vocab, slices.Concat(chat.DrillTokens, chat.RewardTokens))
	if err != nil {
		return err
	}
	job.Logf("tokenizer: %d entries from %d texts", tokenizer.Size(), len(texts))
	job.Progress(1, 2, "steps")
	a := s.Architecture
	weights, err := lm.New(a.shape(tokenizer.Size()), job.Rand("weights"))
	if err != nil {
		return err
	}
	policy := &checkpoint.Policy{Meta: checkpoint.Meta{Layout: checkpoint.Drill}, Model: weights, Tokenizer: tokenizer}
	defer policy.Close()
	dir, err := job.Create("checkpoint")
	if err != nil {
		return err
	}
	if err := policy.Save(dir); err != nil {
		return err
	}
	job.Progress(2, 2, "steps")
	return nil
}

// copyFolder copies a model folder, or imports a GGUF file, into the checkpoint after checking everything that later
// stages read. Rows of
// reward tokens are added at their first use.
func (s *settings) copyFolder(ctx context.Context, job *engine.Job) error {
	from := s.Path.Path
	chosen, err := s.template()
	if err != nil {
		return err
	}
	folder := checkpoint.ReadModel(from, chosen)
	if err := folder.Err(); err != nil {
		return err
	}
	cfg := folder.Config
	job.Logf("%s: %d layers of width %d, %d parameters, %d tokens", cfg.Decoder, cfg.Layers, cfg.Hidden,
		cfg.Parameters(), folder.Tokenizer.Size())
	job.Logf("chat template: %s calls", folder.Template.Format())
	if folder.Template.Dated() {
		job.Logf("the chat template writes today's date, which is always 26 Jul 2024 here, because a prompt that changes " +
			"daily cannot be compared")
	}
	dir, err := job.Create("checkpoint")
	if err != nil {
		return err
	}
	if !s.Path.Dir {
		progress := func(done, all int) { job.Progress(done, all, "weights") }
		if err := checkpoint.ImportGGUF(ctx, from, dir, job.Logf, progress); err != nil {
			return err
		}
		return folder.Write(dir, chosen)
	}
	names := append([]string{lm.ConfigFile, checkpoint.TokenizerFile}, checkpoint.Kept...)
	for _, pattern := range []string{"*.safetensors", "*.safetensors.index.json"} {
		found, err := filepath.Glob(filepath.Join(from, pattern))
		if err != nil {
			return err
		}
		for _, path := range found {
			names = append(names, filepath.Base(path))
		}
	}
	for i, name := range names {
		if err := ctx.Err(); err != nil {
			return err
		}
		job.Progress(i, len(names), "files")
		if err := copyFile(filepath.Join(from, name), filepath.Join(dir, name)); err != nil &&
			!errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return folder.Write(dir, chosen)
}

func copyFile(from, to string) error {
	in, err := token.Open(from, math.MaxInt64)
	if err != nil {
		return err
	}
	defer in.Close()
	out, err := os.OpenFile(to, os.O_CREATE|os.O_WRONLY|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	_, err = io.Copy(out, in)
	return errors.Join(err, out.Close())
}

// texts renders an even share of the trajectories of every corpus.
func (s *settings) texts(job *engine.Job) ([]string, error) {
	share := (s.CorpusSize + len(s.Corpus) - 1) / len(s.Corpus)
	var texts []string
	for _, ref := range s.Corpus {
		data, err := job.Open(ref)
		if err != nil {
			return nil, err
		}
		n := 0
		for t, err := range artifact.Rows[rl.Trajectory](data, rl.DatasetFile) {
			if err != nil {
				return nil, err
			}
			if n++; n > share {
				break
			}
			texts = append(texts, chat.DrillText(&t))
		}
	}
	return texts, nil
}
