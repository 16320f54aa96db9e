//go:build libtorch

package lm

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"rcgrpo/stages/internal/torch"
)

// Files of weights: one, or several with an index of tensors.
const (
	weightsFile = "model.safetensors"
	indexFile   = "model.safetensors.index.json"
)

// Load reads a folder with config.json and weights in safetensors, in float32, bfloat16 or float16, in one file
// or in shards with an index. Weights are converted to float32.
func Load(dir string, device torch.Device) (*Model, error) {
	cfg, file, err := readConfig(dir)
	if err != nil {
		return nil, err
	}
	m, err := place(cfg, device, func(s *torch.Scope, flat *torch.Tensor) {
		s.Fill(flat, func(flat []float32) error {
			if err := readWeights(dir, cfg, flat); err != nil {
				return err
			}
			return checkFinite(dir, cfg, flat)
		})
	})
	if err != nil {
		return nil, err
	}
	m.file = file
	return m, nil
}

// CheckFolder reports whether Load can read a folder, from the headers of its files.
func CheckFolder(dir string) (Config, error) {
	cfg, _, err := readConfig(dir)
	if err != nil {
		return Config{}, err
	}
	return cfg, eachWeight(dir, cfg, func(r *weightsReader, w weight) error { return r.has(w.name, w.shape) })
}

func readWeights(dir string, cfg Config, flat []float32) error {
	err := eachWeight(dir, cfg, func(r *weightsReader, w weight) error {
		return r.read(w.name, w.shape, flat[w.offset:w.offset+w.len()])
	})
	if err != nil {
		return fmt.Errorf("load weights: %w", err)
	}
	return nil
}

// checkFinite refuses NaN and infinite weights, which would make every result NaN.
func checkFinite(dir string, cfg Config, flat []float32) error {
	weights, _ := layout(cfg)
	for _, w := range weights {
		values := flat[w.offset : w.offset+w.len()]
		if i := slices.IndexFunc(values, func(x float32) bool { return x-x != 0 }); i >= 0 {
			return fmt.Errorf("load weights: %s: tensor %q holds %v at index %d of %d: weights must be finite, so the "+
				"file is damaged or comes from a training that diverged",
				dir, w.name, values[i], i, len(values))
		}
	}
	return nil
}

// eachWeight calls f with every weight of a decoder and its file, and refuses files with other tensors.
func eachWeight(dir string, cfg Config, f func(*weightsReader, weight) error) error {
	where, err := shardsOf(dir)
	if err != nil {
		return err
	}
	open := map[string]*weightsReader{}
	defer func() {
		for _, r := range open {
			r.close()
		}
	}()
	weights, _ := layout(cfg)
	known := map[string]bool{headName: cfg.TiedEmbeddings} // some writers also store the tied head
	for _, w := range weights {
		known[w.name] = true
		file := weightsFile
		if where != nil {
			if file = where[w.name]; file == "" {
				return fmt.Errorf("%s: tensor %q is missing", filepath.Join(dir, indexFile), w.name)
			}
		}
		if open[file] == nil {
			r, err := openWeights(filepath.Join(dir, file))
			if err != nil {
				return err
			}
			open[file] = r
		}
		if err := f(open[file], w); err != nil {
			return fmt.Errorf("%s: %w", open[file].path, err)
		}
	}
	for _, r := range open {
		for name := range r.tensors {
			if !known[name] {
				return fmt.Errorf("%s: tensor %q belongs to no part of a %s decoder", r.path, name, cfg.Family)
			}
		}
	}
	return nil
}

// shardsOf returns the file of each tensor, or nil if all tensors are in one file.
func shardsOf(dir string) (map[string]string, error) {
	if _, err := os.Stat(filepath.Join(dir, weightsFile)); err == nil {
		return nil, nil
	}
	path := filepath.Join(dir, indexFile)
	text, err := os.ReadFile(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, fmt.Errorf("%s holds neither %s nor %s; a pickle (*.bin, *.pt) can run any program when it is opened: "+
			"convert it with save_pretrained of transformers", dir, weightsFile, indexFile)
	case err != nil:
		return nil, err
	}
	var index struct {
		Where map[string]string `json:"weight_map"`
	}
	if err := json.Unmarshal(text, &index); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	for name, file := range index.Where {
		if filepath.Base(file) != file || filepath.Ext(file) != ".safetensors" {
			return nil, fmt.Errorf("%s: tensor %q is said to lie in %q, which is no safetensors file of the folder", path,
				name, file)
		}
	}
	return index.Where, nil
}

// Restore replaces the weights by those that Save wrote into dir for a model of this shape. Trainers of the model
// remain valid.
func (m *Model) Restore(dir string) error {
	saved, err := CheckFolder(dir)
	if err != nil {
		return err
	}
	if got, want := saved.Parameters(), m.cfg.Parameters(); got != want {
		return fmt.Errorf("restore a model from %s: it has %d weights, want %d", dir, got, want)
	}
	return m.do(func(s *torch.Scope) {
		s.Fill(m.flat, func(flat []float32) error { return readWeights(dir, saved, flat) })
		m.renew(s)
	})
}

// Save writes config.json and model.safetensors into dir, which it creates. Equal weights give identical files.
func (m *Model) Save(dir string) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return fmt.Errorf("save model: %w", err)
	}
	weights, _ := layout(m.cfg)
	err := m.do(func(s *torch.Scope) {
		flat := s.Float32s(m.flat)
		if s.Err() != nil {
			return
		}
		tensors := map[string]hostTensor{}
		for _, w := range weights {
			tensors[w.name] = hostTensor{w.shape, flat[w.offset : w.offset+w.len()]}
		}
		s.Fail(writeSafetensors(filepath.Join(dir, weightsFile), tensors, map[string]string{"format": "pt"}))
	})
	if err := errors.Join(err, m.file.write(dir, m.cfg)); err != nil {
		return fmt.Errorf("save model: %w", err)
	}
	return nil
}

// write writes the file with the shape of c into dir. A file from a folder keeps its other keys; weights are
// written in float32.
func (f configFile) write(dir string, c Config) error {
	out := map[string]any{}
	if f == nil {
		out = map[string]any{"architectures": []string{c.class()}, "head_dim": c.HeadDim,
			"hidden_act": "silu", "hidden_size": c.Hidden, "intermediate_size": c.MLP,
			"max_position_embeddings": c.MaxPosition, "model_type": c.Family, "num_attention_heads": c.Heads,
			"num_hidden_layers": c.Layers, "num_key_value_heads": c.KVHeads, "rms_norm_eps": c.NormEps,
			"rope_theta": c.RopeBase, "tie_word_embeddings": c.TiedEmbeddings}
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
