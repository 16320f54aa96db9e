//go:build libtorch

package grpo

import (
	"cmp"
	"encoding/binary"
	"encoding/json"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"rcgrpo/bench/fixtures"
	"rcgrpo/internal/must"
	"rcgrpo/stages/internal/lm"
	"rcgrpo/stages/internal/torch"
	"rcgrpo/stages/rl"
)

// sampledGradient is the norm of the gradient of a tensor and some of its entries.
type sampledGradient struct {
	Norm, Largest float64
	At            []int     // indices in the tensor
	Values        []float32 // [At]
}

// optimizerStep is the outcome of one optimizer step.
type optimizerStep struct {
	Loss, ClipFraction float64
	Gradient           map[string]sampledGradient
}

// bench/update_torch.sh compares these updates of RC-GRPO with those of PyTorch: two passes over the batch of the first
// update and one over that of the second, so the second step has ratios that are clipped, and the third has none but a
// divergence from the reference.
func TestUpdatesForPyTorch(t *testing.T) {
	out := os.Getenv("UPDATE_OUT")
	if out == "" {
		t.Skip("bench/update_torch.sh runs this; UPDATE_OUT names no folder")
	}
	models := map[string]func(t *testing.T) *lm.Model{
		"llama31-tiny": func(t *testing.T) *lm.Model {
			return must.Get(lm.Load(fixtures.Dir(t, "hf/models/llama31-tiny"), torch.CPU, lm.Buffers{}))(t)
		},
		"smollm2-135m-random": func(t *testing.T) *lm.Model {
			return must.Get(lm.New(lm.Config{Decoder: "llama", Vocab: 49152, Hidden: 576, Layers: 30, Heads: 9, KVHeads: 3,
				HeadDim: 64, MLP: 1536, RopeBase: 1e5, NormEps: 1e-5, TiedEmbeddings: true, MaxPosition: 8192},
				rand.New(rand.NewPCG(1, 2))))(t)
		},
	}
	lr := 3e-4
	if dir := os.Getenv("UPDATE_MODEL"); dir != "" {
		lr = 1e-5 // a step of 3e-4 takes a pretrained model so far that rounding decides the next gradient
		models = map[string]func(t *testing.T) *lm.Model{filepath.Base(dir): func(t *testing.T) *lm.Model {
			return must.Get(lm.Load(dir, torch.CPU, lm.Buffers{}))(t)
		}}
	}
	for name, open := range models {
		t.Run(name, func(t *testing.T) {
			m := open(t)
			t.Cleanup(func() { m.Close() })
			writeUpdates(t, filepath.Join(out, name), m, lr)
		})
	}
}

// writeUpdates makes three optimizer steps and writes inputs, outcomes, and the weights before and after.
func writeUpdates(t *testing.T, dir string, m *lm.Model, lr float64) {
	t.Helper()
	must.OK(t, m.Save(filepath.Join(dir, "before")))
	s := defaults(3)
	s.Passes, s.LR = 2, lr
	optimizer := lm.OptimizerConfig{Beta1: 0.9, Beta2: 0.999, Eps: 1e-8, Decay: 0.01, Clip: 1,
		MicroTokens: lm.DefaultMicroTokens}
	r := trainingOf(t, m, s, optimizer)
	order := tensorsOf(t, m, filepath.Join(dir, "before"))
	var updates [][]*rl.Trajectory
	var steps []optimizerStep
	clipped := 0
	for u := range 2 {
		trajectories := conditionedEpisodes(m.Config().Vocab, s.Group, uint64(u))
		updates = append(updates, trajectories)
		b := newBatch(trajectories, s.Group)
		must.OK(t, r.settings.completeBatch(t.Context(), r.run.Trainer, r.reference, b))
		for range 2 - u {
			outcome, _, err := r.settings.accumulate(t.Context(), r.run.Trainer, r.reference, b)
			must.OK(t, err)
			clipped += outcome.Clipped
			steps = append(steps, optimizerStep{outcome.Loss, outcome.ClipFraction(),
				sampleOf(must.Get(r.run.Trainer.Gradient())(t), order)})
			_, _, err = r.run.Trainer.Update(s.LR)
			must.OK(t, err)
		}
	}
	if clipped == 0 {
		t.Error("no ratio is clipped")
	}
	must.OK(t, m.Save(filepath.Join(dir, "after")))
	text := must.Get(json.Marshal(map[string]any{"group": s.Group, "lr": s.LR, "beta": s.KL.Beta, "clip": s.Clip.Low,
		"advantage_eps": s.Advantage.Eps, "optimizer": optimizer, "updates": updates, "steps": steps}))(t)
	must.OK(t, os.WriteFile(filepath.Join(dir, "ours.json"), text, 0o600))
}

