//go:build libtorch

package lm_test

import (
	"encoding/json"
	"math"
	"slices"
	"testing"

	"rcgrpo/bench/fixtures"
	"rcgrpo/internal/must"
	"rcgrpo/stages/internal/gguf"
	"rcgrpo/stages/internal/lm"
	"rcgrpo/stages/internal/torch"
	"rcgrpo/stages/rl"
)

// imported loads the folder of a GGUF file.
func imported(t *testing.T, path string) *lm.Model {
	t.Helper()
	f := must.Get(gguf.Open(path))(t)
	defer f.Close()
	dir := t.TempDir()
	must.OK(t, f.WriteFolder(t.Context(), dir, nil))
	m := must.Get(lm.Load(dir, torch.CPU, lm.Buffers{}))(t)
	t.Cleanup(func() { must.OK(t, m.Close()) })
	return m
}

// wantLogits compares every so many-th logit with those of transformers for the same file. Both compute in float32; the
// order of sums differs.
func wantLogits(t *testing.T, what string, got []float64, every int, want []float64) {
	t.Helper()
	worst := 0.0
	for i, w := range want {
		worst = max(worst, math.Abs(got[i*every]-w))
	}
	if t.Logf("%s: largest difference %.1e", what, worst); !(worst <= 1e-4) || len(want) != (len(got)+every-1)/every {
		t.Errorf("%s: the logits differ by up to %v, and %d of %d are compared", what, worst, len(want), len(got))
	}
}

func TestLogitsOfGGUFFilesEqualTransformers(t *testing.T) {
	var want struct {
		IDs  []int32   `json:"input_ids"`
		Last []float64 `json:"last_logits"`
	}
	must.OK(t, json.Unmarshal(fixtures.Read(t, "hf/gguf/types.json"), &want))
	m := imported(t, fixtures.File(t, "hf/gguf/types.gguf"))
	wantLogits(t, "all types", lm.LogitsAfter(t, m, want.IDs), 1, want.Last)
}

func TestSmolLM2EqualsTransformers(t *testing.T) {
	must.Long(t)
	m := imported(t, fixtures.SmolLM2(t))
	var want struct {
		Every   int
		Prompts []struct {
			Text         string
			IDs          []int32   `json:"input_ids"`
			Continuation []int32   `json:"continuation_ids"`
			Last         []float64 `json:"last_logits"`
		}
	}
	must.OK(t, json.Unmarshal(fixtures.Read(t, "hf/gguf/smollm2.json"), &want))
	batcher := rl.NewBatcher(must.Get(lm.NewDecoder(m, 1, 256))(t))
	for _, p := range want.Prompts {
		wantLogits(t, p.Text, lm.LogitsAfter(t, m, p.IDs), want.Every, p.Last)
		got := must.Get(batcher.Sample(t.Context(), rl.Query{IDs: p.IDs, Max: len(p.Continuation)}))(t)
		var ids []int32
		for _, d := range got.Draws {
			ids = append(ids, d.Token)
		}
		if !slices.Equal(ids, p.Continuation) || len(ids) != 64 {
			t.Errorf("%q: got %v, want %v", p.Text, ids, p.Continuation)
		}
	}
	must.OK(t, batcher.Release())
	if len(want.Prompts) != 6 {
		t.Errorf("the fixture has %d prompts, want 6", len(want.Prompts))
	}
}
