package lm

import (
	"encoding/json"
	"maps"
	"os"
	"path/filepath"
	"testing"

	"rcgrpo/bench/fixtures"
	"rcgrpo/internal/must"
)

// published is a config.json as model hubs hold it, changed by edits (nil removes a key).
func published(t *testing.T, edits map[string]any) string {
	t.Helper()
	keys := map[string]any{"architectures": []string{"LlamaForCausalLM"}, "attention_bias": false, "bos_token_id": 4,
		"eos_token_id": []int{5, 6},
		"hidden_act":   "silu", "hidden_size": 8, "intermediate_size": 12, "max_position_embeddings": 64,
		"model_type": "llama", "num_attention_heads": 2,
		"num_hidden_layers": 1, "num_key_value_heads": 1, "rms_norm_eps": 1e-5, "rope_theta": 5e5,
		"tie_word_embeddings": false,
		"torch_dtype":         "bfloat16", "vocab_size": 20,
		"rope_scaling": map[string]any{"rope_type": "llama3", "factor": 8, "low_freq_factor": 1, "high_freq_factor": 4,
			"original_max_position_embeddings": 16}}
	for key, v := range edits {
		if v == nil {
			delete(keys, key)
		} else {
			keys[key] = v
		}
	}
	return folderWith(t, ConfigFile, string(must.Get(json.Marshal(keys))(t)))
}

// folderWith returns a folder of one file.
func folderWith(t *testing.T, file, text string) string {
	t.Helper()
	dir := t.TempDir()
	must.OK(t, os.WriteFile(filepath.Join(dir, file), []byte(text), 0o600))
	return dir
}

func TestGenerationConfigsOfAnotherModelAreRefused(t *testing.T) {
	c := Config{Vocab: 20}
	must.OK(t, CheckGeneration(t.TempDir(), c)) // without the file
	for text, want := range map[string]string{
		`{"bos_token_id": null, "eos_token_id": [5, 19], "temperature": 0.7, "whatever": {}}`: "",
		`{"eos_token_id": 20}`:      "eos_token_id names token 20, and the model has 0..19",
		`{"pad_token_id": [3, -1]}`: "pad_token_id names token -1",
		`{"eos_token_id": "</s>"}`:  "neither a token id nor a list",
		`{"eos_token_id": 5`:        GenerationFile,
		`[]`:                        GenerationFile,
	} {
		must.Match(t, CheckGeneration(folderWith(t, GenerationFile, text), c), want)
	}
}

func TestEveryKeyOfAConfigIsUsedOrRefused(t *testing.T) {
	want := Config{Decoder: "llama", Vocab: 20, Hidden: 8, Layers: 1, Heads: 2, KVHeads: 1, HeadDim: 4, MLP: 12,
		RopeBase:    5e5,
		RopeScaling: RopeScaling{Factor: 8, Low: 1, High: 4, Original: 16}, NormEps: 1e-5, MaxPosition: 64}
	for name, edits := range map[string]map[string]any{
		"published": nil,
		"transformers 5": {"rope_theta": nil, "rope_scaling": nil, "dtype": "float32", "torch_dtype": nil,
			"layer_types": []string{"full_attention"}, "rope_parameters": map[string]any{"rope_type": "llama3",
				"rope_theta": 5e5, "factor": 8, "low_freq_factor": 1, "high_freq_factor": 4,
				"original_max_position_embeddings": 16}},
		"head size": {"head_dim": 4},
		"SmolLM2": {"is_llama_config": true, "rope_interleaved": false,
			"transformers.js_config": map[string]any{"kv_cache_dtype": map[string]any{"fp16": "float16"}}},
	} {
		if got, err := ReadConfig(published(t, edits)); err != nil || got != want {
			t.Errorf("%s: got %+v (%v), want %+v", name, got, err, want)
		}
	}
	for _, tc := range []struct {
		edits map[string]any
		want  string
	}{
		{map[string]any{"logit_scale": 0.5}, `unknown key "logit_scale"`},
		{map[string]any{"quantization_config": map[string]any{"bits": 4}, "b": 1},
			`unknown key "b", "quantization_config"`},
		{map[string]any{"rope_scaling": map[string]any{"rope_type": "yarn", "factor": 4}},
			`rope scaling of type "yarn" is not supported`},
		{map[string]any{"rope_scaling": map[string]any{"rope_type": "default", "beta_fast": 32}},
			`unknown key "rope_scaling.beta_fast"`},
		{map[string]any{"rope_scaling": map[string]any{"rope_type": "llama3"}}, "gives no factor"},
		{map[string]any{"rope_scaling": map[string]any{"rope_type": "llama3", "factor": 8, "low_freq_factor": 4,
			"high_freq_factor": 1, "original_max_position_embeddings": 16}}, "rope scaling needs"},
		{map[string]any{"rope_interleaved": true}, "rope_interleaved true is not supported; false is"},
		{map[string]any{"attention_bias": true}, "attention_bias true is not supported; false is"},
		{map[string]any{"hidden_act": "gelu"}, "hidden_act gelu is not supported; silu is"},
		{map[string]any{"use_sliding_window": true}, "use_sliding_window true is not supported"},
		{map[string]any{"attention_dropout": 0.1}, "attention_dropout 0.1 is not supported; 0 is"},
		{map[string]any{"layer_types": []string{"sliding_attention"}}, `layer_types holds "sliding_attention"`},
		{map[string]any{"architectures": []string{"Qwen2ForCausalLM"}},
			`of model_type "llama" only LlamaForCausalLM is supported`},
		{map[string]any{"model_type": "mamba", "architectures": nil}, `model_type "mamba" is not supported`},
		{map[string]any{"vocab_size": "many"}, `key "vocab_size": `},
		{map[string]any{"hidden_size": nil}, "hidden_size must be at least 1 and at most 131072, got 0"},
	} {
		_, err := ReadConfig(published(t, tc.edits))
		must.Match(t, err, tc.want)
		must.Match(t, err, ConfigFile)
	}
}

