//go:build libtorch

package lm

import (
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"reflect"
	"slices"
	"testing"

	"rcgrpo/internal/must"
	"rcgrpo/stages/internal/torch"
	"rcgrpo/stages/rl"
)

func TestMain(m *testing.M) {
	measurePeak()
	code := m.Run()
	if n := torch.Live(); code == 0 && n != 0 {
		fmt.Printf("%d tensor handles are alive after all tests\n", n)
		code = 1
	}
	os.Exit(code)
}

// tiny has shapes that are no multiples of the kernels' vectors, and three query heads to a key head.
func tiny(tied bool) Config {
	return Config{Decoder: "qwen2", Vocab: 23, Hidden: 12, Layers: 2, Heads: 6, KVHeads: 2, HeadDim: 6,
		MLP: 20, RopeBase: 1000, NormEps: 1e-6, TiedEmbeddings: tied, MaxPosition: 64}
}

// drillSize is the decoder of the drills (docs/training.md 5).
func drillSize() Config {
	return Config{Decoder: "qwen2", Vocab: 1408, Hidden: 128, Layers: 2, Heads: 4, KVHeads: 2, HeadDim: 32,
		MLP: 384, RopeBase: 1000, NormEps: 1e-6, TiedEmbeddings: true, MaxPosition: 384}
}

func newModel(t testing.TB, cfg Config, seed uint64) *Model {
	t.Helper()
	m := must.Get(New(cfg, rand.New(rand.NewPCG(seed, 0))))(t)
	t.Cleanup(func() { m.Close() })
	return m
}

// adamW returns the optimizer of most tests.
func adamW(microTokens int) OptimizerConfig {
	return OptimizerConfig{Beta1: 0.9, Beta2: 0.98, Eps: 1e-8, Clip: 1, MicroTokens: microTokens}
}

func newTrainer(t testing.TB, m *Model, o OptimizerConfig) *Trainer {
	t.Helper()
	tr := must.Get(NewTrainer(m, o, Peers{}))(t)
	t.Cleanup(func() { tr.Close() })
	return tr
}

// shake moves every weight, biases and norms included, by a random amount.
func shake(t *testing.T, m *Model, seed uint64, by float32) *Model {
	t.Helper()
	flat := must.Get(m.Weights())(t)
	r := rand.New(rand.NewPCG(seed, 1))
	for i := range flat {
		flat[i] += by * float32(r.NormFloat64())
	}
	shaken := withWeights(t, m.cfg, flat)
	t.Cleanup(func() { shaken.Close() })
	return shaken
}

func withWeights(t *testing.T, cfg Config, flat []float32) *Model {
	t.Helper()
	return must.Get(place(cfg, torch.CPU, Buffers{}, func(s *torch.Scope, m *Model) error {
		s.Copy_(m.flat, s.FromFloat32(flat, int64(len(flat))))
		return nil
	}))(t)
}

// randomIDs draws n tokens of a vocabulary.
func randomIDs(r *rand.Rand, n, vocab int) []int32 {
	ids := make([]int32, n)
	for i := range ids {
		ids[i] = int32(r.IntN(vocab))
	}
	return ids
}

// slope is the derivative of a loss in a direction: central differences of fourth order.
func slope(weights, direction []float32, loss func(weights []float32) float64) float64 {
	moved := func(by float32) float64 {
		flat := slices.Clone(weights)
		for i := range flat {
			flat[i] += by * direction[i]
		}
		return loss(flat)
	}
	const step = 2e-2
	return (8*(moved(step)-moved(-step)) - (moved(2*step) - moved(-2*step))) / (12 * step)
}

// someSequences have lengths from 2 and random learned tokens.
func someSequences(r *rand.Rand, n, longest, vocab int, share float64) (all []Sequence) {
	for range n {
		length := 2 + r.IntN(longest-1)
		q := Sequence{IDs: make([]int32, length), Mask: make([]bool, length)}
		for t := range q.IDs {
			q.IDs[t] = int32(r.IntN(vocab))
			q.Mask[t] = t > 0 && r.Float64() < share
		}
		all = append(all, q)
	}
	return all
}

