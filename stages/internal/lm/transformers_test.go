//go:build libtorch

package lm

import (
	"encoding/json"
	"os"
	"path/filepath"
	"testing"

	"rcgrpo/internal/must"
)

// What bench/transformers.sh has transformers load: model folders that we wrote, and the logits that we give.
func TestFoldersForTransformers(t *testing.T) {
	out := os.Getenv("TRANSFORMERS_OUT")
	if out == "" {
		t.Skip("bench/transformers.sh runs this; TRANSFORMERS_OUT names no folder")
	}
	write := func(t *testing.T, name, base string, m *Model) {
		t.Helper()
		ids := make([]int32, 40)
		for i := range ids {
			ids[i] = int32((i*i*7 + 3*i + 1) % m.cfg.Vocab)
		}
		ids[10], ids[20] = int32(m.cfg.Vocab-1), int32(m.cfg.Vocab-2) // where rows were added, they come last
		text := must.Get(json.Marshal(map[string]any{"base": filepath.Join(out, base), "rows": m.cfg.Vocab, "input_ids": ids,
			"last_logits": logitsAfter(t, m, ids)}))(t)
		must.OK(t, os.WriteFile(filepath.Join(out, name, "ours.json"), text, 0o600))
	}
	save := func(t *testing.T, name string, m *Model) {
		t.Helper()
		must.OK(t, m.Save(filepath.Join(out, name)))
		write(t, name, name, m)
	}
	eachReference(t, func(t *testing.T, dir string, m *Model, p *parity) {
		save(t, filepath.Base(dir), m)
		a := trainedAdapter(t, m, p.Gradient.maskedBatch)
		name := filepath.Base(dir)
		must.OK(t, a.Save(filepath.Join(out, name+"-lora"), name))
		write(t, name+"-lora", name, a.Model())
	})
	for name, cfg := range map[string]Config{
		"fresh-qwen2": {Decoder: "qwen2", Vocab: 90, Hidden: 24, Layers: 2, Heads: 3, KVHeads: 1, HeadDim: 8, MLP: 40,
			RopeBase: 1000, NormEps: 1e-6,
			TiedEmbeddings: true, MaxPosition: 64},
		"fresh-llama": {Decoder: "llama", Vocab: 90, Hidden: 24, Layers: 2, Heads: 4, KVHeads: 2, HeadDim: 6, MLP: 40,
			RopeBase: 5e5, NormEps: 1e-5,
			RopeScaling: RopeScaling{Factor: 8, Low: 1, High: 4, Original: 16}, MaxPosition: 64},
		"fresh-qwen3": {Decoder: "qwen3", Vocab: 90, Hidden: 24, Layers: 2, Heads: 4, KVHeads: 2, HeadDim: 10, MLP: 40,
			RopeBase: 1e6, NormEps: 1e-6, MaxPosition: 64},
	} {
		m := newModel(t, cfg, 1)
		must.OK(t, m.Save(filepath.Join(out, name+"-base")))
		must.OK(t, m.AddRows(2))
		must.OK(t, m.MeanRow(90, 90, 91))
		save(t, name, m)

		// An adapter with the rows that its base does not have: peft puts them into the base, grown to as many.
		a, tr := adapterOn(t, m, LoRA{Rank: 2, Alpha: 2, Targets: Projections, Rows: []int32{90, 91}},
			adamW(DefaultMicroTokens))
		descendOn(t, tr, 3)
		must.OK(t, a.Save(filepath.Join(out, name+"-rows-lora"), name))
		write(t, name+"-rows-lora", name+"-base", a.Model())
	}
}

// trainedAdapter has made some updates, so that it changes the model.
func trainedAdapter(t *testing.T, m *Model, b maskedBatch) *Adapter {
	t.Helper()
	a, tr := adapterOn(t, m, LoRA{Rank: 3, Alpha: 6, Targets: []string{"q_proj", "v_proj", "down_proj"}},
		adamW(DefaultMicroTokens))
	for range 3 {
		meanLoss(t, tr, b)
		_, _, err := tr.Update(0.02)
		must.OK(t, err)
	}
	return a
}
