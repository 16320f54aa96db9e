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

func matrix(rows [][]number) [][]float64 {
	out := make([][]float64, len(rows))
	for i, r := range rows {
		out[i] = floats(r)
	}
	return out
}

// flatten keeps the entries of a [B][T] matrix whose mask is set.
func flatten[T any](rows [][]T, mask [][]int) (out []T) {
	for i, r := range rows {
		for j, v := range r {
			if mask[i][j] == 1 {
				out = append(out, v)
			}
		}
	}
	return out
}

func lengths(mask [][]int) []int {
	out := make([]int, len(mask))
	for i, r := range mask {
		for _, m := range r {
			out[i] += m
		}
	}
	return out
}

type lossConfig struct {
	Ratio         string
	LogClamp      float64 `json:"log_clamp"`
	LogClampUpper float64 `json:"log_clamp_upper"`
	ClipLow       float64 `json:"clip_low"`
	ClipHigh      float64 `json:"clip_high"`
	DualClip      float64 `json:"dual_clip"`
	RatioCap      float64 `json:"ratio_cap"`
	Aggregate     string
	Scale         float64
	Rule          string
	Beta          float64
	KL            string
}

// settings turns the description of a published loss into ours.
func (c lossConfig) settings(t *testing.T, source string) Objective {
	o := PaperObjective()
	o.Ratio = &Ratio{Level: strings.ReplaceAll(c.Ratio, "-", "_"), LogClamp: c.LogClamp}
	if c.LogClampUpper > 0 {
		o.Ratio.LogClamp, o.Ratio.OnlyAbove = c.LogClampUpper, true
	}
	o.Clip = &Clip{Low: c.ClipLow, High: c.ClipHigh, Dual: c.DualClip}
	o.Loss = &Loss{Rows: "non_empty", CountEps: 1e-8}
	switch a := c.Aggregate; {
	case a == "token-mean":
		o.Loss.Aggregate = "token_mean"
	case a == "seq-mean-token-sum":
		o.Loss.Aggregate = "trajectory_sum"
	case a == "seq-mean-token-mean":
		o.Loss.Aggregate = "trajectory_mean"
	case a == "seq-mean-token-sum-norm":
		o.Loss.Aggregate, o.Loss.Scale = "constant", c.Scale
		if c.Rule == "sum over tokens / scale" {
			o.Loss.Rows = "one"
		}
	case strings.HasPrefix(a, "mean of row token-means over all rows"):
		o.Loss = &Loss{Aggregate: "trajectory_mean", Rows: "all"}
	case a == "sum over tokens / (B * 16)":
		o.Loss = &Loss{Aggregate: "constant", Rows: "all", Scale: 16}
	case a == "mean over rows", a == "mean over rows of turn-sum":
		o.Loss = &Loss{Aggregate: "trajectory_sum", Rows: "all"}
	case a == "mean over rows of turn-mean":
		o.Loss = &Loss{Aggregate: "trajectory_mean", Rows: "all"}
	default:
		t.Fatalf("%s: unknown aggregate %q", source, a)
	}
	o.KL = &KL{Beta: c.Beta, Estimator: "k3", Place: "loss", Aggregate: "loss"}
	return o
}

