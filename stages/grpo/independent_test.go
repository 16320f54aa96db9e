//go:build libtorch

package grpo

import (
	"encoding/binary"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"rcgrpo/bench/fixtures"
	"rcgrpo/internal/must"
	"rcgrpo/stages/internal/lm"
	"rcgrpo/stages/internal/torch"
	"rcgrpo/stages/rl"
	"rcgrpo/stages/rl/objective"
)

// whole is a record of the fixture objective: an RC-GRPO update on a policy that is a table of softmax rows,
// computed outside of this project (bench/fixtures/rl/README.md).
type whole struct {
	ID           string
	V, States, G int
	Beta         float64
	Inputs       struct {
		LogitsRef    [][]float64 `json:"logits_ref"`
		LogitsOld    [][]float64 `json:"logits_old"`
		RewardToken  []string    `json:"reward_token"`
		Rewards      []float64
		State, Token [][]int
		Mask, Turn   [][]int
	}
	Updates []struct {
		Name   string
		Logits [][]float64
		Out    struct {
			PolicyLoss float64 `json:"policy_loss"`
			KL         map[string]struct {
				Value, Loss float64
				Grad        [][]float64
			}
			Entropy float64 `json:"entropy_token_mean"`
		}
		Profiles []struct {
			Profile, Source string
			Advantages      []float64
			Loss            float64
			ClipFraction    float64 `json:"clip_fraction"`
			Grad            [][]float64
		}
	}
}

const tableWidth = 32

// tableModel is a decoder whose prediction after the token of state s is row s of a table of logits: its layers
// write nothing into the residual stream, the embeddings of the states are unit vectors, and the head holds the
// table. Ids are the V output tokens, then the states, which it never predicts.
func tableModel(t *testing.T, logits [][]float64) *lm.Model {
	t.Helper()
	states, v := len(logits), len(logits[0])
	cfg := lm.Config{Decoder: "qwen2", Vocab: v + states, Hidden: tableWidth, Layers: 1, Heads: 2, KVHeads: 1,
		HeadDim: 16, MLP: 8, RopeBase: 1000, NormEps: 1e-6, MaxPosition: 64}
	start := must.Get(lm.New(cfg, rand.New(rand.NewPCG(1, 1))))(t)
	defer start.Close()
	dir := t.TempDir()
	must.OK(t, start.Save(dir))
	length := normed()
	rewrite(t, dir, map[string]func(row, column int) float64{
		"model.embed_tokens.weight": func(row, column int) float64 {
			if row-v == column {
				return 1
			}
			return 0
		},
		"lm_head.weight": func(row, column int) float64 {
			switch {
			case column >= states:
				return 0
			case row >= v:
				return -1e4 / length
			}
			return logits[column][row] / length
		},
		"self_attn.o_proj.weight": func(int, int) float64 { return 0 },
		"mlp.down_proj.weight":    func(int, int) float64 { return 0 },
	})
	m := must.Get(lm.Load(dir, torch.CPU, lm.Buffers{}))(t)
	t.Cleanup(func() { m.Close() })
	return m
}

// normed is the output of the last norm for the 1 in a unit vector.
func normed() float64 { return 1 / math.Sqrt(1.0/tableWidth+1e-6) }

// rewrite gives the matrices of a weights file, named by the end of their names, new values.
func rewrite(t *testing.T, dir string, values map[string]func(row, column int) float64) {
	t.Helper()
	path := filepath.Join(dir, "model.safetensors")
	raw, tensors := readTensors(t, dir)
	written := 0
	for name, at := range tensors {
		for suffix, value := range values {
			if !strings.HasSuffix(name, suffix) {
				continue
			}
			for i := range at.Shape[0] * at.Shape[1] {
				x := math.Float32bits(float32(value(i/at.Shape[1], i%at.Shape[1])))
				binary.LittleEndian.PutUint32(raw[at.from+4*i:], x)
			}
			written++
		}
	}
	if written != len(values) {
		t.Fatalf("%d of %d matrices found", written, len(values))
	}
	must.OK(t, os.WriteFile(path, raw, 0o600))
}

// trajectories returns the record's episodes as token ids: each token follows the state in which it is drawn.
func (r *whole) trajectories() []*rl.Trajectory {
	var out []*rl.Trajectory
	for i, reward := range r.Inputs.Rewards {
		t := &rl.Trajectory{Reward: rl.Reward(reward), Token: r.Inputs.RewardToken[i]}
		for k, masked := range r.Inputs.Mask[i] {
			turn, from := r.Inputs.Turn[i][k], len(t.IDs)
			t.IDs = append(t.IDs, int32(r.V+r.Inputs.State[i][k]), int32(r.Inputs.Token[i][k]))
			t.Mask = append(t.Mask, false, masked == 1)
			t.Logp = append(t.Logp, 0, 0)
			t.Messages = append(t.Messages, rl.Message{Role: rl.RoleAssistant, Turn: turn, From: from, To: len(t.IDs)})
		}
		out = append(out, t)
	}
	return out
}

