//go:build libtorch

package lm

import (
	"encoding/binary"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"testing"

	"rcgrpo/internal/must"
	"rcgrpo/stages/internal/torch"
)

func llama(t *testing.T) *Model {
	t.Helper()
	m := must.Get(New(Config{Decoder: "llama", Vocab: 20, Hidden: 8, Layers: 1, Heads: 2, KVHeads: 1, HeadDim: 4, MLP: 12,
		RopeBase: 5e5,
		RopeScaling: RopeScaling{Factor: 8, Low: 1, High: 4,
			Original: 16}, NormEps: 1e-5, MaxPosition: 64}, rand.New(rand.NewPCG(1, 2))))(t)
	t.Cleanup(func() { m.Close() })
	return m
}

func TestSavedModelLoadsUnchanged(t *testing.T) {
	m, dir := llama(t), t.TempDir()
	must.OK(t, m.Save(dir))
	got := must.Get(Load(dir, torch.CPU, Buffers{}))(t)
	defer got.Close()
	a := must.Get(m.Weights())(t)
	if b, err := got.Weights(); err != nil || !slices.Equal(a, b) || got.Config() != m.Config() {
		t.Errorf("other weights or shape: %+v, want %+v (%v)", got.Config(), m.Config(), err)
	}
	again := t.TempDir()
	must.OK(t, got.Save(again))
	for _, name := range []string{ConfigFile, weightsFile} {
		if bytesOf(t, dir, name) != bytesOf(t, again, name) {
			t.Errorf("%s written again has other bytes", name)
		}
	}
}

// A config.json of a stranger may have tables of half a GiB beside weights of a few kilobytes.
func TestRotaryAnglesAreComputedWhereTheyStay(t *testing.T) {
	cfg := llama(t).Config()
	cfg.MaxPosition = 1 << 18
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	must.OK(t, must.Get(New(cfg, rand.New(rand.NewPCG(1, 2))))(t).Close())
	runtime.ReadMemStats(&after)
	if n := after.TotalAlloc - before.TotalAlloc; n > uint64(cfg.tables()/4) {
		t.Errorf("tables of %d bytes needed %d more", cfg.tables(), n)
	}
}

// What a config says beyond the shape, such as token ids, is for the programs that load the folder next.
func TestConfigOfALoadedModelKeepsItsOtherKeys(t *testing.T) {
	m, dir := llama(t), published(t, nil)
	from := t.TempDir()
	must.OK(t, m.Save(from))
	must.OK(t, os.Rename(filepath.Join(from, weightsFile), filepath.Join(dir, weightsFile)))
	got := must.Get(Load(dir, torch.CPU, Buffers{}))(t)
	defer got.Close()
	must.OK(t, got.AddRows(2))
	out := t.TempDir()
	must.OK(t, got.Save(out))
	must.Contain(t, bytesOf(t, out, ConfigFile), `"vocab_size": 22`, `"torch_dtype": "float32"`, `"bos_token_id": 4`,
		`"rope_type": "llama3"`)
}

func TestFoldersWithoutReadableWeightsAreRefused(t *testing.T) {
	whole := t.TempDir()
	must.OK(t, llama(t).Save(whole))
	weights := must.Get(os.ReadFile(filepath.Join(whole, weightsFile)))(t)
	holding := func(bits uint32) map[string]string { // in the last number but one
		text := slices.Clone(weights)
		binary.LittleEndian.PutUint32(text[len(text)-8:], bits)
		return map[string]string{weightsFile: string(text)}
	}
	for name, tc := range map[string]struct {
		files map[string]string
		edits map[string]any
		want  string
	}{
		"none": {nil, nil, "holds neither model.safetensors nor model.safetensors.index.json"},
		"a pickle": {map[string]string{"pytorch_model.bin": "x"}, nil,
			"a pickle (*.bin, *.pt) can run any program"},
		"cut short": {map[string]string{weightsFile: string(weights[:len(weights)-4])}, nil,
			"is no valid safetensors file"},
		"another shape": {map[string]string{weightsFile: string(weights)}, map[string]any{"vocab_size": 21},
			"has shape [20 8], want [21 8]"},
		"one too few": {map[string]string{weightsFile: string(weights)}, map[string]any{"num_hidden_layers": 2},
			`tensor "model.layers.1.self_attn.q_proj.weight" is missing`},
		"an index that lies": {
			map[string]string{indexFile: `{"weight_map": {"model.embed_tokens.weight": "../secret.safetensors"}}`},
			nil, "is no safetensors file of the folder"},
		"an index with a gap": {map[string]string{indexFile: `{"weight_map": {}}`}, nil,
			`tensor "model.embed_tokens.weight" is missing`},
		"a missing shard": {
			map[string]string{indexFile: `{"weight_map": {"model.embed_tokens.weight": "a.safetensors"}}`},
			nil, "a.safetensors: no such file"},
		"NaN":  {holding(0x7fc00000), nil, "holds NaN at index 6 of 8: weights must be finite"},
		"+Inf": {holding(0x7f800000), nil, "holds +Inf at index"},
		"-Inf": {holding(0xff800000), nil, "holds -Inf at index"},
		"a tied head stored again": {map[string]string{weightsFile: string(weights)},
			map[string]any{"tie_word_embeddings": true, "model_type": "llama"}, ""},
	} {
		dir := published(t, tc.edits)
		for file, text := range tc.files {
			must.OK(t, os.WriteFile(filepath.Join(dir, file), []byte(text), 0o600))
		}
		m, err := Load(dir, torch.CPU, Buffers{})
		if err == nil {
			m.Close()
		}
		must.Match(t, err, tc.want, name)
	}
}