func TestPolicyLossesOfEveryFramework(t *testing.T) {
	type record struct {
		ID, Kind string
		B, T     int
		Inputs   struct {
			Logp       [][]number
			LogpOld    [][]number `json:"logp_old"`
			LogpRef    [][]number `json:"logp_ref"`
			Mask       [][]int
			Advantages []number
			Turn       [][]int
		}
		Variants []struct {
			Profile, Variant, Source string
			Config                   lossConfig
			Out                      struct {
				Loss         number
				Grad         [][]number
				ClipFraction number  `json:"clip_fraction"`
				Dual         *number `json:"clip_fraction_dual"`
				KL           *number
				Low          *number `json:"clip_fraction_low"`
				High         *number `json:"clip_fraction_high"`
				Ratio        [][]number
			}
		}
	}
	compared, bad := 0, map[string]int{}
	largest := 0.0 // deviation with float32 inputs
	fixtures.Records(t, "rl/policy_loss.jsonl", func(r record) {
		in := r.Inputs
		b := &Batch{
			Length: lengths(in.Mask), Advantage: floats(in.Advantages), Turn: flatten(in.Turn, in.Mask),
			Logp: flatten(matrix(in.Logp), in.Mask), LogpOld: flatten(matrix(in.LogpOld),
				in.Mask), LogpRef: flatten(matrix(in.LogpRef), in.Mask),
		}
		for _, v := range r.Variants {
			if v.Config.RatioCap > 0 || strings.HasSuffix(v.Config.KL, "times ratio") {
				continue // TRL's delta and its correction of the KL bias, which no profile has
			}
			compared++
			check := func(what string, got, want float64) {
				if !near(got, want, 1e-12) {
					name := v.Profile + " " + v.Variant + " " + v.Source + " " + what
					if bad[name]++; bad[name] == 1 {
						t.Errorf("%s (%s) %s: got %v, want %v", r.ID, r.Kind, name, got, want)
					}
				}
			}
			o := v.Config.settings(t, v.Source)
			out := must.Get(o.Evaluate(b, o.Totals(b)))(t)
			tokens := len(b.Logp)
			if tokens == 0 { // the frameworks give NaN or 0; ours is 0, but for the paper's ratio of an empty product
				if v.Profile != "paper" && out.Loss != 0 {
					t.Errorf("%s %s: an empty batch has loss %v, want 0", r.ID, v.Variant, out.Loss)
				}
				continue
			}
			check("loss", out.Loss, float64(v.Out.Loss))
			grad := flatten(matrix(v.Out.Grad), in.Mask)
			for i := range grad {
				check("gradient", out.DLogp[i], grad[i])
			}
			if !strings.HasPrefix(r.Kind, "extreme") {
				largest = max(largest, single(t, &o, b, float64(v.Out.Loss), grad))
			}
			if strings.HasPrefix(v.Source, "trl") {
				if r.T > 1 && v.Config.Ratio == "token" {
					check("clip fraction low", share(out.regions(b, false, v.Config), tokens), float64(*v.Out.Low))
					check("clip fraction high", share(out.regions(b, true, v.Config), tokens), float64(*v.Out.High))
				}
			} else if strings.HasPrefix(v.Source, "verl") { // its masked mean divides by the count and 1e-8
				check("clip fraction", float64(out.Clipped)/(float64(out.Ratios)+1e-8), float64(v.Out.ClipFraction))
			} else {
				check("clip fraction", out.ClipFraction(), float64(v.Out.ClipFraction))
			}
			if v.Out.KL != nil && r.T > 1 { // TRL's mean ignores the mask where a row has one place
				check("KL", out.KL, float64(*v.Out.KL))
			}
			if v.Out.Ratio != nil {
				i := 0
				for _, row := range v.Out.Ratio {
					for _, want := range row {
						got := out.LogRatio[i]
						if c := v.Config.LogClamp; c > 0 {
							got = min(max(got, -c), c)
						}
						check("ratio", math.Exp(got), float64(want))
						i++
					}
				}
			}
		}
	})
	t.Logf("%d losses compared; differences: %v; with float32 log-probabilities at most %.1e", compared, bad, largest)
	// The log-probabilities are below 8, so each is rounded by at most 2.4e-7, and a ratio sums up to 11
	// differences of two.
	if largest > 5e-6 {
		t.Errorf("with float32 log-probabilities loss or gradient differ by %v, want at most 5e-6", largest)
	}
}

// single evaluates a batch whose log-probabilities are rounded to float32, as a model gives them, and returns the
// largest deviation of loss and gradient.
func single(t *testing.T, o *Objective, b *Batch, loss float64, grad []float64) (largest float64) {
	t.Helper()
	round := func(values []float64) []float64 {
		out := make([]float64, len(values))
		for i, v := range values {
			out[i] = float64(float32(v))
		}
		return out
	}
	r := *b
	r.Logp, r.LogpOld, r.LogpRef = round(b.Logp), round(b.LogpOld), round(b.LogpRef)
	out := must.Get(o.Evaluate(&r, o.Totals(&r)))(t)
	deviation := func(got, want float64) {
		largest = max(largest, math.Abs(got-want)/max(1, math.Abs(want)))
	}
	deviation(out.Loss, loss)
	for i, want := range grad {
		deviation(out.DLogp[i], want)
	}
	return largest
}

// regions counts like TRL: by the ratio and the sign of the advantage, before any cap.
func (o *Outcome) regions(b *Batch, high bool, c lossConfig) (n int) {
	k := 0
	for i, length := range b.Length {
		for range length {
			r := math.Exp(o.LogRatio[k])
			if high && r > 1+c.ClipHigh && b.Advantage[i] > 0 || !high && r < 1-c.ClipLow && b.Advantage[i] < 0 {
				n++
			}
			k++
		}
	}
	return n
}

func share(n, of int) float64 {
	if of == 0 {
		return 0
	}
	return float64(n) / float64(of)
}

