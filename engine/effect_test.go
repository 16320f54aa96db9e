package engine

import (
	"fmt"
	"strings"
	"testing"

	"github.com/hashicorp/hcl/v2"
)

// switched is a stage whose block detail has an effect only if on is true.
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
	kinds := Registry{{Name: "switched", Summary: "Has a detail.", Version: 1, New: func() Stage {
		s := &switched{}
		s.Detail = &struct {
			Size  int      `hcl:"size,optional"`
			Words []string `hcl:"words,optional"`
		}{Size: 5}
		return s
	}, Outputs: func(Stage) map[string]string { return map[string]string{"out": "files"} }}}
	for body, want := range map[string]string{
		"":                                 "",
		"on = true\ndetail {\nsize = 4\n}": "",
		"detail {\nsize = 4\n}": "x.hcl:4,1-9 Setting without effect: detail.size = 4 has no " +
			"effect: on is false. Remove it.",
		"detail {\nsize = 5\n}":    "",
		"detail {\nsize = null\n}": "",
		"detail {}":                "",
		"detail {\nwords = [\"a\", \"b\"]\n}": "x.hcl:4,1-19 Setting without effect: detail.words = " +
			"[\"a\", \"b\"] has no effect: on is false. Remove it.",
		"name = \"fine\"\ndetail {\nsize = 9\n}": "",
		"name = \"fine\"\ndetail {\nsize = 5\n}": "x.hcl:5,1-9 Setting without effect: detail.size = 5 has no " +
			"effect: on is false. Remove it.",
	} {
		path := t.TempDir() + "/x.hcl"
		writeFile(t, path, "experiment {}\nstage \"switched\" \"s\" {\n"+body+"\n}\n")
		x, diags := Load(Source{Path: path}, kinds)
		got := ""
		for _, d := range diags {
			got += fmt.Sprintf("x.hcl:%d,%d-%d %s: %s", d.Subject.Start.Line, d.Subject.Start.Column,
				d.Subject.End.Column, d.Summary, d.Detail)
		}
		if got != want {
			t.Errorf("%q: got %q, want %q", body, got, want)
		}
		if want != "" {
			continue
		}
		for _, s := range x.Nodes[0].Settings {
			if idle := strings.HasPrefix(s.Name, "detail.") && !strings.Contains(body,
				"on = true"); (s.NoEffect == "on is false") != idle {
				t.Errorf("%q: %s: no effect because %q, want a reason: %v", body, s.Name, s.NoEffect, idle)
			}
		}
	}
}