func allStats(t testing.TB, m *Model, all []Sequence, ref *Model, temperature float64) TokenStats {
	t.Helper()
	return must.Get(m.Stats(t.Context(), all, ref, temperature))(t)
}

// The gradient of a random combination of each statistic against central differences of fourth order in a random
// direction of length 1. Rounding leaves about 5e-6 in the loss, hence 5e-4 in the quotient; the rest is the
// error of the step itself.
func TestGradientOfEachStatisticEqualsFiniteDifferences(t *testing.T) {
	for name, pick := range map[string]func(s TokenStats) []float64{
		"log-probability": func(s TokenStats) []float64 { return s.Logp },
		"entropy":         func(s TokenStats) []float64 { return s.Entropy },
		"KL":              func(s TokenStats) []float64 { return s.KL },
	} {
		for _, tied := range []bool{true, false} {
			t.Run(fmt.Sprintf("%s tied=%v", name, tied), func(t *testing.T) {
				r := rand.New(rand.NewPCG(5, 5))
				m := shake(t, newModel(t, tiny(tied), 1), 2, 0.1)
				ref := shake(t, m, 3, 0.2)
				all := someSequences(r, 7, 20, m.cfg.Vocab, 0.6)
				const temperature = 0.8
				weights := make([]float64, len(allStats(t, m, all, nil, temperature).Logp))
				for i := range weights {
					weights[i] = r.NormFloat64()
				}
				loss := func(flat []float32) (sum float64) {
					x := withWeights(t, m.cfg, flat)
					defer x.Close()
					for i, v := range pick(allStats(t, x, all, ref, temperature)) {
						sum += weights[i] * v
					}
					return sum
				}
				tr := newTrainer(t, m, adamW(40))
				at := 0
				must.Get(tr.Accumulate(t.Context(), all, ref, temperature,
					func(_, _ int, s TokenStats) (Weights, error) {
						w := weights[at : at+len(s.Logp)]
						at += len(s.Logp)
						switch name {
						case "entropy":
							return Weights{Entropy: w}, nil
						case "KL":
							return Weights{KL: w}, nil
						}
						return Weights{Logp: w}, nil
					}))(t)
				grad := must.Get(tr.Gradient())(t)
				base := must.Get(m.Weights())(t)
				weightsOf, _ := layout(m.cfg)
				for _, w := range weightsOf { // one direction per tensor, so that none hides behind another
					direction := make([]float32, len(base))
					want, length := 0.0, sqrt(w.len())
					for i := w.offset; i < w.offset+w.len(); i++ {
						direction[i] = float32(r.NormFloat64() / length)
						want += float64(grad[i]) * float64(direction[i])
					}
					got := slope(base, direction, loss)
					near(t, w.name, want, got, 5e-4+3e-3*math.Abs(got))
				}
			})
		}
	}
}

