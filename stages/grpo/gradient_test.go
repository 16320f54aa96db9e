//go:build libtorch

package grpo

import (
	"encoding/binary"
	"encoding/json"
	"maps"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"rcgrpo/internal/must"
	"rcgrpo/stages/internal/lm"
	"rcgrpo/stages/internal/torch"
	"rcgrpo/stages/rl"
	"rcgrpo/stages/rl/objective"
)

func tiny(t *testing.T, seed uint64) *lm.Model {
	t.Helper()
	m := must.Get(lm.New(lm.Config{Decoder: "qwen2", Vocab: 24, Hidden: 16, Layers: 2, Heads: 2, KVHeads: 1, HeadDim: 8,
		MLP: 24, RopeBase: 1000,
		NormEps: 1e-6, TiedEmbeddings: true, MaxPosition: 64}, rand.New(rand.NewPCG(seed, 5))))(t)
	t.Cleanup(func() { m.Close() })
	return m
}

func adamW(microTokens int) lm.OptimizerConfig {
	return lm.OptimizerConfig{Beta1: 0.9, Beta2: 0.98, Eps: 1e-8, Clip: 1, MicroTokens: microTokens}
}

// conversations are two groups of three episodes over random tokens, of one to three turns each, mixed rewards.
func conversations() []*rl.Trajectory {
	r := rand.New(rand.NewPCG(8, 9))
	var out []*rl.Trajectory
	for i, reward := range []rl.Reward{1, 0, 0, 1, 1, 0} {
		t := &rl.Trajectory{Task: "t", Reward: reward}
		piece := func(role string, turn, n int, own bool) {
			from := len(t.IDs)
			for range n {
				t.IDs, t.Mask, t.Logp = append(t.IDs, int32(r.IntN(24))), append(t.Mask, own), append(t.Logp, 0)
			}
			t.Messages = append(t.Messages, rl.Message{Role: role, Turn: turn, From: from, To: len(t.IDs)})
		}
		for turn := range 1 + i%3 {
			piece(rl.RoleUser, turn, 2+r.IntN(3), false)
			piece(rl.RoleAssistant, turn, 1+r.IntN(4), true)
		}
		out = append(out, t)
	}
	return out
}

// perturbed returns the model in dir with delta added to one number of its weights.
func perturbed(t *testing.T, dir string, at int64, delta float32) *lm.Model {
	t.Helper()
	path := filepath.Join(dir, "model.safetensors")
	raw := must.Get(os.ReadFile(path))(t)
	old := math.Float32frombits(binary.LittleEndian.Uint32(raw[at:]))
	changed := slices.Clone(raw)
	binary.LittleEndian.PutUint32(changed[at:], math.Float32bits(old+delta))
	must.OK(t, os.WriteFile(path, changed, 0o600))
	m := must.Get(lm.Load(dir, torch.CPU, lm.Buffers{}))(t)
	must.OK(t, os.WriteFile(path, raw, 0o600))
	return m
}

// tensor is a tensor of a weights file; from and to are its bytes in the file.
type tensor struct {
	Shape    []int
	Offsets  []int `json:"data_offsets"`
	from, to int
}

// readTensors reads the weights file of a model folder.
func readTensors(t *testing.T, dir string) (raw []byte, tensors map[string]*tensor) {
	t.Helper()
	raw = must.Get(os.ReadFile(filepath.Join(dir, "model.safetensors")))(t)
	data := 8 + int(binary.LittleEndian.Uint64(raw))
	must.OK(t, json.Unmarshal(raw[8:data], &tensors))
	delete(tensors, "__metadata__")
	for _, x := range tensors {
		x.from, x.to = data+x.Offsets[0], data+x.Offsets[1]
	}
	return raw, tensors
}

