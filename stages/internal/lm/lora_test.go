//go:build libtorch

package lm

import (
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

func TestANewAdapterChangesNothing(t *testing.T) {
	m := llama(t)
	a, err := NewAdapter(m, LoRA{Rank: 2, Alpha: 4, Targets: Projections}, rand.New(rand.NewPCG(1, 2)))
	if err != nil {
		t.Fatal(err)
	}
	defer a.Close()
	want, err := m.Weights()
	if err != nil {
		t.Fatal(err)
	}
	if got, err := a.Model().Weights(); err != nil || !slices.Equal(got, want) {
		t.Errorf("the merged weights differ from the base's (%v)", err)
	}
	drawn := 0
	for _, v := range adapterWeights(t, a) {
		if v != 0 {
			drawn++
		}
	}
	if want := 2 * (6*8 + 12); drawn != want { // A of seven projections, one of which reads the inner width
		t.Errorf("%d values are not zero, want %d", drawn, want)
	}
}

func TestAdaptersThatAreNotPlainLoRAAreRefused(t *testing.T) {
	m := llama(t)
	dir := t.TempDir()
	a, err := NewAdapter(m, LoRA{Rank: 2, Alpha: 4, Targets: []string{"q_proj"}}, rand.New(rand.NewPCG(1, 2)))
	if err != nil {
		t.Fatal(err)
	}
	defer a.Close()
	if err := a.Save(dir, "base"); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, adapterConfigFile)
	sound, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct{ old, replaced, want string }{
		{`"use_dora": false`, `"use_dora": true`, "asks for more than plain LoRA"},
		{`"bias": "none"`, `"bias": "all"`, "asks for more than plain LoRA"},
		{`"peft_type": "LORA"`, `"peft_type": "IA3"`, "asks for more than plain LoRA"},
		{`"r": 2`, `"r": 3`, "has shape [2 8], want [3 8]"},
		{`"r": 2`, `"r": 0`, "rank must be at least 1"},
		{`"q_proj"`, `"qkv_proj"`, `there is no projection "qkv_proj"`},
		{`"q_proj"`, `"k_proj"`, "is missing"},
		{`{`, `[`, "adapter_config.json: "},
	} {
		if err := os.WriteFile(path, []byte(strings.Replace(string(sound), tc.old, tc.replaced, 1)), 0o600); err != nil {
			t.Fatal(err)
		}
		got, err := LoadAdapter(dir, m)
		if err == nil {
			got.Close()
		}
		if err == nil || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%s instead of %s: got %v, want %q", tc.replaced, tc.old, err, tc.want)
		}
	}
	if _, err := NewAdapter(m, LoRA{Rank: 2, Alpha: 0, Targets: Projections}, rand.New(rand.NewPCG(1, 2))); err == nil {
		t.Error("alpha 0 is accepted")
	}
}