// Members of a group that begin alike, learned tokens included, against the same members one by one.
func TestSharedPrefixesGiveEqualGradients(t *testing.T) {
	m := shake(t, newModel(t, tiny(true), 1), 2, 0.1)
	ref := shake(t, m, 3, 0.2)
	r := rand.New(rand.NewPCG(1, 1))
	var all []Sequence
	for _, q := range someSequences(r, 4, 40, m.cfg.Vocab, 0.5) {
		for range 3 {
			branch := Sequence{IDs: slices.Clone(q.IDs), Mask: slices.Clone(q.Mask)}
			for at := r.IntN(len(q.IDs)); at < len(q.IDs); at++ {
				branch.IDs[at] = int32(r.IntN(m.cfg.Vocab))
			}
			all = append(all, q, branch) // q itself comes back as well
		}
	}
	b := must.Get(m.pack(all, 0))(t)
	if len(b.ids) >= len(b.full.Path) || len(b.targets) >= len(b.owner) {
		t.Fatalf("%d rows for %d tokens, %d predictions for %d: nothing is shared", len(b.ids), len(b.full.Path),
			len(b.targets), len(b.owner))
	}
	weights := make([]float64, 3*len(b.owner))
	for i := range weights {
		weights[i] = r.NormFloat64()
	}
	gradient := func(micro int) (TokenStats, []float32) {
		tr, at := newTrainer(t, m, adamW(micro)), 0
		stats := must.Get(tr.Accumulate(t.Context(), all, ref, 1, func(_, _ int, s TokenStats) (Weights, error) {
			n, total := len(s.Logp), len(b.owner)
			at += n
			return Weights{Logp: weights[at-n : at], Entropy: weights[total+at-n : total+at],
				KL: weights[2*total+at-n : 2*total+at]}, nil
		}))(t)
		g := must.Get(tr.Gradient())(t)
		return stats, g
	}
	s1, g1 := gradient(1) // every sequence alone
	s2, g2 := gradient(1 << 20)
	scale := 0.0
	for _, v := range g1 {
		scale = max(scale, math.Abs(float64(v)))
	}
	for i := range g1 {
		near(t, "gradient", float64(g2[i]), float64(g1[i]), 2e-6*scale)
	}
	for i := range s1.Logp { // float32 logits of size 3
		near(t, "logp", s2.Logp[i], s1.Logp[i], 2e-6)
		near(t, "KL", s2.KL[i], s1.KL[i], 2e-6)
		near(t, "entropy", s2.Entropy[i], s1.Entropy[i], 2e-6)
		near(t, "reference logp", s2.LogpRef[i], s1.LogpRef[i], 2e-6)
	}
}

func TestMaskedTokensHaveNoLoss(t *testing.T) {
	m := newModel(t, tiny(true), 1)
	q := Sequence{IDs: []int32{1, 2, 3, 4, 5, 6}, Mask: []bool{false, false, true, true, false, false}}
	gradient := func(q Sequence) []float32 {
		tr := newTrainer(t, m, adamW(DefaultMicroTokens))
		s := must.Get(tr.Accumulate(t.Context(), []Sequence{q}, nil, 1, func(_, _ int, s TokenStats) (Weights, error) {
			return Weights{Logp: []float64{-1, -1}}, nil
		}))(t)
		if len(s.Logp) != 2 {
			t.Fatalf("got %d statistics, want 2", len(s.Logp))
		}
		return must.Get(tr.Gradient())(t)
	}
	other := Sequence{IDs: []int32{1, 2, 3, 4, 7, 8}, Mask: q.Mask}
	if !slices.Equal(gradient(q), gradient(other)) {
		t.Error("tokens after the last learned one changed the gradient")
	}
	h := m.cfg.Hidden
	if g := gradient(q)[5*h : 6*h]; slices.Max(g)-slices.Min(g) == 0 {
		t.Error("a token of the vocabulary got no gradient through the head's normaliser")
	}
}

func TestSequencesWithoutLearnedTokensAddNothing(t *testing.T) {
	m := newModel(t, tiny(true), 1)
	tr := newTrainer(t, m, adamW(4))
	calls := 0
	_, err := tr.Accumulate(t.Context(), []Sequence{{IDs: []int32{1, 2, 3}, Mask: make([]bool, 3)}, {},
		{IDs: []int32{4}, Mask: []bool{false}}}, nil, 1,
		func(_, n int, s TokenStats) (Weights, error) { calls += n; return Weights{}, nil })
	if err != nil || calls != 3 {
		t.Errorf("got %v after %d sequences, want none after 3", err, calls)
	}
}

// train makes one update of fine-tuning.
func train(t testing.TB, tr *Trainer, all []Sequence, ref *Model, lr float64) {
	t.Helper()
	must.Get(tr.Accumulate(t.Context(), all, ref, 1, descend))(t)
	_, _, err := tr.Update(lr)
	must.OK(t, err)
}

