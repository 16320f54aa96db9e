package objective

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"rcgrpo/stages/rl"
)

// Batch is the input of an objective for B trajectories with N action tokens. The lists of N are ordered by
// trajectory.
type Batch struct {
	Length    []int     // [B] action tokens per trajectory; their sum is N
	Advantage []float64 // [B]
	Skip      []bool    // [B] excluded from every sum and count (masked groups); nil for none
	Turn      []int     // [N] turn of each token; read by level "turn" only

	Logp        []float64 // [N] policy
	LogpOld     []float64 // [N] old policy, a constant
	LogpRef     []float64 // [N] reference policy, a constant; see NeedsReference
	LogpSampled []float64 // [N] sampler, a constant; read with a SamplerCorrection
	KL          []float64 // [N] exact divergence at each token; read by estimator "exact"
	Entropy     []float64 // [N] entropy at each token; read with an entropy coefficient
}

// Rows returns the sequences of trajectories in their order, and for each the index of its trajectory.
func Rows(trajectories []*rl.Trajectory) (rows []*rl.Trajectory, owner []int) {
	for i, t := range trajectories {
		for _, row := range t.Sequences() {
			rows, owner = append(rows, row), append(owner, i)
		}
	}
	return rows, owner
}

// OfRows returns the value of each row's trajectory, or nil.
func OfRows[T any](values []T, owner []int) []T {
	if values == nil {
		return nil
	}
	rows := make([]T, len(owner))
	for i, k := range owner {
		rows[i] = values[k]
	}
	return rows
}

// NewBatch returns the lengths, turns and sampled logprobs of trajectories. Logp and LogpOld are the same list, as
// on-policy.
func NewBatch(trajectories []*rl.Trajectory) *Batch {
	b := &Batch{}
	for _, t := range trajectories {
		before := len(b.Turn)
		for _, m := range t.Messages {
			for k := m.From; k < m.To; k++ {
				if t.Mask[k] {
					b.Turn = append(b.Turn, m.Turn)
					b.Logp = append(b.Logp, float64(t.Logp[k]))
				}
			}
		}
		b.Length = append(b.Length, len(b.Turn)-before)
	}
	b.LogpOld = b.Logp
	return b
}

// Totals are the counts by which a whole batch is divided. Losses and gradients of parts of a batch, evaluated
// under the totals of the whole, add up to those of the batch.
type Totals struct {
	Rows     int // trajectories not skipped
	NonEmpty int // of these with action tokens
	Tokens   int // action tokens
	Units    int // terms of the loss: tokens, turns or trajectories
}

// Outcome is the value and gradient of an objective over a batch or a part of one. Slices have N entries.
type Outcome struct {
	Loss    float64 // Policy + beta KL - coefficient Entropy
	Policy  float64
	KL      float64 // as aggregated, without beta
	Entropy float64 // mean over action tokens

	DLogp    []float64 // d Loss / d logp
	DKL      []float64 // d Loss / d exact divergence; nil without that term
	DEntropy []float64 // d Loss / d entropy; nil without that term

	LogRatio []float64 // of each unit before clamping, in order
	Ratios   int       // ratios formed; a sequence_mean ratio counts once per token
	Clipped  int       // ratios at which the clipped term is strictly smaller
}

// ClipFraction returns the share of ratios at which the clip binds; 0 without ratios.
func (o *Outcome) ClipFraction() float64 { return float64(o.Clipped) / float64(max(1, o.Ratios)) }

// Add appends the outcome of the next part of the same batch.
func (o *Outcome) Add(p *Outcome) {
	o.Loss += p.Loss
	o.Policy += p.Policy
	o.KL += p.KL
	o.Entropy += p.Entropy
	o.DLogp = append(o.DLogp, p.DLogp...)
	o.DKL = append(o.DKL, p.DKL...)
	o.DEntropy = append(o.DEntropy, p.DEntropy...)
	o.LogRatio = append(o.LogRatio, p.LogRatio...)
	o.Ratios += p.Ratios
	o.Clipped += p.Clipped
}

// Totals counts a batch. It reads Length and Skip, and Turn for level "turn".
func (o *Objective) Totals(b *Batch) Totals {
	var t Totals
	from := 0
	for i, n := range b.Length {
		if !b.skips(i) {
			t.Rows++
			t.Tokens += n
			if n > 0 {
				t.NonEmpty++
			}
			t.Units += o.countUnits(b, from, from+n)
		}
		from += n
	}
	return t
}

func (b *Batch) skips(i int) bool { return b.Skip != nil && b.Skip[i] }

