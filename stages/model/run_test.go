//go:build libtorch

package model

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"rcgrpo/bench/fixtures"
	"rcgrpo/engine"
	"rcgrpo/engine/artifact"
	"rcgrpo/internal/must"
	"rcgrpo/stages/internal/chat"
	"rcgrpo/stages/internal/checkpoint"
)

// A folder with a refused chat template is exported with the published template of the layout that the stage
// names.
func TestLayoutReplacesTheTemplateOfAFolder(t *testing.T) {
	from, published := fixtures.Dir(t, "hf/models/qwen2-tiny"), fixtures.Read(t, "hf/chat/qwen2_5.jinja")
	must.OK(t, os.WriteFile(filepath.Join(from, "chat_template.jinja"), append([]byte("{{ messages }}"), published...),
		0o600))
	for layout, works := range map[string]bool{"": false, "qwen2.5": true} {
		dir := t.TempDir()
		job := must.Get(engine.NewJob(engine.JobSetup{Dir: dir}))(t)
		s := &settings{Path: &artifact.File{Path: from, Dir: true}, Layout: layout}
		err := s.Run(t.Context(), job)
		if (err == nil) != works {
			t.Errorf("layout %q: got error %v", layout, err)
		}
		if !works {
			continue
		}
		got, err := os.ReadFile(filepath.Join(dir, "checkpoint", "chat_template.jinja"))
		if err != nil || string(got) != string(published) {
			t.Errorf("layout %q: the exported template is not the published one (%v)", layout, err)
		}
	}
}

// The template of a file and its variables are exported, and the checkpoint's codec uses both.
func TestTemplateAndVariablesReachTheCheckpoint(t *testing.T) {
	from, dir := fixtures.Dir(t, "hf/models/qwen2-tiny"), t.TempDir()
	source := strings.Replace(chat.LayoutTemplate("qwen2.5"), `system\nYou`, `system\n' ~ greeting ~ 'You`, 1)
	file := filepath.Join(t.TempDir(), "mine.jinja")
	must.OK(t, os.WriteFile(file, []byte(source), 0o600))
	job := must.Get(engine.NewJob(engine.JobSetup{Dir: dir}))(t)
	s := &settings{Path: &artifact.File{Path: from, Dir: true}, Template: &artifact.File{Path: file},
		Variables: map[string]string{"greeting": "Good morning. "}}
	must.OK(t, s.Run(t.Context(), job))
	checkpointDir := filepath.Join(dir, "checkpoint")
	got := must.Get(os.ReadFile(filepath.Join(checkpointDir, "chat_template.jinja")))(t)
	if string(got) != source {
		t.Error("the exported template is not that of the file")
	}
	codec := must.Get(checkpoint.OpenCodec(checkpointDir, fixtures.Benchmark(t)))(t)
	text := codec.Text(must.Get(codec.Begin("", nil, "Hi", ""))(t))
	if !strings.HasPrefix(text, "<|im_start|>system\nGood morning. You are Qwen") {
		t.Errorf("got %q", text)
	}
}