// descend is the loss of fine-tuning: the sum of negative log-probabilities.
func descend(_, _ int, s TokenStats) (Weights, error) {
	w := make([]float64, len(s.Logp))
	for i := range w {
		w[i] = -1
	}
	return Weights{Logp: w}, nil
}

func TestInvalidBatchesAreRefused(t *testing.T) {
	m := newModel(t, tiny(true), 1)
	tr := newTrainer(t, m, adamW(DefaultMicroTokens))
	good := Sequence{IDs: []int32{1, 2}, Mask: []bool{false, true}}
	for name, tc := range map[string]struct {
		q           Sequence
		temperature float64
		w           Weights
	}{
		"unknown token":          {Sequence{IDs: []int32{1, 99}, Mask: []bool{false, true}}, 1, Weights{}},
		"flags missing":          {Sequence{IDs: []int32{1, 2}, Mask: []bool{true}}, 1, Weights{}},
		"first token learned":    {Sequence{IDs: []int32{1, 2}, Mask: []bool{true, true}}, 1, Weights{}},
		"too long":               {Sequence{IDs: make([]int32, 65), Mask: make([]bool, 65)}, 1, Weights{}},
		"temperature 0":          {good, 0, Weights{}},
		"too many weights":       {good, 1, Weights{Logp: []float64{1, 2}}},
		"KL without a reference": {good, 1, Weights{KL: []float64{1}}},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := tr.Accumulate(t.Context(), []Sequence{tc.q}, nil, tc.temperature,
				func(int, int, TokenStats) (Weights, error) { return tc.w, nil })
			if err == nil {
				t.Error("got no error")
			}
		})
	}
}

func TestNonFiniteGradientsAreSkipped(t *testing.T) {
	m := newModel(t, tiny(true), 1)
	before, _ := m.Weights()
	tr := newTrainer(t, m, adamW(DefaultMicroTokens))
	all := []Sequence{{IDs: []int32{1, 2}, Mask: []bool{false, true}}}
	for i := 1; i <= maxSkipped; i++ {
		must.Get(tr.Accumulate(t.Context(), all, nil, 1, func(int, int, TokenStats) (Weights, error) {
			return Weights{Logp: []float64{math.NaN()}}, nil
		}))(t)
		_, skipped, err := tr.Update(1)
		if !skipped || (err != nil) != (i == maxSkipped) {
			t.Errorf("update %d: got skipped %v and error %v", i, skipped, err)
		}
	}
	if after, _ := m.Weights(); !slices.Equal(before, after) {
		t.Error("a skipped update moved the weights")
	}
}

func newDecoder(t testing.TB, m *Model, slots, maxLen int) *Decoder {
	t.Helper()
	d := must.Get(NewDecoder(m, slots, maxLen))(t)
	t.Cleanup(func() { d.Release() })
	return d
}

// continuation decodes n tokens greedily.
func continuation(t *testing.T, m *Model, prompt []int32, n int) (ids []int32) {
	t.Helper()
	d := newDecoder(t, m, 2, len(prompt)+n)
	feed := prompt
	for range n {
		draws := must.Get(d.Next(t.Context(), []rl.Request{{Slot: 1, Feed: feed}}))(t)
		ids = append(ids, draws[0].Token)
		feed = []int32{draws[0].Token}
	}
	return ids
}

