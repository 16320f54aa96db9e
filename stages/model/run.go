//go:build libtorch

package model

import (
	"context"
	"slices"

	"rcgrpo/engine"
	"rcgrpo/engine/artifact"
	"rcgrpo/stages/internal/chat"
	"rcgrpo/stages/internal/checkpoint"
	"rcgrpo/stages/internal/lm"
	"rcgrpo/stages/internal/token"
	"rcgrpo/stages/rl"
)

// Run trains the tokenizer and draws the weights.
func (s *settings) Run(_ context.Context, job *engine.Job) error {
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
	weights, err := lm.New(lm.Config{Family: a.Family, Vocab: tokenizer.Size(), Hidden: a.Hidden, Layers: a.Layers, Heads: a.Heads,
		KVHeads: a.KVHeads, HeadDim: a.Hidden / a.Heads, MLP: a.MLP, RopeBase: a.RopeBase, NormEps: 1e-6, TiedEmbeddings: true,
		MaxPosition: a.Context}, job.Rand("weights"))
	if err != nil {
		return err
	}
	policy := &checkpoint.Policy{Meta: checkpoint.Meta{Family: checkpoint.Drill}, Model: weights, Tokenizer: tokenizer}
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
