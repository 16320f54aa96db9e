package objective

import (
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"rcgrpo/bench/fixtures"
	"rcgrpo/internal/must"
)

func TestSamplerCorrectionsOfVerlAndTRL(t *testing.T) {
	type record struct {
		ID, Kind string
		Inputs   struct {
			Logp        [][]number
			LogpOld     [][]number `json:"logp_old"`
			LogpRef     [][]number `json:"logp_ref"`
			LogpSampled [][]number `json:"logp_sampled"`
			Mask        [][]int
			Advantages  []number
		}
		Results []struct {
			Framework, Mode string
			Cap             float64
			Weights         [][]number
			Losses          []struct {
				Variant string
				Loss    number
				Grad    [][]number
			}
		}
	}
	weights, losses := 0, 0
	fixtures.Records(t, "rl/sampler_correction.jsonl", func(r record) {
		in := r.Inputs
		tokens := func(rows [][]number) []float64 { return flatten(matrix(rows), in.Mask) }
		b := &Batch{Length: lengths(in.Mask), Advantage: floats(in.Advantages), Logp: tokens(in.Logp),
			LogpOld: tokens(in.LogpOld), LogpRef: tokens(in.LogpRef), LogpSampled: tokens(in.LogpSampled)}
		for _, x := range r.Results {
			compare := func(what string, got, want float64) {
				if !near(got, want, 1e-9) {
					t.Errorf("%s (%s) %s %s cap %v: %s: got %v, want %v", r.ID, r.Kind, x.Framework, x.Mode, x.Cap, what, got, want)
				}
			}
			c := &SamplerCorrection{Mode: x.Mode, Cap: x.Cap}
			got, _ := c.Weights(b.Length, b.LogpOld, b.LogpSampled)
			for k, want := range tokens(x.Weights) {
				compare("weight", got[k], want)
				weights++
			}
			for _, l := range x.Losses {
				o := corrected(t, x.Framework, l.Variant)
				o.Correction = c
				out := must.Get(o.Evaluate(b, o.Totals(b)))(t)
				compare(l.Variant, out.Loss, float64(l.Loss))
				for k, want := range tokens(l.Grad) {
					compare(l.Variant+" gradient", out.DLogp[k], want)
				}
				losses++
			}
		}
	})
	if t.Logf("%d weights and %d losses compared", weights, losses); weights < 2500 || losses < 400 {
		t.Error("too few to compare")
	}
}

// corrected returns the objective of a framework and loss of sampler_correction.jsonl.
func corrected(t *testing.T, framework, variant string) Objective {
	t.Helper()
	loss, aggregate, _ := strings.Cut(variant, " ")
	o := must.Get(ProfileNamed(map[string]string{"vanilla": "verl", "gspo": "gspo"}[loss] +
		map[bool]string{true: "trl"}[framework == "trl"]))(t)
	l := *o.Loss
	o.Loss = &l
	switch aggregate {
	case "seq-mean-token-sum":
		l.Aggregate = "trajectory_sum"
	case "seq-mean-token-mean":
		l.Aggregate = "trajectory_mean"
	case "beta 0.1":
		o.KL = &KL{Beta: 0.1, Estimator: "k3", Place: "loss", Aggregate: "loss"}
	}
	if loss == "grpo" {
		l.Aggregate = "trajectory_mean"
	}
	return o
}

func TestWeightsByHand(t *testing.T) {
	length, sampled := []int{2, 0, 1}, []float64{0, 0, 0}
	log := math.Log
	for name, tc := range map[string]struct {
		c      SamplerCorrection
		old    []float64
		want   []float64
		capped int
	}{
		"off has no weights": {SamplerCorrection{Mode: "off"}, []float64{1, 1, 1}, nil, 0},
		"a token has its own ratio, up to cap": {SamplerCorrection{Mode: "token", Cap: 2},
			[]float64{log(3), log(0.5), 0}, []float64{2, 0.5, 1}, 1},
		"a sequence has the product": {SamplerCorrection{Mode: "sequence", Cap: 2},
			[]float64{log(3), log(0.5), log(0.1)}, []float64{1.5, 1.5, 0.1}, 0},
		"sequence_mask drops trajectories above cap": {SamplerCorrection{Mode: "sequence_mask", Cap: 2},
			[]float64{log(3), log(2), log(1.5)}, []float64{0, 0, 1.5}, 2},
		"a weight that overflows is above cap": {SamplerCorrection{Mode: "sequence_mask", Cap: 2},
			[]float64{900, 900, 0}, []float64{0, 0, 1}, 2},
	} {
		got, capped := tc.c.Weights(length, tc.old, sampled)
		same := slices.EqualFunc(got, tc.want, func(a, b float64) bool { return near(a, b, 1e-12) })
		if !same || capped != tc.capped {
			t.Errorf("%s: got %v and %d capped, want %v and %d", name, got, capped, tc.want, tc.capped)
		}
	}
}

func TestCorrectionWeighsThePolicyGradientAtEveryLevelAndNothingElse(t *testing.T) {
	r := rand.New(rand.NewPCG(7, 8))
	b := randomBatch(r, 6)
	for range b.Logp {
		b.LogpSampled = append(b.LogpSampled, -r.Float64())
	}
	for _, level := range []string{"trajectory", "turn", "token", "sequence_mean"} {
		o := PaperObjective()
		o.Ratio = &Ratio{Level: level}
		o.Entropy = 0.01
		both := must.Get(o.Evaluate(b, o.Totals(b)))(t)
		o.Correction = &SamplerCorrection{Mode: "token", Cap: 1.5}
		weighted := must.Get(o.Evaluate(b, o.Totals(b)))(t)
		noKL := *o.KL
		noKL.Beta = 0
		o.KL, o.Correction = &noKL, &SamplerCorrection{Mode: "off"}
		policy := must.Get(o.Evaluate(b, o.Totals(b)))(t)
		w, _ := (&SamplerCorrection{Mode: "token", Cap: 1.5}).Weights(b.Length, b.LogpOld, b.LogpSampled)
		for k := range w {
			want := both.DLogp[k] + (w[k]-1)*policy.DLogp[k]
			if math.Abs(weighted.DLogp[k]-want) > 1e-12 || weighted.DEntropy[k] != both.DEntropy[k] {
				t.Fatalf("%s: token %d: got slope %v, want %v", level, k, weighted.DLogp[k], want)
			}
		}
		if weighted.KL != both.KL || weighted.Entropy != both.Entropy {
			t.Errorf("%s: KL or entropy changed", level)
		}
	}
	o := PaperObjective()
	o.Correction = &SamplerCorrection{Mode: "token", Cap: 2}
	b.LogpSampled = b.LogpSampled[1:]
	_, err := o.Evaluate(b, o.Totals(b))
	must.Match(t, err, "logp_sampled has 14 values")
}