// places returns the offsets of some numbers of each tensor in the weights file.
func places(t *testing.T, dir string, perTensor int) (out []int64) {
	t.Helper()
	r := rand.New(rand.NewPCG(3, 3))
	_, tensors := readTensors(t, dir)
	for _, name := range slices.Sorted(maps.Keys(tensors)) {
		x := tensors[name]
		for range perTensor {
			out = append(out, int64(x.from+4*r.IntN((x.to-x.from)/4)))
		}
	}
	return out
}

// TestGradientOfTheObjectiveThroughTheModel compares the gradient that an update uses with central differences of
// the objective, whose ratio has the unmoved policy in its denominator. The reference is another model, so the
// divergence and its gradient are not 0.
func TestGradientOfTheObjectiveThroughTheModel(t *testing.T) {
	drills := objective.PaperObjective()
	drills.Loss.Aggregate, drills.Ratio.Level, drills.KL.Estimator = "trajectory_mean", "token", "exact"
	turns := objective.PaperObjective()
	turns.Ratio.Level, turns.Entropy, turns.KL.Estimator = "turn", 0.05, "k1"
	reward := objective.PaperObjective()
	reward.KL.Place, reward.KL.Estimator = "reward", "k1"
	for name, tc := range map[string]struct {
		o           objective.Objective
		temperature float64
	}{
		"the paper's":                {objective.PaperObjective(), 1},
		"the drills'":                {drills, 1},
		"per turn, with entropy":     {turns, 0.8},
		"divergence from the reward": {reward, 1},
	} {
		t.Run(name, func(t *testing.T) {
			ctx, dir := t.Context(), t.TempDir()
			policy, reference := tiny(t, 1), tiny(t, 2)
			must.OK(t, policy.Save(dir))
			trainer, err := lm.NewTrainer(policy, adamW(30), lm.Peers{}) // several micro-batches
			must.OK(t, err)
			defer trainer.Close()
			s := &settings{Objective: tc.o, Temperature: tc.temperature}
			b := newBatch(conversations(), 3)
			must.OK(t, s.completeBatch(ctx, trainer, reference, b))
			outcome, old, err := s.accumulate(ctx, trainer, reference, b)
			must.OK(t, err)
			if tc.o.KL.Place == "loss" && math.Abs(outcome.KL) < 0.01 {
				t.Fatalf("divergence %v: the reference should differ", outcome.KL)
			}
			gradient := must.Get(trainer.Gradient())(t)
			loss := func(m *lm.Model) float64 {
				stats := must.Get(m.Stats(ctx, b.sequences, reference, tc.temperature))(t)
				whole := b.Batch
				whole.Logp, whole.LogpOld, whole.LogpRef = stats.Logp, old.Logp, stats.LogpRef
				whole.KL, whole.Entropy = stats.KL, stats.Entropy
				return must.Get(tc.o.Evaluate(&whole, b.totals))(t).Loss
			}
			if at := loss(policy); math.Abs(at-outcome.Loss) > 1e-6 {
				t.Errorf("loss: %v in parts, %v at once", outcome.Loss, at)
			}
			weights := must.Get(policy.Weights())(t)
			largest := 0.0
			for _, g := range gradient {
				largest = max(largest, math.Abs(float64(g)))
			}
			checked := 0
			for _, at := range places(t, dir, 2) {
				// float32 forward passes have an error of about 1e-6; h² of the third derivative is below 1e-3
				const h = 1.0 / 256
				up, down := perturbed(t, dir, at, h), perturbed(t, dir, at, -h)
				moved := must.Get(up.Weights())(t)
				index := 0 // in the order of the gradient
				for moved[index] == weights[index] {
					index++
				}
				want := (loss(up) - loss(down)) / (2 * h)
				up.Close()
				down.Close()
				if got := float64(gradient[index]); math.Abs(got-want) > 0.01*math.Abs(want)+0.002*largest {
					t.Errorf("weight %d: gradient %v, central difference %v", index, got, want)
				}
				checked++
			}
			if checked < 20 || largest < 1e-3 {
				t.Errorf("%d weights checked, largest gradient %v", checked, largest)
			}
		})
	}
}