func TestConfigsOfQwen3AndSmolLM3(t *testing.T) {
	qwen := map[string]any{"model_type": "qwen3", "architectures": []string{"Qwen3ForCausalLM"}, "head_dim": 6}
	smol := map[string]any{"model_type": "smollm3", "architectures": []string{"SmolLM3ForCausalLM"},
		"num_hidden_layers": 5}
	for name, tc := range map[string]struct {
		base  map[string]any
		edits map[string]any
		want  string // of the error; "" for none
		wide  int    // head_dim
		every int    // NoRope
	}{
		"heads wider than the stream": {qwen, nil, "", 6, 0},
		"no width of heads":           {qwen, map[string]any{"head_dim": nil}, "head_dim is missing", 0, 0},
		"layers without rope elsewhere": {qwen, map[string]any{"no_rope_layer_interval": 2}, `unknown key "no_`,
			0, 0},
		"default of the family": {smol, nil, "", 4, 4},
		"another interval":      {smol, map[string]any{"no_rope_layer_interval": 2}, "", 4, 2},
		"list and interval": {smol, map[string]any{"no_rope_layer_interval": 2, "no_rope_layers": []int{1, 0, 1, 0, 1}},
			"", 4, 2},
		"another list":   {smol, map[string]any{"no_rope_layers": []int{1, 0, 1, 1, 1}}, "no_rope_layers[1] is 0", 0, 0},
		"a short list":   {smol, map[string]any{"no_rope_layers": []int{1, 1, 1}}, "3 entries for 5 layers", 0, 0},
		"no interval":    {smol, map[string]any{"no_rope_layer_interval": 0}, "must be at least 1, got 0", 0, 0},
		"a wrong letter": {smol, map[string]any{"no_rope_layers": "all"}, `key "no_rope_layers"`, 0, 0},
	} {
		edits := maps.Clone(tc.base)
		maps.Copy(edits, tc.edits)
		c, err := ReadConfig(published(t, edits))
		must.Match(t, err, tc.want)
		if tc.want == "" && (c.HeadDim != tc.wide || c.NoRope != tc.every) {
			t.Errorf("%s: got heads of %d and NoRope %d, want %d and %d", name, c.HeadDim, c.NoRope, tc.wide, tc.every)
		}
	}
}

// An unknown key, planted beside every key of the fixtures' files and in every object of theirs, is refused by
// its name.
func TestPlantedKeysOfPublishedConfigsAreRefused(t *testing.T) {
	var paths []string
	for _, name := range fixtures.Folders(t, "hf/models") {
		dir := fixtures.Dir(t, "hf/models/"+name)
		paths = append(paths, must.Get(filepath.Glob(filepath.Join(dir, "config*.json")))(t)...)
	}
	if len(paths) == 0 {
		t.Fatal("no configs")
	}
	read := func(keys map[string]any) error {
		_, err := ReadConfig(folderWith(t, ConfigFile, string(must.Get(json.Marshal(keys))(t))))
		return err
	}
	for _, path := range paths {
		text := must.Get(os.ReadFile(path))(t)
		var keys map[string]any
		must.OK(t, json.Unmarshal(text, &keys))
		if err := read(keys); err != nil {
			t.Errorf("%s: %v", path, err)
		}
		places := map[string]map[string]any{"": keys}
		for key, v := range keys {
			if object, ok := v.(map[string]any); ok {
				places[key+"."] = object
			}
		}
		for place, object := range places {
			for key := range object { // as a misspelling of each
				planted := key + "_planted"
				object[planted] = object[key]
				must.Match(t, read(keys), `unknown key "`+place+planted+`"`)
				delete(object, planted)
			}
		}
	}
}
