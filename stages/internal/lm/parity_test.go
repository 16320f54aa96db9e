//go:build libtorch

package lm

import (
	"encoding/json"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"rcgrpo/bench/fixtures"
	"rcgrpo/internal/must"
	"rcgrpo/stages/internal/torch"
)

// Numbers of transformers on the same weights; bench/fixtures/hf/README.md gives fields and tolerances. A
// checkpoint in bfloat16 has those of its weights widened to float32 beside the ones of bfloat16 arithmetic.
type parity struct {
	Dtype string
	Rope  struct {
		Frequencies []float64   `json:"inv_freq"`
		Positions   []int       `json:"positions"`
		Cos         [][]float64 `json:"cos_first_half"`
		Sin         [][]float64 `json:"sin_first_half"`
	}
	Sequences []struct {
		Name         string
		InputIDs     []int32    `json:"input_ids"`
		Logits       []logitsAt `json:"full_logits"`
		Logps        []float64  `json:"next_token_logprobs"`
		Entropy      []float64  `json:"entropies"`
		WidenedLogps []float64  `json:"float32_next_token_logprobs"`
		Widened      []logitsAt `json:"float32_full_logits"`
	}
	Padded []struct {
		InputIDs [][]int32 `json:"input_ids"`
		Rows     []struct {
			First, Length int
			Logps         []float64 `json:"next_token_logprobs"`
			Last          []float64 `json:"last_logits"`
		}
	}
	Greedy []struct {
		Prompt       []int32 `json:"prompt_ids"`
		Continuation []int32 `json:"continuation_ids"`
		Widened      []int32 `json:"float32_continuation_ids"`
	}
	Gradient struct {
		maskedBatch
		gradient
		Widened *gradient `json:"float32"`
	}
	Training struct {
		Optimizer struct {
			Beta1, Beta2, Eps float64
			Decay             float64 `json:"weight_decay"`
			Clip              float64 `json:"max_grad_norm"`
		}
		LR      []float64
		Batches []maskedBatch
		Full    struct {
			Loss  []float64
			Norms []float64 `json:"grad_norm_pre_clip"`
			Final struct {
				Params map[string]struct {
					AbsSum float64 `json:"abs_sum"`
				}
			}
			Probe probe `json:"final_probe"`
		}
		LoRA struct {
			Init, Final string
			Loss        []float64
			Norms       []float64 `json:"grad_norm_pre_clip"`
			Merged      struct {
				IDs    []int32    `json:"input_ids"`
				Logits []logitsAt `json:"logits"`
			} `json:"merged_probe"`
		}
	}
}

// widened says whether the numbers of bfloat16 arithmetic have others in float32 beside them.
func (p *parity) widened() bool { return p.Dtype == "bfloat16" }

type logitsAt struct {
	Position int
	Logits   []float64
}

type gradient struct {
	Loss  float64
	Norms map[string]float64   `json:"grad_l2"`
	Full  map[string][]float64 `json:"grad_full"`
	Total float64              `json:"total_grad_norm"`
}

type probe struct {
	IDs      []int32 `json:"input_ids"`
	Position int
	Logits   []float64
}

type maskedBatch struct {
	IDs       [][]int32 `json:"input_ids"`
	Attention [][]int   `json:"attention_mask"`
	Loss      [][]int   `json:"loss_mask"`
}

// sequences drops the padding on the right.
func (b maskedBatch) sequences() (all []Sequence, learned int) {
	for i, ids := range b.IDs {
		var q Sequence
		for t, id := range ids {
			if b.Attention[i][t] == 0 {
				break
			}
			learn := t > 0 && b.Loss[i][t] == 1
			if learn {
				learned++
			}
			q.IDs, q.Mask = append(q.IDs, id), append(q.Mask, learn)
		}
		all = append(all, q)
	}
	return all, learned
}

// eachReference runs f over the checkpoints with float32 numbers of reference.
func eachReference(t *testing.T, f func(t *testing.T, dir string, m *Model, p *parity)) {
	for _, name := range fixtures.Folders(t, "hf/models") {
		t.Run(name, func(t *testing.T) {
			dir := filepath.Join(t.TempDir(), name)
			must.OK(t, os.Rename(fixtures.Dir(t, "hf/models/"+name), dir))
			p, err := readParity(filepath.Join(dir, "parity.json"))
			if err != nil {
				t.Skip(err)
			}
			eachWay(t, func(t *testing.T, device torch.Device) {
				m := must.Get(Load(dir, device, Buffers{}))(t)
				defer m.Close()
				f(t, dir, m, p)
			})
		})
	}
}