func TestKLEstimatorsOfEveryFramework(t *testing.T) {
	type record struct {
		ID, Kind string
		Inputs   struct {
			Logp    []number
			LogpRef []number `json:"logp_ref"`
			LogpOld []number `json:"logp_old"`
		}
		Estimators []struct {
			Estimator, Source, Clamp, Error string
			Value, Grad                     []number
		}
	}
	compared := 0
	fixtures.Records(t, "rl/kl.jsonl", func(raw map[string]any) {
		if raw["kind"] != "token" {
			return
		}
		r := fixtures.Decode[record](t, raw)
		for _, e := range r.Estimators {
			if e.Error != "" {
				continue
			}
			name := e.Estimator
			if strings.HasSuffix(name, " unbiased_gradient") || strings.HasSuffix(name, "+") {
				continue // of another gradient
			}
			k := KL{Estimator: name}
			switch {
			case strings.HasPrefix(e.Source, "verl") && name == "k3":
				k.LogClamp, k.ValueClamp = 20, 10
			case strings.HasPrefix(e.Source, "openrlhf"):
				k.ValueClamp = 10
			}
			compared++
			for i, logp := range floats(r.Inputs.Logp) {
				d := logp - float64(r.Inputs.LogpRef[i])
				value, slope := k.token(d)
				if want := float64(e.Value[i]); !near(value, want, 1e-12) {
					t.Errorf("%s %s %s: d %v: got value %v, want %v", r.ID, e.Source, e.Estimator, d, value, want)
				}
				if want := float64(e.Grad[i]); !near(slope, want, 1e-12) {
					t.Errorf("%s %s %s: d %v: got gradient %v, want %v", r.ID, e.Source, e.Estimator, d, slope, want)
				}
			}
		}
	})
	t.Logf("%d lists of estimates compared", compared)
}

// randomBatch has trajectories of 0 to 5 tokens, ratios on both sides of the clip, and every statistic.
func randomBatch(r *rand.Rand, rows int) *Batch {
	b := &Batch{}
	for range rows {
		n := r.IntN(6)
		b.Length = append(b.Length, n)
		b.Advantage = append(b.Advantage, r.NormFloat64())
		for j := range n {
			b.Turn = append(b.Turn, j/2)
			b.Logp = append(b.Logp, -r.Float64())
			b.LogpOld = append(b.LogpOld, b.Logp[len(b.Logp)-1]+0.3*r.NormFloat64())
			b.LogpRef = append(b.LogpRef, -r.Float64())
			b.KL = append(b.KL, r.Float64())
			b.Entropy = append(b.Entropy, r.Float64())
		}
	}
	return b
}

// everySetting lists objectives that cover the choices of each setting.
func everySetting() map[string]Objective {
	all := map[string]Objective{}
	for _, p := range Profiles() {
		all[p.Name] = p.Objective
	}
	change := func(name string, f func(o *Objective)) {
		o := PaperObjective()
		o.Entropy = 0.01
		f(&o)
		all[name] = o
	}
	for _, level := range []string{"trajectory", "turn", "token", "sequence_mean"} {
		for _, aggregate := range []string{"trajectory_sum", "trajectory_mean", "token_mean", "constant"} {
			change(level+" "+aggregate, func(o *Objective) {
				o.Ratio.Level, o.Loss.Aggregate, o.Loss.Scale = level, aggregate, 7
			})
		}
	}
	for _, estimator := range []string{"k1", "abs", "k2", "k3", "exact"} {
		for _, aggregate := range []string{"token_mean", "trajectory_sum", "trajectory_mean", "loss"} {
			change("kl "+estimator+" "+aggregate, func(o *Objective) {
				o.KL.Estimator, o.KL.Aggregate = estimator,
					aggregate
			})
		}
	}
	return all
}

func TestGradientOfEverySettingEqualsFiniteDifferences(t *testing.T) {
	r := rand.New(rand.NewPCG(11, 12))
	for name, o := range everySetting() {
		b := randomBatch(r, 6)
		total := o.Totals(b)
		out := must.Get(o.Evaluate(b, total))(t)
		// Central differences with step 1e-6 are exact to about 1e-9 unless a bound is within the step.
		slope := func(at []float64, k int) float64 {
			const h = 1e-6
			was := at[k]
			at[k] = was + h
			up, _ := o.Evaluate(b, total)
			at[k] = was - h
			down, _ := o.Evaluate(b, total)
			at[k] = was
			return (up.Loss - down.Loss) / (2 * h)
		}
		for _, part := range []struct {
			name string
			at   []float64
			grad []float64
		}{{"logp", b.Logp, out.DLogp}, {"kl", b.KL, out.DKL}, {"entropy", b.Entropy, out.DEntropy}} {
			for k := range part.grad {
				if want := slope(part.at, k); math.Abs(part.grad[k]-want) > 1e-7 {
					t.Errorf("%s: d loss / d %s at %d: got %v, want %v", name, part.name, k, part.grad[k], want)
				}
			}
		}
	}
}

