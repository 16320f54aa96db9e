//go:build libtorch

package model

import (
	"os"
	"path/filepath"
	"testing"

	"rcgrpo/bench/fixtures"
	"rcgrpo/engine"
	"rcgrpo/engine/artifact"
	"rcgrpo/internal/must"
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