// Evaluate computes the loss and its gradient over a batch, under the totals of the batch that it is a part of. A
// batch without action tokens has gradient 0. An error names a slice of the wrong length.
//
// The surrogate of one ratio r with advantage A is -min(r A, clip(r, 1-low, 1+high) A) (paper, section 3.2). Its
// gradient reaches every token of the ratio. With a SamplerCorrection the gradient at each token has the token's
// weight, and the value of a term has the mean weight of its tokens.
func (o *Objective) Evaluate(b *Batch, t Totals) (*Outcome, error) {
	if err := o.checkBatch(b); err != nil {
		return nil, err
	}
	out := &Outcome{DLogp: make([]float64, len(b.Logp))}
	weights, _ := o.Correction.Weights(b.Length, b.LogpOld, b.LogpSampled)
	from := 0
	for i, length := range b.Length {
		to := from + length
		if !b.skips(i) {
			o.addPolicy(b, t, weights, i, from, to, out)
		}
		from = to
	}
	if o.KL.Beta != 0 && o.KL.Place == "loss" {
		o.addKL(b, t, out)
	}
	if o.Entropy != 0 {
		o.addEntropy(b, t, out)
	}
	out.Loss = out.Policy - o.Entropy*out.Entropy
	if o.KL.Place == "loss" {
		out.Loss += o.KL.Beta * out.KL
	}
	return out, nil
}

func (o *Objective) checkBatch(b *Batch) error {
	n := 0
	for _, l := range b.Length {
		n += l
	}
	type part struct {
		name   string
		got    int
		needed bool
	}
	for _, p := range []part{
		{"logp", len(b.Logp), true},
		{"logp_old", len(b.LogpOld), o.Ratio.Denominator != "reference" || !o.Correction.Off()},
		{"logp_sampled", len(b.LogpSampled), !o.Correction.Off()},
		{"logp_ref", len(b.LogpRef), o.Ratio.Denominator == "reference" || o.KL.Beta != 0 && o.KL.Estimator != "exact" &&
			o.KL.Place == "loss"},
		{"kl", len(b.KL), o.KL.Beta != 0 && o.KL.Estimator == "exact"},
		{"entropy", len(b.Entropy), o.Entropy != 0},
		{"turn", len(b.Turn), o.Ratio.Level == "turn"},
	} {
		if p.needed && p.got != n {
			return fmt.Errorf("objective: %s has %d values, want one for each of %d action tokens", p.name, p.got, n)
		}
	}
	if len(b.Advantage) != len(b.Length) {
		return fmt.Errorf("objective: %d advantages for %d trajectories", len(b.Advantage), len(b.Length))
	}
	return nil
}

// addPolicy adds the policy term of the trajectory with the action tokens [from, to). weights is nil without a
// SamplerCorrection.
func (o *Objective) addPolicy(b *Batch, t Totals, weights []float64, row, from, to int, out *Outcome) {
	old := b.LogpOld
	if o.Ratio.Denominator == "reference" {
		old = b.LogpRef
	}
	share := o.Loss.weight(t, o.countUnits(b, from, to))
	// count adds one ratio with the weight of a number of terms and returns d loss / d log ratio.
	count := func(sum ratioSum, terms int) float64 {
		loss, slope, clipped := o.surrogate(b.Advantage[row], sum.log)
		out.Policy += share * float64(terms) * loss * sum.meanWeight()
		out.LogRatio = append(out.LogRatio, sum.log)
		out.Ratios += terms
		if clipped {
			out.Clipped += terms
		}
		return share * float64(terms) * slope
	}
	whole := ratioSum{}
	for k := from; k < to; k++ {
		whole.add(k, b.Logp, old, weights)
	}
	everywhere := 0.0 // slope at every token of the trajectory
	switch n := to - from; o.Ratio.Level {
	case "token":
		for k := from; k < to; k++ {
			single := ratioSum{}
			single.add(k, b.Logp, old, weights)
			out.DLogp[k] += count(single, 1)
		}
	case "turn":
		o.addTurns(b, old, weights, from, to, count, out)
	case "sequence_mean":
		if n > 0 {
			whole.log /= float64(n)
			everywhere = count(whole, n) / float64(n)
		}
	default: // trajectory; without action tokens the ratio is 1
		everywhere = count(whole, 1)
	}
	for k := from; k < to; k++ {
		out.DLogp[k] += everywhere
		if weights != nil {
			out.DLogp[k] *= weights[k]
		}
	}
}

func (o *Objective) addTurns(b *Batch, old, weights []float64, from, to int, count func(ratioSum, int) float64,
	out *Outcome) {
	for _, turn := range turnsOf(b.Turn[from:to]) {
		sum := ratioSum{}
		for k := from; k < to; k++ {
			if b.Turn[k] == turn {
				sum.add(k, b.Logp, old, weights)
			}
		}
		slope := count(sum, 1)
		for k := from; k < to; k++ {
			if b.Turn[k] == turn {
				out.DLogp[k] += slope
			}
		}
	}
}

