// Package model contains the stage kind `model`: the weights that an experiment starts from, either a folder in
// Hugging Face's format, a GGUF file, or an architecture with random weights, whose tokenizer is trained on a corpus of
// trajectories.
package model

import (
	"errors"
	"fmt"
	"io/fs"

	"github.com/hashicorp/hcl/v2"

	"rcgrpo/engine/artifact"
	"rcgrpo/engine/lang"
	"rcgrpo/stages/internal/chat"
	"rcgrpo/stages/internal/checkpoint"
	"rcgrpo/stages/internal/lm"
	"rcgrpo/stages/internal/token"
	"rcgrpo/stages/rl/blocks"
)

// Kind returns the stage kind.
func Kind() *lang.Kind {
	return &lang.Kind{
		Name: "model",
		Summary: "Weights to start from: a Hugging Face folder or GGUF file, or an architecture with random weights and a " +
			"tokenizer trained on a corpus.",
		Version:    1,
		New:        func() lang.Stage { return &settings{Vocab: 1408, CorpusSize: 6000} },
		Outputs:    func(lang.Stage) map[string]string { return map[string]string{"checkpoint": "checkpoint"} },
		Stochastic: func(s lang.Stage) bool { return s.(*settings).Architecture != nil },
	}
}

type settings struct {
	// folder of an instruct model (docs/models.md has the families): config.json, safetensors, tokenizer, chat template;
	// or file("x.gguf")
	Path *artifact.File `hcl:"path,optional"`
	// chat template to use and export instead of the folder's; signatures: tools as signatures and calls as Python
	// text in any template, for small contexts
	Layout string `hcl:"layout,optional" choices:"qwen2.5|qwen3|smollm2|signatures"`
	// chat template (Jinja) to use and export instead of the folder's
	Template *artifact.File `hcl:"template,optional"`

	// further variables of the chat template, such as enable_thinking; JSON booleans and numbers are such, the others
	// strings
	Variables map[string]string `hcl:"variables,optional"`

	// shape of a model with random weights
	Architecture *architecture `hcl:"architecture,block"`
	// data sets that train the tokenizer
	Corpus []artifact.Ref `hcl:"corpus,optional" port:"dataset"`
	// trajectories taken from the corpus, evenly from its data sets
	CorpusSize int `hcl:"corpus_size,optional" unit:"trajectories"`
	// size of the vocabulary, special tokens included
	Vocab int `hcl:"vocab,optional" unit:"tokens"`

	At map[string]hcl.Range `hcl:",ranges"`
}

type architecture struct {
	// the kind of decoder
	Family string `hcl:"family" choices:"qwen2"`
	// the width of the residual stream
	Hidden int `hcl:"hidden"`
	// number of layers
	Layers int `hcl:"layers"`
	// query heads; width / heads is the size of a head
	Heads int `hcl:"heads"`
	// key and value heads, each shared by heads / kv_heads query heads
	KVHeads int `hcl:"kv_heads"`
	// inner width of the feed-forward blocks
	MLP int `hcl:"mlp"`
	// base of the rotary position embedding
	RopeBase float64 `hcl:"rope_base"`
	// the length of the longest sequence, in tokens
	Context int `hcl:"context" unit:"tokens"`

	At map[string]hcl.Range `hcl:",ranges"`
}

const maxCorpus = 100_000_000

// Shape returns the shape of the decoder that a stage of this kind makes; ok is false for another stage or an
// unreadable folder.
func Shape(stage lang.Stage) (c lm.Config, ok bool) {
	s, ok := stage.(*settings)
	switch {
	case !ok || s.Path == nil && s.Architecture == nil:
		return c, false
	case s.Path != nil:
		c, err := checkpoint.ReadShape(s.Path.Path)
		return c, err == nil
	}
	return s.Architecture.shape(s.Vocab), true
}

func (a *architecture) shape(vocab int) lm.Config {
	return lm.Config{Decoder: a.Family, Vocab: vocab, Hidden: a.Hidden, Layers: a.Layers, Heads: a.Heads,
		KVHeads: a.KVHeads, HeadDim: a.Hidden / a.Heads, MLP: a.MLP, RopeBase: a.RopeBase, NormEps: 1e-6,
		TiedEmbeddings: true, MaxPosition: a.Context}
}

// checkFolder reports why a model folder or file is unusable, without loading weights.
func (s *settings) checkFolder() error {
	chosen, err := s.template()
	if err != nil {
		return err
	}
	if !s.Path.Dir {
		return checkpoint.ReadModel(s.Path.Path, chosen).Err()
	}
	cfg, err := lm.ReadConfig(s.Path.Path)
	if err != nil {
		return err
	}
	if _, err = checkpoint.ReadTemplate(s.Path.Path, cfg, chosen); errors.Is(err, fs.ErrNotExist) {
		return nil // a folder without a tokenizer's files is refused when the stage runs
	}
	return err
}

