package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"rcgrpo/bench/fixtures"
	"rcgrpo/internal/must"
)

// The memory is computed by hand: 195,392 weights and 512 × 16 angles in 4 bytes, a cache of 64 × 512 tokens of 768
// bytes and a sixth of the cache for the layer that grows, and a pass of 128 rows of 1,216 numbers and 64 × 512 logits.
// Together these are 30,928,128 bytes.
func TestCheckReportsTheSupportForAModelFolder(t *testing.T) {
	path := fixtures.Dir(t, "hf/models/qwen2-tiny")
	t.Chdir(filepath.Dir(path)) // the length of an absolute path would decide where lines break
	dir := filepath.Base(path)
	stdout := wantLine(t, exitDone, "", []string{"check", dir}, "qwen2, 3 layers of width 64, context 512",
		"0.20 million", "BPE of 512 tokens", "hermes calls", `<tool_call> {"name": "weather", "arguments": {"city": "Bern"}}`,
		"29.5 MiB", "train all weights", "train an adapter of rank 16", "can be trained and served")
	if strings.Contains(stdout, "not supported") {
		t.Errorf("got a refusal:\n%s", stdout)
	}
	wantLine(t, exitDone, "", []string{"check", "--json", dir}, "[]")

	must.OK(t, os.Remove(filepath.Join(dir, "tokenizer.json")))
	must.OK(t, os.WriteFile(filepath.Join(dir, "chat_template.jinja"), []byte("{{ messages }}"), 0o600))
	stdout = wantLine(t, exitFailed, "", []string{"check", dir}, "29.5 MiB", "has no tokenizer.json",
		"the text of a list is not", "qwen2.5")
	if strings.Contains(stdout, "can be trained") || strings.Contains(stdout, "call format") {
		t.Errorf("a refused folder is reported as one that can be used:\n%s", stdout)
	}
	wantLine(t, exitFailed, "", []string{"check", "--json", dir}, "Not a model that can be used", "tokenizer: ",
		"chat layout: ")

	must.OK(t, os.Truncate(filepath.Join(dir, "model.safetensors"), 1000))
	wantLine(t, exitFailed, "", []string{"check", "--json", dir}, "weights: ", "model.safetensors")

	config := filepath.Join(dir, "config.json")
	text := string(must.Get(os.ReadFile(config))(t))
	must.OK(t, os.WriteFile(config, []byte(strings.Replace(text, `"hidden_size"`, `"width"`, 1)), 0o600))
	stdout = wantLine(t, exitFailed, "", []string{"check", dir}, "unknown key", `"width"`,
		"docs/models.md", "unknown, because the family")
	if strings.Contains(stdout, "MiB") {
		t.Errorf("memory of an unknown shape:\n%s", stdout)
	}
	must.OK(t, os.WriteFile(filepath.Join(dir, "x.hcl"), []byte("experiment {\n}\n"), 0o600))
	wantLine(t, exitDone, "", []string{"check", dir}, "is valid")
}

// A GGUF file has the same report, with the number of tensors by type. A damaged one has one line.
func TestCheckReportsTheSupportForAGGUFFile(t *testing.T) {
	path := fixtures.File(t, "hf/gguf/types.gguf")
	t.Chdir(filepath.Dir(path))
	wantLine(t, exitFailed, "", []string{"check", "types.gguf"}, "llama, 2 layers of width 256, context 128", "F32 × 6",
		"Q4_K × 2", "BPE of 63 tokens", "chat layout", "not supported")
	must.OK(t, os.Truncate("types.gguf", 100000))
	stdout := wantLine(t, exitFailed, "", []string{"check", "types.gguf"}, "the file is not complete")
	if strings.Contains(stdout, "MiB") || strings.Contains(stdout, "family") {
		t.Errorf("parts of a damaged file:\n%s", stdout)
	}
}