// ratioSum is the log ratio of some tokens, with their number and the sum of their weights.
type ratioSum struct {
	log, weights float64
	tokens       int
}

func (s *ratioSum) add(k int, logp, old, weights []float64) {
	s.log += logp[k] - old[k]
	s.tokens++
	if weights == nil {
		s.weights++
	} else {
		s.weights += weights[k]
	}
}

// meanWeight is 1 without tokens.
func (s *ratioSum) meanWeight() float64 {
	if s.tokens == 0 {
		return 1
	}
	return s.weights / float64(s.tokens)
}

func turnsOf(turn []int) []int {
	distinct := slices.Clone(turn)
	slices.Sort(distinct)
	return slices.Compact(distinct)
}

func (o *Objective) countUnits(b *Batch, from, to int) int {
	switch o.Ratio.Level {
	case "trajectory":
		return 1
	case "turn":
		return len(turnsOf(b.Turn[from:to]))
	}
	return to - from
}

// weight returns the weight of one term of a trajectory with n terms.
func (l *Loss) weight(t Totals, n int) float64 {
	rows := float64(t.Rows)
	switch l.Rows {
	case "non_empty":
		rows = float64(t.NonEmpty)
	case "one":
		rows = 1
	}
	w := 0.0
	switch l.Aggregate {
	case "token_mean":
		w = 1 / float64(t.Units)
	case "trajectory_mean":
		w = 1 / (float64(n) + l.CountEps) / rows
	case "constant":
		w = 1 / l.Scale / rows
	default: // trajectory_sum
		w = 1 / rows
	}
	if math.IsInf(w, 0) {
		return 0 // the sum has no terms
	}
	return w
}

// surrogate returns the loss of one ratio, its slope d loss / d log ratio, and whether the clipped term is
// strictly smaller.
func (o *Objective) surrogate(advantage, logRatio float64) (loss, slope float64, clipped bool) {
	clamped := logRatio
	if limit := o.Ratio.LogClamp; limit > 0 {
		clamped = min(clamped, limit)
		if !o.Ratio.OnlyAbove {
			clamped = max(clamped, -limit)
		}
	}
	ratio := math.Exp(clamped)
	moves := ratio // d ratio / d log ratio
	if clamped < logRatio || clamped > logRatio {
		moves = 0
	}
	free, freeMoves := ratio, moves
	if o.Clip.Cap > 0 && ratio > o.Clip.Cap {
		free, freeMoves = o.Clip.Cap, 0
	}
	loss, slope = -advantage*free, -advantage*freeMoves
	bound, boundMoves := min(max(ratio, 1-o.Clip.Low), 1+o.Clip.High), moves
	if bound != ratio {
		boundMoves = 0
	}
	if -advantage*bound > loss {
		loss, slope, clipped = -advantage*bound, -advantage*boundMoves, true
	}
	if d := o.Clip.Dual; d > 0 && advantage < 0 && loss > -advantage*d {
		loss, slope = -advantage*d, 0
	}
	return loss, slope, clipped
}

func (o *Objective) addKL(b *Batch, t Totals, out *Outcome) {
	exact := o.KL.Estimator == "exact"
	if exact {
		out.DKL = make([]float64, len(b.KL))
	}
	from := 0
	for i, n := range b.Length {
		to := from + n
		if !b.skips(i) {
			w := o.klWeight(b, t, from, to)
			for k := from; k < to; k++ {
				if exact {
					out.KL += w * b.KL[k]
					out.DKL[k] = o.KL.Beta * w
					continue
				}
				toOld := 0.0
				if len(b.LogpOld) > 0 {
					toOld = b.Logp[k] - b.LogpOld[k]
				}
				value, slope := o.KL.token(b.Logp[k]-b.LogpRef[k], toOld)
				out.KL += w * value
				out.DLogp[k] += o.KL.Beta * w * slope
			}
		}
		from = to
	}
}

// klWeight returns the weight of the divergence at each token [from, to) of a trajectory.
func (o *Objective) klWeight(b *Batch, t Totals, from, to int) float64 {
	w := 0.0
	switch o.KL.Aggregate {
	case "trajectory_sum":
		w = 1 / float64(t.Rows)
	case "trajectory_mean":
		w = 1 / float64(to-from) / float64(t.Rows)
	case "token_mean":
		w = 1 / float64(t.Tokens)
	default: // loss: the weight of the slope of a ratio at each token
		return o.Loss.weight(t, o.countUnits(b, from, to))
	}
	if math.IsInf(w, 0) {
		return 0
	}
	return w
}