// deviceVariable names the device that tests compute on instead of the CPU.
const deviceVariable = "RCGRPO_DEVICE"

// eachWay runs f with the CPU's kernels, with the operations that a GPU computes in float32, and over the tables of
// those in bfloat16; or on the device that the variable names.
func eachWay(t *testing.T, f func(t *testing.T, device torch.Device)) {
	if name := os.Getenv(deviceVariable); name != "" {
		device := must.Get(torch.ParseDevice(name))(t)
		t.Run(name, func(t *testing.T) { f(t, device) })
		return
	}
	t.Run("kernels", func(t *testing.T) { f(t, torch.CPU) })
	t.Run("composed", func(t *testing.T) {
		torch.Compose(true)
		defer torch.Compose(false)
		f(t, torch.CPU)
	})
	t.Run("composed, variable lengths", func(t *testing.T) {
		emulateFlash(t)
		f(t, torch.CPU)
	})
}

func readParity(path string) (*parity, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	p := new(parity)
	return p, json.Unmarshal(text, p)
}

func near(t *testing.T, what string, got, want, tolerance float64) {
	t.Helper()
	if !(math.Abs(got-want) <= tolerance) {
		t.Errorf("%s: got %v, want %v within %v", what, got, want, tolerance)
	}
}

// learnAll makes every token but the first one that is learned.
func learnAll(ids []int32) Sequence {
	s := Sequence{IDs: ids, Mask: make([]bool, len(ids))}
	for i := range s.Mask {
		s.Mask[i] = i > 0
	}
	return s
}

func TestLogProbsEqualTheReference(t *testing.T) {
	eachReference(t, func(t *testing.T, _ string, m *Model, p *parity) {
		for _, q := range p.Sequences {
			stats := allStats(t, m, []Sequence{learnAll(q.InputIDs)}, nil, 1)
			want := q.Logps
			if p.widened() {
				want = q.WidenedLogps
			}
			if len(stats.Logp) != len(want) {
				t.Fatalf("%s: got %d log-probabilities, want %d", q.Name, len(stats.Logp), len(want))
			}
			for i := range want {
				near(t, q.Name+" log-probability", stats.Logp[i], want[i], 1e-4)
				if !p.widened() {
					near(t, q.Name+" entropy", stats.Entropy[i], q.Entropy[i], 5e-5)
				}
			}
		}
	})
}

// logitsAfter returns what the decoder gives after the last of ids.
func logitsAfter(t *testing.T, m *Model, ids []int32) []float64 {
	t.Helper()
	d := must.Get(NewDecoder(m, 1, len(ids)))(t)
	defer d.Release()
	var logits []float64
	must.OK(t, torch.Do(t.Context(), m.device, func(s *torch.Scope) error {
		if err := d.cache.reserve(s, []int{0}, []int{len(ids)}); err != nil {
			s.Fail(err)
		}
		for _, z := range s.Float32s(d.forward(s, d.rows([]part{{ids: ids}}, true)))[:m.cfg.Vocab] {
			logits = append(logits, float64(z))
		}
		return s.Err()
	}))
	return logits
}

// LogitsAfter is logitsAfter for tests outside the package.
var LogitsAfter = logitsAfter

func nearAll(t *testing.T, what string, got, want []float64, tolerance float64) {
	t.Helper()
	if len(got) != len(want) {
		t.Fatalf("%s: got %d values, want %d", what, len(got), len(want))
	}
	for i := range want {
		near(t, fmt.Sprintf("%s, value %d", what, i), got[i], want[i], tolerance)
	}
}

func TestLogitsEqualTheReference(t *testing.T) {
	eachReference(t, func(t *testing.T, _ string, m *Model, p *parity) {
		for _, q := range p.Sequences {
			want := q.Logits
			if p.widened() {
				want = q.Widened
			}
			for _, at := range want {
				nearAll(t, fmt.Sprintf("%s, position %d", q.Name, at.Position), logitsAfter(t, m, q.InputIDs[:at.Position+1]),
					at.Logits, 1e-4)
			}
		}
	})
}

// Rows of one length each have no padding here; their numbers are those that the reference gives padded ones.
func TestPaddedRowsOfTheReferenceAreOursWithoutPadding(t *testing.T) {
	eachReference(t, func(t *testing.T, _ string, m *Model, p *parity) {
		if p.widened() {
			t.Skip("the reference padded in bfloat16 arithmetic only")
		}
		for _, b := range p.Padded {
			for i, row := range b.Rows {
				ids := b.InputIDs[i][row.First:][:row.Length]
				stats := allStats(t, m, []Sequence{learnAll(ids)}, nil, 1)
				nearAll(t, "log-probability", stats.Logp, row.Logps, 1e-4)
				nearAll(t, "last logits", logitsAfter(t, m, ids), row.Last, 1e-4)
			}
		}
	})
}

