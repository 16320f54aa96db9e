package lm

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
)

// Config is the shape of a decoder.
type Config struct {
	Decoder        string // a key of decoders: "qwen2"
	Vocab          int    // rows of the embedding
	Hidden         int    // width of the residual stream
	Layers         int
	Heads, KVHeads int // query heads; key and value heads, which divide them
	HeadDim        int
	MLP            int     // width inside the feed-forward block
	RopeBase       float64 // base of the rotary angles
	RopeScaling    RopeScaling
	NormEps        float64 // added to the mean square under RMSNorm's root
	NoRope         int     // every n-th layer has no rotary embedding; 0: each has one
	TiedEmbeddings bool    // the head shares the weights of the embedding
	MaxPosition    int     // maximal length of a sequence
}

// RopeScaling stretches slow rotary frequencies at all positions, so that a model reads longer texts than those
// of its first training (Llama 3.1: rope_type "llama3"). The zero value is no scaling.
type RopeScaling struct {
	Factor    float64 // divisor of frequencies with a wavelength above Original/Low
	Low, High float64 // wavelengths below Original/High are unchanged; between the bounds the change is smooth
	Original  int     // positions of the first training
}

// features are what a decoder has beyond the common parts.
type features struct {
	class     string // the reference's
	bias      bool   // of queries, keys and values
	headNorms bool   // RMSNorm of each query and key head, before the rotary embedding
	noRope    int    // Config.NoRope unless the file says otherwise; 0: the family has no such layers
}

// decoders are the supported decoders by model_type.
var decoders = map[string]features{
	"llama":   {class: "LlamaForCausalLM"},
	"qwen2":   {class: "Qwen2ForCausalLM", bias: true},
	"qwen3":   {class: "Qwen3ForCausalLM", headNorms: true},
	"smollm3": {class: "SmolLM3ForCausalLM", noRope: 4},
}

func (c Config) bias() bool      { return decoders[c.Decoder].bias }
func (c Config) headNorms() bool { return decoders[c.Decoder].headNorms }

// rotates reports whether a layer has rotary embedding.
func (c Config) rotates(layer int) bool { return c.NoRope == 0 || (layer+1)%c.NoRope != 0 }

// Limits of a decoder's shape, several times those of any published model. Planning takes time and memory in
// proportion to the layers, and sizes are multiplied, so a shape is bounded before any computation.
const (
	MaxVocab   = 1 << 22
	MaxHidden  = 1 << 17
	MaxLayers  = 1 << 10
	MaxHeads   = 1 << 12
	MaxHeadDim = 1 << 12
	MaxMLP     = 1 << 19
	MaxContext = 1 << 27
	maxAngles  = 1 << 27 // numbers in the tables of rotary angles, which a training has twice
)

// Check reports the first value that is out of range.
func (c Config) Check() error {
	for _, v := range []struct {
		name    string
		n, most int
	}{{"vocab_size", c.Vocab, MaxVocab}, {"hidden_size", c.Hidden, MaxHidden}, {"num_hidden_layers", c.Layers, MaxLayers},
		{"num_attention_heads", c.Heads, MaxHeads}, {"num_key_value_heads", c.KVHeads, MaxHeads}, {"head_dim", c.HeadDim,
			MaxHeadDim},
		{"intermediate_size", c.MLP, MaxMLP}, {"max_position_embeddings", c.MaxPosition, MaxContext}} {
		if v.n < 1 || v.n > v.most {
			return fmt.Errorf("model config: %s must be at least 1 and at most %d, got %d", v.name, v.most, v.n)
		}
	}
	_, known := decoders[c.Decoder]
	switch r := c.RopeScaling; {
	case !known:
		return fmt.Errorf("model config: model_type %q is not supported; supported are %s", c.Decoder,
			strings.Join(slices.Sorted(maps.Keys(decoders)), ", "))
	case r != RopeScaling{} && !(r.Factor >= 1 && r.Low > 0 && r.High > r.Low && r.Original > 0):
		return fmt.Errorf("model config: rope scaling needs factor >= 1, 0 < low_freq_factor < high_freq_factor and "+
			"original_max_position_embeddings > 0, got %v, %v, %v and %d",
			r.Factor, r.Low, r.High, r.Original)
	case c.Heads%c.KVHeads != 0:
		return fmt.Errorf("model config: num_key_value_heads %d does not divide num_attention_heads %d", c.KVHeads, c.Heads)
	case c.MaxPosition*c.HeadDim > maxAngles:
		return fmt.Errorf("model config: max_position_embeddings %d times head_dim %d is above %d: the rotary angles would "+
			"take more than 512 MiB; write a lower max_position_embeddings into %s", c.MaxPosition, c.HeadDim, maxAngles,
			ConfigFile)
	case c.HeadDim%2 != 0:
		return fmt.Errorf("model config: head_dim must be even because rotary embedding pairs its halves, got %d",
			c.HeadDim)
	case !(c.RopeBase > 0):
		return fmt.Errorf("model config: rope_theta must be positive, got %v", c.RopeBase)
	case !(c.NormEps > 0):
		return fmt.Errorf("model config: rms_norm_eps must be positive, got %v", c.NormEps)
	}
	return nil
}

// Parameters returns the number of weights, with a tied embedding counted once.
func (c Config) Parameters() int {
	_, n := layout(c)
	return n
}

// Precision is the number type of a model's matrix products and attention.
type Precision string

const (
	// Float32 computes everything in float32, the default.
	Float32 Precision = "float32"
	// BF16 multiplies in bfloat16. Trained weights, their gradients and moments, the residual stream, norms, the
	// statistics of the loss head and their gradients, and checkpoints stay in float32.
	BF16 Precision = "bf16"
)

// Check refuses other values.
func (p Precision) Check() error {
	if p != Float32 && p != BF16 {
		return fmt.Errorf(`unknown precision %q; write "float32" or "bf16"`, string(p))
	}
	return nil
}

// frequencies returns the rotary angles per position, one per pair of a head's halves, rounded to float32 like
// the reference, exponents too: the rounding has an effect at far positions.
func (c Config) frequencies() []float32 {
	f := make([]float32, c.HeadDim/2)
	for i := range f {
		f[i] = c.RopeScaling.scale(1 / float32(math.Pow(c.RopeBase, float64(float32(2*i)/float32(c.HeadDim)))))
	}
	return f
}

// RopeDivisors returns what RopeScaling divides the rotary frequencies by, one number per pair of a head's halves.
func (c Config) RopeDivisors() []float32 {
	scaled := c.frequencies()
	c.RopeScaling = RopeScaling{}
	plain := c.frequencies()
	for i := range plain {
		plain[i] /= scaled[i]
	}
	return plain
}

func (r RopeScaling) scale(f float32) float32 {
	if r.Factor == 0 {
		return f
	}
	original, wavelength := float32(r.Original), 2*math.Pi/f
	switch {
	case wavelength < original/float32(r.High):
		return f
	case wavelength > original/float32(r.Low):
		return f / float32(r.Factor)
	}
	smooth := (original/wavelength - float32(r.Low)) / float32(r.High-r.Low)
	return (1-smooth)*f/float32(r.Factor) + smooth*f
}
