package checkpoint

import (
	"os"
	"path/filepath"
	"testing"

	"rcgrpo/internal/must"
	"rcgrpo/stages/rl"
)

func TestConditionOfAnEpisode(t *testing.T) {
	plain := Meta{Layout: Drill}
	trained := Meta{Layout: Drill, Position: rl.FirstUser, Condition: rl.TokenHigh, Trained: true}
	for name, tc := range map[string]struct {
		meta          Meta
		setting, want string
		mistake       string
	}{
		"as the checkpoint says, none": {plain, "checkpoint", rl.TokenNone, ""},
		"as the checkpoint says, high": {trained, "checkpoint", rl.TokenHigh, ""},
		"none though it has tokens":    {trained, "none", rl.TokenNone, ""},
		"low":                          {trained, "low", rl.TokenLow, ""},
		"high without tokens":          {plain, "high", "", `token = "high", but this policy has never used reward tokens`},
		"low without tokens":           {plain, "low", "", "set token = \"none\""},
	} {
		got, err := tc.meta.Resolve(tc.setting)
		must.Match(t, err, tc.mistake, name)
		if got != tc.want {
			t.Errorf("%s: got %q, want %q", name, got, tc.want)
		}
	}
}

func TestInvalidMetaIsRefused(t *testing.T) {
	for name, tc := range map[string]struct{ text, want string }{
		"no JSON":           {"{", MetaFile},
		"unknown condition": {`{"family": "drill", "condition": "medium"}`, `condition is "medium"`},
		"no position":       {`{"family": "drill", "condition": "high"}`, `condition is "high" and position ""`},
		"unknown position":  {`{"family": "drill", "position": "last"}`, `position "last"`},
	} {
		dir := t.TempDir()
		must.OK(t, os.WriteFile(filepath.Join(dir, MetaFile), []byte(tc.text), 0o600))
		_, err := ReadMeta(dir)
		must.Match(t, err, tc.want, name)
	}
	_, err := ReadMeta(t.TempDir())
	must.Match(t, err, "not a checkpoint of rcgrpo")
}