func TestRotaryAnglesEqualTheReference(t *testing.T) {
	eachReference(t, func(t *testing.T, _ string, m *Model, p *parity) {
		for i, f := range m.cfg.frequencies() {
			near(t, "frequency", float64(f), p.Rope.Frequencies[i], 1e-7*p.Rope.Frequencies[i])
		}
		half := m.cfg.HeadDim / 2
		var cos, sin []float32
		must.OK(t, torch.Do(t.Context(), m.device, func(s *torch.Scope) error {
			cos, sin = slices.Clone(s.Float32s(m.cos)), slices.Clone(s.Float32s(m.sin))
			return s.Err()
		}))
		for i, at := range p.Rope.Positions {
			for d := range half { // one unit in the last place of 1
				near(t, "cos", float64(cos[at*half+d]), p.Rope.Cos[i][d], 1e-7)
				near(t, "sin", float64(sin[at*half+d]), p.Rope.Sin[i][d], 1e-7)
			}
		}
	})
}

func TestGreedyContinuationsEqualTheReference(t *testing.T) {
	eachReference(t, func(t *testing.T, _ string, m *Model, p *parity) {
		for _, g := range p.Greedy {
			want := g.Continuation
			if p.widened() {
				want = g.Widened
			}
			if got := continuation(t, m, g.Prompt, len(want)); !slices.Equal(got, want) {
				t.Errorf("after %v: got %v, want %v", g.Prompt, got, want)
			}
		}
	})
}

// meanLoss accumulates the gradient of the mean negative log-probability and returns that mean.
func meanLoss(t *testing.T, tr *Trainer, b maskedBatch) (loss float64) {
	t.Helper()
	sequences, learned := b.sequences()
	stats := must.Get(tr.Accumulate(t.Context(), sequences, nil, 1, func(_, _ int, s TokenStats) (Weights, error) {
		w := make([]float64, len(s.Logp))
		for i := range w {
			w[i] = -1 / float64(learned)
		}
		return Weights{Logp: w}, nil
	}))(t)
	for _, l := range stats.Logp {
		loss -= l / float64(learned)
	}
	return loss
}

func TestGradientEqualsTheReference(t *testing.T) {
	eachReference(t, func(t *testing.T, _ string, m *Model, p *parity) {
		tr, err := NewTrainer(m, adamW(20), Peers{}) // several micro-batches
		must.OK(t, err)
		defer tr.Close()
		reference := p.Gradient.gradient
		if p.widened() {
			reference = *p.Gradient.Widened
		}
		near(t, "loss", meanLoss(t, tr, p.Gradient.maskedBatch), reference.Loss, 1e-5*reference.Loss)
		g := must.Get(tr.Gradient())(t)
		weights, _ := layout(m.Config())
		for _, w := range weights {
			part, sum := g[w.offset:w.offset+w.len()], 0.0
			for i, v := range part {
				sum += float64(v) * float64(v)
				if full := reference.Full[w.name]; full != nil {
					near(t, w.name, float64(v), full[i], 3e-5)
				}
			}
			want, ok := reference.Norms[w.name]
			if !ok {
				t.Errorf("the reference has no gradient of %s", w.name)
			}
			near(t, "gradient norm of "+w.name, math.Sqrt(sum), want, 3e-5*want)
		}
	})
}

// follow makes the updates of the reference and compares losses and norms.
func (p *parity) follow(t *testing.T, tr *Trainer, losses, norms []float64) {
	t.Helper()
	for i, b := range p.Training.Batches {
		near(t, "loss", meanLoss(t, tr, b), losses[i], 1e-5*losses[i])
		norm, skipped, err := tr.Update(p.Training.LR[i])
		if err != nil || skipped {
			t.Fatal(err, skipped)
		}
		near(t, "gradient norm", norm, norms[i], 5e-5*norms[i])
	}
}