// Slots with blocks, single steps and pauses of different lengths give the log-probabilities of the training
// pass.
func TestDecodedLogProbsEqualTheTrainingPass(t *testing.T) {
	for _, cfg := range []Config{tiny(true), drillSize()} {
		m := shake(t, newModel(t, cfg, 1), 2, 0.02)
		r := rand.New(rand.NewPCG(7, 7))
		const slots, temperature = 5, 0.7
		d := newDecoder(t, m, slots, 60)
		all := make([]Sequence, slots)
		var logps [slots][]float64
		feeds := make([][]int32, slots)
		for i := range feeds {
			feeds[i] = []int32{int32(i)}
		}
		for range 25 {
			var requests []rl.Request
			for i, f := range feeds {
				if r.IntN(4) > 0 && len(all[i].IDs)+len(f) < 55 {
					requests = append(requests, rl.Request{Slot: i, Feed: f, Temperature: temperature, U: r.Float64()})
				}
			}
			draws := must.Get(d.Next(t.Context(), requests))(t)
			for j, q := range requests {
				i := q.Slot
				for len(all[i].IDs)+len(q.Feed) > len(all[i].Mask) { // fed tokens not drawn before
					all[i].Mask = append(all[i].Mask, false)
				}
				all[i].IDs = append(all[i].IDs, q.Feed...)
				all[i].Mask = append(all[i].Mask, true)
				logps[i] = append(logps[i], float64(draws[j].Logp))
				feeds[i] = []int32{draws[j].Token}
				for range r.IntN(3) { // an observation
					feeds[i] = append(feeds[i], int32(r.IntN(cfg.Vocab)))
				}
			}
		}
		var want []float64
		for i := range all {
			if len(all[i].Mask) > len(all[i].IDs) { // the last draw was never fed
				all[i].IDs = append(all[i].IDs, feeds[i][0])
			}
			want = append(want, logps[i]...)
		}
		got := allStats(t, m, all, nil, temperature)
		if len(got.Logp) != len(want) || len(want) < 50 {
			t.Fatalf("got %d log-probabilities, want %d", len(got.Logp), len(want))
		}
		for i := range want {
			near(t, "logp", got.Logp[i], want[i], 1e-5)
		}
	}
}

// Sixty, three and one live rows, fed at once or token by token, give a slot the same bits.
func TestSlotsAreIndependent(t *testing.T) {
	m := shake(t, newModel(t, drillSize(), 1), 2, 0.02)
	r := rand.New(rand.NewPCG(7, 7))
	const slots, length = 60, 40
	feeds := make([][]int32, slots)
	for i := range feeds {
		feeds[i] = randomIDs(r, length+r.IntN(9), m.cfg.Vocab)
	}
	d := newDecoder(t, m, slots, 64)
	draw := func(chunk int, live ...int) (draws []rl.Draw) {
		t.Helper()
		for i := range slots {
			d.Cut(i, 0)
		}
		draws = make([]rl.Draw, len(live))
		for at := 0; at < length+9; at += chunk {
			var requests []rl.Request
			var who []int
			for place, i := range live {
				if at < len(feeds[i]) {
					end := min(at+chunk, len(feeds[i]))
					requests = append(requests, rl.Request{Slot: (place + 7) % slots, Feed: feeds[i][at:end], Temperature: 1,
						U: 0.37})
					who = append(who, place)
				}
			}
			got := must.Get(d.Next(t.Context(), requests))(t)
			for j, place := range who {
				draws[place] = got[j]
			}
		}
		return draws
	}
	everyone := make([]int, slots)
	for i := range everyone {
		everyone[i] = i
	}
	want := draw(64, everyone...)
	for name, got := range map[string][]rl.Draw{
		"token by token": draw(1, everyone...),
		"in pieces":      draw(7, everyone...),
	} {
		if !reflect.DeepEqual(got, want) {
			t.Errorf("%s: got %v, want %v", name, got, want)
		}
	}
	if got := draw(1, 59, 0, 20); !reflect.DeepEqual(got, []rl.Draw{want[59], want[0], want[20]}) {
		t.Errorf("three in another order: got %v", got)
	}
	for i := range 5 {
		if got := draw(1+i, i*7); !reflect.DeepEqual(got[0], want[i*7]) {
			t.Errorf("slot %d alone: got %v, want %v", i*7, got[0], want[i*7])
		}
	}
}

