package gguf

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"

	"rcgrpo/stages/internal/lm"
)

// architecture is what a value of general.architecture means.
type architecture struct {
	permuted bool // rows of queries and keys: llama.cpp rotates neighbouring rows, transformers halves of a head
	noRope   int  // of lm.Config
}

// architectures are the supported ones. Their names are those of the families of lm.
var architectures = map[string]architecture{
	"llama": {permuted: true}, "qwen2": {}, "qwen3": {}, "smollm3": {permuted: true, noRope: 4}}

// Names of tensors outside the layers.
const (
	embedTensor = "token_embd.weight"
	headTensor  = "output.weight"
	ropeTensor  = "rope_freqs.weight"
)

// shapeReader takes the keys of an architecture. The first error sticks.
type shapeReader struct {
	*File
	prefix string // of the keys
	known  map[string]bool
	err    error
}

// take returns the value of a key, or otherwise if it is absent.
func take[T any](r *shapeReader, key string, otherwise T) T {
	r.known[r.prefix+key] = true
	v, err := value(r.File, r.prefix+key, otherwise)
	r.fail(err)
	return v
}

// only refuses all values of a key but one.
func only[T comparable](r *shapeReader, key string, want T) {
	if got := take(r, key, want); got != want {
		r.fail(fmt.Errorf("%s%s is %v; only %v is supported", r.prefix, key, got, want))
	}
}

// decimal takes a float32 as the shortest decimal that rounds to it, which is the number that was meant: 1e-05.
func (r *shapeReader) decimal(key string, otherwise float64) float64 {
	x, err := strconv.ParseFloat(strconv.FormatFloat(take(r, key, otherwise), 'g', -1, 32), 64)
	r.fail(err)
	return x
}

func (r *shapeReader) fail(err error) {
	if r.err == nil {
		r.err = err
	}
}

// Config returns the shape of the decoder. A key of the architecture that is neither used nor known to have no effect
// is refused, because the model might be computed wrongly without it.
func (f *File) Config() (lm.Config, error) {
	c, err := f.config()
	if err != nil {
		return lm.Config{}, fmt.Errorf("%s: %w", f.path, err)
	}
	return c, nil
}

func (f *File) config() (c lm.Config, err error) {
	name, err := value(f, "general.architecture", "")
	a, supported := architectures[name]
	if err != nil || !supported {
		return c, fmt.Errorf("general.architecture is %.64q, which is not supported; supported are %s", name,
			strings.Join(slices.Sorted(maps.Keys(architectures)), ", "))
	}
	r := &shapeReader{File: f, prefix: name + ".", known: map[string]bool{}}
	number := func(key string, otherwise int) int { return int(take(r, key, int64(otherwise))) }
	c = lm.Config{Decoder: name, NoRope: a.noRope, Hidden: number("embedding_length", 0), Layers: number("block_count", 0),
		MLP: number("feed_forward_length", 0), Heads: number("attention.head_count", 0),
		MaxPosition: number("context_length", 0), RopeBase: r.decimal("rope.freq_base", 10000),
		NormEps: r.decimal("attention.layer_norm_rms_epsilon", 0)}
	c.KVHeads = number("attention.head_count_kv", c.Heads)
	c.HeadDim = number("attention.key_length", c.Hidden/max(c.Heads, 1))
	only(r, "attention.value_length", int64(c.HeadDim))
	only(r, "rope.dimension_count", int64(c.HeadDim))
	only(r, "rope.scaling.type", "none")
	only(r, "expert_count", int64(0))
	only(r, "attention.causal", true)
	embed, ok := f.tensors[embedTensor]
	if !ok {
		return c, fmt.Errorf("tensor %q is missing", embedTensor)
	}
	c.Vocab = embed.shape[0]
	only(r, "vocab_size", int64(c.Vocab))
	_, untied := f.tensors[headTensor]
	c.TiedEmbeddings = !untied
	for _, key := range slices.Sorted(maps.Keys(f.keys)) {
		if strings.HasPrefix(key, r.prefix) && !r.known[key] {
			r.fail(fmt.Errorf("unknown key %.80q: ignoring it could change the model, so the model is refused", key))
		}
	}
	if r.err == nil {
		r.err = c.Check() // bounds the sizes before they are used
	}
	if _, scaled := f.tensors[ropeTensor]; scaled && r.err == nil {
		r.fail(f.ropeScaling(&c))
	}
	return c, r.err
}

// ropeScaling finds the rotary scaling of Llama 3.1 and 3.2. Its only trace in a file are the divisors of the
// frequencies, of which the last is the factor. The other parameters are those of all published models; a file whose
// divisors are others is refused.
func (f *File) ropeScaling(c *lm.Config) error {
	t := f.tensors[ropeTensor]
	if n := c.HeadDim / 2; len(t.shape) != 1 || t.shape[0] != n {
		return fmt.Errorf("tensor %q has shape %v, want %v", ropeTensor, t.shape, []int{n})
	}
	got := make([]float32, t.shape[0])
	if err := f.Rows(ropeTensor, 0, got); err != nil {
		return err
	}
	c.RopeScaling = lm.RopeScaling{Factor: float64(got[len(got)-1]), Low: 1, High: 4, Original: 8192}
	if err := c.Check(); err != nil {
		return fmt.Errorf("tensor %q: %w", ropeTensor, err)
	}
	for i, want := range c.RopeDivisors() {
		if difference := math.Abs(float64(got[i]/want) - 1); !(difference <= 1e-5) {
			return fmt.Errorf("tensor %q has %v at index %d; the scaling of Llama 3.1 and 3.2 with the factor %v has %v, and "+
				"no other scaling is supported", ropeTensor, got[i], i, c.RopeScaling.Factor, want)
		}
	}
	return nil
}