func TestTrainingFollowsTheReference(t *testing.T) {
	eachReference(t, func(t *testing.T, _ string, m *Model, p *parity) {
		o := p.Training.Optimizer
		if len(p.Training.Batches) == 0 {
			t.Skip("no training run")
		}
		tr := must.Get(NewTrainer(m, OptimizerConfig{Beta1: o.Beta1, Beta2: o.Beta2, Eps: o.Eps, Decay: o.Decay,
			Clip: o.Clip, MicroTokens: DefaultMicroTokens}, Peers{}))(t)
		defer tr.Close()
		p.follow(t, tr, p.Training.Full.Loss, p.Training.Full.Norms)
		flat := must.Get(m.Weights())(t)
		weights, _ := layout(m.Config())
		for _, w := range weights {
			sum := 0.0
			for _, v := range flat[w.offset : w.offset+w.len()] {
				sum += math.Abs(float64(v))
			}
			want := p.Training.Full.Final.Params[w.name].AbsSum
			near(t, "sum of "+w.name, sum, want, 5e-5*want)
		}
		last := p.Training.Full.Probe
		nearAll(t, "probe", logitsAfter(t, m, last.IDs[:last.Position+1]), last.Logits, 1e-3)
	})
}

func TestLoRAFollowsTheReference(t *testing.T) {
	eachReference(t, func(t *testing.T, dir string, m *Model, p *parity) {
		o, want := p.Training.Optimizer, p.Training.LoRA
		if want.Init == "" {
			t.Skip("no run with an adapter")
		}
		before := must.Get(m.Weights())(t)
		a := must.Get(LoadAdapter(filepath.Join(dir, want.Init), m))(t)
		defer a.Close()
		tr := must.Get(a.Trainer(OptimizerConfig{Beta1: o.Beta1, Beta2: o.Beta2, Eps: o.Eps, Decay: o.Decay, Clip: o.Clip,
			MicroTokens: 64}, Peers{}))(t)
		defer tr.Close()
		p.follow(t, tr, want.Loss, want.Norms)
		for _, at := range want.Merged.Logits {
			nearAll(t, "merged logits", logitsAfter(t, a.Model(), want.Merged.IDs[:at.Position+1]), at.Logits, 1e-4)
		}
		if after, err := m.Weights(); err != nil || !slices.Equal(before, after) {
			t.Errorf("the base has moved (%v)", err)
		}

		saved := t.TempDir()
		must.OK(t, a.Save(saved, filepath.Base(dir)))
		for what, from := range map[string]string{"the reference": filepath.Join(dir, want.Final),
			"what was saved": saved} {
			b := must.Get(LoadAdapter(from, m))(t)
			got, expect := adapterWeights(t, a), adapterWeights(t, b)
			for i := range expect {
				near(t, "adapter of "+what, float64(got[i]), float64(expect[i]), 1e-4)
			}
			b.Close()
		}
	})
}

func adapterWeights(t *testing.T, a *Adapter) (flat []float32) {
	t.Helper()
	must.OK(t, torch.Do(t.Context(), a.base.device, func(s *torch.Scope) error {
		flat = slices.Clone(s.Float32s(a.flat))
		return s.Err()
	}))
	return flat
}

// The reward tokens' rows: means over the rows with a token, also where the matrix has rows to spare.
func TestNewRowsEqualTheReference(t *testing.T) {
	var expect struct {
		Cases []struct {
			Case   string
			Model  string
			Rows   int              `json:"model_rows_after"`
			Tokens int              `json:"tokenizer_size_before"`
			IDs    map[string]int32 `json:"new_ids"`
			Embed  []float64        `json:"embed_tokens_new_row"`
			Head   []float64        `json:"lm_head_new_row"`
			Probes []struct {
				IDs    []int32   `json:"input_ids"`
				Logits []float64 `json:"last_logits"`
			}
		}
	}
	must.OK(t, json.Unmarshal(fixtures.Read(t, "hf/special_rows/expect.json"), &expect))
	for _, c := range expect.Cases {
		t.Run(c.Case, func(t *testing.T) {
			m := must.Get(Load(fixtures.Dir(t, "hf/models/"+c.Model), torch.CPU, Buffers{}))(t)
			defer m.Close()
			must.OK(t, m.AddRows(c.Rows-m.cfg.Vocab))
			var ids []int32
			for _, id := range c.IDs {
				ids = append(ids, id)
			}
			must.OK(t, m.MeanRow(c.Tokens, ids...))
			flat := must.Get(m.Weights())(t)
			weights, _ := layout(m.cfg)
			for _, w := range weights {
				want := map[string][]float64{embedName: c.Embed, headName: c.Head}[w.name]
				for _, id := range ids {
					for d, x := range want {
						near(t, w.name, float64(flat[w.offset+int(id)*m.cfg.Hidden+d]), x, 1e-7)
					}
				}
			}
			for _, p := range c.Probes {
				nearAll(t, "logits", logitsAfter(t, m, p.IDs), p.Logits, 1e-4)
			}
		})
	}
}
