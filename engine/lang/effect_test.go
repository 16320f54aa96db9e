package lang_test

import (
	"fmt"
	"maps"
	"strings"
	"testing"

	"github.com/hashicorp/hcl/v2"

	"rcgrpo/engine/enginetest"
	"rcgrpo/engine/lang"
)

// switched is a stage whose block detail has an effect only where on is true.
type switched struct {
	Name   string  `hcl:"name,optional" preset:"true" choices:"plain|fine" key:"-"`
	On     bool    `hcl:"on,optional"`
	Detail *detail `hcl:"detail,block"`
}

type detail struct {
	Size  int      `hcl:"size,optional"`
	Words []string `hcl:"words,optional"`
}

func (s *switched) Check() hcl.Diagnostics { return nil }

func (s *switched) UsePreset(name string) {
	if name == "fine" {
		s.Detail.Size = 9
	}
}

func (s *switched) WithoutEffect() map[string]string {
	if s.On {
		return nil
	}
	return map[string]string{"detail.size": "on is false", "detail.words": "on is false"}
}

func switchedKinds() lang.Registry {
	newSwitched := func() lang.Stage { return &switched{Detail: &detail{Size: 5}} }
	return lang.Registry{{Name: "switched", Summary: "Has a detail.", Version: 1,
		New: newSwitched, Outputs: enginetest.FilesOut}}
}

func TestDefaultsOfAllKindsWithoutEffectAreDropped(t *testing.T) {
	const stage = "stage \"switched\" \"s\" {\n%s\n}\n"
	load := func(text string) (*lang.Experiment, hcl.Diagnostics) {
		return enginetest.Load(t, switchedKinds(), text)
	}
	want, _ := load(fmt.Sprintf(stage, ""))
	const defaults = "{\n  detail = { size = 4, words = [\"a\"] }\n}\n"
	got, diags := load("defaults " + defaults + fmt.Sprintf(stage, ""))
	if len(diags) > 0 || !maps.Equal(enginetest.Keys(got), enginetest.Keys(want)) {
		t.Errorf("got %v, want the keys without defaults", diags)
	}
	on, diags := load("defaults " + defaults + fmt.Sprintf(stage, "on = true"))
	if len(diags) > 0 || maps.Equal(enginetest.Keys(on), enginetest.Keys(want)) {
		t.Errorf("with an effect: got %v, want another key", diags)
	}
	if _, diags = load("defaults \"switched\" " + defaults + fmt.Sprintf(stage, "")); len(diags) != 2 {
		t.Errorf("defaults of the kind: got %v, want two settings without effect", diags)
	}
	preset, diags := load("defaults {\n  name = \"fine\"\n}\n" + fmt.Sprintf(stage, "on = true"))
	if s := preset.Nodes[0].Stage.(*switched); len(diags) > 0 || s.Detail.Size != 9 {
		t.Errorf("preset: got %v, size %d, want 9", diags, s.Detail.Size)
	}
}

func TestSettingWithoutEffectIsAnErrorUnlessItRepeatsTheDefault(t *testing.T) {
	const without = "Setting without effect: detail.%s has no effect: on is false. Remove it."
	for body, want := range map[string]string{
		"":                                       "",
		"on = true\ndetail {\nsize = 4\n}":       "",
		"detail {\nsize = 4\n}":                  "4,1-9 " + fmt.Sprintf(without, "size = 4"),
		"detail {\nsize = 5\n}":                  "",
		"detail {\nsize = null\n}":               "",
		"detail {}":                              "",
		"detail {\nwords = [\"a\", \"b\"]\n}":    "4,1-19 " + fmt.Sprintf(without, `words = ["a", "b"]`),
		"name = \"fine\"\ndetail {\nsize = 9\n}": "",
		"name = \"fine\"\ndetail {\nsize = 5\n}": "5,1-9 " + fmt.Sprintf(without, "size = 5"),
	} {
		x, diags := enginetest.Load(t, switchedKinds(), "stage \"switched\" \"s\" {\n"+body+"\n}\n")
		got := ""
		for _, d := range diags {
			at := d.Subject
			got += fmt.Sprintf("%d,%d-%d %s: %s", at.Start.Line, at.Start.Column, at.End.Column, d.Summary, d.Detail)
		}
		wantEqual(t, body, got, want)
		if want != "" {
			continue
		}
		for _, s := range x.Nodes[0].Settings {
			noEffect := strings.HasPrefix(s.Name, "detail.") && !strings.Contains(body, "on = true")
			if (s.NoEffect == "on is false") != noEffect {
				t.Errorf("%q: %s has no effect because %q, want a reason: %v", body, s.Name, s.NoEffect, noEffect)
			}
		}
	}
}
