//go:build libtorch

package gguf_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"rcgrpo/bench/fixtures"
	"rcgrpo/engine"
	"rcgrpo/engine/enginetest"
	"rcgrpo/engine/lang"
	"rcgrpo/internal/must"
	"rcgrpo/stages"
	"rcgrpo/stages/internal/lm"
	"rcgrpo/stages/model"
)

// tiny is the GGUF file of the Hugging Face model qwen2-tiny, with its tokenizer and Qwen2.5's template.
func tiny(t *testing.T) (path, folder string) {
	t.Helper()
	folder = fixtures.Dir(t, "hf/models/qwen2-tiny")
	var tok struct {
		Added []struct {
			ID      int
			Content string
			Special bool
		} `json:"added_tokens"`
		Model struct {
			Vocab  map[string]int
			Merges [][2]string
		}
	}
	must.OK(t, json.Unmarshal(must.Get(os.ReadFile(filepath.Join(folder, "tokenizer.json")))(t), &tok))
	c := must.Get(lm.ReadConfig(folder))(t)
	tokens, types := make([]string, c.Vocab), slices.Repeat([]int{5}, c.Vocab)
	for token, id := range tok.Model.Vocab {
		tokens[id], types[id] = token, 1
	}
	for _, a := range tok.Added {
		tokens[a.ID], types[a.ID] = a.Content, map[bool]int{true: 3, false: 4}[a.Special]
	}
	var merges []string
	for _, m := range tok.Model.Merges {
		merges = append(merges, m[0]+" "+m[1])
	}
	f := fileOf(c)
	f.set("tokenizer.ggml.pre", "qwen2")
	f.set("tokenizer.ggml.tokens", tokens)
	f.set("tokenizer.ggml.token_type", types)
	f.set("tokenizer.ggml.merges", merges)
	eos := slices.Index(tokens, "<|im_end|>")
	f.set("tokenizer.ggml.bos_token_id", eos)
	f.set("tokenizer.ggml.eos_token_id", eos)
	f.set("tokenizer.chat_template", string(fixtures.Read(t, "hf/chat/qwen2_5.jinja")))
	weights := readSafetensors(t, filepath.Join(folder, "model.safetensors"))
	for name, shape := range lm.WeightShapes(c) {
		f.add(theirName(t, name), shape, weights[name])
	}
	return store(t, f.write(t)), folder
}

// Stage model makes of a GGUF file the checkpoint that it makes of the Hugging Face folder: the same weights, bit for
// bit, the same shape and the same chat layout.
func TestStageModelImportsAGGUFFile(t *testing.T) {
	path, folder := tiny(t)
	run := func(expression string) string {
		x, diags := enginetest.Load(t, lang.Registry{model.Kind()}, "stage \"model\" \"m\" {\npath = "+expression+"\n}\n")
		if diags.HasErrors() {
			t.Fatal(diags)
		}
		dir := t.TempDir()
		job := must.Get(engine.NewJob(engine.JobSetup{Dir: dir}))(t)
		must.OK(t, x.Nodes[0].Stage.(engine.Runner).Run(t.Context(), job))
		return filepath.Join(dir, "checkpoint")
	}
	got, want := run(fmt.Sprintf("file(%q)", path)), run(fmt.Sprintf("dir(%q)", folder))
	if a, b := must.Get(lm.ReadConfig(got))(t), must.Get(lm.ReadConfig(want))(t); a != b {
		t.Errorf("got %+v, want %+v", a, b)
	}
	for _, name := range []string{"model.safetensors", "rcgrpo.json"} {
		a, b := must.Get(os.ReadFile(filepath.Join(got, name)))(t), must.Get(os.ReadFile(filepath.Join(want, name)))(t)
		if !bytes.Equal(a, b) {
			t.Errorf("%s differs: %d bytes, want %d", name, len(a), len(b))
		}
	}
	bad := store(t, []byte("GGUF"))
	_, diags := enginetest.Load(t, lang.Registry{model.Kind()},
		fmt.Sprintf("stage \"model\" \"m\" {\npath = file(%q)\n}\n", bad))
	must.Match(t, diags, "Not a model that can be used", "a damaged file at plan")
}

// A served GGUF file answers a chat as the served Hugging Face folder does, with its own template and with another
// layout, and leaves no temporary folder.
func TestAGGUFFileIsServed(t *testing.T) {
	scratch := t.TempDir()
	t.Setenv("TMPDIR", scratch)
	path, folder := tiny(t)
	for _, layout := range []string{"", "signatures"} {
		want, read := ask(t, folder, layout, "Hi")
		if got, n := ask(t, path, layout, "Hi"); got != want || n != read || want == "" {
			t.Errorf("layout %q: got %q after %d tokens, want %q after %d", layout, got, n, want, read)
		}
	}
	if left := must.Get(filepath.Glob(filepath.Join(scratch, "rcgrpo-*")))(t); len(left) > 0 {
		t.Errorf("the server left %v", left)
	}
}

// The published template of SmolLM2 drops calls, so it is served with the layout smollm2.
func TestSmolLM2IsServed(t *testing.T) {
	path := fixtures.SmolLM2(t)
	must.Long(t)
	if got, _ := ask(t, path, "smollm2", "What is the capital of France?"); !strings.Contains(got, "Paris") {
		t.Errorf("got %q, want Paris", got)
	}
}

// ask serves a model until it has answered a request, and returns the reply and the number of the request's tokens.
func ask(t *testing.T, dir, layout, request string) (reply string, read int) {
	t.Helper()
	out, in := io.Pipe()
	s := &stages.Serving{Dir: dir, Layout: layout, Name: "m", Listen: "127.0.0.1:0", Token: "checkpoint",
		Device: "cpu", Slots: 2, Queue: 4, MaxBody: 1 << 20, Timeout: time.Minute, Drain: time.Second,
		Out: in, Log: t.Output()}
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() {
		ended <- s.Run(ctx)
		in.Close()
	}()
	defer func() {
		stop()
		must.OK(t, <-ended)
	}()
	url := strings.TrimSpace(must.Get(bufio.NewReader(out).ReadString('\n'))(t))
	r := must.Get(http.Post(url+"/chat/completions", "application/json", strings.NewReader(
		`{"model": "m", "temperature": 0, "max_tokens": 24, "messages": [{"role": "user", "content": "`+request+`"}]}`)))(t)
	defer r.Body.Close()
	var got struct {
		Choices []struct{ Message struct{ Content string } }
		Usage   struct {
			Prompt int `json:"prompt_tokens"`
		}
	}
	if must.OK(t, json.NewDecoder(r.Body).Decode(&got)); len(got.Choices) != 1 {
		t.Fatalf("got status %s and %v", r.Status, got)
	}
	return got.Choices[0].Message.Content, got.Usage.Prompt
}
