package lm

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"rcgrpo/stages/internal/token"
)

// ConfigFile is the file of a model folder with its shape.
const ConfigFile = "config.json"

// configFile is a config.json, key by key. Keys beyond the shape (token ids, version) are written back unchanged.
type configFile map[string]json.RawMessage

// silent are keys that do not affect the computation of a decoder, those of transformers.js and SmolLM2 included.
var silent = []string{"_name_or_path", "bos_token_id", "eos_token_id", "pad_token_id", "initializer_range",
	"is_llama_config", "max_window_layers", "sliding_window", "torch_dtype", "dtype", "transformers.js_config",
	"transformers_version", "use_cache"}

// ReadConfig reads and checks DIR/config.json in the format of transformers 4 or 5. A key that is neither used
// nor known to have no effect is refused by name, because the model might be computed wrongly without it.
func ReadConfig(dir string) (Config, error) {
	c, _, err := readConfig(dir)
	return c, err
}

func readConfig(dir string) (Config, configFile, error) {
	path := filepath.Join(dir, ConfigFile)
	text, err := token.ReadSmall(path)
	if err != nil {
		return Config{}, nil, fmt.Errorf("model config: %w", err)
	}
	var f configFile
	if err = token.CheckNesting(text); err == nil {
		err = json.Unmarshal(text, &f)
	}
	if err != nil {
		return Config{}, nil, fmt.Errorf("model config %s: %w", path, err)
	}
	r := configReader{left: maps.Clone(f)}
	c := r.config()
	if r.err = cmp.Or(r.err, r.nothingLeft("")); r.err == nil {
		r.err = c.Check()
	}
	if r.err != nil {
		return Config{}, nil, fmt.Errorf("%s: %.1000v", path, r.err)
	}
	return c, f, nil
}

// GenerationFile is the file of a model folder with the sampling defaults of other programs.
const GenerationFile = "generation_config.json"