func TestDrawsFollowTheInverseCDF(t *testing.T) {
	m := newModel(t, tiny(true), 1)
	d := newDecoder(t, m, 1, 8)
	at := func(r rl.Request) rl.Draw {
		t.Helper()
		d.Cut(0, 0)
		r.Feed = []int32{3, 1}
		draws := must.Get(d.Next(t.Context(), []rl.Request{r}))(t)
		return draws[0]
	}
	// The distribution from the training pass.
	var p []float64
	for id := range m.cfg.Vocab {
		s := allStats(t, m, []Sequence{{IDs: []int32{3, 1, int32(id)}, Mask: []bool{false, false, true}}}, nil, 0.5)
		p = append(p, math.Exp(s.Logp[0]))
	}
	cumulated, best := 0.0, 0
	for id, v := range p {
		if got := at(rl.Request{Temperature: 0.5, U: cumulated + v/2}); int(got.Token) != id {
			t.Errorf("u in the middle of token %d drew %d", id, got.Token)
		} else {
			near(t, "logp", float64(got.Logp), math.Log(v), 1e-5)
		}
		if v > p[best] {
			best = id
		}
		cumulated += v
	}
	if got := at(rl.Request{}); int(got.Token) != best {
		t.Errorf("greedy drew %d, want %d", got.Token, best)
	}
	if got := at(rl.Request{Temperature: 0.5, TopP: p[best] / 2, U: 0.999999}); int(got.Token) != best || got.Logp != 0 {
		t.Errorf("a nucleus of one token drew %d with log-probability %v, want %d with 0", got.Token, got.Logp, best)
	}
	drawn := map[int32]bool{}
	for i := range 200 {
		drawn[at(rl.Request{Temperature: 0.5, TopP: 0.6, U: float64(i) / 200}).Token] = true
	}
	slices.Sort(p)
	reached, want := 0.0, 0
	for reached < 0.6 {
		want++
		reached += p[len(p)-want]
	}
	if len(drawn) > want {
		t.Errorf("top-p 0.6 drew %d different tokens, want at most %d", len(drawn), want)
	}
}

// Requests of one call have their own temperatures and nuclei, and draw what each draws alone.
func TestEachRequestHasItsOwnSamplingSettings(t *testing.T) {
	m := shake(t, newModel(t, drillSize(), 1), 2, 0.1)
	d := newDecoder(t, m, 5, 16)
	requests := []rl.Request{{}, {Temperature: 0.3, U: 0.9}, {Temperature: 1, U: 0.9},
		{Temperature: 1, TopP: 0.2, U: 0.9}, {Temperature: 1.7, TopP: 0.9, U: 0.2}}
	for i := range requests {
		requests[i].Slot, requests[i].Feed = i, []int32{5, 7, 11}
	}
	together := must.Get(d.Next(t.Context(), requests))(t)
	for i := range requests {
		d.Cut(i, 0)
	}
	different := map[int32]bool{}
	for i, r := range requests {
		alone, err := d.Next(t.Context(), []rl.Request{r})
		if err != nil || !reflect.DeepEqual(alone[0], together[i]) {
			t.Errorf("request %d: got %v with the others and %v alone (%v)", i, together[i], alone, err)
		}
		d.Cut(i, 0)
		different[together[i].Token] = true
	}
	if len(different) < 4 {
		t.Errorf("five ways to sample drew %v: they are not told apart", together)
	}
}

func TestInvalidRequestsAreRefused(t *testing.T) {
	m := newModel(t, tiny(true), 1)
	d := newDecoder(t, m, 2, 4)
	for name, requests := range map[string][]rl.Request{
		"slot outside":    {{Slot: 2, Feed: []int32{1}}},
		"slot twice":      {{Slot: 0, Feed: []int32{1}}, {Slot: 0, Feed: []int32{1}}},
		"nothing fed":     {{Slot: 0}},
		"too long":        {{Slot: 0, Feed: []int32{1, 2, 3, 4, 5}}},
		"unknown token":   {{Slot: 0, Feed: []int32{23}}},
		"uniform above 1": {{Slot: 0, Feed: []int32{1}, U: 1}},
	} {
		if _, err := d.Next(t.Context(), requests); err == nil {
			t.Errorf("%s: got no error", name)
		}
	}
	if len(d.held[0]) != 0 {
		t.Error("a refused request changed its slot")
	}
}