// TestAWholeUpdateEqualsTheIndependentOne runs the fixture's updates through the code of a training: batches,
// advantages, forward and backward pass of the model, policy and reference. The second of them is off policy: its
// old log-probabilities are recorded before the first. Beside the paper's objective, each update goes through the
// published losses of verl, TRL and others. Weights and passes are float32, so values of size 1 are right to
// about 1e-6, and so are gradients, which are sums over at most 56 tokens divided by as many.
func TestAWholeUpdateEqualsTheIndependentOne(t *testing.T) {
	const tolerance = 2e-6
	largest := 0.0
	near := func(what string, got, want float64) {
		t.Helper()
		largest = max(largest, math.Abs(got-want)/max(1, math.Abs(want)))
		if !(math.Abs(got-want) <= tolerance*max(1, math.Abs(want))) {
			t.Errorf("%s: got %v, want %v", what, got, want)
		}
	}
	records, clipped, published := 0, 0, map[string]int{}
	fixtures.Records(t, "rl/objective.jsonl", func(r whole) {
		records++
		reference, old := tableModel(t, r.Inputs.LogitsRef), tableModel(t, r.Inputs.LogitsOld)
		// step makes the gradient of one optimizer step under an objective: the first of an update, or a later
		// one.
		step := func(what string, o objective.Objective, logits [][]float64, first bool,
			grad [][]float64) *objective.Outcome {
			t.Helper()
			s := &settings{Objective: o, Temperature: 1}
			s.Passes = 2
			b := newBatch(r.trajectories(), r.G)
			recording := must.Get(lm.NewTrainer(old, adamW(lm.DefaultMicroTokens), lm.Peers{}))(t)
			defer recording.Close()
			must.OK(t, s.completeBatch(t.Context(), recording, reference, b))
			trainer := must.Get(lm.NewTrainer(tableModel(t, logits), adamW(lm.DefaultMicroTokens), lm.Peers{}))(t)
			defer trainer.Close()
			outcome, _, err := s.accumulate(t.Context(), trainer, reference, b.minibatches(&s.Objective)[0])
			must.OK(t, err)
			for _, l := range outcome.LogRatio {
				if first && l != 0 {
					t.Fatalf("%s: a log ratio is %v, want exactly 0", what, l)
				}
			}
			gradient := must.Get(trainer.Gradient())(t)
			head := gradient[(r.V+r.States)*tableWidth:] // after the embeddings
			for state, row := range grad {
				for token, g := range row {
					near(what+", gradient", float64(head[token*tableWidth+state])/normed(), g)
				}
			}
			return outcome
		}
		for u, update := range r.Updates {
			for name, want := range update.Out.KL {
				what := r.ID + ", " + update.Name + ", " + name
				o := objective.PaperObjective()
				o.KL.Beta = r.Beta
				o.KL.Estimator, o.KL.Aggregate, _ = strings.Cut(name, "_")
				outcome := step(what, o, update.Logits, u == 0, want.Grad)
				near(what+", policy loss", outcome.Policy, update.Out.PolicyLoss)
				near(what+", divergence", outcome.KL, want.Value)
				near(what+", loss", outcome.Loss, want.Loss)
			}
			for _, p := range update.Profiles {
				what := r.ID + ", " + update.Name + ", " + p.Profile + " of " + p.Source
				o := must.Get(objective.ProfileNamed(p.Profile))(t)
				o.KL.Beta, o.Minibatches = 0, 0
				if p.Profile == "dr_grpo" { // verl divides by the width, its snapshot by nothing else
					o.Loss.Scale = float64(len(r.Inputs.Mask[0]))
					if p.Source == "verl@b178a3c" {
						o.Loss.Rows = "one"
					}
				}
				outcome := step(what, o, update.Logits, u == 0, p.Grad)
				near(what+", loss", outcome.Loss, p.Loss)
				near(what+", clip fraction", outcome.ClipFraction(), p.ClipFraction)
				clipped += outcome.Clipped
				published[p.Profile]++
			}
		}
	})
	if clipped == 0 || published["verl"] == 0 || published["trl"] == 0 {
		t.Errorf("%d ratios clipped in updates of %v, want some, and updates of verl and TRL", clipped, published)
	}
	t.Logf("%d records, updates by profile %v, largest deviation %.1e", records, published, largest)
}
