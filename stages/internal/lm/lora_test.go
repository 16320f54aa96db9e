//go:build libtorch

package lm

import (
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"rcgrpo/internal/must"
)

func TestNewAdapterHasNoEffect(t *testing.T) {
	m := llama(t)
	a, _ := adapterOn(t, m, LoRA{Rank: 2, Alpha: 4, Targets: Projections}, adamW(40))
	want := must.Get(m.Weights())(t)
	if got, err := a.Model().Weights(); err != nil || !slices.Equal(got, want) {
		t.Errorf("the merged weights differ from the base's (%v)", err)
	}
	drawn := 0
	for _, v := range adapterWeights(t, a) {
		if v != 0 {
			drawn++
		}
	}
	if want := 2 * (6*8 + 12); drawn != want { // A of seven projections, one of which reads the inner width
		t.Errorf("%d values are not zero, want %d", drawn, want)
	}
}

// drilled is an adapter on some projections and two rows of the vocabulary, after some updates.
func drilled(t *testing.T, m *Model, updates int) (*Adapter, *Trainer) {
	t.Helper()
	return drilledAs(t, m, updates, LoRA{Rank: 3, Alpha: 6, Targets: []string{"q_proj", "v_proj", "down_proj"},
		Rows: []int32{7, 2}})
}

func drilledAs(t *testing.T, m *Model, updates int, c LoRA) (*Adapter, *Trainer) {
	t.Helper()
	o := adamW(40)
	o.Decay = 0.1
	a, tr := adapterOn(t, m, c, o)
	descendOn(t, tr, updates)
	return a, tr
}

func adapterOn(t *testing.T, m *Model, c LoRA, o OptimizerConfig) (*Adapter, *Trainer) {
	t.Helper()
	a := must.Get(NewAdapter(m, c, rand.New(rand.NewPCG(1, 2))))(t)
	t.Cleanup(func() { a.Close() })
	tr := must.Get(a.Trainer(o, Peers{}))(t)
	t.Cleanup(func() { tr.Close() })
	return a, tr
}

// descendOn makes updates on some sequences.
func descendOn(t *testing.T, tr *Trainer, updates int) {
	t.Helper()
	all := someSequences(rand.New(rand.NewPCG(2, 2)), 10, 20, tr.m.cfg.Vocab, 0.5)
	for range updates {
		train(t, tr, all, nil, 1e-2)
	}
}

// The gradient of an adapter follows from that of the weights it is merged into: dB = scale·dW·Aᵀ, dA =
// scale·Bᵀ·dW, and that of a row is the table's.
func TestGradientOfAnAdapterFollowsFromTheWeights(t *testing.T) {
	for _, tied := range []bool{true, false} {
		m := newModel(t, tiny(tied), 1)
		a, tr := drilled(t, m, 3)
		all := someSequences(rand.New(rand.NewPCG(3, 3)), 10, 20, m.cfg.Vocab, 0.5)
		_, got := passed(t, tr, all, nil)
		_, whole := passed(t, newTrainer(t, a.Model(), adamW(DefaultMicroTokens)), all, nil)
		flat, r := adapterWeights(t, a), a.c.Rank
		for _, p := range a.parts {
			dw := whole[a.layout[p.name].offset:]
			loraA, loraB := flat[p.offset:], flat[p.offset+r*p.in:]
			dA, dB := make([]float64, r*p.in), make([]float64, p.out*r)
			for o := range p.out {
				for i := range p.in {
					for k := range r {
						dB[o*r+k] += 2 * float64(dw[o*p.in+i]) * float64(loraA[k*p.in+i])
						dA[k*p.in+i] += 2 * float64(loraB[o*r+k]) * float64(dw[o*p.in+i])
					}
				}
			}
			for i, want := range slices.Concat(dA, dB) {
				near(t, p.name, float64(got[p.offset+i]), want, 1e-5*(1+math.Abs(want)))
			}
		}
		moved := 0
		for _, table := range a.tables {
			for k, id := range a.c.Rows {
				for d := range m.cfg.Hidden {
					want := float64(whole[a.layout[table.name].offset+int(id)*m.cfg.Hidden+d])
					near(t, "row of "+table.name, float64(got[table.offset+k*m.cfg.Hidden+d]), want, 1e-5*(1+math.Abs(want)))
					if want != 0 {
						moved++
					}
				}
			}
		}
		if want := map[bool]int{true: 24, false: 48}[tied]; moved != want {
			t.Errorf("tied %v: %d numbers of the rows have a gradient, want %d", tied, moved, want)
		}
	}
}

