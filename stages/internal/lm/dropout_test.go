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

// dropping is an adapter of all projections with dropout.
func dropping(p float64, seed uint64) LoRA {
	return LoRA{Rank: 3, Alpha: 6, Targets: Projections, Rows: []int32{7, 2}, Dropout: p, Seed: seed}
}

// passed accumulates the loss of fine-tuning over sequences and returns it with its gradient.
func passed(t *testing.T, tr *Trainer, all []Sequence, ref *Model) (TokenStats, []float32) {
	t.Helper()
	stats := must.Get(tr.Accumulate(t.Context(), all, ref, 1, descend))(t)
	g := must.Get(tr.Gradient())(t)
	must.OK(t, tr.Drop())
	return stats, g
}

// apart returns the norm of the difference of two gradients as a share of the second's norm.
func apart(got, want []float32) float64 {
	far, size := 0.0, 0.0
	for i, v := range want {
		far += (float64(got[i]) - float64(v)) * (float64(got[i]) - float64(v))
		size += float64(v) * float64(v)
	}
	return math.Sqrt(far / size)
}

func TestZeroDropoutIsIdenticalToNone(t *testing.T) {
	m := newModel(t, tiny(false), 1)
	plain, _ := drilledAs(t, m, 3, dropping(0, 0))
	seeded, _ := drilledAs(t, m, 3, dropping(0, 9))
	dropped, _ := drilledAs(t, m, 3, dropping(0.2, 9))
	want, _ := plain.Model().Weights()
	if got, _ := seeded.Model().Weights(); !slices.Equal(got, want) {
		t.Error("without dropout the weights depend on its seed")
	}
	if got, _ := dropped.Model().Weights(); slices.Equal(got, want) {
		t.Error("dropout changes nothing")
	}
}

// A pass with a dropout too small to zero anything computes base and adapter separately. Statistics and gradient equal
// those of the merged weights.
func TestSeparateAdapterPassEqualsMergedWeights(t *testing.T) {
	for name, p := range map[string]struct {
		precision Precision
		tolerance float64
	}{"float32": {Float32, 1e-5}, "bf16": {BF16, 0.05}} {
		t.Run(name, func(t *testing.T) {
			for _, recompute := range []bool{false, true} {
				m := use(t, shake(t, newModel(t, tiny(false), 1), 2, 0.1), p.precision)
				_, merged := drilledAs(t, m, 3, dropping(0, 0))
				a, beside := drilledAs(t, m, 0, dropping(1e-9, 4))
				dir := t.TempDir()
				must.OK(t, merged.SaveState(dir))
				must.OK(t, beside.LoadState(dir)) // the same adapter
				beside.SetRecompute(recompute)
				all := someSequences(rand.New(rand.NewPCG(3, 3)), 10, 20, m.cfg.Vocab, 0.5)
				wantStats, want := passed(t, merged, all, m)
				gotStats, got := passed(t, beside, all, m)
				if far := apart(got, want); !(far < p.tolerance) || far == 0 {
					t.Errorf("recompute %v: the gradient differs by %.2g of its norm, want less than %g, but rounding",
						recompute, far, p.tolerance)
				}
				nearAll(t, "log-probability", gotStats.Logp, wantStats.Logp, p.tolerance)
				if !slices.Equal(gotStats.LogpRef, wantStats.LogpRef) {
					t.Error("the reference, which has no adapter, gives other numbers")
				}
				a.Close()
			}
		})
	}
}

// The gradient of the loss under one mask, against central differences in a random direction for each matrix of
// the adapter.
func TestGradientUnderDropoutEqualsFiniteDifferences(t *testing.T) {
	m := shake(t, newModel(t, tiny(true), 1), 2, 0.1)
	a, tr := drilledAs(t, m, 2, dropping(0.3, 4))
	all := someSequences(rand.New(rand.NewPCG(3, 3)), 8, 20, m.cfg.Vocab, 0.6)
	_, grad := passed(t, tr, all, nil)
	base := adapterWeights(t, a)
	loss := func(flat []float32) (sum float64) {
		must.OK(t, torch.Do(t.Context(), torch.CPU, func(s *torch.Scope) error {
			s.Fill(a.flat, func(to []float32) error { copy(to, flat); return nil })
			a.merge(s)
			return s.Err()
		}))
		stats := must.Get(tr.Accumulate(t.Context(), all, nil, 1,
			func(int, int, TokenStats) (Weights, error) { return Weights{}, nil }))(t)
		for _, l := range stats.Logp {
			sum -= l
		}
		return sum
	}
	r := rand.New(rand.NewPCG(5, 5))
	for _, p := range a.parts {
		for from, n := range map[int]int{p.offset: a.c.Rank * p.in, p.offset + a.c.Rank*p.in: a.c.Rank * p.out} {
			direction, want := make([]float32, len(base)), 0.0
			for i := from; i < from+n; i++ {
				direction[i] = float32(r.NormFloat64() / sqrt(n))
				want += float64(grad[i]) * float64(direction[i])
			}
			got := slope(base, direction, loss)
			near(t, p.name, want, got, 1e-3+3e-3*math.Abs(got)) // rounding of a loss of some hundred, and the step
		}
	}
}

