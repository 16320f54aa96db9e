package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"rcgrpo/bench/fixtures"
	"rcgrpo/engine/lang"
	"rcgrpo/internal/must"
	"rcgrpo/stages"
)

// The written experiment names the model, a layout that is accepted, and the reason. It is valid, formatted, and plans.
func TestInitWritesAnExperimentForAModel(t *testing.T) {
	from, benchmark := fixtures.Dir(t, "hf/models/qwen2-tiny"), fixtures.Benchmark(t)
	published := string(fixtures.Read(t, "hf/chat/qwen2_5.jinja"))
	t.Chdir(t.TempDir())
	t.Setenv("HOME", ".")
	must.OK(t, os.WriteFile("site.hcl", []byte("store {\n  path = \"store\"\n}\ndata {\n  bfcl = \""+
		benchmark+"\"\n}\n"), 0o600))
	const model = `my "${model}"`
	must.OK(t, os.CopyFS(model, os.DirFS(from)))
	read := func(name string) string { return string(must.Get(os.ReadFile(name))(t)) }
	written := func(dir string, parts ...string) string {
		t.Helper()
		wantLine(t, exitDone, "", []string{"init", "--model", model, dir}, "wrote ", "plan ", "data { bfcl")
		path := filepath.Join(dir, "model.hcl")
		wantLine(t, exitDone, "", []string{"check", path, "--site", "site.hcl"}, "is valid: 9 nodes")
		wantLine(t, exitDone, "", []string{"plan", path, "--site", "site.hcl"}, "model: 9 to run")
		wantLine(t, exitDone, "", []string{"fmt", "--check", path})
		text := read(path)
		must.Contain(t, text, parts...)
		for line := range strings.Lines(text) {
			if len(line) > 121 {
				t.Errorf("%s has a line of %d columns: %s", path, len(line)-1, line)
			}
		}
		return text
	}
	written("short", `dir("../my \"$${model}\"")`, `layout = "signatures"`, "The model reads 512 tokens", "context = 512",
		"qwen2, 3 layers of width 64, 0.20 million parameters, context 512")

	config := filepath.Join(model, "config.json")
	must.OK(t, os.WriteFile(config, []byte(strings.Replace(read(config), `"max_position_embeddings": 512`,
		`"max_position_embeddings": 16384`, 1)), 0o600))
	if text := written(".", "context = 8192", `# layout = "signatures"`); strings.Contains(text, "  layout =") {
		t.Errorf("the model's own template is replaced:\n%s", text)
	}

	template := filepath.Join(model, "chat_template.jinja")
	edited := strings.ReplaceAll(published, "tool_call.name", "'ls'")
	must.OK(t, os.WriteFile(template, []byte(edited), 0o600))
	written("edited", `layout = "signatures"`, "template is not used", "drops calls", "context = 1024")

	must.OK(t, os.WriteFile(template, []byte("{{ messages\x1b }}"), 0o600))
	written("broken", `layout = "qwen2.5"`, "template is not used", "context = 8192")

	wantLine(t, exitFailed, "", []string{"init", "--model", model, "broken"}, "broken/model.hcl exists already",
		"rcgrpo init --model PATH DIR")
	must.OK(t, os.Remove(filepath.Join(model, "tokenizer.json")))
	wantLine(t, exitFailed, "", []string{"init", "--model", model, "refused"}, "has no tokenizer.json", "rcgrpo check")
	if _, err := os.Stat("refused"); err == nil {
		t.Error("an experiment for a refused model was written")
	}
}

// Where training all weights takes much memory, the experiment trains an adapter.
func TestInitTrainsAnAdapterOfALargeModel(t *testing.T) {
	start := stages.ModelStart{Summary: "large", Context: 32768, Adapter: true, TrainAll: "40 GiB", TrainAdapter: "9 GiB",
		Pass: 2048, Rank: 16}
	text := must.Get(modelExperiment(start, "/models/large", "."))(t)
	must.Contain(t, string(text), "40 GiB", "lora {", "alpha = 32", "lr          = 2e-5", `dir("/models/large")`)
	if formatted, diags := lang.Format(text, "model.hcl"); diags.HasErrors() || string(formatted) != string(text) {
		t.Errorf("not formatted: %v\n%s", diags, text)
	}
}
