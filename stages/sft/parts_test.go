//go:build libtorch

package sft

import (
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"rcgrpo/bench/fixtures"
	"rcgrpo/bfcl"
	"rcgrpo/internal/must"
	"rcgrpo/stages/internal/chat"
	"rcgrpo/stages/internal/checkpoint"
	"rcgrpo/stages/internal/lm"
	"rcgrpo/stages/internal/ranks"
	"rcgrpo/stages/rl"
)

// experts returns the expert trajectories of every second task of the benchmark in the layout of Qwen2.5, up to 16,384
// tokens, as they are learned.
func experts(t *testing.T) (all []lm.Sequence) {
	t.Helper()
	benchmark, dir := fixtures.Benchmark(t), t.TempDir()
	must.OK(t, os.WriteFile(filepath.Join(dir, checkpoint.TokenizerFile),
		fixtures.Read(t, "hf/tokenizers/qwen2_5.tokenizer.json"), 0o600))
	must.OK(t, os.WriteFile(filepath.Join(dir, chat.TemplateFile), fixtures.Read(t, "hf/chat/qwen2_5.jinja"), 0o600))
	must.OK(t, os.WriteFile(filepath.Join(dir, "tokenizer_config.json"), []byte(`{"bos_token": null}`), 0o600))
	must.OK(t, (checkpoint.Meta{Layout: "qwen2.5"}).Write(dir))
	codec := must.Get(checkpoint.OpenCodec(dir, benchmark))(t)
	data := must.Get(bfcl.LoadData(benchmark))(t)
	for i, task := range data.Tasks() {
		if i%2 > 0 {
			continue
		}
		e := must.Get(rl.Expert(task.Merged(), bfcl.Settings{Data: data, Today: bfcl.ReleaseDate}))(t)
		ids, mask, err := chat.Encode(codec, e, rl.TokenNone)
		must.OK(t, err)
		if len(ids) <= 16384 {
			all = append(all, lm.Sequence{IDs: ids, Mask: mask})
		}
	}
	return all
}

// uneven returns the sum of the largest parts of batches over that of their means: the time of ranks that wait for the
// largest part at each update, over that of equal parts.
func uneven(batches [][][]lm.Sequence, n int) float64 {
	largest, mean := 0.0, 0.0
	for _, items := range batches {
		rows, sizes := make([]int, len(items)), make([]float64, n)
		for i, sequences := range items {
			rows[i] = lm.PackedRows(sequences)
		}
		for part, own := range ranks.Parts(rows, n) {
			for _, i := range own {
				sizes[part] += float64(rows[i])
				mean += float64(rows[i]) / float64(n)
			}
		}
		largest += slices.Max(sizes)
	}
	return largest / mean
}

// The batches of paper.hcl over the benchmark's tasks: eight parts of 16 expert trajectories, and of 64 and 256 groups
// of five episodes. Members of a group share the prompt, and end where the policy fails: anywhere after it.
func TestPartsOfThePapersBatchesAreNearlyEqual(t *testing.T) {
	all, rng := experts(t), rand.New(rand.NewPCG(7, 7))
	var tuning, groups [][][]lm.Sequence
	for _, b := range batches(rng, all, 16) {
		if len(b) < 16 {
			continue // the last of an epoch
		}
		var items [][]lm.Sequence
		for _, q := range b {
			items = append(items, []lm.Sequence{q})
		}
		tuning = append(tuning, items)
	}
	for _, n := range []int{64, 256} {
		var items [][]lm.Sequence
		for range n {
			e := all[rng.IntN(len(all))]
			prompt := slices.Index(e.Mask, true)
			var members []lm.Sequence
			for m := range 5 {
				ids := slices.Clone(e.IDs[:prompt+1+rng.IntN(len(e.IDs)-prompt)])
				ids[prompt] = int32(m) // they differ from the first action on
				mask := slices.Clone(e.Mask[:len(ids)])
				mask[len(ids)-1] = true
				members = append(members, lm.Sequence{IDs: ids, Mask: mask})
			}
			items = append(items, members)
		}
		groups = append(groups, items)
	}
	forTuning, forRL := uneven(tuning, 8), uneven(groups, 8)
	t.Logf("the largest part over the mean: %.3f in %d batches of SFT, %.4f in %d of RL", forTuning, len(tuning), forRL,
		len(groups))
	if forTuning > 1.3 || forRL > 1.05 || forTuning < 1 || forRL < 1 {
		t.Errorf("got %.3f and %.4f, want at most 1.3 and 1.05", forTuning, forRL)
	}
}