// conditionedEpisodes are three groups over random tokens: two of mixed rewards, and one of success only, which learns
// from the divergence alone. The first id is that of the reward token.
func conditionedEpisodes(vocab, group int, seed uint64) (all []*rl.Trajectory) {
	r := rand.New(rand.NewPCG(seed, 7))
	for g := range 3 {
		for i := range group {
			t := &rl.Trajectory{Task: "t", Token: rl.TokenHigh, Reward: 1}
			if i%2 == 1 {
				t.Token = rl.TokenLow
			}
			if g < 2 && (i+g)%2 == 1 {
				t.Reward = 0
			}
			piece := func(turn, n int, own bool) {
				role, from := rl.RoleUser, len(t.IDs)
				if own {
					role = rl.RoleAssistant
				}
				for range n {
					t.IDs, t.Mask, t.Logp = append(t.IDs, int32(3+r.IntN(vocab-3))), append(t.Mask, own), append(t.Logp, 0)
				}
				t.Messages = append(t.Messages, rl.Message{Role: role, Turn: turn, From: from, To: len(t.IDs)})
			}
			for turn := range 1 + i%3 {
				piece(turn, 5+r.IntN(5), false)
				piece(turn, 2+r.IntN(6), true)
			}
			t.IDs[0] = map[string]int32{rl.TokenHigh: 1, rl.TokenLow: 2}[t.Token]
			all = append(all, t)
		}
	}
	return all
}

// namedRange is a tensor and its place in the flat weights.
type namedRange struct {
	name     string
	from, to int
}

// tensorsOf returns the places of the tensors of a saved model in the order of Weights: matrices by layer, then vectors
// by layer. Each is checked against the file.
func tensorsOf(t *testing.T, m *lm.Model, dir string) (order []namedRange) {
	t.Helper()
	raw, tensors := readTensors(t, dir)
	parts := []string{"q_proj.weight", "k_proj.weight", "v_proj.weight", "o_proj.weight", "gate_proj.weight",
		"up_proj.weight", "down_proj.weight", "q_proj.bias", "k_proj.bias", "v_proj.bias", "q_norm.weight", "k_norm.weight",
		"input_layernorm.weight", "post_attention_layernorm.weight"}
	key := func(name string) [3]int {
		fields := strings.Split(name, ".")
		layer, part := -1, 0
		if fields[1] == "layers" {
			layer = must.Get(strconv.Atoi(fields[2]))(t)
			part = slices.IndexFunc(parts, func(p string) bool { return strings.HasSuffix(name, "."+p) })
		} else if name == "model.norm.weight" {
			layer = math.MaxInt
		} else if name == "lm_head.weight" {
			part = 1
		}
		return [3]int{len(tensors[name].Shape) % 2, layer, part} // matrices first
	}
	names := make([]string, 0, len(tensors))
	for name := range tensors {
		names = append(names, name)
	}
	slices.SortFunc(names, func(a, b string) int {
		x, y := key(a), key(b)
		return cmp.Or(cmp.Compare(x[0], y[0]), cmp.Compare(x[1], y[1]), cmp.Compare(x[2], y[2]))
	})
	weights, at := must.Get(m.Weights())(t), 0
	for _, name := range names {
		x := tensors[name]
		n := (x.to - x.from) / 4
		for i := range n {
			if math.Float32bits(weights[at+i]) != binary.LittleEndian.Uint32(raw[x.from+4*i:]) {
				t.Fatalf("%s is not at %d of the weights", name, at)
			}
		}
		order = append(order, namedRange{name, at, at + n})
		at += n
	}
	if at != len(weights) {
		t.Fatalf("the file has %d weights, the model %d", at, len(weights))
	}
	return order
}

// sampleOf returns norm, largest entry and at most 1,000 entries of each tensor.
func sampleOf(gradient []float32, order []namedRange) map[string]sampledGradient {
	all := map[string]sampledGradient{}
	r := rand.New(rand.NewPCG(5, 6))
	for _, x := range order {
		part, g := gradient[x.from:x.to], sampledGradient{}
		square := 0.0
		for _, v := range part {
			square += float64(v) * float64(v)
			g.Largest = max(g.Largest, math.Abs(float64(v)))
		}
		g.Norm = math.Sqrt(square)
		for range min(1000, len(part)) {
			at := r.IntN(len(part))
			g.At, g.Values = append(g.At, at), append(g.Values, part[at])
		}
		all[x.name] = g
	}
	return all
}