func TestPartsOfABatchAddUpToTheWhole(t *testing.T) {
	r := rand.New(rand.NewPCG(13, 14))
	for name, o := range everySetting() {
		b := randomBatch(r, 8)
		b.Skip = make([]bool, 8)
		b.Skip[2], b.Skip[5] = true, true
		total := o.Totals(b)
		whole := must.Get(o.Evaluate(b, total))(t)
		sum := &Outcome{}
		from := 0
		for i, n := range b.Length {
			to := from + n
			part := must.Get(o.Evaluate(&Batch{Length: b.Length[i : i+1], Advantage: b.Advantage[i : i+1],
				Skip: b.Skip[i : i+1], Turn: b.Turn[from:to],
				Logp: b.Logp[from:to], LogpOld: b.LogpOld[from:to], LogpRef: b.LogpRef[from:to], KL: b.KL[from:to],
				Entropy: b.Entropy[from:to]}, total))(t)
			if b.Skip[i] && slices.ContainsFunc(part.DLogp, isNot0) {
				t.Errorf("%s: a skipped trajectory has a gradient", name)
			}
			sum.Add(part)
			from = to
		}
		if math.Abs(sum.Loss-whole.Loss) > 1e-12 || sum.Ratios != whole.Ratios || !slices.Equal(sum.DLogp, whole.DLogp) {
			t.Errorf("%s: parts give %v and %v, the whole %v and %v", name, sum.Loss, sum.DLogp, whole.Loss, whole.DLogp)
		}
	}
}

func TestPaperLossByHand(t *testing.T) {
	// Two trajectories of two tokens. Ratios: exp(0.1+0.2) = 1.34986, clipped to 1.2; exp(-0.5) = 0.60653,
	// clipped to 0.8. Advantages 1 and -1: -min(1.34986, 1.2) = -1.2 and -min(-0.60653, -0.8) = 0.8; the mean is
	// -0.2, and neither passes a gradient. k3 of d = 0 is 0.
	o := PaperObjective()
	b := &Batch{Length: []int{2, 2}, Advantage: []float64{1, -1}, Logp: []float64{-1, -1, -1, -1},
		LogpOld: []float64{-1.1, -1.2, -1, -0.5}, LogpRef: []float64{-1, -1, -1, -1}}
	out := must.Get(o.Evaluate(b, o.Totals(b)))(t)
	if math.Abs(out.Loss+0.2) > 1e-12 || out.ClipFraction() != 1 || slices.ContainsFunc(out.DLogp, isNot0) {
		t.Errorf("got %+v, want the loss -0.2 and no gradient of a clipped ratio", out)
	}
}

func isNot0(x float64) bool { return x != 0 }

// episodes is a batch of three episodes of as many tokens of the mask each, in two turns. Every token has the same
// divergence from the reference, every episode an advantage of size 1, and policy and old policy are one.
func episodes(length int) *Batch {
	b := &Batch{Length: []int{length, length, length}, Advantage: []float64{1, -1, 1}}
	for range 3 {
		for k := range length {
			b.Turn = append(b.Turn, k*2/length)
			b.Logp, b.LogpOld, b.LogpRef = append(b.Logp, -1), append(b.LogpOld, -1), append(b.LogpRef, -1.5)
			b.KL = append(b.KL, 0.25)
		}
	}
	return b
}

// gradients sums up |d loss / d logp| of the KL term and of the policy's term.
func gradients(t *testing.T, o Objective, b *Batch) (kl, policy float64) {
	t.Helper()
	part := func(beta float64, advantage []float64) (sum float64) {
		only, k := o, *o.KL
		k.Beta, only.KL = beta, &k
		part := *b
		part.Advantage = advantage
		out := must.Get(only.Evaluate(&part, only.Totals(&part)))(t)
		for _, g := range out.DLogp {
			sum += math.Abs(g)
		}
		return sum
	}
	return part(o.KL.Beta, make([]float64, len(b.Advantage))), part(0, b.Advantage)
}

