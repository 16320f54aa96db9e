//go:build libtorch

package lm

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"rcgrpo/stages/internal/torch"
)

// weightsFile is the one file that holds all weights of a saved model.
const weightsFile = "model.safetensors"

// Load reads a folder with config.json and model.safetensors.
func Load(dir string, device torch.Device) (*Model, error) {
	cfg, err := ReadConfig(dir)
	if err != nil {
		return nil, err
	}
	path := filepath.Join(dir, weightsFile)
	tensors, _, err := readSafetensors(path)
	if err != nil {
		return nil, fmt.Errorf("load weights: %w", err)
	}
	weights, total := layout(cfg)
	flat := make([]float32, total)
	for _, w := range weights {
		t, ok := tensors[w.name]
		if !ok {
			return nil, fmt.Errorf("load %s: tensor %q is missing", path, w.name)
		}
		if !equalShape(t.shape, w.shape) {
			return nil, fmt.Errorf("load %s: tensor %q has shape %v, want %v", path, w.name, t.shape, w.shape)
		}
		copy(flat[w.offset:], t.data)
		delete(tensors, w.name)
	}
	if cfg.TiedEmbeddings {
		delete(tensors, headName) // some writers store the tied head a second time
	}
	for name := range tensors {
		return nil, fmt.Errorf("load %s: tensor %q belongs to no part of a %s decoder", path, name, cfg.Family)
	}
	return fromFlat(cfg, flat, device)
}

func equalShape(a, b []int) bool {
	if len(a) != len(b) {
		return false
	}
	for i := range a {
		if a[i] != b[i] {
			return false
		}
	}
	return true
}

// Save writes config.json and model.safetensors into dir, which it makes if need be. Equal weights give equal bytes.
func (m *Model) Save(dir string) error {
	flat, err := m.Weights()
	if err != nil {
		return err
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return fmt.Errorf("save model: %w", err)
	}
	tensors := map[string]hostTensor{}
	weights, _ := layout(m.cfg)
	for _, w := range weights {
		tensors[w.name] = hostTensor{w.shape, flat[w.offset : w.offset+w.len()]}
	}
	if err := writeSafetensors(filepath.Join(dir, weightsFile), tensors, map[string]string{"format": "pt"}); err != nil {
		return fmt.Errorf("save model: %w", err)
	}
	if err := m.cfg.write(dir); err != nil {
		return fmt.Errorf("save model: %w", err)
	}
	return nil
}

func (c Config) write(dir string) error {
	text, err := json.MarshalIndent(configJSON{Architectures: []string{"Qwen2ForCausalLM"}, HeadDim: c.HeadDim, HiddenAct: "silu", HiddenSize: c.Hidden,
		IntermediateSize: c.MLP, MaxPosition: c.MaxPosition, ModelType: c.Family, Heads: c.Heads, Layers: c.Layers, KVHeads: c.KVHeads,
		NormEps: c.NormEps, RopeTheta: c.RopeBase, Tied: c.TiedEmbeddings, TorchDtype: "float32", VocabSize: c.Vocab}, "", "  ")
	if err != nil {
		return err
	}
	return writeWhole(filepath.Join(dir, "config.json"), append(text, '\n'))
}

// writeWhole writes a file aside and renames it, so that it appears whole or not at all.
func writeWhole(path string, parts ...[]byte) (err error) {
	f, err := os.CreateTemp(filepath.Dir(path), ".partial-*")
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			os.Remove(f.Name())
		}
	}()
	for _, p := range parts {
		if _, err := f.Write(p); err != nil {
			return errors.Join(err, f.Close())
		}
	}
	if err := errors.Join(f.Chmod(0o644), f.Close()); err != nil {
		return err
	}
	return os.Rename(f.Name(), path)
}
