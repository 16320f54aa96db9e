package lm

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
)

// Config is the shape of a decoder.
type Config struct {
	Family         string // "qwen2"
	Vocab          int    // rows of the embedding
	Hidden         int    // width of the residual stream
	Layers         int
	Heads, KVHeads int // query heads, and heads of keys and values, which divide them
	HeadDim        int
	MLP            int     // width inside the feed-forward block
	RopeBase       float64 // base of the rotary angles
	NormEps        float64 // added to the mean square under RMSNorm's root
	TiedEmbeddings bool    // the head is the embedding
	MaxPosition    int     // positions that exist; longer sequences are refused
}

// Check reports the first value that no decoder can have.
func (c Config) Check() error {
	for _, v := range []struct {
		name string
		n    int
	}{{"vocab_size", c.Vocab}, {"hidden_size", c.Hidden}, {"num_hidden_layers", c.Layers}, {"num_attention_heads", c.Heads},
		{"num_key_value_heads", c.KVHeads}, {"head_dim", c.HeadDim}, {"intermediate_size", c.MLP}, {"max_position_embeddings", c.MaxPosition}} {
		if v.n < 1 {
			return fmt.Errorf("model config: %s must be at least 1, got %d", v.name, v.n)
		}
	}
	switch {
	case c.Family != "qwen2":
		return fmt.Errorf(`model config: model_type %q is not supported; "qwen2" is`, c.Family)
	case c.Heads%c.KVHeads != 0:
		return fmt.Errorf("model config: num_key_value_heads %d does not divide num_attention_heads %d", c.KVHeads, c.Heads)
	case c.HeadDim%2 != 0:
		return fmt.Errorf("model config: head_dim must be even because rotary embedding pairs its halves, got %d", c.HeadDim)
	case !(c.RopeBase > 0):
		return fmt.Errorf("model config: rope_theta must be positive, got %v", c.RopeBase)
	case !(c.NormEps > 0):
		return fmt.Errorf("model config: rms_norm_eps must be positive, got %v", c.NormEps)
	}
	return nil
}

// Parameters is the number of weights, a tied embedding counted once.
func (c Config) Parameters() int {
	_, n := layout(c)
	return n
}

// configJSON is config.json as Hugging Face writes it for this family.
type configJSON struct {
	Architectures    []string `json:"architectures"`
	HeadDim          int      `json:"head_dim,omitempty"`
	HiddenAct        string   `json:"hidden_act"`
	HiddenSize       int      `json:"hidden_size"`
	IntermediateSize int      `json:"intermediate_size"`
	MaxPosition      int      `json:"max_position_embeddings"`
	ModelType        string   `json:"model_type"`
	Heads            int      `json:"num_attention_heads"`
	Layers           int      `json:"num_hidden_layers"`
	KVHeads          int      `json:"num_key_value_heads"`
	NormEps          float64  `json:"rms_norm_eps"`
	RopeTheta        float64  `json:"rope_theta"`
	SlidingWindow    *int     `json:"sliding_window,omitempty"`
	UseSlidingWindow bool     `json:"use_sliding_window"`
	Tied             bool     `json:"tie_word_embeddings"`
	TorchDtype       string   `json:"torch_dtype"`
	VocabSize        int      `json:"vocab_size"`
}

// ReadConfig reads and checks DIR/config.json.
func ReadConfig(dir string) (Config, error) {
	path := filepath.Join(dir, "config.json")
	text, err := os.ReadFile(path)
	if err != nil {
		return Config{}, fmt.Errorf("model config: %w", err)
	}
	j := configJSON{RopeTheta: 10000, NormEps: 1e-6, HiddenAct: "silu"}
	if err := json.Unmarshal(text, &j); err != nil {
		return Config{}, fmt.Errorf("model config %s: %w", path, err)
	}
	if j.UseSlidingWindow {
		return Config{}, fmt.Errorf("model config %s: use_sliding_window is not supported", path)
	}
	if j.HiddenAct != "silu" {
		return Config{}, fmt.Errorf(`model config %s: hidden_act %q is not supported; "silu" is`, path, j.HiddenAct)
	}
	if j.KVHeads == 0 {
		j.KVHeads = j.Heads
	}
	if j.HeadDim == 0 && j.Heads > 0 {
		j.HeadDim = j.HiddenSize / j.Heads
	}
	c := Config{Family: j.ModelType, Vocab: j.VocabSize, Hidden: j.HiddenSize, Layers: j.Layers, Heads: j.Heads, KVHeads: j.KVHeads, HeadDim: j.HeadDim,
		MLP: j.IntermediateSize, RopeBase: j.RopeTheta, NormEps: j.NormEps, TiedEmbeddings: j.Tied, MaxPosition: j.MaxPosition}
	if err := c.Check(); err != nil {
		return Config{}, fmt.Errorf("%s: %w", path, err)
	}
	return c, nil
}
