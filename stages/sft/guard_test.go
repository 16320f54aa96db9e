//go:build libtorch

package sft

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"rcgrpo/engine"
	"rcgrpo/engine/artifact"
	"rcgrpo/internal/must"
	"rcgrpo/stages/internal/checkpoint"
	"rcgrpo/stages/internal/lm"
	"rcgrpo/stages/internal/token"
	"rcgrpo/stages/internal/train"
	"rcgrpo/stages/rl"
	"rcgrpo/stages/rl/blocks"
)

const poison = 7 // a token whose row of the embedding is no number

// poisoned is a policy whose embedding of one token is NaN, so that every sequence with it has no finite
// gradient.
func poisoned(t *testing.T) *checkpoint.Policy {
	t.Helper()
	tokens := must.Get(token.Train([]string{"a"}, 256, nil))(t)
	const width = 8
	m := must.Get(lm.New(lm.Config{Decoder: "qwen2", Vocab: tokens.Size(), Hidden: width, Layers: 1, Heads: 1, KVHeads: 1,
		HeadDim: 8, MLP: 8, RopeBase: 1000,
		NormEps: 1e-6, MaxPosition: 64}, rand.New(rand.NewPCG(1, 1))))(t)
	dir := t.TempDir()
	must.OK(t, m.Save(dir))
	path := filepath.Join(dir, "model.safetensors")
	raw := must.Get(os.ReadFile(path))(t)
	n := binary.LittleEndian.Uint64(raw)
	var header map[string]struct {
		Offsets []uint64 `json:"data_offsets"`
	}
	must.OK(t, json.Unmarshal(raw[8:8+n], &header))
	for d := range uint64(width) {
		binary.LittleEndian.PutUint32(raw[8+n+header["model.embed_tokens.weight"].Offsets[0]+4*(poison*width+d):],
			math.Float32bits(float32(math.NaN())))
	}
	must.OK(t, os.WriteFile(path, raw, 0o600))
	must.OK(t, m.Restore(dir)) // which, unlike Load, takes weights as they are
	p := &checkpoint.Policy{Model: m, Tokenizer: tokens}
	t.Cleanup(func() { p.Close() })
	return p
}

// phrase is a sequence of random tokens, all but the first learned, with the poisonous one in the middle or
// without.
func phrase(r *rand.Rand, sick bool) lm.Sequence {
	q := lm.Sequence{IDs: make([]int32, 8), Mask: make([]bool, 8)}
	for i := range q.IDs {
		q.IDs[i], q.Mask[i] = int32(20+r.IntN(200)), i > 0
	}
	if sick {
		q.IDs[4] = poison
	}
	return q
}

// A batch without a finite gradient is skipped and stored; three in a row end the training.
func TestBatchesWithoutAFiniteGradientAreSkippedAndStored(t *testing.T) {
	r := rand.New(rand.NewPCG(4, 4))
	healthy := []lm.Sequence{phrase(r, false), phrase(r, false), phrase(r, false), phrase(r, false)}
	one := phrase(r, true)
	for name, tc := range map[string]struct {
		examples []lm.Sequence
		fails    bool
		left     int
	}{
		"one of five":    {append(slices.Clone(healthy), one), false, 1},
		"three in a row": {[]lm.Sequence{one, one, one, one}, true, 3},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			var log bytes.Buffer
			job := must.Get(engine.NewJob(engine.JobSetup{Dir: dir, Seed: 1, Log: &log}))(t)
			s := settings{Epochs: 1, Batch: 1, LR: 1e-3, Settings: train.Defaults(blocks.Schedule{Shape: "constant"}, 0)}
			p := poisoned(t)
			err := s.train(t.Context(), job, p, tc.examples)
			file := filepath.Join(job.Dir, "rows", "skipped.jsonl")
			if (err != nil) != tc.fails || tc.fails && !strings.HasSuffix(err.Error(),
				"the third time in a row that it is not finite; lower the learning rate; the skipped batches are in "+file) {
				t.Fatalf("got %v", err)
			}
			must.Contain(t, log.String(), "was skipped: its gradient is not finite; its batch is in "+file)
			if !tc.fails {
				file = filepath.Join(dir, "metrics", "skipped.jsonl")
				skipped := 0.0
				for row, err := range artifact.ReadRows[rl.Metric](filepath.Join(dir, "metrics", rl.MetricsFile)) {
					must.OK(t, err)
					skipped += row.Values["skipped"]
				}
				if skipped != 1 {
					t.Errorf("metrics count %v skipped updates, want 1", skipped)
				}
			}
			type row struct {
				Text string
				IDs  []int32
				Logp []any
			}
			n := 0
			for got, err := range artifact.ReadRows[row](file) {
				must.OK(t, err)
				if n++; !slices.Equal(got.IDs, one.IDs) || got.Text != p.Tokenizer.Decode(one.IDs, false) ||
					len(got.Logp) != 7 || got.Logp[6] != "NaN" {
					t.Errorf("got %+v, want the batch with the token %d", got, poison)
				}
			}
			if n != tc.left {
				t.Errorf("%d batches are kept, want %d", n, tc.left)
			}
		})
	}
}