// In bfloat16 the gradient of an adapter is that in float32 up to the rounding of products, 2^-8 of each.
func TestGradientOfAnAdapterInBF16(t *testing.T) {
	gradient := func(p Precision) []float32 {
		m := use(t, newModel(t, tiny(false), 1), p)
		_, tr := drilled(t, m, 0)
		if tr.m.Precision() != p {
			t.Fatalf("the merged model computes in %s, want %s", tr.m.Precision(), p)
		}
		all := someSequences(rand.New(rand.NewPCG(3, 3)), 10, 20, m.cfg.Vocab, 0.5)
		_, g := passed(t, tr, all, nil)
		return g
	}
	if relative := apart(gradient(BF16), gradient(Float32)); !(relative < 0.05) || relative == 0 {
		t.Errorf("the gradients differ by %.2g of their norm, want less than 0.05, but rounding", relative)
	}
}

// Of the tables, only the rows of the adapter move; the base does not move at all.
func TestAdapterTrainsOnlyItsVocabularyRows(t *testing.T) {
	for _, tied := range []bool{true, false} {
		m := newModel(t, tiny(tied), 1)
		a, _ := drilled(t, m, 3)
		before, _ := m.Weights()
		after, _ := a.Model().Weights()
		if untouched, _ := newModel(t, tiny(tied), 1).Weights(); !slices.Equal(before, untouched) {
			t.Error("the base has moved")
		}
		weights, _ := layout(m.cfg)
		for _, w := range weights {
			moved := map[int]bool{}
			for i := range w.len() {
				if before[w.offset+i] != after[w.offset+i] {
					moved[i/m.cfg.Hidden] = true
				}
			}
			target := slices.ContainsFunc(a.parts, func(p adapterPart) bool { return p.name == w.name })
			switch table := w.name == embedName || w.name == headName; {
			case table && (len(moved) != 2 || !moved[2] || !moved[7]):
				t.Errorf("tied %v: of %s the rows %v moved, want 2 and 7", tied, w.name, moved)
			case !table && target != (len(moved) > 0):
				t.Errorf("tied %v: %s moved: %v, want %v", tied, w.name, len(moved) > 0, target)
			}
		}
	}
}

func TestSavedAdapterMergesToIdenticalWeights(t *testing.T) {
	for _, tied := range []bool{true, false} {
		m, dir := newModel(t, tiny(tied), 1), t.TempDir()
		a, _ := drilled(t, m, 3)
		must.OK(t, a.Save(dir, "base"))
		b := must.Get(LoadAdapter(dir, m))(t)
		defer b.Close()
		want, _ := a.Model().Weights()
		if got, err := b.Model().Weights(); err != nil || !slices.Equal(got, want) {
			t.Errorf("tied %v: the adapter merges to other weights than before (%v)", tied, err)
		}
	}
}

func TestAdaptersOfAnotherShapeAreRefused(t *testing.T) {
	m := llama(t)
	dir := t.TempDir()
	a, _ := adapterOn(t, m, LoRA{Rank: 2, Alpha: 4, Targets: []string{"q_proj"}}, adamW(40))
	must.OK(t, a.Save(dir, "base"))
	path := filepath.Join(dir, adapterConfigFile)
	sound := must.Get(os.ReadFile(path))(t)
	for _, tc := range []struct{ old, replaced, want string }{
		{`"r": 2`, `"r": 3`, "has shape [2 8], want [3 8]"},
		{`"r": 2`, `"r": 0`, "rank must be at least 1"},
		{`"q_proj"`, `"qkv_proj"`, `unknown projection "qkv_proj"`},
		{`"q_proj"`, `"k_proj"`, "is missing"},
		{`"lora_dropout": 0`, `"lora_dropout": 0.05`, "lora_dropout 0.05 is not supported; 0 is"},
		{`{`, `[`, "load adapter from "},
	} {
		must.OK(t, os.WriteFile(path, []byte(strings.Replace(string(sound), tc.old, tc.replaced, 1)), 0o600))
		got, err := LoadAdapter(dir, m)
		if err == nil {
			got.Close()
		}
		must.Match(t, err, tc.want)
	}
	for want, c := range map[string]LoRA{
		"alpha must be above 0": {Rank: 2, Targets: Projections},
		"vocabulary row 99":     {Rank: 2, Alpha: 1, Targets: Projections, Rows: []int32{99}},
	} {
		_, err := NewAdapter(m, c, rand.New(rand.NewPCG(1, 2)))
		must.Match(t, err, want)
	}
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
