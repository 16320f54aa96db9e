package model

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"rcgrpo/bench/fixtures"
	"rcgrpo/engine/enginetest"
	"rcgrpo/engine/lang"
	"rcgrpo/internal/must"
)

// load decodes a model from a file and returns each mistake with its line.
func load(t *testing.T, body string) string {
	t.Helper()
	_, diags := enginetest.Load(t, lang.Registry{Kind(), enginetest.Given(map[string]string{"expert": "dataset"})},
		"stage \"given\" \"g\" {}\nstage \"model\" \"m\" {\n"+body+"\n}\n")
	var said []string
	for _, d := range diags {
		said = append(said, fmt.Sprintf("line %d: %s: %s", d.Subject.Start.Line, d.Summary, d.Detail))
	}
	return strings.Join(said, "\n")
}

const sound = `corpus = [stage.given.g.expert]
architecture {
  family = "qwen2"
  hidden = 32
  layers = 1
  heads = 2
  kv_heads = 1
  mlp = 48
  rope_base = 1000
  context = 64
}
`

func TestMistakesOfAModelAreReportedAtTheirLine(t *testing.T) {
	if got := load(t, sound); got != "" {
		t.Fatal(got)
	}
	for _, tc := range []struct{ old, replaced, want string }{ // the first setting is on line 4
		{"hidden = 32", "hidden = 0", "line 7: Size out of range: hidden must be at least 1 and at most 131072; got 0."},
		{"hidden = 32", "hidden = 1000000000",
			"line 7: Size out of range: hidden must be at least 1 and at most 131072; got 1000000000."},
		{"layers = 1", "layers = 1000000000",
			"Size out of range: layers must be at least 1 and at most 1024; got 1000000000."},
		{"mlp = 48", "mlp = 1000000000000", "line 11: Size out of range: mlp"},
		{"context = 64", "context = 1000000000000", "line 13: Size out of range: context"},
		{"corpus = [stage.given.g.expert]", "vocab = 1000000000\ncorpus = [stage.given.g.expert]",
			"line 4: Size out of range: vocab"},
		{"hidden = 32", "hidden = 100000", "line 9: Heads too wide"},
		{"mlp = 48", "mlp = -1", "line 11: Size out of range: mlp"},
		{"context = 64", "context = 0", "line 13: Size out of range: context"},
		{"rope_base = 1000", "rope_base = 0", "line 12: Rotary base out of range"},
		{"heads = 2", "heads = 3", "line 9: Heads do not divide the width"},
		{"kv_heads = 1", "kv_heads = 3", "line 10: Key heads do not divide the query heads"},
		{"corpus = [stage.given.g.expert]", "vocab = 20\ncorpus = [stage.given.g.expert]", "line 4: Vocabulary too small"},
		{"corpus = [stage.given.g.expert]", "corpus_size = 0\ncorpus = [stage.given.g.expert]",
			"line 4: Size out of range: corpus_size"},
		{"corpus = [stage.given.g.expert]", "corpus = []", "line 3: No corpus"},
		{sound, "corpus = [stage.given.g.expert]", "line 3: No weights"},
	} {
		if got := load(t, strings.Replace(sound, tc.old, tc.replaced, 1)); !strings.Contains(got, tc.want) {
			t.Errorf("%q instead of %q: got %q, want %q", tc.replaced, tc.old, got, tc.want)
		}
	}
}

func TestPlanChecksModelFolders(t *testing.T) {
	dir := t.TempDir()
	config := `{"model_type": "qwen2", "vocab_size": 8, "hidden_size": 8, "intermediate_size": 8,
		"num_hidden_layers": 1, "num_attention_heads": 2, "max_position_embeddings": 64}`
	write := func(text string) {
		must.OK(t, os.WriteFile(filepath.Join(dir, "config.json"), []byte(text), 0o600))
	}
	template := func(text string) {
		must.OK(t, os.WriteFile(filepath.Join(dir, "chat_template.jinja"), []byte(text), 0o600))
	}
	published := string(fixtures.Read(t, "hf/chat/qwen2_5.jinja"))
	path := fmt.Sprintf("path = dir(%q)\n", dir)
	write(config)
	template(published)
	if got := load(t, path); got != "" {
		t.Error(got)
	}
	for _, tc := range []struct{ body, want string }{
		{path + sound, "line 4: Two sources of weights"},
		{path + "corpus = [stage.given.g.expert]", "line 4: Two tokenizers"},
		{fmt.Sprintf("path = file(%q)", filepath.Join(dir, "config.json")), "line 4: Not a folder"},
	} {
		if got := load(t, tc.body); !strings.Contains(got, tc.want) {
			t.Errorf("%s: got %q, want %q", tc.body, got, tc.want)
		}
	}
	if got := load(t, `layout = "qwen2.5"`+"\n"+sound); !strings.Contains(got, "line 4: No folder") {
		t.Error(got)
	}
	template(strings.ReplaceAll(published, "You are Qwen", "You are edited"))
	if got := load(t, path); got != "" {
		t.Error(got)
	}
	template(strings.ReplaceAll(published, "tool_call.name", "'ls'"))
	if got := load(t, path); !strings.Contains(got, "Not a model that can be used: ") ||
		!strings.Contains(got, "the template drops calls") || !strings.Contains(got, `write layout = "qwen2.5"`) {
		t.Error(got)
	}
	file := filepath.Join(dir, "mine.jinja")
	must.OK(t, os.WriteFile(file, []byte(published), 0o600))
	chosen := fmt.Sprintf("template = file(%q)\nvariables = { enable_thinking = \"false\" }", file)
	if got := load(t, path+chosen); got != "" {
		t.Error(got)
	}
	if got := load(t, path+fmt.Sprintf("layout = \"qwen2.5\"\ntemplate = file(%q)", file)); !strings.Contains(got,
		"line 6: Two chat templates") {
		t.Error(got)
	}
	if got := load(t, path+`layout = "qwen2.5"`); got != "" {
		t.Error(got)
	}
	write(strings.Replace(config, "qwen2", "llama", 1))
	if got := load(t, path+`layout = "qwen2.5"`); !strings.Contains(got, "belongs to another family") {
		t.Error(got)
	}
	write(strings.Replace(config, `"num_hidden_layers": 1`, `"num_hidden_layers": 1000000000`, 1))
	if got := load(t, path); !strings.Contains(got,
		"num_hidden_layers must be at least 1 and at most 1024, got 1000000000") {
		t.Error(got)
	}
	write(strings.Repeat(" ", 2<<20) + config)
	if got := load(t, path); !strings.Contains(got, "must be a plain file of at most 1 MiB") {
		t.Error(got)
	}
	write(strings.Replace(config, "{", `{"new_trick": 1, `, 1))
	if got := load(t, path); !strings.Contains(got, `Not a model that can be used: `) ||
		!strings.Contains(got, `unknown key "new_trick"`) {
		t.Error(got)
	}
}
