//go:build libtorch

package lm

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"rcgrpo/internal/must"
	"rcgrpo/stages/internal/torch"
	"rcgrpo/stages/rl"
)

// use makes a model compute in a precision.
func use(t testing.TB, m *Model, p Precision) *Model {
	t.Helper()
	must.OK(t, m.Use(p))
	return m
}

// bench/fixtures/hf/README.md gives what implementations of bfloat16 differ by among each other: 0.5 in logits
// and log-probabilities, 5 % in norms of gradients, 0.5 % in the loss. The stream between layers is float32 here,
// so the numbers lie near those of float32 too.
func TestBF16IsNearTheReference(t *testing.T) {
	eachReference(t, func(t *testing.T, _ string, m *Model, p *parity) {
		m = use(t, m, BF16)
		worst, sum, n := 0.0, 0.0, 0
		for _, q := range p.Sequences {
			stats := allStats(t, m, []Sequence{learnAll(q.InputIDs)}, nil, 1)
			want := q.Logps
			if p.widened() {
				want = q.WidenedLogps
				nearAll(t, q.Name+" log-probability beside bfloat16's", stats.Logp, q.Logps, 0.5)
			}
			for i := range want {
				d := math.Abs(stats.Logp[i] - want[i])
				worst, sum, n = max(worst, d), sum+d, n+1
			}
		}
		t.Logf("log-probabilities: %.3f off at most, %.4f on average", worst, sum/float64(n))
		if worst > 0.3 || sum/float64(n) > 0.045 { // rounded weights alone make 0.15 at worst (README)
			t.Errorf("log-probabilities are %.3f off at most, %.4f on average", worst, sum/float64(n))
		}
		tr := newTrainer(t, m, adamW(20))
		defer tr.Close()
		reference := p.Gradient.gradient
		near(t, "loss", meanLoss(t, tr, p.Gradient.maskedBatch), reference.Loss, 5e-3*reference.Loss)
		g := must.Get(tr.Gradient())(t)
		weights, _ := layout(m.Config())
		for _, w := range weights {
			norm := 0.0
			for _, v := range g[w.offset : w.offset+w.len()] {
				norm += float64(v) * float64(v)
			}
			near(t, "gradient norm of "+w.name, math.Sqrt(norm), reference.Norms[w.name], 5e-2*reference.Norms[w.name])
		}
	})
}

// losses trains a fresh model on the same sequences again and again.
func losses(t *testing.T, p Precision, updates int) (m *Model, course []float64) {
	t.Helper()
	m = use(t, newModel(t, drillSize(), 4), p)
	tr := newTrainer(t, m, adamW(DefaultMicroTokens))
	all := someSequences(rand.New(rand.NewPCG(6, 6)), 6, 40, 1408, 0.7)
	for range updates {
		stats := must.Get(tr.Accumulate(t.Context(), all, nil, 1, func(_, _ int, s TokenStats) (Weights, error) {
			return Weights{Logp: slices.Repeat([]float64{-1 / float64(len(s.Logp))}, len(s.Logp))}, nil
		}))(t)
		loss := 0.0
		for _, l := range stats.Logp {
			loss -= l / float64(len(stats.Logp))
		}
		course = append(course, loss)
		if _, skipped, err := tr.Update(1e-3); err != nil || skipped {
			t.Fatal(err, skipped)
		}
	}
	return m, course
}