// wantKLWeight checks the weight of the KL term relative to the policy's, in the gradient and as reported, for episodes
// of a length.
func wantKLWeight(t *testing.T, o Objective, length int, want float64) {
	t.Helper()
	b := episodes(length)
	kl, policy := gradients(t, o, b)
	slope := 1 - math.Exp(-0.5) // of k3 at d = 0.5
	for name, got := range map[string]float64{"gradient": kl / policy / slope, "weight": o.KLWeight(b, o.Totals(b))} {
		if !(math.Abs(got-want) <= 1e-11*want) { // sums of 1,200 float64s
			t.Errorf("%+v, %+v, episodes of %d tokens: the %s of KL is %v of the policy's, want %v", o.Loss, o.KL, length,
				name, got, want)
		}
	}
}

// The effective beta equals the setting only if the KL term weights a token like the policy term; otherwise it
// depends on the length of episodes (KLWeight).
func TestBetaIsTheRelativeWeightOfKLAtAnyLength(t *testing.T) {
	for _, level := range []string{"trajectory", "turn", "token", "sequence_mean"} {
		for _, aggregate := range []string{"trajectory_sum", "trajectory_mean", "token_mean", "constant"} {
			for _, length := range []int{4, 40, 400} {
				o := PaperObjective()
				o.Ratio.Level, o.Loss.Aggregate, o.Loss.Scale = level, aggregate, 16
				wantKLWeight(t, o, length, 0.1)
			}
		}
	}
}

func TestKLAveragedOverTokensIsWeakerByTheLengthOfAnEpisode(t *testing.T) {
	for _, tc := range []struct {
		loss, kl string
		weight   func(length float64) float64
		text     string
	}{
		{"trajectory_sum", "token_mean", func(n float64) float64 { return 0.1 / n }, "0.1 / mask tokens of an episode"},
		{"trajectory_sum", "trajectory_mean", func(n float64) float64 { return 0.1 / n },
			"0.1 / mask tokens of an episode"},
		{"trajectory_sum", "trajectory_sum", func(float64) float64 { return 0.1 }, "0.1"},
		{"trajectory_mean", "token_mean", func(float64) float64 { return 0.1 }, "0.1"},
		{"trajectory_mean", "trajectory_sum", func(n float64) float64 { return 0.1 * n },
			"0.1 × mask tokens of an episode"},
		{"constant", "token_mean", func(n float64) float64 { return 0.1 * 16 / n },
			"0.1 × 16 / mask tokens of an episode"},
		{"token_mean", "loss", func(float64) float64 { return 0.1 }, "0.1"},
	} {
		for _, length := range []int{4, 400} {
			o := PaperObjective()
			o.Ratio.Level, o.Loss.Aggregate, o.Loss.Scale, o.KL.Aggregate = "token", tc.loss, 16, tc.kl
			wantKLWeight(t, o, length, tc.weight(float64(length)))
			if got := o.KLWeightText(); got != tc.text {
				t.Errorf("loss %s, kl %s: got %q, want %q", tc.loss, tc.kl, got, tc.text)
			}
		}
	}
}

// The documentation of kl.estimator names the divergence whose gradient each estimator has. Over a vocabulary
// of four tokens the mean gradient in the logits, of samples of the policy, is a sum, and so are both directions'
// gradients.
func TestGradientOfEachEstimatorIsThatOfTheDirectionItsDocumentationNames(t *testing.T) {
	now, ref := table{{0.3, -0.7, 1.1, 0}}, table{{-0.4, 0.9, 0.2, 0.1}}
	p, q := now.logp(0), ref.logp(0)
	_, forward := now.divergence(ref, 0) // D(pi || ref)
	reverse := make([]float64, 4)        // D(ref || pi): p - q
	for v := range reverse {
		reverse[v] = math.Exp(p[v]) - math.Exp(q[v])
	}
	for _, tc := range []struct {
		k    KL
		want []float64
	}{
		{KL{Estimator: "k1"}, make([]float64, 4)},
		{KL{Estimator: "k2"}, forward},
		{KL{Estimator: "k3"}, reverse},
	} {
		for v := range 4 { // d logp(token) / d logit v = [v = token] - p(v)
			got := 0.0
			for token := range 4 {
				_, slope := tc.k.token(p[token] - q[token])
				got += math.Exp(p[token]) * slope * (indicator(v == token) - math.Exp(p[v]))
			}
			if math.Abs(got-tc.want[v]) > 1e-12 {
				t.Errorf("%s, logit %d: got %v, want %v", tc.k.Estimator, v, got, tc.want[v])
			}
		}
	}
}

func TestBatchesOfTheWrongShapeAreRefused(t *testing.T) {
	o := PaperObjective()
	b := &Batch{Length: []int{2}, Advantage: []float64{1}, Logp: []float64{0, 0}, LogpOld: []float64{0, 0}}
	_, err := o.Evaluate(b, o.Totals(b))
	must.Match(t, err, "logp_ref has 0 values")
}