// Masks depend on seed and update only: not on how a batch is split or packed, nor on shared prefixes.
func TestDropoutDoesNotDependOnTheSplit(t *testing.T) {
	m := shake(t, newModel(t, tiny(true), 1), 2, 0.1)
	all := someSequences(rand.New(rand.NewPCG(2, 2)), 12, 20, m.cfg.Vocab, 0.5)
	for _, ids := range family(rand.New(rand.NewPCG(3, 3)), m.cfg.Vocab, 20, 20, 20, 12, 5) {
		all = append(all, learnAll(ids))
	}
	gradient := func(micro int, seed uint64, updates int) (TokenStats, []float32) {
		_, tr := drilledAs(t, m, 3, dropping(0.3, 4))
		tr.adapter.c.Seed = seed
		tr.step += updates
		tr.SetMicroTokens(micro)
		return passed(t, tr, all, nil)
	}
	wantStats, want := gradient(1<<20, 4, 0)
	for _, micro := range []int{1, 16, 50} {
		stats, got := gradient(micro, 4, 0)
		if far := apart(got, want); !(far < 2e-6) || far == 0 { // 0: it was not split
			t.Errorf("micro-batches of %d tokens: the gradient differs by %.2g of its norm, want less than 2e-6", micro, far)
		}
		nearAll(t, "log-probability", stats.Logp, wantStats.Logp, 1e-5)
	}
	if _, got := gradient(1<<20, 4, 0); !slices.Equal(got, want) {
		t.Error("the same seed and update give another gradient")
	}
	for name, other := range map[string][2]int{"another seed": {5, 0}, "another update": {4, 1}} {
		if _, got := gradient(1<<20, uint64(other[0]), other[1]); apart(got, want) < 0.01 {
			t.Errorf("%s leaves the same out", name)
		}
	}
}

// Masks zero the given share of inputs, independently for every projection and place, and the others are scaled up:
// over many updates the mean input of the adapter is the input.
func TestDropoutKeepsTheExpectation(t *testing.T) {
	const p, rows, updates = 0.3, 50, 200
	m := newModel(t, tiny(true), 1)
	a, _ := drilledAs(t, m, 0, dropping(p, 4))
	part := func(name string) *adapterPart {
		return &a.parts[slices.IndexFunc(a.parts, func(p adapterPart) bool { return p.name == layerName(1, name) })]
	}
	kept, both, n := 0.0, 0.0, 0.0
	mean := make([]float64, rows*m.cfg.Hidden)
	for u := range updates {
		keys := make([]rl.Stream, rows)
		for i := range keys {
			keys[i] = rl.Dropping(4, u).With(uint64(i))
		}
		must.OK(t, torch.Do(t.Context(), torch.CPU, func(s *torch.Scope) error {
			q, k := s.Float32s(a.mask(s, torch.Float32, keys, part("self_attn.q_proj.weight"))), s.Float32s(a.mask(s,
				torch.Float32, keys, part("self_attn.k_proj.weight")))
			for i := range q {
				kept, both, n = kept+float64(q[i]), both+float64(q[i]*k[i]), n+1
				mean[i] += float64(q[i]) * a.c.passScale() / a.c.scale() / updates
			}
			return s.Err()
		}))
	}
	sigma := math.Sqrt(p * (1 - p) / n)
	near(t, "share that stays", kept/n, 1-p, 4*sigma)
	near(t, "share that stays in two projections", both/n, (1-p)*(1-p), 4*sigma)
	for i, v := range mean { // each is a mean of 200 numbers; of 600 the furthest lies within 5 deviations
		near(t, "mean of place", v, 1, 5*math.Sqrt(p/(1-p)/updates))
		if t.Failed() {
			t.Fatalf("place %d", i)
		}
	}
}

// Evaluation, log-probabilities without a gradient, and sampling read the merged weights without dropout. The file for
// peft contains the dropout, and a resumed training has the same masks.
func TestDropoutIsForTrainingPassesOnly(t *testing.T) {
	m, dir := newModel(t, tiny(false), 1), t.TempDir()
	a, tr := drilledAs(t, m, 3, dropping(0.3, 4))
	all := someSequences(rand.New(rand.NewPCG(3, 3)), 6, 20, m.cfg.Vocab, 0.5)
	tr.SetMicroTokens(DefaultMicroTokens)
	want := allStats(t, a.Model(), all, m, 1)
	got, err := tr.Stats(t.Context(), all, m, 1)
	if err != nil || !slices.Equal(got.Logp, want.Logp) || !slices.Equal(got.LogpRef, want.LogpRef) {
		t.Errorf("the trainer's statistics are not those of the model (%v)", err)
	}
	if stats, _ := passed(t, tr, all, m); slices.Equal(stats.Logp, want.Logp) ||
		!slices.Equal(stats.LogpRef, want.LogpRef) {
		t.Error("a training pass leaves nothing out of the policy, or something out of the reference")
	}
	must.OK(t, a.Save(dir, "base"))
	must.Contain(t, bytesOf(t, dir, adapterConfigFile), `"lora_dropout": 0.3`)
	b := must.Get(LoadAdapter(dir, m))(t)
	if b.c.Dropout != 0.3 {
		t.Errorf("read back: %+v", b.c)
	}
	b.Close()

	must.OK(t, tr.Save(dir))
	resumed, again := drilledAs(t, m, 0, dropping(0.3, 4))
	again.SetMicroTokens(DefaultMicroTokens)
	must.OK(t, again.Restore(dir))
	descendOn(t, tr, 2)
	descendOn(t, again, 2)
	straight, _ := a.Model().Weights()
	if got, err := resumed.Model().Weights(); err != nil || !slices.Equal(got, straight) {
		t.Errorf("the resumed training has other weights (%v)", err)
	}
	must.Match(t, newTrainer(t, m, adamW(DefaultMicroTokens)).LoadState(dir), "no state of this model")
	if _, err := NewAdapter(m, dropping(1, 0), rand.New(rand.NewPCG(1, 2))); err == nil {
		t.Error("a dropout of everything is accepted")
	}
}