// KLWeight returns the effective weight of the KL term relative to the policy term: beta times the sum over
// action tokens of their weights in the KL term, divided by that sum for the policy term at ratio 1 and advantage
// 1. It is beta with kl.aggregate = "loss". It falls with the length of episodes if the policy term sums over a
// trajectory and the KL term averages. It is 0 without action tokens or without a KL term in the loss.
func (o *Objective) KLWeight(b *Batch, t Totals) float64 {
	if o.KL.Place != "loss" {
		return 0
	}
	kl, policy, from := 0.0, 0.0, 0
	for i, n := range b.Length {
		if !b.skips(i) {
			kl += float64(n) * o.klWeight(b, t, from, from+n)
			policy += float64(n) * o.Loss.weight(t, o.countUnits(b, from, from+n))
		}
		from += n
	}
	if policy == 0 {
		return 0
	}
	return o.KL.Beta * kl / policy
}

// KLWeightText is KLWeight as a formula, for batches that are not known yet.
func (o *Objective) KLWeightText() string {
	text := fmt.Sprint(o.KL.Beta)
	switch {
	case o.KL.Beta == 0:
		return "0"
	case o.KL.Place == "reward":
		return text + " of the reward per nat of an episode"
	case o.KL.Aggregate == "loss":
		return text
	}
	const tokens = "action tokens of an episode"
	over, under := "", "" // the weight of a token in the policy's term is over / under, as a share of a trajectory's
	switch {
	case o.Loss.Aggregate == "constant":
		over = fmt.Sprint(o.Loss.Scale)
	case o.Loss.Aggregate == "trajectory_sum" || o.Ratio.Level == "trajectory":
	case o.Ratio.Level == "turn":
		over = "turns of an episode"
	default:
		over = tokens
	}
	if o.KL.Aggregate != "trajectory_sum" {
		under = tokens
	}
	if over == under {
		over, under = "", ""
	}
	if o.Loss.Rows == "one" && o.Loss.Aggregate != "token_mean" {
		under = strings.TrimPrefix(under+" / episodes", " / ")
	}
	if over != "" {
		text += " × " + over
	}
	if under != "" {
		text += " / " + under
	}
	return text
}

// addEntropy adds the entropy bonus: the mean over action tokens.
func (o *Objective) addEntropy(b *Batch, t Totals, out *Outcome) {
	out.DEntropy = make([]float64, len(b.Entropy))
	from := 0
	for i, n := range b.Length {
		for k := from; k < from+n && !b.skips(i); k++ {
			out.Entropy += b.Entropy[k] / float64(t.Tokens)
			out.DEntropy[k] = -o.Entropy / float64(t.Tokens)
		}
		from += n
	}
}

// token is the estimate at one sampled token and its slope d estimate / d logp, given d = logp - logp_ref and the
// log ratio to the old policy.
func (k *KL) token(d, toOld float64) (value, slope float64) {
	clamped, inside := d, true
	if k.LogClamp > 0 && k.Estimator == "k3" {
		clamped = min(max(d, -k.LogClamp), k.LogClamp)
		inside = clamped == d
	}
	switch k.Estimator {
	case "k1":
		value, slope = d, 1
	case "abs":
		value, slope = math.Abs(d), sign(d)
	case "k2":
		value, slope = d*d/2, d
	default: // k3 (Schulman 2020): unbiased, never negative
		value = math.Exp(-clamped) - 1 + clamped
		if inside {
			slope = 1 - math.Exp(-clamped)
		}
	}
	if k.ValueClamp > 0 {
		if value > k.ValueClamp {
			value, slope = k.ValueClamp, 0
		} else if value < -k.ValueClamp {
			value, slope = -k.ValueClamp, 0
		}
	}
	switch k.Gradient {
	case "k2":
		slope = d
	case "importance":
		slope = min(math.Exp(toOld), 10) * d
	}
	if k.Weighted {
		ratio := math.Exp(toOld)
		value, slope = value*ratio, (slope+value)*ratio
	}
	return value, slope
}

func sign(x float64) float64 {
	switch {
	case x > 0:
		return 1
	case x < 0:
		return -1
	}
	return 0
}

// Penalty is what KL.Place "reward" subtracts from the reward of each trajectory [B] before advantages: beta
// times the sum of the estimates at its action tokens, under the policy that sampled them. It is nil with the
// term in the loss.
func (o *Objective) Penalty(length []int, logpOld, logpRef []float64) []float64 {
	if o.KL.Place != "reward" || o.KL.Beta == 0 {
		return nil
	}
	out := make([]float64, len(length))
	from := 0
	for i, n := range length {
		for k := from; k < from+n; k++ {
			value, _ := o.KL.token(logpOld[k]-logpRef[k], 0)
			out[i] += o.KL.Beta * value
		}
		from += n
	}
	return out
}