// CheckGeneration checks the optional DIR/generation_config.json. Its sampling settings are ignored, because
// stages have their own; its token ids must be in the vocabulary.
func CheckGeneration(dir string, c Config) error {
	path := filepath.Join(dir, GenerationFile)
	text, err := token.ReadSmall(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	var keys map[string]json.RawMessage
	if err := json.Unmarshal(text, &keys); err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	for _, key := range []string{"bos_token_id", "eos_token_id", "pad_token_id"} {
		ids := make([]int, 1) // one id or a list
		if raw := keys[key]; raw == nil || string(raw) == "null" {
			continue
		} else if json.Unmarshal(raw, &ids[0]) != nil {
			if err := json.Unmarshal(raw, &ids); err != nil {
				return fmt.Errorf("%s: key %q: it is neither a token id nor a list of them", path, key)
			}
		}
		for _, id := range ids {
			if id < 0 || id >= c.Vocab {
				return fmt.Errorf("%s: %s names token %d, and the model has 0..%d: the file belongs to another model", path,
					key, id, c.Vocab-1)
			}
		}
	}
	return nil
}

// configReader removes known keys from a file, so the remaining keys are unknown. The first error sticks.
type configReader struct {
	left configFile
	err  error
}

// take decodes a key into v, which keeps its value if the key is absent or null.
func (r *configReader) take(key string, v any) (present bool) {
	raw, ok := r.left[key]
	delete(r.left, key)
	if !ok || string(raw) == "null" {
		return false
	}
	if err := json.Unmarshal(raw, v); err != nil && r.err == nil {
		r.err = fmt.Errorf("key %q: %w", key, err)
	}
	return true
}

// only refuses all values of a key but one.
func only[T comparable](r *configReader, key string, want T) {
	got := want
	if r.take(key, &got); got != want && r.err == nil {
		r.err = fmt.Errorf("%s %v is not supported; %v is", key, got, want)
	}
}

func (r *configReader) nothingLeft(inside string) error {
	if len(r.left) == 0 {
		return nil
	}
	var names []string
	for _, key := range slices.Sorted(maps.Keys(r.left)) {
		names = append(names, fmt.Sprintf("%q", inside+key))
	}
	return fmt.Errorf("unknown key %s: ignoring it could change the model, so the model is refused",
		strings.Join(names, ", "))
}

func (r *configReader) config() Config {
	c := Config{RopeBase: 10000, NormEps: 1e-6}
	r.take("model_type", &c.Decoder)
	r.take("vocab_size", &c.Vocab)
	r.take("hidden_size", &c.Hidden)
	r.take("intermediate_size", &c.MLP)
	r.take("num_hidden_layers", &c.Layers)
	r.take("num_attention_heads", &c.Heads)
	r.take("max_position_embeddings", &c.MaxPosition)
	r.take("rms_norm_eps", &c.NormEps)
	r.take("tie_word_embeddings", &c.TiedEmbeddings)
	if !r.take("num_key_value_heads", &c.KVHeads) {
		c.KVHeads = c.Heads
	}
	if !r.take("head_dim", &c.HeadDim) && c.Heads > 0 {
		c.HeadDim = c.Hidden / c.Heads
		if c.headNorms() && r.err == nil {
			r.err = errors.New("head_dim is missing; a decoder with norms of heads has a head_dim of its own")
		}
	}
	r.rope(&c)
	r.noRope(&c)
	r.architecture(c)
	only(r, "hidden_act", "silu")
	only(r, "attention_dropout", 0.0)
	only(r, "use_sliding_window", false)
	only(r, "attention_bias", false)
	only(r, "mlp_bias", false)
	only(r, "pretraining_tp", 1)
	only(r, "rope_interleaved", false)
	for _, key := range silent {
		delete(r.left, key)
	}
	return c
}

// rope reads rotary base and scaling: two keys in published files, one table since transformers 5.
func (r *configReader) rope(c *Config) {
	r.take("rope_theta", &c.RopeBase)
	table, name := configFile{}, "rope_scaling"
	if !r.take(name, &table) {
		if name = "rope_parameters"; !r.take(name, &table) {
			return
		}
	}
	t := configReader{left: table, err: r.err}
	t.take("rope_theta", &c.RopeBase)
	kind := "default"
	for _, key := range []string{"type", "rope_type"} {
		t.take(key, &kind)
	}
	switch s := &c.RopeScaling; kind {
	case "default":
	case "llama3":
		t.take("factor", &s.Factor)
		t.take("low_freq_factor", &s.Low)
		t.take("high_freq_factor", &s.High)
		t.take("original_max_position_embeddings", &s.Original)
		if *s == (RopeScaling{}) && t.err == nil {
			t.err = fmt.Errorf(`rope scaling of type "llama3" gives no factor`)
		}
	default:
		t.err = cmp.Or(t.err, fmt.Errorf(`rope scaling of type %q is not supported; "default" and "llama3" are`, kind))
	}
	r.err = cmp.Or(t.err, t.nothingLeft(name+"."))
}

// noRope reads which layers have no rotary embedding.
func (r *configReader) noRope(c *Config) {
	if c.NoRope = decoders[c.Decoder].noRope; c.NoRope == 0 {
		return
	}
	r.take("no_rope_layer_interval", &c.NoRope)
	if c.NoRope < 1 && r.err == nil {
		r.err = fmt.Errorf("no_rope_layer_interval must be at least 1, got %d", c.NoRope)
	}
	var rotates []int // 1 where the layer has rotary embedding
	if !r.take("no_rope_layers", &rotates) || r.err != nil {
		return
	}
	if len(rotates) != c.Layers {
		r.err = fmt.Errorf("no_rope_layers has %d entries for %d layers", len(rotates), c.Layers)
		return
	}
	for l, one := range rotates {
		if (one != 0) != c.rotates(l) {
			r.err = fmt.Errorf("no_rope_layers[%d] is %d; supported is 0 for every n-th layer, n being "+
				"no_rope_layer_interval %d, and 1 for the others", l, one, c.NoRope)
			return
		}
	}
}

// architecture checks the keys that repeat the family in other words.
func (r *configReader) architecture(c Config) {
	var classes, layers []string
	r.take("architectures", &classes)
	for _, class := range classes {
		if class != c.class() && r.err == nil {
			r.err = fmt.Errorf("architectures names %s; of model_type %q only %s is supported", class, c.Decoder, c.class())
		}
	}
	r.take("layer_types", &layers)
	for _, kind := range layers {
		if kind != "full_attention" && r.err == nil {
			r.err = fmt.Errorf(`layer_types holds %q; only "full_attention" is supported`, kind)
		}
	}
}

func (c Config) class() string {
	return decoders[c.Decoder].class
}

// write writes the file with the shape of c into dir. A file from a folder keeps its other keys; weights are
// written in float32.
func (f configFile) write(dir string, c Config) error {
	out := map[string]any{}
	if f == nil {
		out = map[string]any{"architectures": []string{c.class()}, "head_dim": c.HeadDim,
			"hidden_act": "silu", "hidden_size": c.Hidden, "intermediate_size": c.MLP,
			"max_position_embeddings": c.MaxPosition, "model_type": c.Decoder, "num_attention_heads": c.Heads,
			"num_hidden_layers": c.Layers, "num_key_value_heads": c.KVHeads, "rms_norm_eps": c.NormEps,
			"rope_theta": c.RopeBase, "tie_word_embeddings": c.TiedEmbeddings}
		if c.NoRope != 0 {
			out["no_rope_layer_interval"] = c.NoRope
		}
		if s := c.RopeScaling; s.Factor != 0 {
			out["rope_scaling"] = map[string]any{"rope_type": "llama3", "factor": s.Factor, "low_freq_factor": s.Low,
				"high_freq_factor": s.High, "original_max_position_embeddings": s.Original}
		}
	}
	for key, v := range f {
		out[key] = v
	}
	dtype := "torch_dtype"
	if _, newer := f["dtype"]; newer {
		dtype = "dtype"
	}
	out[dtype], out["vocab_size"] = "float32", c.Vocab
	text, err := json.MarshalIndent(out, "", "  ") // sorts the keys
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(dir, ConfigFile), append(text, '\n'), 0o600)
}