func TestTrainingInBF16FallsAsInFloat32(t *testing.T) {
	const updates = 30
	_, want := losses(t, Float32, updates)
	m, got := losses(t, BF16, updates)
	if want[updates-1] > want[0]/2 {
		t.Fatalf("the loss in float32 goes from %v to %v only", want[0], want[updates-1])
	}
	for i := range want {
		// the start's 7.3 differ by 0.1 % per pass; falling, errors of 30 updates
		near(t, "loss", got[i], want[i], 0.02*want[0])
	}

	// Updates of 1e-3 on weights of 1e-1 are steps of one in the last of 8 digits: they live in the float32
	// weights, which are what is saved.
	dir := t.TempDir()
	must.OK(t, m.Save(dir))
	saved := must.Get(Load(dir, torch.CPU, Buffers{}))(t)
	defer saved.Close()
	a := must.Get(m.Weights())(t)
	if !slices.Equal(a, must.Get(saved.Weights())(t)) {
		t.Error("saved weights are not the trained ones")
	}
	rounded := 0
	for _, x := range a {
		if math.Float32bits(x)&0xffff == 0 {
			rounded++
		}
	}
	if rounded > len(a)/10 {
		t.Errorf("%d of %d saved weights have 8 digits only", rounded, len(a))
	}
}

// What a policy draws is judged again by the training pass: both see the same weights of bfloat16.
func TestSamplingInBF16AgreesWithTheTrainingPass(t *testing.T) {
	m := use(t, newModel(t, drillSize(), 9), BF16)
	d := newDecoder(t, m, 3, 48)
	r := rand.New(rand.NewPCG(3, 3))
	ids := [][]int32{{5, 9, 2}, {5, 9, 2, 7, 7, 1}, {30}}
	feeds := [][]int32{ids[0], ids[1], ids[2]}
	logps := make([][]float64, 3)
	for range 20 {
		var requests []rl.Request
		for i := range ids {
			requests = append(requests, rl.Request{Slot: i, Feed: feeds[i], Temperature: []float64{1, 0.7, 1}[i],
				TopP: []float64{0, 0, 0.9}[i], U: r.Float64()})
		}
		draws := must.Get(d.Next(t.Context(), requests))(t)
		for i, draw := range draws {
			ids[i], feeds[i], logps[i] = append(slices.Clone(ids[i]), draw.Token), []int32{draw.Token}, append(logps[i],
				float64(draw.Logp))
		}
	}
	for i, temperature := range []float64{1, 0.7} { // the third has a nucleus: its log-probability is that inside it
		stats := allStats(t, m, []Sequence{learnAll(ids[i])}, nil, temperature)
		from := len(stats.Logp) - len(logps[i])
		// two attentions, each rounded to 8 digits, over 0.7
		nearAll(t, "log-probability", logps[i], stats.Logp[from:], 0.02)
	}
}

// In bfloat16 the softmax of the head, of the training pass as of the sampler, sees the product of the numbers
// that go into it with no more than float32's rounding: log-probabilities lie within 1e-4 of those in float64
// from the same hidden states. Logits of up to 20 that were rounded to bfloat16 first would be off by up to 0.06.
func TestLogitsInBF16AreNotRounded(t *testing.T) {
	cfg := drillSize()
	m := use(t, shake(t, newModel(t, cfg, 1), 2, 0.2), BF16)
	ids := []int32{3, 700, 12, 1400, 5, 6, 99}
	b := must.Get(m.pack([]Sequence{learnAll(ids)}, 0))(t)
	// below: probability of all tokens with lower ids
	want, below, greatest := make([]float64, len(ids)-1), make([]float64, len(ids)-1), 0.0
	err := torch.Do(t.Context(), torch.CPU, func(s *torch.Scope) error {
		hidden := s.Float32s(s.As(m.forward(s, b, nothing).hidden, torch.Float32))
		head := s.Float32s(s.As(m.w.head, torch.Float32))
		for i := range want {
			z, total := make([]float64, cfg.Vocab), 0.0
			for v := range z {
				for k := range cfg.Hidden {
					z[v] += float64(hidden[i*cfg.Hidden+k]) * float64(head[v*cfg.Hidden+k])
				}
				total += math.Exp(z[v])
				greatest = max(greatest, math.Abs(z[v]))
			}
			want[i] = z[ids[i+1]] - math.Log(total)
			for v := range ids[i+1] {
				below[i] += math.Exp(z[v]) / total
			}
		}
		return s.Err()
	})
	if err != nil || greatest < 10 {
		t.Fatalf("logits up to %v (%v)", greatest, err)
	}
	nearAll(t, "log-probability of the training pass", allStats(t, m, []Sequence{learnAll(ids)}, nil, 1).Logp, want, 1e-4)
	for _, composed := range []bool{false, true} {
		torch.Compose(composed)
		d := newDecoder(t, m, 1, 16)
		for i := range want { // the draw in the middle of the token's share of probability is the token
			d.Cut(0, 0)
			draws, err := d.Next(t.Context(), []rl.Request{{Slot: 0, Feed: ids[:i+1], Temperature: 1, U: below[i] +
				math.Exp(want[i])/2}})
			if err != nil || draws[0].Token != ids[i+1] {
				t.Fatalf("composed %v: drew %v, want the token %d (%v)", composed, draws, ids[i+1], err)
			}
			near(t, "log-probability of the sampler", float64(draws[0].Logp), want[i], 1e-4)
		}
		torch.Compose(false)
	}
}

