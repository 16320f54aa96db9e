//go:build libtorch

package lm

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// Files of an adapter in peft's format.
const (
	adapterConfigFile = "adapter_config.json"
	adapterFile       = "adapter_model.safetensors"
	adapterPrefix     = "base_model.model."
)

type adapterConfig struct {
	Type    string   `json:"peft_type"`
	Task    string   `json:"task_type"`
	Base    string   `json:"base_model_name_or_path"`
	Rank    int      `json:"r"`
	Alpha   float64  `json:"lora_alpha"`
	Targets []string `json:"target_modules"`
	Dropout float64  `json:"lora_dropout"`
	Bias    string   `json:"bias"`
	DoRA    bool     `json:"use_dora"`
	RSLoRA  bool     `json:"use_rslora"`

	// Rows are the vocabulary rows that the adapter replaces, by the module of the table.
	Rows map[string][]int32 `json:"trainable_token_indices,omitempty"`
}

// Save writes the adapter into dir in peft's format. base names its model.
func (a *Adapter) Save(dir, base string) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return fmt.Errorf("save adapter: %w", err)
	}
	flat, err := a.base.read(a.flat)
	if err != nil {
		return fmt.Errorf("save adapter: %w", err)
	}
	tensors := map[string]writtenTensor{}
	a.eachTensor(func(name string, shape []int, offset int) error {
		tensors[name] = whole(shape, flat[offset:offset+shape[0]*shape[1]])
		return nil
	})
	c := adapterConfig{Type: "LORA", Task: "CAUSAL_LM", Base: base, Rank: a.c.Rank, Alpha: a.c.Alpha,
		Targets: slices.Sorted(slices.Values(a.c.Targets)), Bias: "none",
		Rows: map[string][]int32{}}
	for _, table := range a.tables {
		c.Rows[moduleOf(table.name)] = a.c.Rows
	}
	text, err := json.MarshalIndent(c, "", "  ")
	if err != nil {
		return fmt.Errorf("save adapter: %w", err)
	}
	return errors.Join(writeSafetensors(nil, filepath.Join(dir, adapterFile), tensors, map[string]string{"format": "pt"}),
		os.WriteFile(filepath.Join(dir, adapterConfigFile), append(text, '\n'), 0o600))
}

// eachTensor calls f with every tensor of peft's file, its shape and its offset in the flat buffer.
func (a *Adapter) eachTensor(f func(name string, shape []int, offset int) error) error {
	var err error
	for _, p := range a.parts {
		module := adapterPrefix + strings.TrimSuffix(p.name, ".weight")
		err = errors.Join(err, f(module+".lora_A.weight", []int{a.c.Rank, p.in}, p.offset),
			f(module+".lora_B.weight", []int{p.out, a.c.Rank}, p.offset+a.c.Rank*p.in))
	}
	for _, table := range a.tables {
		module := adapterPrefix + strings.TrimSuffix(table.name, ".weight")
		err = errors.Join(err, f(module+".token_adapter.trainable_tokens_delta", []int{len(a.c.Rows), a.base.cfg.Hidden},
			table.offset))
	}
	return err
}

// LoadAdapter reads an adapter of base: plain LoRA on projections and vocabulary rows, as Save and peft write it.
// Only tests use it, to compare with peft and with merged checkpoints.
func LoadAdapter(dir string, base *Model) (*Adapter, error) {
	text, err := os.ReadFile(filepath.Join(dir, adapterConfigFile))
	if err != nil {
		return nil, fmt.Errorf("load adapter: %w", err)
	}
	var c adapterConfig
	if err := json.Unmarshal(text, &c); err != nil {
		return nil, fmt.Errorf("load adapter from %s: %w", dir, err)
	}
	if c.Dropout != 0 {
		return nil, fmt.Errorf("load adapter from %s: lora_dropout %v is not supported; 0 is", dir, c.Dropout)
	}
	a, total, err := adapterOf(base, LoRA{Rank: c.Rank, Alpha: c.Alpha, Targets: c.Targets,
		Rows: c.Rows[moduleOf(embedName)]})
	if err != nil {
		return nil, fmt.Errorf("load adapter from %s: %w", dir, err)
	}
	r, err := openWeights(filepath.Join(dir, adapterFile))
	if err != nil {
		return nil, fmt.Errorf("load adapter: %w", err)
	}
	defer r.close()
	flat, tensors := make([]float32, total), 0
	err = a.eachTensor(func(name string, shape []int, offset int) error {
		tensors++
		return r.read(name, shape, 0, flat[offset:offset+shape[0]*shape[1]])
	})
	if err != nil {
		return nil, fmt.Errorf("load adapter: %s: %w", r.path, err)
	}
	if len(r.tensors) != tensors {
		return nil, fmt.Errorf("load adapter: %s holds %d tensors, want %d: it belongs to another model", r.path,
			len(r.tensors), tensors)
	}
	return a, a.place(flat)
}
