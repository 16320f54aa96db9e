package gguf

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"rcgrpo/stages/internal/lm"
)

// parts are the names of the parts of a layer, ours and those of llama.cpp.
var parts = map[string]string{"self_attn.q_proj": "attn_q", "self_attn.k_proj": "attn_k", "self_attn.v_proj": "attn_v",
	"self_attn.o_proj": "attn_output", "self_attn.q_norm": "attn_q_norm", "self_attn.k_norm": "attn_k_norm",
	"mlp.gate_proj": "ffn_gate", "mlp.up_proj": "ffn_up", "mlp.down_proj": "ffn_down", "input_layernorm": "attn_norm",
	"post_attention_layernorm": "ffn_norm"}

// tensorOf returns the name in GGUF of a weight of lm.
func tensorOf(weight string) string {
	rest, layered := strings.CutPrefix(weight, "model.layers.")
	if !layered {
		return map[string]string{"model.embed_tokens.weight": embedTensor, "lm_head.weight": headTensor,
			"model.norm.weight": "output_norm.weight"}[weight]
	}
	layer, part, _ := strings.Cut(rest, ".")
	dot := strings.LastIndexByte(part, '.')
	return "blk." + layer + "." + parts[part[:dot]] + part[dot:]
}

// Check reports why the tensors are not those of the decoder, or have a type that is not supported. A file that passes
// is read by WriteWeights, unless a weight is not finite.
func (f *File) Check() error {
	c, err := f.Config()
	if err != nil {
		return err
	}
	known := map[string]bool{}
	for weight, shape := range lm.WeightShapes(c) {
		name := tensorOf(weight)
		t, ok := f.tensors[name]
		known[name] = true
		switch {
		case !ok:
			return fmt.Errorf("%s: tensor %q is missing", f.path, name)
		case !slices.Equal(t.shape, shape):
			return fmt.Errorf("%s: tensor %q has shape %v, want %v", f.path, name, t.shape, shape)
		case t.kind.unpack == nil:
			return fmt.Errorf("%s: tensor %q has type %s, which is too coarse to train from; take the F16, BF16 or Q8_0 file "+
				"of the model. Supported are %s", f.path, name, t.kind.name, supported())
		}
	}
	known[ropeTensor] = true
	for _, name := range slices.Sorted(maps.Keys(f.tensors)) {
		if !known[name] {
			return fmt.Errorf("%s: tensor %q belongs to no part of a %s decoder", f.path, name, c.Decoder)
		}
	}
	return nil
}

// Types returns the number of tensors by type, such as "Q4_1 × 210, F32 × 61".
func (f *File) Types() string {
	counts := map[string]int{}
	for _, t := range f.tensors {
		counts[t.kind.name]++
	}
	names := slices.SortedFunc(maps.Keys(counts), func(a, b string) int {
		if counts[a] != counts[b] {
			return counts[b] - counts[a]
		}
		return strings.Compare(a, b)
	})
	for i, name := range names {
		names[i] = name + " × " + strconv.Itoa(counts[name])
	}
	return strings.Join(names, ", ")
}

// Rounded lists the types of tensors that quantisation has rounded, such as "Q4_1, Q8_0", or "".
func (f *File) Rounded() string {
	names := map[string]bool{}
	for _, t := range f.tensors {
		if t.kind.rounded {
			names[t.kind.name] = true
		}
	}
	return strings.Join(slices.Sorted(maps.Keys(names)), ", ")
}

// WriteTemplate writes tokenizer_config.json, with the chat template, and generation_config.json into dir.
func (f *File) WriteTemplate(dir string) error {
	tokenizer, generation, err := f.settings()
	if err != nil {
		return err
	}
	return errors.Join(os.WriteFile(filepath.Join(dir, "tokenizer_config.json"), tokenizer, 0o600),
		os.WriteFile(filepath.Join(dir, lm.GenerationFile), generation, 0o600))
}

// WriteFolder writes a Hugging Face folder in float32, into a folder that exists. Its memory is bounded, whatever the
// size of the model. progress, which may be nil, is called with the number of written weights and of all.
func (f *File) WriteFolder(ctx context.Context, dir string, progress func(done, all int)) error {
	if err := f.Check(); err != nil {
		return err
	}
	c, err := f.Config()
	if err != nil {
		return err
	}
	tokenizer, err := f.Tokenizer()
	if err != nil {
		return err
	}
	if err := errors.Join(f.WriteTemplate(dir), lm.WriteConfig(dir, c),
		os.WriteFile(filepath.Join(dir, "tokenizer.json"), tokenizer, 0o600)); err != nil {
		return err
	}
	done := 0
	err = lm.WriteWeights(dir, c, func(weight string, from int, into []float32) error {
		if done += len(into); progress != nil {
			progress(done, c.Parameters())
		}
		return errors.Join(ctx.Err(), f.weight(c, weight, from, into))
	})
	if err != nil {
		return fmt.Errorf("%s: %w", f.path, err)
	}
	return nil
}

// weight reads rows of a weight, from a row on, in the order of a Hugging Face file.
func (f *File) weight(c lm.Config, weight string, from int, into []float32) error {
	name := tensorOf(weight)
	turned := strings.HasSuffix(name, ".attn_q.weight") || strings.HasSuffix(name, ".attn_k.weight")
	if !turned || !architectures[c.Decoder].permuted {
		return f.Rows(name, from, into)
	}
	for d := c.HeadDim; len(into) > 0; from++ {
		head, p, j := from/d, from%d/(d/2), from%(d/2)
		if err := f.Rows(name, head*d+2*j+p, into[:c.Hidden]); err != nil {
			return err
		}
		into = into[c.Hidden:]
	}
	return nil
}
