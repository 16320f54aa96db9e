//go:build libtorch

package main

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"

	"rcgrpo/bench/fixtures"
)

// The file and the commands of docs/models.md in its order, a little smaller and on a folder of the fixtures of which one layer
// is left; its Python too, where $PYTHON has transformers.
func TestModelsPage(t *testing.T) {
	page, err := os.ReadFile(rootFile(t, "docs/models.md"))
	if err != nil {
		t.Fatal(err)
	}
	benchmark, reference := fixtures.Benchmark(t), fixtures.Dir(t, "hf/models/qwen2-tiny")
	block := func(language string) string {
		found := regexp.MustCompile("(?s)```"+language+"\n(.*?)```").FindAllStringSubmatch(string(page), -1)
		if len(found) != 1 {
			t.Fatalf("%d blocks of %s, want one", len(found), language)
		}
		return found[0][1]
	}
	var session strings.Builder
	commands := shellCommands(string(page))
	for _, c := range commands {
		c, ours := strings.CutPrefix(c, "bin/")
		if !ours {
			t.Errorf("%q is run by no test", c)
		}
		fmt.Fprintf(&session, "exec %s\n", c)
		switch {
		case strings.HasPrefix(c, "rcgrpo logs"):
			session.WriteString("stdout '^memory on cpu of .*: weights .*, merged weights .*, adapter '\n")
		case strings.HasPrefix(c, "rcgrpo show"):
			session.WriteString("stdout 'hidden_size +64'\nstdout 'adapter/adapter_config.json'\n")
		}
	}
	if len(commands) != 4 {
		t.Errorf("%d commands, want 4", len(commands))
	}
	session.WriteString("exists trained/model.safetensors trained/config.json trained/tokenizer.json trained/adapter/adapter_model.safetensors\n" +
		"cmp trained/generation_config.json models/Qwen2.5-0.5B-Instruct/generation_config.json\n" +
		"cmp trained/tokenizer_config.json models/Qwen2.5-0.5B-Instruct/tokenizer_config.json\n")
	if python := os.Getenv("PYTHON"); python != "" && exec.Command(python, "-c", "import transformers").Run() == nil {
		fmt.Fprintf(&session, "exec %s load.py\nstdout 'torch.Size'\n", python)
	}
	agent := block("hcl")
	for _, smaller := range [][2]string{{"group       = 4", "group       = 2"}, {"    \"Base\"       = stage.model.base.checkpoint\n    \"SFT\"        = stage.sft.warm.checkpoint\n", ""}} {
		if strings.Count(agent, smaller[0]) != 1 {
			t.Errorf("the file has %q not once; make it smaller in another way here", smaller[0])
		}
		agent = strings.Replace(agent, smaller[0], smaller[1], 1)
	}
	dir := t.TempDir()
	files := map[string]string{"site.hcl": "store {\n  path = \"store\"\n}\ndata {\n  bfcl = \"" + benchmark + "\"\n}\n", "agent.hcl": agent, "load.py": block("python")}
	session.WriteString("\n")
	for name, text := range files {
		fmt.Fprintf(&session, "-- %s --\n%s", name, text)
	}
	if err := os.WriteFile(filepath.Join(dir, "models.txtar"), []byte(session.String()), 0o644); err != nil {
		t.Fatal(err)
	}
	testscript.Run(t, testscript.Params{Dir: dir, Setup: func(e *testscript.Env) error {
		e.Setenv("HOME", e.WorkDir)
		e.Setenv("RCGRPO_SITE", filepath.Join(e.WorkDir, "site.hcl"))
		e.Setenv("RCGRPO_LEASES", filepath.Join(e.WorkDir, ".leases"))
		return firstLayer(reference, filepath.Join(e.WorkDir, "models", "Qwen2.5-0.5B-Instruct"))
	}})
}

// firstLayer copies a model folder with the first of its layers alone, and lets it read what the benchmark's tools take: rotary
// positions have no weights.
func firstLayer(from, to string) error {
	if err := os.CopyFS(to, os.DirFS(from)); err != nil {
		return err
	}
	path := filepath.Join(to, "config.json")
	text, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	var keys map[string]any
	if err := json.Unmarshal(text, &keys); err != nil {
		return err
	}
	keys["max_position_embeddings"], keys["num_hidden_layers"] = 32768, 1
	if text, err = json.Marshal(keys); err != nil {
		return err
	}
	if err := os.WriteFile(path, text, 0o644); err != nil {
		return err
	}
	path = filepath.Join(to, "model.safetensors")
	data, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	body := 8 + binary.LittleEndian.Uint64(data)
	type entry struct {
		DType   string `json:"dtype"`
		Shape   []int  `json:"shape"`
		Offsets [2]int `json:"data_offsets"`
	}
	var raw map[string]json.RawMessage
	if err := json.Unmarshal(data[8:body], &raw); err != nil {
		return err
	}
	left, tensors := map[string]entry{}, []byte{}
	for name, text := range raw {
		var e entry
		if name == "__metadata__" || strings.HasPrefix(name, "model.layers.") && !strings.HasPrefix(name, "model.layers.0.") {
			continue
		}
		if err := json.Unmarshal(text, &e); err != nil {
			return err
		}
		at := len(tensors)
		tensors = append(tensors, data[int(body)+e.Offsets[0]:int(body)+e.Offsets[1]]...)
		e.Offsets = [2]int{at, len(tensors)}
		left[name] = e
	}
	header, err := json.Marshal(left)
	if err != nil {
		return err
	}
	out := append(binary.LittleEndian.AppendUint64(nil, uint64(len(header))), header...)
	return os.WriteFile(path, append(out, tensors...), 0o644)
}
