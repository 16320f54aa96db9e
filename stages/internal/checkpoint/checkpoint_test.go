package checkpoint

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"rcgrpo/internal/must"
	"rcgrpo/stages/rl"
)

func TestConditionOfAnEpisode(t *testing.T) {
	plain := Meta{Family: Drill}
	trained := Meta{Family: Drill, Position: rl.FirstUser, Condition: rl.TokenHigh, Trained: true}
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
		t.Run(name, func(t *testing.T) {
			got, err := tc.meta.Resolve(tc.setting)
			if tc.mistake == "" && (err != nil || got != tc.want) {
				t.Errorf("got %q, %v, want %q", got, err, tc.want)
			}
			if tc.mistake != "" && (err == nil || !strings.Contains(err.Error(), tc.mistake)) {
				t.Errorf("got %v, want it to say %q", err, tc.mistake)
			}
		})
	}
}

func TestInvalidMetaIsRefused(t *testing.T) {
	for name, tc := range map[string]struct{ text, want string }{
		"no JSON":           {"{", MetaFile},
		"unknown condition": {`{"family": "drill", "condition": "medium"}`, `condition is "medium"`},
		"no position":       {`{"family": "drill", "condition": "high"}`, `condition is "high" and position ""`},
		"unknown position":  {`{"family": "drill", "position": "last"}`, `position "last"`},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			must.OK(t, os.WriteFile(filepath.Join(dir, MetaFile), []byte(tc.text), 0o600))
			_, err := ReadMeta(dir)
			must.Match(t, err, tc.want)
		})
	}
	_, err := ReadMeta(t.TempDir())
	must.Match(t, err, "not a checkpoint of rcgrpo")
}