// template returns the settings of the chat template.
func (s *settings) template() (chat.Settings, error) {
	chosen := chat.Settings{Layout: s.Layout, Variables: s.Variables}
	if s.Template == nil {
		return chosen, nil
	}
	source, err := token.ReadSmall(s.Template.Path)
	if err == nil && len(source) == 0 {
		err = fmt.Errorf("%s: the chat template is empty", s.Template.Path)
	}
	chosen.Source = string(source)
	return chosen, err
}

// WithoutEffect returns the settings that have no effect in combination with the others.
func (s *settings) WithoutEffect() map[string]string {
	if s.Path == nil {
		return nil
	}
	const why = "a folder brings its tokenizer"
	return map[string]string{"vocab": why, "corpus_size": why}
}

func (s *settings) Check() (diags hcl.Diagnostics) {
	bad := blocks.Mistakes(&diags)
	a := s.Architecture
	if s.Path != nil {
		switch {
		case a != nil:
			bad(true, "Two sources of weights", s.At["path"],
				"The weights come from the folder path or are drawn for an architecture; name one of them.")
		case len(s.Corpus) > 0:
			bad(true, "Two tokenizers", s.At["path"],
				"A folder brings its tokenizer; a corpus trains that of an architecture with random weights.")
		case s.Template != nil && s.Layout != "" && s.Layout != chat.Signatures:
			bad(true, "Two chat templates", s.At["template"],
				"layout = %q names a template too; name one of them.", s.Layout)
		case !s.Path.Dir && !checkpoint.IsGGUF(s.Path.Path):
			bad(true, "Not a folder", s.At["path"], "A model is a folder, dir(\"...\"), or a GGUF file, file(\"x.gguf\").")
		default:
			err := s.checkFolder()
			bad(err != nil, "Not a model that can be used", s.At["path"], "%v.", err)
		}
		return diags
	}
	const noFolder = "layout, template and variables belong to the chat template of a model folder; name the folder " +
		"with path = dir(\"...\"), or leave them out."
	bad(s.Layout != "", "No folder", s.At["layout"], noFolder)
	bad(s.Template != nil, "No folder", s.At["template"], noFolder)
	bad(s.Variables != nil, "No folder", s.At["variables"], noFolder)
	if a == nil {
		bad(true, "No weights", s.At[""], "A model is a folder, path = dir(\"...\"), or is described by a block "+
			"architecture { family, hidden, layers, heads, kv_heads, mlp, rope_base, context }.")
		return diags
	}
	for _, n := range []struct {
		name        string
		value, most int
		at          hcl.Range
	}{
		{"hidden", a.Hidden, lm.MaxHidden, a.At["hidden"]}, {"layers", a.Layers, lm.MaxLayers, a.At["layers"]},
		{"heads", a.Heads, lm.MaxHeads, a.At["heads"]}, {"kv_heads", a.KVHeads, lm.MaxHeads, a.At["kv_heads"]},
		{"mlp", a.MLP, lm.MaxMLP, a.At["mlp"]}, {"context", a.Context, lm.MaxContext, a.At["context"]},
		{"corpus_size", s.CorpusSize, maxCorpus, s.At["corpus_size"]}, {"vocab", max(1, s.Vocab), lm.MaxVocab, s.At["vocab"]},
	} {
		bad(n.value < 1 || n.value > n.most, "Size out of range", n.at, "%s must be at least 1 and at most %d; got %d.",
			n.name, n.most, n.value)
	}
	bad(a.RopeBase <= 0, "Rotary base out of range", a.At["rope_base"],
		"Rotary angles are powers of rope_base, which must be above 0; got %v.", a.RopeBase)
	if diags.HasErrors() {
		return diags
	}
	bad(a.Hidden/a.Heads > lm.MaxHeadDim, "Heads too wide", a.At["heads"],
		"A head may have a width of %d; %d / %d is more.", lm.MaxHeadDim, a.Hidden, a.Heads)
	bad(a.Hidden%a.Heads != 0 || a.Hidden/a.Heads%2 != 0, "Heads do not divide the width", a.At["heads"],
		"Each head takes an even share of the width, for rotary positions; %d / %d is none.", a.Hidden, a.Heads)
	bad(a.Heads%a.KVHeads != 0, "Key heads do not divide the query heads", a.At["kv_heads"],
		"Each key head serves the same number of query heads; %d / %d is not whole.", a.Heads, a.KVHeads)
	bad(len(s.Corpus) == 0, "No corpus", s.At[""],
		"Random weights need a tokenizer: name data sets to train it on, corpus = [stage.curate.NAME.expert].")
	bad(s.Vocab < 300, "Vocabulary too small", s.At["vocab"], "A byte-level vocabulary needs 256 bytes, the special "+
		"tokens and some merges, so at least 300; got %d.", s.Vocab)
	return diags
}
