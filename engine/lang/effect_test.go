package lang_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/hashicorp/hcl/v2"

	"rcgrpo/engine/enginetest"
	"rcgrpo/engine/lang"
)

// switched is a stage whose block detail has an effect only where on is true.
type switched struct {
	Name   string `hcl:"name,optional" preset:"true" choices:"plain|fine" key:"-"`
	On     bool   `hcl:"on,optional"`
	Detail *struct {
		Size  int      `hcl:"size,optional"`
		Words []string `hcl:"words,optional"`
	} `hcl:"detail,block"`
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

func TestSettingWithoutEffectIsAnErrorUnlessItRepeatsTheDefault(t *testing.T) {
	newSwitched := func() lang.Stage {
		s := &switched{}
		s.Detail = &struct {
			Size  int      `hcl:"size,optional"`
			Words []string `hcl:"words,optional"`
		}{Size: 5}
		return s
	}
	kinds := lang.Registry{{Name: "switched", Summary: "Has a detail.", Version: 1,
		New: newSwitched, Outputs: enginetest.FilesOut}}
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
		x, diags := enginetest.Load(t, kinds, "stage \"switched\" \"s\" {\n"+body+"\n}\n")
		got := ""
		for _, d := range diags {
			at := d.Subject
			got += fmt.Sprintf("%d,%d-%d %s: %s", at.Start.Line, at.Start.Column, at.End.Column, d.Summary, d.Detail)
		}
		if got != want {
			t.Errorf("%q: got %q, want %q", body, got, want)
		}
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
