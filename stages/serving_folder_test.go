//go:build libtorch

package stages

import (
	"bytes"
	"cmp"
	"encoding/json"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"rcgrpo/bench/fixtures"
	"rcgrpo/internal/must"
)

// post sends a request to a server and decodes the reply, which must have status 200.
func post(t *testing.T, url string, request map[string]any, reply any) {
	t.Helper()
	r := must.Get(http.Post(url, "application/json", bytes.NewReader(must.Get(json.Marshal(request))(t))))(t)
	defer r.Body.Close()
	if r.StatusCode != http.StatusOK {
		t.Fatalf("POST %s: got status %s", url, r.Status)
	}
	must.OK(t, json.NewDecoder(r.Body).Decode(reply))
}

// Greedy replies of a served Hugging Face folder are those of transformers, and a chat is answered in the layout of its
// template.
func TestAHuggingFaceFolderIsServedWithoutAnExperiment(t *testing.T) {
	dir := fixtures.Dir(t, "hf/models/qwen2-tiny")
	var parity struct {
		Greedy []struct {
			Prompt       []int32 `json:"prompt_ids"`
			Continuation []int32 `json:"continuation_ids"`
		}
	}
	must.OK(t, json.Unmarshal(must.Get(os.ReadFile(filepath.Join(dir, "parity.json")))(t), &parity))
	url := serveCheckpoint(t, dir, 512)
	for _, g := range parity.Greedy {
		var reply struct {
			Choices []struct {
				IDs []int32 `json:"token_ids"`
			}
		}
		want := g.Continuation
		if end := slices.IndexFunc(want, func(id int32) bool { return id == 507 || id == 509 }); end >= 0 {
			want = want[:end+1] // the server stops at <|endoftext|> and <|im_end|>
		}
		post(t, url+"/v1/completions", map[string]any{"model": "drills", "prompt": g.Prompt, "temperature": 0,
			"max_tokens": len(g.Continuation), "return_token_ids": true}, &reply)
		if len(reply.Choices) != 1 || !slices.Equal(reply.Choices[0].IDs, want) {
			t.Errorf("prompt %v: got %v, want %v", g.Prompt, reply.Choices, want)
		}
	}
	if len(parity.Greedy) != 4 {
		t.Errorf("the fixture has %d prompts, want 4", len(parity.Greedy))
	}
	// The published template's text for this conversation, written by hand.
	const rendered = "<|im_start|>system\nYou are Qwen, created by Alibaba Cloud. You are a " +
		"helpful assistant.<|im_end|>\n<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n"
	type answer struct {
		Choices []struct {
			Text    string
			Message struct{ Content string }
		}
		Usage struct {
			Prompt int `json:"prompt_tokens"`
		}
	}
	var text, chat answer
	post(t, url+"/v1/completions", map[string]any{"model": "drills", "prompt": rendered, "temperature": 0,
		"max_tokens": 8}, &text)
	post(t, url+"/v1/chat/completions", map[string]any{"model": "drills", "temperature": 0, "max_tokens": 8,
		"messages": []map[string]string{{"role": "user", "content": "Hi"}}}, &chat)
	got, want := chat.Choices[0].Message.Content, text.Choices[0].Text
	if got != want || want == "" || chat.Usage != text.Usage {
		t.Errorf("the chat has the reply %q after %d tokens, want %q after %d", got, chat.Usage.Prompt, want,
			text.Usage.Prompt)
	}
}

// The Python package openai chats with a real model from a GGUF file, if $PYTHON, or .deps/mcp-python, where .ci/run
// installs it, has the package.
func TestAnOpenAIClientChatsWithAServedGGUFFile(t *testing.T) {
	must.Long(t)
	root, model := fixtures.Root(t), fixtures.SmolLM2(t)
	python := cmp.Or(os.Getenv("PYTHON"), filepath.Join(root, ".deps/mcp-python/bin/python"))
	if exec.Command(python, "-c", "import openai").Run() != nil {
		t.Skipf("%s has no package openai", python)
	}
	for _, layout := range []string{"smollm2", SignaturesLayout} {
		url := serveModel(t, model, layout, 2048)
		out, err := exec.Command(python, filepath.Join(root, "bench/serve_clients.py"), "gguf", url+"/v1", "drills",
			"").CombinedOutput()
		t.Logf("%s: %s", layout, out)
		if err != nil || !strings.Contains(string(out), "gguf: ok") {
			t.Errorf("%s: %v\n%s", layout, err, out)
		}
	}
}

// A folder that cannot be served is refused with a reason and a way out.
func TestFoldersThatCannotBeServedAreRefused(t *testing.T) {
	remove := func(names ...string) func(*testing.T, string) {
		return func(t *testing.T, dir string) {
			for _, name := range names {
				must.OK(t, os.Remove(filepath.Join(dir, name)))
			}
		}
	}
	for name, tc := range map[string]struct {
		change func(*testing.T, string)
		want   []string
	}{
		"no shape":     {remove("config.json"), []string{"has no config.json", "a model folder has config.json"}},
		"no tokenizer": {remove("tokenizer.json"), []string{"has no tokenizer.json", "save_pretrained"}},
		"no template":  {remove("tokenizer_config.json"), []string{"has no chat template", "chat_template.jinja"}},
		"a GGUF file alone": {func(t *testing.T, dir string) {
			remove("config.json", "model.safetensors")(t, dir)
			must.OK(t, os.WriteFile(filepath.Join(dir, "tiny.gguf"), []byte("GGUF"), 0o600))
		}, []string{"has no config.json, but tiny.gguf: name that file instead of the folder"}},
		"no weights": {remove("model.safetensors"), []string{"holds neither model.safetensors nor", "save_pretrained"}},
		"another template": {func(t *testing.T, dir string) {
			must.OK(t, os.WriteFile(filepath.Join(dir, "chat_template.jinja"), []byte("{{ messages }}"), 0o600))
		}, []string{"the text of a list is not supported", `write layout = "qwen2.5"`, "settings of stage `model`"}},
		"another architecture": {func(t *testing.T, dir string) {
			path := filepath.Join(dir, "config.json")
			text := string(must.Get(os.ReadFile(path))(t))
			must.OK(t, os.WriteFile(path, []byte(strings.Replace(text, `"qwen2"`, `"mamba"`, 1)), 0o600))
		}, []string{`"mamba"`, "support"}},
	} {
		dir := fixtures.Dir(t, "hf/models/qwen2-tiny")
		tc.change(t, dir)
		s := &Serving{Dir: dir, Listen: "127.0.0.1:0", Token: "checkpoint", Device: "cpu", Slots: 1}
		err := s.Run(t.Context())
		for _, want := range tc.want {
			must.Match(t, err, want, name)
		}
		if err != nil && strings.Contains(err.Error(), "\n") {
			t.Errorf("%s: got several lines: %v", name, err)
		}
	}
	s := &Serving{Dir: fixtures.Dir(t, "hf/models/qwen2-tiny"), Listen: "127.0.0.1:0", Token: "high", Device: "cpu",
		Slots: 1}
	must.Match(t, s.Run(t.Context()), "never used reward tokens", "a reward token")
}