func TestFrozenModelsComputeTheSame(t *testing.T) {
	m := use(t, shake(t, newModel(t, tiny(false), 1), 2, 0.1), BF16)
	all := someSequences(rand.New(rand.NewPCG(5, 5)), 7, 20, m.cfg.Vocab, 0.6)
	want := allStats(t, m, all, nil, 1)
	c := must.Get(m.Clone())(t)
	defer c.Close()
	if got := allStats(t, c, all, m, 1); !slices.Equal(got.Logp, want.Logp) || slices.Max(got.KL) != 0 ||
		slices.Min(got.KL) != 0 {
		t.Errorf("got %v, want %v and no divergence", got.Logp, want.Logp)
	}
	if c.master != nil {
		t.Error("a frozen model still has weights in float32")
	}
	must.Match(t, c.Use(Float32), "a frozen model has no float32 weights")
	must.Match(t, m.Use("fp8"), `unknown precision "fp8"`)
	_, err := NewTrainer(c, adamW(DefaultMicroTokens), Peers{})
	must.Match(t, err, "the model is frozen")
	must.OK(t, m.Use(Float32))
	if got := allStats(t, m, all, nil, 1); slices.Equal(got.Logp, want.Logp) {
		t.Error("back in float32 the numbers are still those of bfloat16")
	}
}

// A step of training, with and without recomputation, through micro-batches, an adapter and a reference.
func TestRecomputationIsIdentical(t *testing.T) {
	for name, p := range map[string]Precision{"float32": Float32, "bf16": BF16} {
		t.Run(name, func(t *testing.T) {
			var results []string
			for _, recompute := range []bool{false, true} {
				m := use(t, shake(t, newModel(t, tiny(true), 1), 2, 0.1), p)
				ref := use(t, shake(t, m, 3, 0.2), p)
				tr := newTrainer(t, m, adamW(40))
				tr.SetRecompute(recompute)
				all := someSequences(rand.New(rand.NewPCG(5, 5)), 9, 20, m.cfg.Vocab, 0.6)
				r := rand.New(rand.NewPCG(1, 1))
				must.Get(tr.Accumulate(t.Context(), all, ref, 0.8,
					func(_, _ int, s TokenStats) (w Weights, err error) {
						for range s.Logp {
							w.Logp, w.Entropy, w.KL = append(w.Logp, r.NormFloat64()), append(w.Entropy,
								r.NormFloat64()), append(w.KL, r.NormFloat64())
						}
						return w, nil
					}))(t)
				_, _, err := tr.Update(0.01)
				must.OK(t, err)
				dir := t.TempDir()
				must.OK(t, tr.Save(dir))
				results = append(results, bytesOf(t, dir, weightsFile)+bytesOf(t, dir, optimizerFile))
			}
			if results[0] != results[1] {
				t.Error("weights and moments differ")
			}
		})
	}
}
