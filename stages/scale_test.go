//go:build libtorch

package stages

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"rcgrpo/bench/fixtures"
	"rcgrpo/bfcl"
	"rcgrpo/engine"
	"rcgrpo/engine/artifact"
	"rcgrpo/stages/internal/chat"
	"rcgrpo/stages/internal/checkpoint"
	"rcgrpo/stages/internal/lm"
	"rcgrpo/stages/internal/token"
)

// The paper's experiments as they stand in experiments/, at a pretended scale: a tiny random model of the same family and a
// few tasks, through the same files with other variables. Every training and evaluation of seed 1 runs.
func TestThePapersExperimentsRunAtAPretendedScale(t *testing.T) {
	benchmark := fixtures.Benchmark(t)
	data, err := bfcl.LoadData(benchmark)
	if err != nil {
		t.Fatal(err)
	}
	qwen, llama := tinyFolder(t, data, "qwen2"), ""
	if fixtures.Llama(t) {
		llama = tinyFolder(t, data, "llama")
	}
	site := &engine.Site{BFCL: benchmark, CPUs: 1}
	for _, tc := range []struct {
		file string
		vars map[string]string
	}{
		{"paper_qwen.hcl", map[string]string{"base": qwen, "batches": "{ grpo = 1, rc = 2 }"}},
		{"paper_llama.hcl", map[string]string{"base": llama, "explorer": qwen, "batches": "{ grpo = 1, rc = 2 }"}},
		{"equal_compute.hcl", map[string]string{"base": qwen, "batches": "{ small = 1, large = 2 }"}},
		{"splits.hcl", map[string]string{"base": qwen, "batch": "1"}},
	} {
		t.Run(tc.file, func(t *testing.T) {
			if tc.vars["base"] == "" {
				t.Skip(fixtures.NoLlama)
			}
			for name, value := range map[string]string{"gpus": "0", "updates": "1", "take": "1", "reply": "4", "context": "32768"} {
				tc.vars[name] = value
			}
			dir := t.TempDir()
			x, diags := engine.Load(engine.Source{Path: withoutReport(t, dir, tc.file), Vars: tc.vars}, engine.Registry(Kinds()))
			if diags.HasErrors() {
				t.Fatal(diags)
			}
			for _, n := range x.Nodes {
				if n.Seed == nil || *n.Seed == 1 {
					runNode(t, n, dir, site)
				}
			}
		})
	}
}

// withoutReport copies an experiment without its last block, whose kind is none of this package.
func withoutReport(t *testing.T, dir, file string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(fixtures.Root(t), "experiments", file))
	if err != nil {
		t.Fatal(err)
	}
	before, _, found := strings.Cut(string(text), "stage \"report\"")
	if !found {
		t.Fatalf("%s has no report", file)
	}
	path := filepath.Join(dir, file)
	if err := os.WriteFile(path, []byte(before), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// tinyFolder is a model folder with random weights, a vocabulary trained on the documents of the benchmark's tools, and the
// family's template.
func tinyFolder(t *testing.T, data *bfcl.Data, family string) string {
	t.Helper()
	special := []string{"<|endoftext|>", "<|im_start|>", "<|im_end|>", "<tool_call>", "</tool_call>"}
	template, first := "hf/chat/qwen2_5.jinja", `"<|endoftext|>"`
	if family == "llama" {
		special = []string{"<|begin_of_text|>", "<|end_of_text|>", "<|start_header_id|>", "<|end_header_id|>", "<|eom_id|>", "<|eot_id|>"}
		template, first = "hf/chat/llama3_1.jinja", `"<|begin_of_text|>"`
	}
	functions, err := chat.FunctionsOf(data)
	if err != nil {
		t.Fatal(err)
	}
	var texts []string
	for _, f := range functions {
		texts = append(texts, string(f))
	}
	slices.Sort(texts)
	tokens, err := token.Train(texts, 3000, special)
	if err != nil {
		t.Fatal(err)
	}
	m, err := lm.New(lm.Config{Family: family, Vocab: tokens.Size(), Hidden: 16, Layers: 1, Heads: 2, KVHeads: 1, HeadDim: 8, MLP: 24, RopeBase: 10000,
		NormEps: 1e-6, MaxPosition: 32768}, engine.Rand(1, family))
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	dir := t.TempDir()
	if err := m.Save(dir); err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string][]byte{checkpoint.TokenizerFile: tokens.JSON(), chat.TemplateFile: fixtures.Read(t, template),
		"tokenizer_config.json": []byte(`{"bos_token": ` + first + `}`)} {
		if err := os.WriteFile(filepath.Join(dir, name), text, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// runNode runs a node as the engine would, with its inputs from beside it.
func runNode(t *testing.T, n *engine.Node, dir string, site *engine.Site) {
	t.Helper()
	place := func(n *engine.Node) string {
		return filepath.Join(dir, strings.NewReplacer("/", "_").Replace(n.Address))
	}
	seed := int64(0)
	if n.Seed != nil {
		seed = *n.Seed
	}
	setup := engine.JobSetup{Dir: place(n), Seed: seed, Site: site, Inputs: map[artifact.Ref]string{}}
	for _, in := range n.Inputs {
		ref := in.Ref
		ref.Seed = nil
		setup.Inputs[ref] = filepath.Join(place(in.From), ref.Port)
	}
	job, err := engine.NewJob(setup)
	if err != nil {
		t.Fatal(err)
	}
	if err := n.Stage.(engine.Runner).Run(t.Context(), job); err != nil {
		t.Fatalf("%s: %v", n.Address, err)
	}
	for port := range n.Outputs {
		if files, err := os.ReadDir(filepath.Join(place(n), port)); err != nil || len(files) == 0 {
			t.Errorf("%s: port %s holds nothing (%v)", n.Address, port, err)
		}
	}
}
